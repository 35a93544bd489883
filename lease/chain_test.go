package lease

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/name"
)

// chainOf seals a root and links below it: issuer 'i', then 'h', 'c' and 'd'. Each
// change is made to the link, which is as the one above it otherwise.
func chainOf(tb testing.TB, changes ...func(*Lease)) [][]byte {
	tb.Helper()
	l := testLease(tb)
	l.DepthLeft = MaxDepth
	changes[0](&l)
	chain := [][]byte{sealUnchecked(tb, l.sorted())}
	for i, change := range changes[1:] {
		parent := must(openEnvelope(chain[i]))
		chain = append(chain, link(tb, chain[i], parent, "hcd"[i], "cde"[i], change))
	}
	return chain
}

func same(*Lease) {}

func delegating(tb testing.TB) *Verifier {
	tb.Helper()
	v := testVerifier(tb)
	v.Issuers = trustIssuer(tb, IssuerRule{AnyConnector: true, MaxDepth: MaxDepth, MayName: func(name.PeerID) bool { return true }})
	return v
}

// What a chain says is the least of what its links say.
// spec: LEASE-45
func TestChainSaysTheLeast(t *testing.T) {
	t.Parallel()
	chain := chainOf(t, func(l *Lease) {
		l.MaxOperations, l.MaxConcurrent, l.Purpose = 10, 9, "root"
	}, func(l *Lease) {
		l.IssuedAt, l.NotBefore, l.NotAfter = testTime.Add(time.Second), testTime.Add(time.Second), testTime.Add(time.Hour)
		l.MaxOperations, l.MaxConcurrent = 1000, 3
		l.Grants = []Grant{
			{
				Connector: connector("github"), Version: version("2.40.1"), Commands: commands("api", "issue.list"),
				Pins: map[name.Parameter][]string{parameter("repo"): {"acme/b", "evil/x"}, parameter("limit"): {"5"}},
			},
			{
				Connector: connector("github"), Version: version("2.40.1"), Commands: commands("issue.view"),
				Pins: map[name.Parameter][]string{parameter("state"): {"closed"}},
			},
			{Connector: connector("json5"), Version: version("2.2.3"), Commands: commands("format"), Finish: false},
		}
	}, func(l *Lease) { l.MaxOperations, l.Purpose = 20, "leaf" })
	v := delegating(t)
	v.Now = func() time.Time { return testTime.Add(time.Second) }
	got, err := v.Verify(chain, testPeer(t, 'd'))
	require.NoError(t, err)
	require.Len(t, got.Links, 3)
	require.Equal(t, testPeer(t, 'i'), got.Root)
	require.Equal(t, envelopeHash(chain[2]), got.Hash)
	leaf := got.Links[2]
	require.Equal(t, Lease{
		ID: leaf.ID, Issuer: got.Root, Holder: testPeer(t, 'd'), Gateway: leaf.Gateway, Invocation: leaf.Invocation,
		Authority: AuthorityOwner, IssuedAt: testTime, NotBefore: testTime.Add(time.Second), NotAfter: testTime.Add(DefaultLife),
		MaxOperations: 10, MaxConcurrent: 3, Purpose: "leaf", Parent: leaf.Parent,
		Grants: []Grant{
			{
				Connector: connector("github"), Version: version("2.40.1"), Commands: commands("issue.list"),
				Pins: map[name.Parameter][]string{parameter("repo"): {"acme/b"}, parameter("state"): {"open"}, parameter("limit"): {"5"}},
			},
			{Connector: connector("json5"), Version: version("2.2.3"), Commands: commands("format"), Pins: map[name.Parameter][]string{}},
		},
	}, got.Lease)
	require.Equal(t, got.Lease, must(Open(chain)))

	for label, c := range map[string]struct {
		key, version, command string
		want                  Reason
		link                  int
		detail                bool
	}{
		"granted":            {"github", "2.40.1", "issue.list", ReasonNone, 0, false},
		"finish-is-of-all":   {"json5", "2.2.3", "format", ReasonNone, 0, false},
		"only-the-link":      {"github", "2.40.1", "api", ReasonNoCommand, 0, false},
		"nobody":             {"gitlab", "2.40.1", "api", ReasonNoConnector, 0, false},
		"no-value-passes":    {"github", "2.40.1", "issue.view", ReasonNoCommand, 1, true},
		"nobody-this-number": {"json5", "2", "format", ReasonNoVersion, 0, false},
	} {
		g, err := got.Grant(connector(c.key), version(c.version), commands(c.command)[0])
		if c.want == ReasonNone {
			require.NoError(t, err, label)
			require.False(t, g.Finish, label)
			continue
		}
		var e *Error
		require.ErrorAs(t, err, &e, label)
		require.Equal(t, []any{c.want, c.link, c.detail}, []any{e.Reason, e.Link, e.Detail != ""}, label)
		require.Equal(t, Grant{}, g, label)
	}
	_, err = new(Verified).Grant(connector("github"), version("1"), commands("x")[0])
	requireReason(t, ReasonNoConnector, err)
}

