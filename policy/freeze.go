package policy

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// surfaceKey finds a surface again: the same rule, version, command and contract
// make the same surface.
type surfaceKey struct {
	rule    *rule
	version name.Version
	command name.Command
	hash    string
}

const maxCached = 4096

// surface returns the surface of one grant, from the cache if it was made before.
func (p *Policy) surface(r *rule, g *grant, v name.Version, source Contracts) (*Surface, Reason, error) {
	contract, hash, err := source.Contract(r.connector, v, r.connection)
	if err != nil {
		return nil, ReasonRoute, err
	}
	key := surfaceKey{r, v, g.name, hash}
	p.mu.Lock()
	s := p.cache[key]
	p.mu.Unlock()
	if s != nil && hash != "" {
		return s, 0, nil
	}
	s, err = p.makeSurface(r, g, v, contract, hash)
	if err != nil {
		return nil, ReasonCommand, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cache) >= maxCached {
		clear(p.cache)
	}
	p.cache[key] = s
	return s, 0, nil
}

func (p *Policy) makeSurface(r *rule, g *grant, v name.Version, contract argv.Contract, hash string) (*Surface, error) {
	c, err := p.narrowed(r, g, contract)
	if err != nil {
		return nil, err
	}
	grammar, err := c.Compile(contract)
	if err != nil {
		return nil, err
	}
	return &Surface{
		command: c,
		grammar: grammar,
		form: surfaceForm{
			Surface: 1, Rule: r.name, Connector: r.connector, Version: v, Connection: r.connection, Workspace: r.workspace,
			ContractHash: hash, CLI: contract.Command, Prefix: contract.Arguments, Environment: contract.Environment,
			Command: formOfCommand(c), Limits: formOfLimits(p.operation(contract, c, r.limits)),
		},
	}, nil
}

// narrowed returns the command that a grant names, as narrow as the rule has it.
func (p *Policy) narrowed(r *rule, g *grant, contract argv.Contract) (argv.Command, error) {
	c, err := p.base(r.connector, g.name, contract)
	if err != nil {
		return argv.Command{}, err
	}
	by := map[name.Parameter]argv.Narrowing{}
	for parameter, n := range g.narrow {
		if by[parameter], err = n.of(c, parameter); err != nil {
			return argv.Command{}, err
		}
	}
	return c.Narrow(by)
}

// base returns a command as the manifest, or else the file, declares it.
func (p *Policy) base(key name.ConnectorKey, n name.Command, contract argv.Contract) (argv.Command, error) {
	declared := p.declared[key]
	if len(contract.Commands) > 0 {
		if len(declared) > 0 {
			return argv.Command{}, errTwice
		}
		if c, ok := contract.Lookup(n); ok {
			return c, nil
		}
		return argv.Command{}, errUndefined
	}
	if d := declared[n]; d != nil {
		return d.command, nil
	}
	return argv.Command{}, errUndefined
}

// of makes the narrowing of a parameter of c.
func (n narrowing) of(c argv.Command, parameter name.Parameter) (argv.Narrowing, error) {
	if n.forbidden {
		return argv.Narrowing{Forbidden: true}, nil
	}
	for _, p := range c.Parameters {
		if p.Name == parameter {
			return n.declaration.Narrowing(p)
		}
	}
	return argv.Narrowing{}, &argv.DeclarationError{Path: "parameters." + parameter.String(), Msg: "the command has no such parameter"}
}

