package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lendcli/lend/policy/file"
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
	// take only the listed values, in canonical spelling. An empty list accepts
	// nothing.
	Pins  map[name.Parameter][]string
	Stdin bool // the caller has input
	Now   time.Time
}

// Contracts answers with the contract of the current route of a Connector. A zero
// connection means the only one. The second result is the contract hash, not
// empty; an error denies. It may be called by several goroutines.
type Contracts interface {
	Contract(key name.ConnectorKey, version name.Version, connection name.ConnectionID) (argv.Contract, string, error)
}

// Decision is the answer to one Request. The zero value denies.
type Decision struct {
	Allowed bool
	// Reason says why not; meaningless if Allowed.
	Reason Reason
	// Err is the cause of a denial where there is more to say: an *argv.Error with
	// ReasonArgument and ReasonStdin, that of Contracts with ReasonRoute. It never
	// holds a value of the caller's.
	Err error
	// Rule is the deciding rule: of several that pass, the one whose name is least
	// in byte order. Of a denial it is the rule that got furthest, if any did.
	Rule RuleRef
	// Connection is the rule's, zero for "the only one"; Workspace its workspace,
	// zero for none.
	Connection name.ConnectionID
	Workspace  name.Label
	// Surface is the public surface that accepted the arguments.
	Surface *Surface
	// RecordArguments is the rule's wish that the arguments are recorded.
	RecordArguments bool
	// Call is what may be started. Its Stdin, if any, is bounded by Limits.
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

// The reasons, in the order of the steps. ReasonInternal, the zero value, is a
// fault or a panic.
const (
	ReasonInternal  Reason = iota
	ReasonIssuer           // the issuer is not trusted, or not (any longer) for this
	ReasonHolder           // the issuer may not name this holder
	ReasonRule             // no rule is about this peer under this issuer
	ReasonConnector        // no rule for the peer has this Connector
	ReasonVersion          // none with this version
	ReasonCommand          // none with this command, or no contract declares it so
	ReasonRoute            // the Connector has no current route
	ReasonArgument         // the arguments were refused
	ReasonStdin            // input was given to a command without, or is missing
	ReasonFrozen           // what the invocation's frozen grant allows differs from it
)

// reasons has a word and the public code of each reason.
//
//nolint:gochecknoglobals // table
var reasons = [...]struct{ word, code string }{
	ReasonInternal:  {"internal", "INTERNAL"},
	ReasonIssuer:    {"issuer-not-trusted", "DENIED"},
	ReasonHolder:    {"holder-not-allowed", "DENIED"},
	ReasonRule:      {"no-rule", "POLICY_DENIED"},
	ReasonConnector: {"connector-not-allowed", "CONNECTOR_UNKNOWN"},
	ReasonVersion:   {"version-not-allowed", "VERSION_UNKNOWN"},
	ReasonCommand:   {"command-not-allowed", "COMMAND_UNKNOWN"},
	ReasonRoute:     {"no-route", "ROUTE_UNAVAILABLE"},
	ReasonArgument:  {"argument-refused", "ARGUMENT_REJECTED"},
	ReasonStdin:     {"input-refused", "INPUT_REJECTED"},
	ReasonFrozen:    {"differs-from-frozen", "POLICY_DENIED"},
}

// String returns a word for logs and the audit, one for each reason.
func (r Reason) String() string { return r.entry().word }

// Code returns the name of the public code that fits the reason
// ("ARGUMENT_REJECTED"), as `code:` of a test in the file has it. A gateway may
// answer with a more exact one of its own.
func (r Reason) Code() string { return r.entry().code }

func (r Reason) entry() struct{ word, code string } {
	if int(r) >= len(reasons) {
		return reasons[ReasonInternal]
	}
	return reasons[r]
}

// Decide answers a request under this policy. It never panics and never blocks but
// for the source; every error denies.
func (p *Policy) Decide(r Request, source Contracts) Decision {
	return guarded(func() Decision { return first(p.decisions(r, source, nil)) })
}

// guarded turns a panic into a denial.
func guarded(decide func() Decision) (d Decision) {
	defer func() {
		if v := recover(); v != nil {
			d = Decision{Err: fmt.Errorf("decide: %w", errPanic)}
		}
	}()
	return decide()
}

var (
	errPanic    = errors.New("a panic")
	errNoSource = errors.New("no contracts to decide by")
)

// first returns the deciding one of the decisions that allow, else the denial.
func first(allowed []Decision, denied Decision) Decision {
	if len(allowed) > 0 {
		return allowed[0]
	}
	denied.Allowed = false
	return denied
}

// decisions returns one Decision for each rule that passes, by the names of the
// rules, and a denial that got as far as any rule did.
func (p *Policy) decisions(r Request, source Contracts, t *trace) ([]Decision, Decision) {
	if p == nil || source == nil {
		return nil, Decision{Err: errNoSource}
	}
	if reason := p.refuseLease(r, t); reason != ReasonInternal {
		return nil, Decision{Reason: reason}
	}
	var allowed []Decision
	denied := Decision{Reason: ReasonRule}
	for _, rule := range p.file.Rules {
		d := p.decideRule(rule, r, source)
		t.rule(rule, d)
		switch {
		case d.Allowed:
			allowed = append(allowed, d)
		case d.Reason > denied.Reason, d.Reason == denied.Reason && denied.Rule.Name == "":
			denied = d
		}
	}
	return allowed, denied
}

// refuseLease checks issuer and holder; ReasonInternal means that nothing is wrong.
func (p *Policy) refuseLease(r Request, t *trace) Reason {
	i := p.issuer(r.Issuer)
	switch {
	case i == nil:
		t.add("issuer", false, "the policy does not name the issuer "+r.Issuer.String())
		return ReasonIssuer
	case !i.Trusted(r.Now):
		t.add("issuer", false, fmt.Sprintf("%s is trusted only until %s", i.Name, i.Until.Format(time.RFC3339)))
		return ReasonIssuer
	case !i.MayGrant(r.Connector):
		t.add("issuer", false, fmt.Sprintf("%s may not grant %s", i.Name, r.Connector))
		return ReasonIssuer
	}
	t.add("issuer", true, i.Name.String())
	if !i.MayName(r.Peer) {
		t.add("holder", false, fmt.Sprintf("%s may not name the holder %s", i.Name, p.file.NameOf(r.Peer)))
		return ReasonHolder
	}
	t.add("holder", true, p.file.NameOf(r.Peer))
	return ReasonInternal
}

func (p *Policy) decideRule(rule *file.Rule, r Request, source Contracts) Decision {
	grant, reason := covers(rule, r)
	if reason != ReasonInternal {
		return Decision{Reason: reason}
	}
	ref := RuleRef{rule.Name, rule.Position}
	s, reason, err := p.surface(rule, grant, r.Version, source)
	if err != nil {
		return Decision{Reason: reason, Err: err, Rule: ref}
	}
	d := decideBy(s, r)
	d.Rule, d.RecordArguments = ref, grant.Record != nil
	return d
}

// covers returns the rule's grant for a request, or why there is none.
func covers(rule *file.Rule, r Request) (*file.Grant, Reason) {
	switch {
	case !rule.Under(r.Issuer),
		!rule.Peers[r.Peer] && !rule.HoldersOf[r.Issuer]:
		return nil, ReasonRule
	case rule.Connector != r.Connector || r.Connector.IsZero():
		return nil, ReasonConnector
	case !slices.Contains(rule.Versions, r.Version):
		return nil, ReasonVersion
	}
	for _, g := range rule.Commands {
		if g.Name == r.Command {
			return g, ReasonInternal
		}
	}
	return nil, ReasonCommand
}

// decideBy answers by a surface alone.
func decideBy(s *Surface, r Request) Decision {
	d := Decision{Rule: RuleRef{Name: s.Rule()}, Connection: s.Connection(), Workspace: s.Workspace(), Surface: s, Limits: s.Limits()}
	call, err := s.Accepts(r.Arguments)
	if err == nil {
		err = pinned(call, r.Pins)
	}
	if err != nil {
		return Decision{Reason: ReasonArgument, Err: err}
	}
	if err := refuseStdin(s, r.Stdin); err != nil {
		return Decision{Reason: ReasonStdin, Err: err}
	}
	d.Allowed, d.Call = true, call
	return d
}

// refuseStdin compares what the caller has with what the command reads.
func refuseStdin(s *Surface, has bool) error {
	in := file.StdinOf(s.Command())
	switch {
	case in == nil && has:
		return &argv.Error{Kind: argv.FaultExtra, Index: -1, Rule: "no standard input"}
	case in != nil && in.Required && !has:
		return &argv.Error{Kind: argv.FaultMissing, Parameter: in.Name, Index: -1, Rule: "standard input"}
	}
	return nil
}

// pinned checks a call against a lease's pins. A parameter that is left out is not
// pinned, because the CLI would choose, so it is refused.
func pinned(call argv.Call, pins map[name.Parameter][]string) error {
	said := map[name.Parameter][]string{}
	for _, v := range call.Values {
		said[v.Parameter] = v.Items
	}
	for parameter, values := range pins {
		items := said[parameter]
		if len(items) == 0 {
			return &argv.Error{Kind: argv.FaultMissing, Parameter: parameter, Index: -1, Rule: "the lease pins it"}
		}
		for _, item := range items {
			if !slices.Contains(values, item) {
				return &argv.Error{Kind: argv.FaultValue, Parameter: parameter, Index: -1, Rule: "the lease pins it"}
			}
		}
	}
	return nil
}
