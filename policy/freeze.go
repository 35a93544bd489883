package policy

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/name"
)

// surfaceKey finds a surface again: the same rule, version, command and contract
// make the same surface.
type surfaceKey struct {
	rule    *file.Rule
	version name.Version
	command name.Command
	hash    string
}

const maxCached = 4096

// surface returns the surface of one grant, from the cache if it was made before.
func (p *Policy) surface(r *file.Rule, g *file.Grant, v name.Version, source Contracts) (*Surface, Reason, error) {
	contract, hash, err := source.Contract(r.Connector, v, r.Connection)
	if err != nil {
		return nil, ReasonRoute, err
	}
	key := surfaceKey{r, v, g.Name, hash}
	p.mu.Lock()
	s := p.cache[key]
	p.mu.Unlock()
	if s != nil && hash != "" {
		return s, 0, nil
	}
	s, err = surface.Make(p.file, r, g, v, contract, hash)
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
		for _, rule := range p.file.Rules {
			g, reason := covers(rule, r)
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
		cmp.Compare(a.Target().Connector.String(), b.Target().Connector.String()),
		cmp.Compare(a.Target().Version.String(), b.Target().Version.String()),
		cmp.Compare(a.Target().Command.String(), b.Target().Command.String()),
		cmp.Compare(a.Rule(), b.Rule()),
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
		d := Decision{Reason: refuse(s, r)}
		if d.Reason == ReasonInternal {
			d = decideBy(s, r)
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
func refuse(s *Surface, r Request) Reason {
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
				now.Limits = now.Limits.Both(then.Limits)
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
	return a.Surface.ContractHash() == b.Surface.ContractHash() &&
		a.Connection == b.Connection && a.Workspace == b.Workspace && a.Surface.Place() == b.Surface.Place() &&
		slices.Equal(a.Call.Arguments, b.Call.Arguments) &&
		slices.Equal(a.Call.Environment, b.Call.Environment) &&
		slices.Equal(a.Call.Paths, b.Call.Paths) &&
		(a.Call.Stdin == nil) == (b.Call.Stdin == nil) &&
		(a.Call.Stdin == nil || a.Call.Stdin.Text == b.Call.Stdin.Text) &&
		reflect.DeepEqual(a.Call.Values, b.Call.Values)
}
