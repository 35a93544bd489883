package lease

import (
	"bytes"
	"testing"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// chainVectors adds good chains and broken ones: issuer 'i' lets 'h' pass on what
// 'c' gets, and 'd' after it.
func chainVectors(tb testing.TB, add func(label, comment string, expect Reason, chain ...[]byte) *vector) {
	tb.Helper()
	peer := func(letter byte) name.PeerID { return testPeer(tb, letter) }
	root := testLease(tb)
	root.DepthLeft = 2
	first := sealed(tb, root)
	second := link(tb, first, root, 'h', 'c', nil)
	middle := must(openEnvelope(second))
	third := link(tb, second, middle, 'c', 'd', nil)
	chain := func(label, comment string, expect Reason, at int, to byte, envelopes ...[]byte) *vector {
		v := add(label, comment, expect, envelopes...)
		v.link, v.peer, v.depth = at, peer(to), MaxDepth
		return v
	}
	broken := func(label, comment string, expect Reason, change func(*Lease)) *vector {
		return chain(label, comment, expect, 1, 'c', first, link(tb, first, root, 'h', 'c', change))
	}

	chain("ok-chain-of-two", "passed on once", ReasonNone, 0, 'c', first, second).depth = 1
	chain("ok-chain-of-three", "passed on twice", ReasonNone, 0, 'd', first, second, third)
	chain("ok-chain-connectors", "the link names a Connector that the issuer may not: it gives nothing", ReasonNone, 0, 'c',
		sealed(tb, onlyGitHub(root)), link(tb, sealed(tb, onlyGitHub(root)), root, 'h', 'c', nil)).connectors = []string{"github"}
	broken("ok-chain-outlives", "the link ends a year after its root, which counts", ReasonNone,
		func(l *Lease) { l.NotAfter = l.NotAfter.AddDate(1, 0, 0) }).link = 0
	broken("ok-chain-wider", "the link grants more than its root, which gives nothing", ReasonNone, func(l *Lease) {
		l.Grants = append(l.Grants, Grant{Connector: connector("stripe"), Version: version("1"), Commands: commands("refund")})
		l.MaxOperations, l.MaxConcurrent = MaxOperations, MaxConcurrent
	}).link = 0

	chain("chain-not-holder", "presented by its first holder", ReasonHolder, 1, 'h', first, second)
	chain("chain-middle-holder", "presented by its second of three", ReasonHolder, 2, 'c', first, second, third)
	broken("chain-gateway", "the link is for another gateway", ReasonGateway, func(l *Lease) { l.Gateway = peer('x') })
	chain("depth", "the policy lets nobody pass it on", ReasonDepth, 1, 'c', first, second).depth = 0
	chain("depth-two", "the policy lets it be passed on once", ReasonDepth, 2, 'd', first, second, third).depth = 1
	chain("depth-more", "the policy says more than the format has", ReasonNone, 0, 'd', first, second, third).depth = 9
	chain("link-holder", "the issuer may not name the first holder", ReasonLinkHolder, 0, 'c', first, second).barred = []name.PeerID{peer('h')}
	chain("link-holder-second", "nor the second", ReasonLinkHolder, 1, 'd', first, second, third).barred = []name.PeerID{peer('c')}
	chain("link", "without its root", ReasonUntrustedIssuer, 0, 'c', second)
	chain("link-trusted", "the same, of an issuer that is trusted itself", ReasonLink, 0, 'c', second).issuers = []name.PeerID{peer('h')}
	chain("link-order", "the second of three comes first", ReasonUntrustedIssuer, 0, 'd', second, first, third)
	chain("link-order-last", "the last two are exchanged", ReasonParent, 1, 'c', first, third, second)
	chain("link-duplicate", "the root twice", ReasonDuplicate, 1, 'h', first, first)
	chain("link-duplicate-link", "a link twice", ReasonDuplicate, 2, 'c', first, second, second)
	broken("link-duplicate-id", "the link has the ID of its root", ReasonDuplicate, func(l *Lease) { l.ID = root.ID })
	chain("parent-dropped", "the middle link is left out", ReasonParent, 1, 'd', first, third)
	other := root
	other.ID[1], other.MaxOperations = 9, MaxOperations
	chain("parent-spliced", "a link under a wider lease of the same holder", ReasonParent, 1, 'c', sealed(tb, other), second)
	broken("parent-absent", "the link has no parent: a lease of its own", ReasonParent, func(l *Lease) { l.Parent = [32]byte{} })
	broken("parent-flipped", "one bit of the parent", ReasonParent, func(l *Lease) { l.Parent[7] ^= 1 })
	chain("link-issuer", "signed by another than the holder", ReasonLinkIssuer, 1, 'c', first, link(tb, first, root, 'x', 'c', nil))
	chain("link-issuer-root", "signed by the root's issuer again", ReasonLinkIssuer, 1, 'c', first, link(tb, first, root, 'i', 'c', nil))
	final := testLease(tb)
	chain("final", "the root may not be passed on", ReasonFinal, 1, 'c', sealed(tb, final), link(tb, sealed(tb, final), final, 'h', 'c', nil))
	once := link(tb, first, root, 'h', 'c', func(l *Lease) { l.DepthLeft = 0 })
	chain("final-link", "the link may not be passed on", ReasonFinal, 2, 'd', first, once, link(tb, once, must(openEnvelope(once)), 'c', 'd', nil))
	broken("depth-left", "as many links left as the root", ReasonDepthLeft, func(l *Lease) { l.DepthLeft = 2 })
	broken("link-invocation", "for another invocation", ReasonInvocation, func(l *Lease) { l.Invocation = invocation("run-2") })
	broken("holder-twice", "passed on to its own holder", ReasonHolderTwice, func(l *Lease) { l.Holder = peer('h') }).peer = peer('h')
	chain("holder-twice-back", "passed on and back", ReasonHolderTwice, 2, 'h', first, second, link(tb, second, middle, 'c', 'h', nil))
	broken("chain-critical", "the link names a rule", ReasonCritical, func(l *Lease) { l.Critical = []string{"two-person"} })
	broken("chain-authority", "the link has another authority", ReasonAuthority, func(l *Lease) { l.Authority = 2 })
	broken("chain-link-expired", "the link is dead, its root is not", ReasonExpired,
		func(l *Lease) { l.NotAfter = testTime.Add(time.Minute) }).now = testTime.Add(time.Minute)
	v := broken("chain-root-expired", "the root is dead, its link is not", ReasonExpired, func(l *Lease) { l.NotAfter = testTime.Add(time.Hour) })
	v.now, v.link = testTime.Add(DefaultLife), 0
	broken("chain-not-yet", "the link is not valid yet", ReasonNotYet, func(l *Lease) { l.NotBefore = testTime.Add(time.Minute) })
	long := root
	long.NotAfter = testTime.Add(2 * time.Hour)
	chain("chain-life", "the root lives too long, its link does not", ReasonLife, 0, 'c', sealed(tb, long),
		link(tb, sealed(tb, long), long, 'h', 'c', func(l *Lease) { l.NotAfter = testTime.Add(time.Minute) }))
	chain("chain-signature", "one bit of the link's signature", ReasonSignature, 1, 'c', first, flip(second, len(second)-1))
	chain("chain-trailing", "a byte behind the link", ReasonEncoding, 1, 'c', first, append(bytes.Clone(second), 0))
}

func onlyGitHub(l Lease) Lease {
	l.Grants = l.Grants[:1]
	return l
}
