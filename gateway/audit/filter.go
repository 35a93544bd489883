package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Filter chooses records. Its zero value chooses all; each field that is set must
// match.
type Filter struct {
	Since, Until time.Time // Since <= At < Until
	// Peer is a name of the policy or a peer ID.
	Peer      string
	Connector string
	Command   string
	// Operation is an operation's ID, or its beginning.
	Operation string
	// Code is that of an end or a refusal.
	Code  string
	Kinds []Kind
}

// ParseKind reads the name of a kind.
func ParseKind(s string) (Kind, error) {
	if !slices.Contains(kinds(), Kind(s)) {
		return "", fmt.Errorf("there is no kind %s", name.Quote(s))
	}
	return Kind(s), nil
}

// ParseTime reads a time as RFC 3339 has it, a day, or how long ago it is ("90m",
// "36h").
func ParseTime(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is not a time such as 2026-11-30T12:00:00Z, 2026-11-30 or 36h", name.Quote(s))
}

func (f *Filter) match(r *Record) bool {
	return (f.Since.IsZero() || !r.At.Before(f.Since)) &&
		(f.Until.IsZero() || r.At.Before(f.Until)) &&
		(f.Peer == "" || f.Peer == r.Peer || f.Peer == r.PeerName) &&
		(f.Connector == "" || f.Connector == r.Connector) &&
		(f.Command == "" || f.Command == r.Command) &&
		(f.Operation == "" || strings.HasPrefix(r.Operation, f.Operation)) &&
		(f.Code == "" || f.Code == r.Code) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, r.Kind))
}