// A link that drops a command is named by the refusal.
func TestGrantNamesTheLink(t *testing.T) {
	t.Parallel()
	chain := chainOf(t, same, same, func(l *Lease) { l.Grants = l.Grants[:1] })
	got, err := delegating(t).Verify(chain, testPeer(t, 'd'))
	require.NoError(t, err)
	_, err = got.Grant(connector("json5"), version("2.2.3"), commands("format")[0])
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, []any{ReasonNoConnector, 2}, []any{e.Reason, e.Link})
	require.Equal(t, "lease grants no such Connector (link 2)", e.Error())
}

// spec: LEASE-26, LEASE-47
func TestAnyLinkRevokesTheChain(t *testing.T) {
	t.Parallel()
	chain := chainOf(t, same, func(l *Lease) { l.IssuedAt = testTime.Add(-time.Minute) }, func(l *Lease) { l.IssuedAt = testTime.Add(-time.Hour) })
	peer := func(letter byte) name.PeerID { return testPeer(t, letter) }
	for label, revoked := range map[string]func(Subject) bool{
		"root-lease":        func(s Subject) bool { return s.Lease[0] == 0x01 },
		"middle-lease":      func(s Subject) bool { return s.Lease[0] == 0x11 },
		"leaf-lease":        func(s Subject) bool { return s.Lease[0] == 0x21 },
		"first-holder":      func(s Subject) bool { return s.Holder == peer('h') && s.Issuer == peer('i') },
		"middle-holder":     func(s Subject) bool { return s.Holder == peer('c') && s.Issuer == peer('i') },
		"last-holder":       func(s Subject) bool { return s.Holder == peer('d') && s.Issuer == peer('i') },
		"root-issuer":       func(s Subject) bool { return s.Issuer == peer('i') && !s.IssuedAt.Before(testTime) },
		"first-delegator":   func(s Subject) bool { return s.Issuer == peer('h') && s.Holder == peer('c') },
		"second-delegator":  func(s Subject) bool { return s.Issuer == peer('c') && s.Lease[0] == 0x21 },
		"issued-before":     func(s Subject) bool { return s.IssuedAt.Before(testTime.Add(-30 * time.Minute)) },
		"of-the-invocation": func(s Subject) bool { return s.Invocation == invocation("run-1") },
	} {
		now := false
		v := delegating(t)
		v.Revoked = revokeFunc(func(s Subject) bool { return now && revoked(s) })
		l, err := v.Verify(chain, peer('d'))
		require.NoError(t, err, label)
		require.False(t, l.Revoked(v.Revoked), label)
		now = true
		_, err = v.Verify(chain, peer('d'))
		requireReason(t, ReasonRevoked, err)
		require.True(t, l.Revoked(v.Revoked), label)
	}
	l, err := delegating(t).Verify(chain, peer('d'))
	require.NoError(t, err)
	require.Len(t, l.Subjects(), 5)
	require.True(t, l.Revoked(nil))
	require.True(t, new(Verified).Revoked(revokeNothing{}))
	require.False(t, l.Revoked(revokeFunc(func(s Subject) bool { return s.Holder == peer('x') || s.Issuer == peer('d') })))
}

