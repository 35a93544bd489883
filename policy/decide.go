package policy

import (
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Request is what a verified lease and a Start frame ask for. The zero value is
// denied.
type Request struct {
	Issuer    name.PeerID // the root issuer of the lease
	Peer      name.PeerID // its holder, which is the peer of the connection
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
	Arguments []string // as the peer said them
	// Pins are those of the lease's grant: each named parameter must be given and
	// take only the listed values. An empty list accepts nothing.
	Pins  map[name.Parameter][]string
	Stdin bool // the caller has input
	Now   time.Time
}

// Contracts answers with the contract of the current route of a Connector. A zero
// connection means the only one. The second result is the contract hash; an error
// denies.
type Contracts interface {
	Contract(key name.ConnectorKey, version name.Version, connection name.ConnectionID) (argv.Contract, string, error)
}

// Decision is the answer to one Request. The zero value denies.
type Decision struct {
	Allowed bool
	// Reason says why not; meaningless if Allowed.
	Reason Reason
	// Err is the cause of ReasonArgument (an *argv.Error where the grammar refused),
	// ReasonStdin, ReasonRoute and ReasonInternal. It is for logs and, where precise
	// answers are due, for the peer; it quotes values with name.Quote.
	Err error
	// Rule is the deciding rule: of several that pass, the one whose name is least
	// in byte order.
	Rule RuleRef
	// Connection is the rule's, zero for "the only one"; Workspace its workspace,
	// zero for none.
	Connection name.ConnectionID
	Workspace  name.Label
	// Surface is the public surface that accepted the arguments.
	Surface *Surface
	// Call is what may be started.
	Call   argv.Call
	Limits Limits
}

// RuleRef names a rule of the file.
type RuleRef struct {
	Name     string
	Position Position
}

// Reason says why a Decision denies: the furthest step that a rule got to.
type Reason uint8

// The reasons. ReasonInternal, the zero value, is a fault or a panic.
const (
	ReasonInternal  Reason = iota
	ReasonIssuer           // the issuer is not trusted, or not (any longer) for this
	ReasonHolder           // the issuer may not name this holder
	ReasonRule             // no rule is about this peer, or the frozen grant differs
	ReasonConnector        // no rule for the peer has this Connector
	ReasonVersion          // none with this version
	ReasonCommand          // none with this command, or no contract declares it
	ReasonRoute            // the Connector has no current route
	ReasonArgument         // the arguments were refused
	ReasonStdin            // input was given to a command without, or is missing
)

// String returns the name of the public code that fits the reason
// ("ARGUMENT_REJECTED"), as `code:` of a test in the file has it.
func (r Reason) String() string { return "INTERNAL" }

// Decide answers a request under this policy. It never panics and never blocks.
func (p *Policy) Decide(r Request, source Contracts) Decision { return Decision{} }