// Freeze returns the surfaces that the policy has for a holder now, for those of
// the targets that it allows and that resolve, each once, sorted. The gateway
// stores them at the first use of an invocation; the catalogue shows them.
func (p *Policy) Freeze(issuer, peer name.PeerID, now time.Time, targets []Target, source Contracts) (out []*Surface) {
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	seen := map[Target]bool{}
	for _, t := range targets {
		r := Request{Issuer: issuer, Peer: peer, Connector: t.Connector, Version: t.Version, Command: t.Command, Now: now}
		if p == nil || source == nil || seen[t] || p.refuseLease(r, nil) != ReasonInternal {
			continue
		}
		seen[t] = true
		for _, rule := range p.rules {
			g, reason := rule.covers(r)
			if reason != ReasonInternal {
				continue
			}
			if s, _, err := p.surface(rule, g, t.Version, source); err == nil {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, compareSurfaces)
	return out
}

func compareSurfaces(a, b *Surface) int {
	return cmp.Or(
		cmp.Compare(a.form.Connector.String(), b.form.Connector.String()),
		cmp.Compare(a.form.Version.String(), b.form.Version.String()),
		cmp.Compare(a.form.Command.Name.String(), b.form.Command.Name.String()),
		cmp.Compare(a.form.Rule, b.form.Rule),
	)
}

// DecideFrozen answers a request from frozen surfaces alone. Issuer, Peer and Now
// are not looked at: the surfaces are those of one issuer, invocation and holder.
func DecideFrozen(frozen []*Surface, r Request) Decision {
	return guarded(func() Decision { return first(frozenDecisions(frozen, r)) })
}

func frozenDecisions(frozen []*Surface, r Request) ([]Decision, Decision) {
	var allowed []Decision
	denied := Decision{Reason: ReasonConnector}
	for _, s := range slices.SortedStableFunc(slices.Values(frozen), compareSurfaces) {
		d := Decision{Reason: s.refuse(r)}
		if d.Reason == ReasonInternal {
			d = s.decide(r)
		}
		if d.Allowed {
			allowed = append(allowed, d)
		} else if d.Reason > denied.Reason {
			denied = d
		}
	}
	return allowed, denied
}

// refuse compares the target; ReasonInternal means that it is this one.
func (s *Surface) refuse(r Request) Reason {
	switch t := s.Target(); {
	case t.Connector != r.Connector:
		return ReasonConnector
	case t.Version != r.Version:
		return ReasonVersion
	case t.Command != r.Command:
		return ReasonCommand
	}
	return ReasonInternal
}

// DecideWithin allows what both the frozen surfaces and the policy allow: some
// frozen and some current surface must accept the request with the same canonical
// call, connection, workspace and contract hash. The limits are the lower of both.
// Where both allow and none agree, the reason is ReasonFrozen.
func (p *Policy) DecideWithin(frozen []*Surface, r Request, source Contracts) Decision {
	return guarded(func() Decision { return p.decideWithin(frozen, r, source, nil) })
}

func (p *Policy) decideWithin(frozen []*Surface, r Request, source Contracts, t *trace) Decision {
	current, denied := p.decisions(r, source, t)
	if len(current) == 0 {
		return first(nil, denied)
	}
	kept, denied := frozenDecisions(frozen, r)
	if len(kept) == 0 {
		t.add("frozen grant", false, "the invocation began with another grant: "+denied.Reason.String())
		return first(nil, denied)
	}
	for _, now := range current {
		for _, then := range kept {
			if same(now, then) {
				now.Limits = now.Limits.both(then.Limits)
				if now.Call.Stdin != nil {
					now.Call.Stdin.MaxBytes = now.Limits.Stdin
				}
				t.add("frozen grant", true, "the invocation began with the same")
				return now
			}
		}
	}
	t.add("frozen grant", false, "the invocation began with another meaning of the command")
	return Decision{Reason: ReasonFrozen, Rule: current[0].Rule}
}

// same tells whether two decisions would start the same thing.
func same(a, b Decision) bool {
	return a.Surface.form.ContractHash == b.Surface.form.ContractHash &&
		a.Connection == b.Connection && a.Workspace == b.Workspace &&
		slices.Equal(a.Call.Arguments, b.Call.Arguments) &&
		slices.Equal(a.Call.Environment, b.Call.Environment) &&
		slices.Equal(a.Call.Paths, b.Call.Paths) &&
		(a.Call.Stdin == nil) == (b.Call.Stdin == nil) &&
		(a.Call.Stdin == nil || a.Call.Stdin.Text == b.Call.Stdin.Text) &&
		reflect.DeepEqual(a.Call.Values, b.Call.Values)
}