// A policy that changed counts for what is remembered too.
// spec: LEASE-20, LEASE-27, LEASE-46
func TestDepthOfTheMoment(t *testing.T) {
	t.Parallel()
	chain := chainOf(t, same, same, same)
	rule := IssuerRule{AnyConnector: true, MaxDepth: 2, MayName: func(name.PeerID) bool { return true }}
	v := testVerifier(t)
	v.Issuers = func(p name.PeerID) (IssuerRule, bool) { return rule, p == testPeer(t, 'i') }
	holder := testPeer(t, 'd')
	first, err := v.Verify(chain, holder)
	require.NoError(t, err)
	for label, c := range map[string]struct {
		change func(*IssuerRule)
		want   Reason
		link   int
	}{
		"unchanged":      {func(*IssuerRule) {}, ReasonNone, 0},
		"once":           {func(r *IssuerRule) { r.MaxDepth = 1 }, ReasonDepth, 2},
		"never":          {func(r *IssuerRule) { r.MaxDepth = 0 }, ReasonDepth, 1},
		"negative":       {func(r *IssuerRule) { r.MaxDepth = -5 }, ReasonDepth, 1},
		"more":           {func(r *IssuerRule) { r.MaxDepth = 99 }, ReasonNone, 0},
		"no-holders":     {func(r *IssuerRule) { r.MayName = nil }, ReasonLinkHolder, 0},
		"not-the-first":  {func(r *IssuerRule) { r.MayName = isNot(testPeer(t, 'h')) }, ReasonLinkHolder, 0},
		"not-the-second": {func(r *IssuerRule) { r.MayName = isNot(testPeer(t, 'c')) }, ReasonLinkHolder, 1},
		"not-the-last":   {func(r *IssuerRule) { r.MayName = isNot(holder) }, ReasonNone, 0},
		"no-connectors":  {func(r *IssuerRule) { r.AnyConnector = false }, ReasonConnectorRule, 0},
		"until":          {func(r *IssuerRule) { r.Until = testTime }, ReasonUntrustedIssuer, 0},
	} {
		before := rule
		c.change(&rule)
		again, err := v.Verify(chain, holder)
		rule = before
		if c.want == ReasonNone {
			require.NoError(t, err, label)
			require.Same(t, first, again, label)
			continue
		}
		requireReason(t, c.want, err)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, c.link, e.Link, label)
	}

	// A lease that nobody passed on needs none of it.
	rule = IssuerRule{AnyConnector: true}
	_, err = v.Verify(chain[:1], testPeer(t, 'h'))
	require.NoError(t, err)
}

func isNot(p name.PeerID) func(name.PeerID) bool { return func(o name.PeerID) bool { return o != p } }

// The cache knows a chain by all of its envelopes and by the peer.
// spec: LEASE-27
func TestCacheKnowsTheWholeChain(t *testing.T) {
	t.Parallel()
	wide, narrow := chainOf(t, func(l *Lease) { l.ID[1] = 7 }, same), chainOf(t, same, same)
	v := delegating(t)
	holder := testPeer(t, 'c')
	first, err := v.Verify(narrow, holder)
	require.NoError(t, err)
	other, err := v.Verify(wide, holder)
	require.NoError(t, err)
	require.NotSame(t, first, other)
	for range 2 {
		_, err = v.Verify([][]byte{wide[0], narrow[1]}, holder)
		requireReason(t, ReasonParent, err)
		_, err = v.Verify(narrow, testPeer(t, 'h'))
		requireReason(t, ReasonHolder, err)
		_, err = v.Verify(narrow[:1], holder)
		requireReason(t, ReasonHolder, err)
		_, err = v.Verify(narrow[1:], holder)
		requireReason(t, ReasonUntrustedIssuer, err)
	}
	again, err := v.Verify(narrow, holder)
	require.NoError(t, err)
	require.Same(t, first, again)
	require.Len(t, v.store().byKey, 2, "what was refused is not remembered")
}

