package lease

import (
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
	// Revoked is asked for every Verify. nil: everything is revoked.
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
	// Lease is the one that names the presenting peer as its holder.
	Lease
	// Root is the issuer that the owner trusts; everything kept about the
	// invocation is keyed by (Root, Invocation, Holder).
	Root name.PeerID
	// Hash is the SHA-256 of the envelope of Lease.
	Hash [32]byte
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
	var leases []Lease
	if l == nil {
		var err error
		if leases, err = openChain(chain); err != nil {
			return nil, err
		}
		leaf := len(leases) - 1
		l = &Verified{Root: leases[0].Issuer, Lease: leases[leaf], Hash: envelopeHash(chain[leaf])}
	}
	rule, err := v.trust(l, now)
	if err != nil {
		return nil, err
	}
	if leases != nil {
		if err := v.checkFixed(leases, peer); err != nil {
			return nil, err
		}
		v.remember(key, l)
	}
	if err := v.checkNow(l, rule, now); err != nil {
		return nil, err
	}
	return l, nil
}

// trust asks the policy of this moment. spec: LEASE-16, LEASE-17.
func (v *Verifier) trust(l *Verified, now time.Time) (IssuerRule, error) {
	rule, ok := v.Issuers(l.Root)
	if !ok || !rule.Until.IsZero() && !now.Before(rule.Until) {
		return IssuerRule{}, refuse(ReasonUntrustedIssuer, quotedPeer(l.Root))
	}
	for _, g := range l.Grants {
		if !rule.AnyConnector && !slices.Contains(rule.Connectors, g.Connector) {
			return IssuerRule{}, refuse(ReasonConnectorRule, name.Quote(g.Connector.String()))
		}
	}
	return rule, nil
}

// checkFixed holds the checks after the issuer's that give the same result
// whenever they are made. After the gateway's the peer may learn the reason.
// spec: LEASE-18 to LEASE-23.
func (v *Verifier) checkFixed(leases []Lease, peer name.PeerID) error {
	leaf := len(leases) - 1
	if leases[leaf].Holder != peer {
		return &Error{Reason: ReasonHolder, Link: leaf, Detail: quotedPeer(leases[leaf].Holder)}
	}
	for i := range leases {
		if leases[i].Gateway != v.Gateway {
			return &Error{Reason: ReasonGateway, Link: i, Detail: quotedPeer(leases[i].Gateway)}
		}
	}
	if err := checkLinks(leases); err != nil {
		return err
	}
	return leases[leaf].acceptable()
}

// checkNow holds the checks that depend on the moment. spec: LEASE-24 to LEASE-26.
func (v *Verifier) checkNow(l *Verified, rule IssuerRule, now time.Time) error {
	if err := l.window(now, min(max(v.Skew, 0), MaxSkew)); err != nil {
		return err
	}
	if life := l.NotAfter.Sub(l.IssuedAt); life > rule.lifeCap() {
		return refuse(ReasonLife, life.String())
	}
	if v.Revoked == nil || v.Revoked.Revoked(l.Subject()) {
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

func (l *Lease) window(now time.Time, skew time.Duration) error {
	if !now.Before(l.NotAfter) {
		return refuse(ReasonExpired, l.NotAfter.Format(time.RFC3339))
	}
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
	return l.window(now, DefaultSkew)
}

// Subject is what a revocation of this lease would name.
func (l *Verified) Subject() Subject {
	return Subject{
		Lease: l.ID, Invocation: l.Invocation, Holder: l.Holder,
		Issuer: l.Root, IssuedAt: l.IssuedAt,
	}
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
