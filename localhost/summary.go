package localhost

import (
	"errors"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a summary, in bytes and in names. Manifests are bounded likewise; what is
// longer all the same is cut off nowhere, but fails.
const (
	MaxSummaryName        = 256
	MaxSummaryDescription = 16 << 10
	MaxSummaryCommands    = 256
)

// Reason says why a summary is not ready.
type Reason string

// The reasons of a summary.
const (
	ReasonDisabled Reason = "disabled"       // the owner disabled the connection, or the Connector
	ReasonSecrets  Reason = "secrets_locked" // the key source of its secrets is not there
	ReasonUnusable Reason = "unusable"       // its connection cannot be used otherwise
	ReasonFailed   Reason = "failed"         // the release could not be made ready
)

// Summary is the bounded discovery summary of one release and connection. It belongs
// to exactly the route that was committed: readers need not, and must not, look for a
// current one by the Connector's key. It holds no path and nothing of a secret, and is
// made whether there is a route or not. Holders must not change what it refers to.
type Summary struct {
	// Identity has a generation exactly if a route is current under it.
	Identity    route.Identity
	DisplayName string
	Description string
	Command     string // the CLI's public name
	Commands    []name.Command
	Ready       bool
	Reason      Reason // empty exactly if Ready
}

// ErrSummary refuses a summary that is out of bounds or contradicts itself.
var ErrSummary = errors.New("summary is out of bounds")

// Check tells whether the summary is within bounds and consistent; ErrSummary.
func (s Summary) Check() error {
	routed := s.Identity.Generation.Number != 0 && s.Identity.Generation.Epoch != ""
	switch {
	case len(s.DisplayName) > MaxSummaryName, len(s.Command) > MaxSummaryName,
		len(s.Description) > MaxSummaryDescription, len(s.Commands) > MaxSummaryCommands,
		s.Ready != (s.Reason == ""), s.Ready && !routed,
		s.Identity.Connector.IsZero(), s.Identity.Version.IsZero(), s.Identity.Connection.IsZero():
		return ErrSummary
	}
	return nil
}

// summarize makes the summary of what a receipt is about.
func summarize(r install.Release, done Receipt) *Summary {
	s := Summary{
		Identity: done.Identity, DisplayName: r.Manifest.DisplayName, Description: r.Manifest.Description, Command: r.Contract.Command,
		Reason: reason(done),
	}
	s.Ready = s.Reason == ""
	for _, c := range r.Contract.Commands {
		s.Commands = append(s.Commands, c.Name)
	}
	slices.SortFunc(s.Commands, func(a, b name.Command) int { return strings.Compare(a.String(), b.String()) })
	if s.Check() != nil {
		return nil // a manifest that was within bounds makes none such
	}
	return &s
}

func reason(done Receipt) Reason {
	switch {
	case done.State == StateDisabled, errors.Is(done.Blocked, connection.ErrDisabled):
		return ReasonDisabled
	case done.State == StateFailed:
		return ReasonFailed
	case errors.Is(done.Blocked, sealed.ErrLocked), errors.Is(done.Blocked, sealed.ErrNoSource), errors.Is(done.Blocked, connection.ErrPlain):
		return ReasonSecrets
	case done.Blocked != nil:
		return ReasonUnusable
	}
	return ""
}
