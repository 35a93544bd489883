package lease

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Verifier checks leases for one gateway. Its fields are set before the first
// call and not changed after; it may be used from any goroutine. A zero Verifier
// refuses everything.
type Verifier struct {
	// Gateway is the gateway's own peer ID.
	Gateway name.PeerID
	// Issuers returns the rule of an issuer that the owner's policy lists. It is
	// called for every Verify, so that a policy that changed acts at once; it must
	// not block. nil: no issuer is trusted.
	Issuers func(name.PeerID) (IssuerRule, bool)
	// Revoked is asked for every Verify, about every link. nil: everything is revoked.
	Revoked RevocationChecker
	// Now returns the wall clock. nil: nothing is accepted.
	Now func() time.Time
	// Skew widens not-before, and nothing else: 0 to MaxSkew, DefaultSkew is usual.
	Skew time.Duration
	// CacheSize bounds the verified leases that are remembered; 0 means 1024,
	// less than 0 none.
	CacheSize int

	once  sync.Once
	cache *cache
}

// IssuerRule is what the owner's policy says about an issuer.
type IssuerRule struct {
	// MaxLife bounds NotAfter - IssuedAt; 0 means DefaultCap. HardCap holds always.
	MaxLife time.Duration
	// AnyConnector lifts Connectors, which otherwise lists every Connector that a
	// lease of this issuer may grant; none listed means none.
	AnyConnector bool
	Connectors   []name.ConnectorKey
	// Until ends the trust at this moment; zero means that nothing does.
	Until time.Time
	// MaxDepth is how many links may follow a lease of this issuer: 0, so that it
	// cannot be passed on, to MaxDepth.
	MaxDepth int
	// MayName tells whether a lease of this issuer may name a holder. It is asked for
	// those that pass a lease on; whether the last holder is welcome is for the policy
	// to say when it decides. nil: nobody may pass one on.
	MayName func(name.PeerID) bool
}

// RevocationChecker tells whether something that names s was revoked. It must
// not block. *revocation.Set is one.
type RevocationChecker interface {
	Revoked(s Subject) bool
}

// Subject is what a revocation can name.
type Subject struct {
	Lease      ID
	Invocation name.InvocationID
	Holder     name.PeerID
	Issuer     name.PeerID
	IssuedAt   time.Time
}

// Verified is a lease that a Verifier accepted for the peer that presented it, at
// that moment. It is immutable.
type Verified struct {
	// Lease is what all links say together, for the peer that presented them. Its
	// issuer is Root, its ID that of the last link.
	Lease
	// Root is the issuer that the owner trusts; everything kept about the
	// invocation is keyed by (Root, Invocation, Holder).
	Root name.PeerID
	// Hash is the SHA-256 of the last envelope.
	Hash [32]byte
	// Links are the leases as they were signed, root first; at least one.
	Links []Lease
}

// Verify checks what peer presents, root first. The first check that fails
// decides; the error is an *Error whose Reason names it. It never blocks and is
// safe for concurrent use. spec: LEASE-1 to LEASE-27, LEASE-33.
func (v *Verifier) Verify(chain [][]byte, peer name.PeerID) (*Verified, error) {
	if v.Now == nil || v.Issuers == nil {
		return nil, refuse(ReasonUntrustedIssuer, "nobody is trusted")
	}
	now := v.Now()
	key, cacheable := chainKey(chain, peer)
	l := v.remembered(key, cacheable)
	fresh := l == nil
	if fresh {
		links, err := openChain(chain)
		if err != nil {
			return nil, err
		}
		l = &Verified{Links: links, Root: links[0].Issuer, Hash: envelopeHash(chain[len(links)-1])}
	}
	rule, err := v.trust(l, now)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := v.checkAudience(l.Links, peer); err != nil {
			return nil, err
		}
	}
	if err := rule.checkDepth(l.Links); err != nil {
		return nil, err
	}
	if fresh {
		if err := checkChain(chain, l.Links); err != nil {
			return nil, err
		}
		l.Lease = together(l.Links)
		v.remember(key, l)
	}
	if err := v.checkNow(l, rule, now); err != nil {
		return nil, err
	}
	return l, nil
}

