package lease

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/lendcli/lend/lease/envelope"
	"github.com/lendcli/lend/protocol/name"
)

// Delegate lets another peer use a part of a chain: it returns the chain with one
// more link, signed with the key of its last holder. Of l count Holder, Grants, the
// times, the numbers, DepthLeft and Purpose; the rest is the chain's, and the ID is
// a new one if it is zero. What the chain itself does not give is refused, although
// it would give nothing: an *Error with the reason that a gateway would have, or
// ReasonField. The caller's chain is not changed.
func Delegate(chain [][]byte, l Lease, key crypto.PrivKey) ([][]byte, error) {
	next, err := delegate(chain, l, key)
	if err != nil {
		return nil, fmt.Errorf("delegate lease: %w", err)
	}
	return next, nil
}

func delegate(chain [][]byte, l Lease, key crypto.PrivKey) ([][]byte, error) {
	links, err := openLinks(chain)
	if err != nil {
		return nil, err
	}
	given := together(links)
	if err := mayPassOn(&given, len(links), key); err != nil {
		return nil, err
	}
	if l.ID.IsZero() {
		l.ID = NewID()
	}
	l.Issuer, l.Gateway, l.Invocation = given.Holder, given.Gateway, given.Invocation
	l.Authority, l.Critical, l.Parent = given.Authority, nil, envelopeHash(chain[len(chain)-1])
	l = l.sorted()
	if err := given.covers(&l); err != nil {
		return nil, err
	}
	sealed, err := Seal(l, key)
	if err != nil {
		return nil, err
	}
	next := append(slices.Clone(chain), sealed)
	if _, err := openLinks(next); err != nil {
		return nil, err
	}
	return next, nil
}

// mayPassOn looks at who passes a chain on, before anything is signed.
func mayPassOn(given *Lease, links int, key crypto.PrivKey) error {
	if key == nil || key.Type() != crypto.Ed25519 {
		return refuse(ReasonKeyType, "")
	}
	if !envelope.Owns(given.Holder, key.GetPublic()) {
		return refuse(ReasonHolder, quotedPeer(given.Holder))
	}
	if links >= MaxChain || given.DepthLeft == 0 {
		return refuse(ReasonFinal, "")
	}
	return nil
}

// covers refuses a part that is wider than the whole.
func (l *Lease) covers(part *Lease) error {
	switch {
	case part.NotAfter.After(l.NotAfter):
		return badField("not_after_ms", "the lease itself ends "+l.NotAfter.Format(time.RFC3339))
	case part.MaxOperations > l.MaxOperations:
		return badField("max_operations", fmt.Sprintf("the lease itself allows %d", l.MaxOperations))
	case part.MaxConcurrent > l.MaxConcurrent:
		return badField("max_concurrent", fmt.Sprintf("the lease itself allows %d", l.MaxConcurrent))
	case part.DepthLeft >= l.DepthLeft:
		return badField("depth_left", fmt.Sprintf("the lease itself leaves %d, so %d at most", l.DepthLeft, l.DepthLeft-1))
	}
	for i := range part.Grants {
		g := &part.Grants[i]
		for _, c := range g.Commands {
			whole, err := l.Grant(g.Connector, g.Version, c)
			var e *Error
			if errors.As(err, &e) {
				e.Detail = strings.Join([]string{g.Connector.String(), g.Version.String(), name.Quote(c.String())}, " ")
				return e
			}
			if rule := whole.covers(g); rule != "" {
				return badField(fmt.Sprintf("grants[%d]", i), c.String()+": "+rule)
			}
		}
	}
	return nil
}

func (g *Grant) covers(part *Grant) (rule string) {
	if part.Finish && !g.Finish {
		return "the lease itself does not let it finish after the expiry"
	}
	for _, p := range slices.SortedFunc(maps.Keys(part.Pins), compareParameters) {
		allowed, pinned := g.Pins[p]
		for _, v := range part.Pins[p] {
			if pinned && !slices.Contains(allowed, v) {
				return fmt.Sprintf("the lease itself allows for %s only %s", p, quotedOr(allowed))
			}
		}
	}
	return ""
}

// quotedOr lists values for people.
func quotedOr(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = name.Quote(v)
	}
	return strings.Join(out, " or ")
}