// mostly is true in most draws, so that links often agree.
func mostly(rt *rapid.T, label string) bool { return rapid.IntRange(0, 9).Draw(rt, label) < 8 }

func letters(rt *rapid.T, label string) []string {
	var out []string
	for _, s := range []string{"a", "b", "c"} {
		if mostly(rt, label+" "+s) {
			out = append(out, s)
		}
	}
	return out
}

// drawnGrants are grants from a small world. The commands of one version may be in
// several grants, with pins of their own.
func drawnGrants(rt *rapid.T) (out []Grant) {
	for _, key := range []string{"k", "m"} {
		left := letters(rt, "commands")
		for len(left) > 0 {
			n := len(left)
			if !mostly(rt, "together") {
				n = 1
			}
			g := Grant{
				Connector: connector(key), Version: version("1"), Commands: commands(left[:n]...),
				Pins: map[name.Parameter][]string{}, Finish: mostly(rt, "finish"),
			}
			if !mostly(rt, "version 1") {
				g.Version = version("2")
			}
			for _, p := range []string{"p", "q"} {
				if allowed := letters(rt, "allowed"); len(allowed) > 0 && !mostly(rt, "free") {
					g.Pins[parameter(p)] = allowed
				}
			}
			out, left = append(out, g), left[n:]
		}
	}
	if len(out) == 0 {
		out = append(out, Grant{Connector: connector("m"), Version: version("3"), Commands: commands("a"), Pins: map[name.Parameter][]string{}})
	}
	return out
}

func drawLink(rt *rapid.T, l *Lease) {
	minutes := func(label string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(rt, label)) * time.Minute
	}
	l.Grants = drawnGrants(rt)
	l.IssuedAt = testTime.Add(-minutes("issued", 0, 60))
	l.NotBefore = l.IssuedAt.Add(minutes("before", 0, 20))
	l.NotAfter = l.NotBefore.Add(300*time.Minute - minutes("after", 0, 299))
	l.MaxOperations, l.MaxConcurrent = rapid.IntRange(1, 5).Draw(rt, "most"), rapid.IntRange(1, 5).Draw(rt, "at once")
}

// request is a command with values of the two parameters, "" for none.
type request struct {
	key, version, command string
	values                map[string]string
}

func drawRequest(rt *rapid.T) request {
	draw := func(label string, from ...string) string {
		if mostly(rt, "usual "+label) {
			return from[0]
		}
		return rapid.SampledFrom(from).Draw(rt, label)
	}
	return request{
		key: draw("key", "k", "m"), version: draw("version", "1", "2"), command: draw("command", "b", "a", "c"),
		values: map[string]string{"p": draw("p", "b", "", "a", "c"), "q": draw("q", "b", "", "a", "c")},
	}
}

// passes is what a policy makes of a grant: each pinned parameter is given, with an
// allowed value.
func (r request) passes(g Grant, err error) bool {
	if err != nil {
		return false
	}
	for p, allowed := range g.Pins {
		if v := r.values[p.String()]; v == "" || !slices.Contains(allowed, v) {
			return false
		}
	}
	return true
}

func (r request) of(grant func(name.ConnectorKey, name.Version, name.Command) (Grant, error)) (Grant, error) {
	return grant(connector(r.key), version(r.version), commands(r.command)[0])
}

