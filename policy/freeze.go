package policy

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Target names one command of one version of a Connector.
type Target struct {
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
}

// Surface is the public surface of one command under one rule: fixed arguments,
// parameters with all schemas that bind them, limits, and the contract hash. It is
// immutable and safe for concurrent use.
type Surface struct{ target Target }

// ParseSurface reads what Marshal wrote, strictly and bounded (1 MiB).
func ParseSurface(data []byte) (*Surface, error) { return nil, errors.New("not implemented") }

// Marshal returns the surface as canonical JSON (RFC 8785).
func (s *Surface) Marshal() []byte { return nil }

// Target returns the command that the surface is of.
func (s *Surface) Target() Target { return s.target }

// Rule returns the name of the rule that the surface comes from.
func (s *Surface) Rule() string { return "" }

// ContractHash returns that of the contract which the surface was made from.
func (s *Surface) ContractHash() string { return "" }

// Command returns the narrowed command. The caller must not change it.
func (s *Surface) Command() argv.Command { return argv.Command{} }

// Limits returns those of one operation.
func (s *Surface) Limits() Limits { return Limits{} }

// Accepts parses arguments by the surface's grammar and bounds. The error is an
// *argv.Error.
func (s *Surface) Accepts(args []string) (argv.Call, error) {
	return argv.Call{}, errors.New("not implemented")
}

// InputSchema returns the JSON Schema of the command's input for agents, narrowed
// by a lease's pins.
func (s *Surface) InputSchema(pins map[name.Parameter][]string) (json.RawMessage, error) {
	return nil, errors.New("not implemented")
}

// Freeze returns the surfaces that the policy has for a holder now, for those of
// the targets that it allows and that resolve, sorted. The gateway stores them at
// the first use of an invocation; the catalogue shows them.
func (p *Policy) Freeze(issuer, peer name.PeerID, now time.Time, targets []Target, source Contracts) []*Surface {
	return nil
}

// DecideFrozen answers a request from frozen surfaces alone.
func DecideFrozen(frozen []*Surface, r Request) Decision { return Decision{} }

// DecideWithin allows what both the frozen surfaces and the policy allow: some
// frozen and some current surface must accept the request with the same canonical
// call, connection, workspace and contract hash. The limits are the lower of both.
func (p *Policy) DecideWithin(frozen []*Surface, r Request, source Contracts) Decision {
	return Decision{}
}