// trust asks the policy of this moment. Links cannot grant more Connectors than
// the root does. spec: LEASE-16, LEASE-17.
func (v *Verifier) trust(l *Verified, now time.Time) (IssuerRule, error) {
	rule, ok := v.Issuers(l.Root)
	if !ok || !rule.Until.IsZero() && !now.Before(rule.Until) {
		return IssuerRule{}, refuse(ReasonUntrustedIssuer, quotedPeer(l.Root))
	}
	for _, g := range l.Links[0].Grants {
		if !rule.AnyConnector && !slices.Contains(rule.Connectors, g.Connector) {
			return IssuerRule{}, refuse(ReasonConnectorRule, name.Quote(g.Connector.String()))
		}
	}
	return rule, nil
}

// checkAudience holds the last checks whose reason the peer does not learn.
// spec: LEASE-18, LEASE-19.
func (v *Verifier) checkAudience(links []Lease, peer name.PeerID) error {
	leaf := len(links) - 1
	if links[leaf].Holder != peer {
		return at(leaf, refuse(ReasonHolder, quotedPeer(links[leaf].Holder)))
	}
	for i := range links {
		if links[i].Gateway != v.Gateway {
			return at(i, refuse(ReasonGateway, quotedPeer(links[i].Gateway)))
		}
	}
	return nil
}

// checkDepth is what the policy of this moment says about passing on. spec:
// LEASE-20, LEASE-46.
func (r IssuerRule) checkDepth(links []Lease) error {
	most := min(max(r.MaxDepth, 0), MaxDepth)
	if len(links)-1 > most {
		return at(most+1, refuse(ReasonDepth, fmt.Sprintf("%d at most", most)))
	}
	for i := range links[:len(links)-1] {
		if r.MayName == nil || !r.MayName(links[i].Holder) {
			return at(i, refuse(ReasonLinkHolder, quotedPeer(links[i].Holder)))
		}
	}
	return nil
}

// checkNow holds the checks that depend on the moment, for every link. The life is
// that of the root, which no link outlives. spec: LEASE-24 to LEASE-26, LEASE-45,
// LEASE-47.
func (v *Verifier) checkNow(l *Verified, rule IssuerRule, now time.Time) error {
	for i := range l.Links {
		if err := l.Links[i].alive(now); err != nil {
			return at(i, err)
		}
	}
	for i := range l.Links {
		if err := l.Links[i].begun(now, min(max(v.Skew, 0), MaxSkew)); err != nil {
			return at(i, err)
		}
	}
	root := &l.Links[0]
	if life := root.NotAfter.Sub(root.IssuedAt); life > rule.lifeCap() {
		return refuse(ReasonLife, life.String())
	}
	if l.Revoked(v.Revoked) {
		return refuse(ReasonRevoked, "")
	}
	return nil
}

func (r IssuerRule) lifeCap() time.Duration {
	if r.MaxLife <= 0 {
		return DefaultCap
	}
	return min(r.MaxLife, HardCap)
}

func (l *Lease) alive(now time.Time) error {
	if !now.Before(l.NotAfter) {
		return refuse(ReasonExpired, l.NotAfter.Format(time.RFC3339))
	}
	return nil
}

func (l *Lease) begun(now time.Time, skew time.Duration) error {
	if now.Add(skew).Before(l.NotBefore) {
		return refuse(ReasonNotYet, l.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// Usable is the holder's own look at a lease that Open returned, before anything
// is sent: made out to holder, for gateway, and valid at now. A zero gateway means
// any. The error is an *Error with ReasonHolder, ReasonGateway, ReasonExpired or
// ReasonNotYet.
func (l *Lease) Usable(holder, gateway name.PeerID, now time.Time) error {
	switch {
	case l.Holder != holder:
		return refuse(ReasonHolder, quotedPeer(l.Holder))
	case l.Gateway != gateway && !gateway.IsZero():
		return refuse(ReasonGateway, quotedPeer(l.Gateway))
	}
	if err := l.alive(now); err != nil {
		return err
	}
	return l.begun(now, DefaultSkew)
}

// Grant returns the one grant that names the command. The error is an *Error with
// ReasonNoConnector, ReasonNoVersion or ReasonNoCommand. spec: LEASE-28.
func (l *Lease) Grant(key name.ConnectorKey, version name.Version, command name.Command) (Grant, error) {
	reason := ReasonNoConnector
	for _, g := range l.Grants {
		if g.Connector != key {
			continue
		}
		reason = max(reason, ReasonNoVersion)
		if g.Version != version {
			continue
		}
		reason = ReasonNoCommand
		if slices.Contains(g.Commands, command) {
			return g, nil
		}
	}
	return Grant{}, refuse(reason, "")
}