// What a chain allows, each of its links allows by itself, and what every link
// allows, the chain does: no link can widen anything, in whatever order, and one
// more never gives more.
// spec: LEASE-45
func TestChainNeverAllowsWhatALinkDenies(t *testing.T) {
	t.Parallel()
	allowed := map[int]int{}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, MaxChain).Draw(rt, "links")
		var changes []func(*Lease)
		for range n {
			changes = append(changes, func(l *Lease) { drawLink(rt, l) })
		}
		chain := chainOf(t, changes...)
		now := testTime.Add(time.Duration(rapid.IntRange(-5, 30).Draw(rt, "now")) * time.Minute)
		v := delegating(t)
		v.Now, v.Skew = func() time.Time { return now }, 0
		v.Issuers = trustIssuer(t, IssuerRule{AnyConnector: true, MaxLife: HardCap, MaxDepth: MaxDepth, MayName: func(name.PeerID) bool { return true }})
		links := must(openChain(chain))
		r := drawRequest(rt)

		each := true
		for i := range links {
			each = each && !now.Before(links[i].NotBefore) && now.Before(links[i].NotAfter) && r.passes(r.of(links[i].Grant))
		}
		got, err := v.Verify(chain, testPeer(t, "hcd"[n-1]))
		whole := err == nil && r.passes(r.of(got.Grant))
		require.Equal(rt, each, whole)
		l, err := Open(chain)
		require.NoError(rt, err)
		require.Equal(rt, each, l.Usable(l.Holder, l.Gateway, now) == nil && !now.Before(l.NotBefore) && r.passes(r.of(l.Grant)), "what the holder sees is the same")
		if whole {
			allowed[n]++
			g := must(r.of(got.Grant))
			for i := range links {
				one := must(r.of(links[i].Grant))
				require.True(rt, one.Finish || !g.Finish)
				require.LessOrEqual(rt, got.MaxOperations, links[i].MaxOperations)
				require.LessOrEqual(rt, got.MaxConcurrent, links[i].MaxConcurrent)
				require.False(rt, got.NotAfter.After(links[i].NotAfter) || got.NotBefore.Before(links[i].NotBefore) || got.IssuedAt.After(links[i].IssuedAt))
			}
		}
		if n > 1 {
			above := must(Open(chain[:n-1]))
			require.False(rt, r.passes(r.of(l.Grant)) && !r.passes(r.of(above.Grant)), "one more link gives no more")
		}
	})
	t.Log("allowed, by the number of links:", allowed)
	require.NotEmpty(t, allowed)
}

// What Delegate makes, a gateway takes, and it is what was asked for.
// spec: LEASE-20, LEASE-40 to LEASE-45
func TestDelegate(t *testing.T) {
	t.Parallel()
	root := testLease(t)
	root.DepthLeft = 2
	chain := [][]byte{sealed(t, root)}
	holder, _ := testIdentity(t, 'h')
	second, _ := testIdentity(t, 'c')
	want := Lease{
		Holder: testPeer(t, 'c'), Grants: []Grant{{
			Connector: connector("github"), Version: version("2.40.1"), Commands: commands("issue.view", "issue.list"),
			Pins: map[name.Parameter][]string{parameter("repo"): {"acme/b"}, parameter("limit"): {"5"}},
		}},
		IssuedAt: testTime, NotBefore: testTime, NotAfter: testTime.Add(time.Minute), MaxOperations: 5, MaxConcurrent: 1, Purpose: "part", DepthLeft: 1,
	}
	next, err := Delegate(chain, want, holder)
	require.NoError(t, err)
	require.Len(t, chain, 1)
	require.Len(t, next, 2)
	require.Equal(t, chain[0], next[0])
	v := delegating(t)
	got, err := v.Verify(next, testPeer(t, 'c'))
	require.NoError(t, err)
	require.Equal(t, []any{5, 1, "part", 1}, []any{got.MaxOperations, got.MaxConcurrent, got.Purpose, got.DepthLeft})
	require.NotEqual(t, root.ID, got.ID)
	require.False(t, got.ID.IsZero())
	g, err := got.Grant(connector("github"), version("2.40.1"), commands("issue.list")[0])
	require.NoError(t, err)
	require.Equal(t, map[name.Parameter][]string{parameter("repo"): {"acme/b"}, parameter("limit"): {"5"}, parameter("state"): {"open"}}, g.Pins)

	again := want
	again.Holder, again.DepthLeft, again.NotAfter, again.ID = testPeer(t, 'd'), 0, testTime.Add(30*time.Second), ID{9}
	last, err := Delegate(next, again, second)
	require.NoError(t, err)
	got, err = v.Verify(last, testPeer(t, 'd'))
	require.NoError(t, err)
	require.Equal(t, ID{9}, got.ID)
	fourth, _ := testIdentity(t, 'd')
	_, err = Delegate(last, again, fourth)
	requireReason(t, ReasonFinal, err)

	for label, c := range map[string]struct {
		change func(*Lease)
		want   Reason
		says   string
	}{
		"life":           {func(l *Lease) { l.NotAfter = testTime.Add(time.Hour) }, ReasonField, "the lease itself ends 2026-11-30T12:10:00Z"},
		"operations":     {func(l *Lease) { l.MaxOperations = 101 }, ReasonField, "the lease itself allows 100"},
		"no-operations":  {func(l *Lease) { l.MaxOperations = 0 }, ReasonField, "max_operations"},
		"at-once":        {func(l *Lease) { l.MaxConcurrent = 5 }, ReasonField, "the lease itself allows 4"},
		"depth":          {func(l *Lease) { l.DepthLeft = 2 }, ReasonField, "the lease itself leaves 2, so 1 at most"},
		"negative-depth": {func(l *Lease) { l.DepthLeft = -1 }, ReasonField, "depth_left"},
		"connector":      {func(l *Lease) { l.Grants[0].Connector = connector("stripe") }, ReasonNoConnector, "no such Connector"},
		"version":        {func(l *Lease) { l.Grants[0].Version = version("3") }, ReasonNoVersion, "this version"},
		"command":        {func(l *Lease) { l.Grants[0].Commands = commands("api") }, ReasonNoCommand, `"api"`},
		"pin":            {func(l *Lease) { l.Grants[0].Pins[parameter("repo")] = []string{"evil/x"} }, ReasonField, `for repo only "acme/a" or "acme/b"`},
		"finish":         {func(l *Lease) { l.Grants[0].Finish = true }, ReasonField, "finish"},
		"no-grants":      {func(l *Lease) { l.Grants = nil }, ReasonField, "grants"},
		"no-holder":      {func(l *Lease) { l.Holder = name.PeerID{} }, ReasonField, "holder"},
		"to-itself":      {func(l *Lease) { l.Holder = testPeer(t, 'h') }, ReasonHolderTwice, "twice"},
		"the-same-id":    {func(l *Lease) { l.ID = root.ID }, ReasonDuplicate, "same ID"},
	} {
		l := want
		l.Grants = []Grant{l.Grants[0]}
		l.Grants[0].Pins = maps.Clone(l.Grants[0].Pins)
		c.change(&l)
		out, err := Delegate(chain, l, holder)
		require.Nil(t, out, label)
		requireReason(t, c.want, err)
		require.ErrorContains(t, err, c.says, label)
	}
	_, err = Delegate(chain, want, second)
	requireReason(t, ReasonHolder, err)
	_, err = Delegate(chain, want, nil)
	requireReason(t, ReasonKeyType, err)
	_, err = Delegate([][]byte{sealed(t, testLease(t))}, want, holder)
	requireReason(t, ReasonFinal, err)
	_, err = Delegate(next[1:], want, second)
	requireReason(t, ReasonLink, err)
	_, err = Delegate(nil, want, holder)
	requireReason(t, ReasonChain, err)
}

func BenchmarkVerifyChain(b *testing.B) {
	chain := chainOf(b, same, same, same)
	holder := testPeer(b, 'd')
	for label, size := range map[string]int{"fresh": -1, "cached": 0} {
		b.Run(label, func(b *testing.B) {
			v := delegating(b)
			v.CacheSize = size
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(chain, holder); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
