package lease

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/name"
)

func TestVerifiedHoldsWhatWasSealed(t *testing.T) {
	t.Parallel()
	want := testLease(t)
	b := sealed(t, want)
	got, err := testVerifier(t).Verify([][]byte{b}, testPeer(t, 'h'))
	require.NoError(t, err)
	require.Equal(t, &Verified{Lease: want, Root: testPeer(t, 'i'), Hash: envelopeHash(b), Links: []Lease{want}}, got)
	require.Equal(t, []Subject{{
		Lease: want.ID, Invocation: want.Invocation, Holder: want.Holder, Issuer: want.Issuer, IssuedAt: testTime,
	}}, got.Subjects())
}

func TestSealSortsACopy(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	l.Grants[0], l.Grants[1] = l.Grants[1], l.Grants[0]
	l.Grants[1].Commands = commands("issue.view", "issue.list")
	l.Grants[1].Pins[parameter("repo")] = []string{"acme/b", "acme/a"}
	l.IssuedAt = l.IssuedAt.Add(123 * time.Microsecond)
	require.Equal(t, sealed(t, testLease(t)), sealed(t, l))
	require.Equal(t, commands("issue.view", "issue.list"), l.Grants[1].Commands)
	require.Equal(t, connector("json5"), l.Grants[0].Connector)
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	issuer, _ := testIdentity(t, 'i')
	other, _ := testIdentity(t, 'x')
	literals := func(l *Lease) {
		for i := range 3 {
			l.Grants[0].Pins[parameter("p"+string(rune('a'+i)))] = []string{string(bytes.Repeat([]byte{'x'}, 4096))}
		}
	}
	for label, c := range map[string]struct {
		key    crypto.PrivKey
		change func(*Lease)
		want   Reason
	}{
		"no-key":      {nil, func(*Lease) {}, ReasonKeyType},
		"foreign-key": {foreignKey(t), func(*Lease) {}, ReasonKeyType},
		"other-key":   {other, func(*Lease) {}, ReasonIssuerKey},
		"too-large":   {issuer, literals, ReasonSize},
		"field":       {issuer, func(l *Lease) { l.Holder = name.PeerID{} }, ReasonField},
		"no-commands": {issuer, func(l *Lease) { l.Grants[1].Commands = nil }, ReasonField},
		"overlap":     {issuer, func(l *Lease) { l.Grants = append(l.Grants, l.Grants[0]) }, ReasonField},
		"negative":    {issuer, func(l *Lease) { l.MaxOperations = -1 }, ReasonField},
		"depth":       {issuer, func(l *Lease) { l.DepthLeft = -1 }, ReasonField},
		"authority":   {issuer, func(l *Lease) { l.Authority = AuthorityUnset }, ReasonAuthority},
		"critical":    {issuer, func(l *Lease) { l.Critical = []string{"x"} }, ReasonCritical},
		"no-literals": {issuer, func(l *Lease) { l.Grants[0].Pins[parameter("repo")] = nil }, ReasonField},
		"twice":       {issuer, func(l *Lease) { l.Grants[0].Commands = commands("a", "a") }, ReasonField},
		"zero":        {issuer, func(l *Lease) { *l = Lease{} }, ReasonField},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			l := testLease(t)
			c.change(&l)
			b, err := Seal(l, c.key)
			require.Nil(t, b)
			requireReason(t, c.want, err)
		})
	}
}

func TestZeroVerifierRefuses(t *testing.T) {
	t.Parallel()
	chain := [][]byte{sealed(t, testLease(t))}
	for label, c := range map[string]struct {
		change func(*Verifier)
		want   Reason
	}{
		"zero":          {func(v *Verifier) { v.Issuers, v.Now, v.Revoked, v.Gateway = nil, nil, nil, name.PeerID{} }, ReasonUntrustedIssuer},
		"no-issuers":    {func(v *Verifier) { v.Issuers = nil }, ReasonUntrustedIssuer},
		"no-clock":      {func(v *Verifier) { v.Now = nil }, ReasonUntrustedIssuer},
		"no-rule":       {func(v *Verifier) { v.Issuers = trustIssuer(t, IssuerRule{}) }, ReasonConnectorRule},
		"no-gateway":    {func(v *Verifier) { v.Gateway = name.PeerID{} }, ReasonGateway},
		"no-revocation": {func(v *Verifier) { v.Revoked = nil }, ReasonRevoked},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			v := testVerifier(t)
			c.change(v)
			_, err := v.Verify(chain, testPeer(t, 'h'))
			requireReason(t, c.want, err)
		})
	}
	_, err := testVerifier(t).Verify(chain, name.PeerID{})
	requireReason(t, ReasonHolder, err)
}

// spec: LEASE-16, LEASE-24, LEASE-25
func TestRulesOfTheMoment(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) func() time.Time { return func() time.Time { return testTime.Add(d) } }
	long := func(life time.Duration) func(*Lease) {
		return func(l *Lease) { l.NotAfter = l.IssuedAt.Add(life) }
	}
	postdated := func(l *Lease) { l.NotBefore = testTime.Add(3 * time.Minute) }
	any := IssuerRule{AnyConnector: true}
	for label, c := range map[string]struct {
		change func(*Lease)
		rule   IssuerRule
		now    func() time.Time
		skew   time.Duration
		want   Reason
	}{
		"trust-ends-later":      {long(time.Minute), IssuerRule{AnyConnector: true, Until: testTime.Add(1)}, at(0), 0, ReasonNone},
		"trust-ended":           {long(time.Minute), IssuerRule{AnyConnector: true, Until: testTime}, at(0), 0, ReasonUntrustedIssuer},
		"default-cap":           {long(time.Hour), any, at(0), 0, ReasonNone},
		"beyond-default-cap":    {long(time.Hour + time.Millisecond), any, at(0), 0, ReasonLife},
		"own-cap":               {long(5 * time.Minute), IssuerRule{AnyConnector: true, MaxLife: 5 * time.Minute}, at(0), 0, ReasonNone},
		"beyond-own-cap":        {long(6 * time.Minute), IssuerRule{AnyConnector: true, MaxLife: 5 * time.Minute}, at(0), 0, ReasonLife},
		"hard-cap":              {long(24 * time.Hour), IssuerRule{AnyConnector: true, MaxLife: 1000 * time.Hour}, at(0), 0, ReasonNone},
		"beyond-hard-cap":       {long(24*time.Hour + time.Millisecond), IssuerRule{AnyConnector: true, MaxLife: 1000 * time.Hour}, at(0), 0, ReasonLife},
		"negative-cap":          {long(2 * time.Hour), IssuerRule{AnyConnector: true, MaxLife: -1}, at(0), 0, ReasonLife},
		"no-skew":               {long(time.Minute), any, at(-1), 0, ReasonNotYet},
		"skew-is-bounded":       {postdated, any, at(30 * time.Second), time.Hour, ReasonNotYet},
		"skew-at-its-bound":     {postdated, any, at(time.Minute), time.Hour, ReasonNone},
		"negative-skew-is-none": {long(time.Minute), any, at(0), -time.Hour, ReasonNone},
		"skew-not-on-the-end":   {long(time.Minute), any, at(time.Minute), time.Minute, ReasonExpired},
		"dead-beats-everything": {long(48 * time.Hour), any, at(49 * time.Hour), 0, ReasonExpired},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			l := testLease(t)
			c.change(&l)
			v := testVerifier(t)
			v.Issuers, v.Now, v.Skew = trustIssuer(t, c.rule), c.now, c.skew
			got, err := v.Verify([][]byte{sealed(t, l)}, testPeer(t, 'h'))
			if c.want == ReasonNone {
				require.NoError(t, err)
				return
			}
			require.Nil(t, got)
			requireReason(t, c.want, err)
		})
	}
}

// What the cache spares is never what can change. spec: LEASE-26, LEASE-27
func TestCacheForgetsNothing(t *testing.T) {
	t.Parallel()
	chain := [][]byte{sealed(t, testLease(t))}
	holder := testPeer(t, 'h')
	now, trusted, revoked, asked := testTime, true, false, 0
	v := testVerifier(t)
	v.Now = func() time.Time { return now }
	v.Issuers = func(name.PeerID) (IssuerRule, bool) { asked++; return IssuerRule{AnyConnector: true}, trusted }
	v.Revoked = revokeFunc(func(Subject) bool { return revoked })

	first, err := v.Verify(chain, holder)
	require.NoError(t, err)
	again, err := v.Verify([][]byte{bytes.Clone(chain[0])}, holder)
	require.NoError(t, err)
	require.Same(t, first, again, "from the cache")
	require.Equal(t, 2, asked)

	_, err = v.Verify(chain, testPeer(t, 'x'))
	requireReason(t, ReasonHolder, err)
	_, err = v.Verify([][]byte{flip(chain[0], len(chain[0])-1)}, holder)
	requireReason(t, ReasonSignature, err)
	_, err = v.Verify([][]byte{chain[0], chain[0]}, holder)
	requireReason(t, ReasonDepth, err)

	revoked = true
	_, err = v.Verify(chain, holder)
	requireReason(t, ReasonRevoked, err)
	revoked, trusted = false, false
	_, err = v.Verify(chain, holder)
	requireReason(t, ReasonUntrustedIssuer, err)
	trusted, now = true, testTime.Add(DefaultLife)
	_, err = v.Verify(chain, holder)
	requireReason(t, ReasonExpired, err)
	now = testTime.Add(-time.Hour)
	_, err = v.Verify(chain, holder)
	requireReason(t, ReasonNotYet, err)
	now = testTime
	again, err = v.Verify(chain, holder)
	require.NoError(t, err)
	require.Same(t, first, again)
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{-1, 1, 3} {
		v := testVerifier(t)
		v.CacheSize = size
		for i := range 5 {
			l := testLease(t)
			l.ID[0] = byte(i)
			_, err := v.Verify([][]byte{sealed(t, l)}, l.Holder)
			require.NoError(t, err)
			require.LessOrEqual(t, v.store().order.Len(), max(size, 0))
			require.Len(t, v.store().byKey, v.store().order.Len())
		}
	}
	v := testVerifier(t)
	v.Issuers = trustIssuer(t, IssuerRule{})
	_, err := v.Verify([][]byte{sealed(t, testLease(t))}, testPeer(t, 'h'))
	require.Error(t, err)
	require.Zero(t, v.store().order.Len(), "nobody but a trusted issuer fills it")
}

func TestVerifyFromManyGoroutines(t *testing.T) {
	t.Parallel()
	v := testVerifier(t)
	v.CacheSize = 2
	var chains [][]byte
	for i := range 4 {
		l := testLease(t)
		l.ID[0] = byte(i)
		chains = append(chains, sealed(t, l))
	}
	holder := testPeer(t, 'h')
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			for j := range 20 {
				got, err := v.Verify([][]byte{chains[(i+j)%4]}, holder)
				if err != nil || got.ID[0] != byte((i+j)%4) {
					errs[i] = errors.Join(err, errors.New("wrong"))
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// spec: LEASE-28
func TestGrant(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	more := Grant{Connector: connector("github"), Version: version("2.41.0"), Commands: commands("api")}
	l.Grants = []Grant{l.Grants[0], more, l.Grants[1]}
	for label, c := range map[string]struct {
		key, version, command string
		want                  Reason
	}{
		"granted":           {"github", "2.40.1", "issue.view", ReasonNone},
		"other-version":     {"github", "2.41.0", "api", ReasonNone},
		"of-other-version":  {"github", "2.41.0", "issue.view", ReasonNoCommand},
		"no-such-command":   {"github", "2.40.1", "issue", ReasonNoCommand},
		"no-such-version":   {"github", "2.40", "issue.view", ReasonNoVersion},
		"no-such-connector": {"gitlab", "2.40.1", "issue.view", ReasonNoConnector},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			g, err := l.Grant(connector(c.key), version(c.version), commands(c.command)[0])
			if c.want == ReasonNone {
				require.NoError(t, err)
				require.Contains(t, g.Commands, commands(c.command)[0])
				return
			}
			require.Equal(t, Grant{}, g)
			requireReason(t, c.want, err)
		})
	}
}

// spec: LEASE-32
func TestPreciseReasons(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for r := ReasonNone; r < reasonEnd; r++ {
		require.Equal(t, r > ReasonGateway, r.Precise(), r)
		require.NotEmpty(t, r.text().text)
		if r != ReasonNone {
			require.False(t, seen[r.String()])
		}
		seen[r.String()] = true
	}
	require.False(t, Reason(200).Precise())
	require.Equal(t, "LEASE_UNKNOWN", Reason(200).String())
}

// The reason is that of the first check in the documented order, whatever else is
// wrong. spec: LEASE-33
func TestFirstFailureDecides(t *testing.T) {
	t.Parallel()
	issuer, _ := testIdentity(t, 'i')
	rapid.Check(t, func(rt *rapid.T) {
		v, l, peer, want := testVerifier(t), testLease(t), testPeer(t, 'h'), ReasonNone
		revoked := false
		v.Revoked = revokeFunc(func(Subject) bool { return revoked })
		wrong := func(r Reason) bool {
			yes := rapid.Bool().Draw(rt, r.String())
			if yes && want == ReasonNone {
				want = r
			}
			return yes
		}
		badSignature := wrong(ReasonSignature)
		if wrong(ReasonUntrustedIssuer) {
			v.Issuers = trustIssuer(t, IssuerRule{AnyConnector: true, Until: testTime.Add(-time.Hour)})
		} else if wrong(ReasonConnectorRule) {
			v.Issuers = trustIssuer(t, IssuerRule{Connectors: []name.ConnectorKey{connector("github")}})
		}
		if wrong(ReasonHolder) {
			peer = testPeer(t, 'x')
		}
		if wrong(ReasonGateway) {
			v.Gateway = testPeer(t, 'x')
		}
		if wrong(ReasonCritical) {
			l.Critical = []string{"x"}
		}
		if wrong(ReasonAuthority) {
			l.Authority = 7
		}
		if wrong(ReasonExpired) {
			v.Now = func() time.Time { return testTime.Add(100 * time.Hour) }
		} else if wrong(ReasonNotYet) {
			v.Now = func() time.Time { return testTime.Add(-time.Hour) }
		}
		if wrong(ReasonLife) {
			l.NotAfter = testTime.Add(99 * time.Hour)
		}
		revoked = wrong(ReasonRevoked)
		b := sealRaw(t, rawRecord{kind().Domain, kind().PayloadType, string(must(l.encode()))}, issuer)
		if badSignature {
			b = flip(b, len(b)-1)
		}
		for range 2 {
			_, err := v.Verify([][]byte{b}, peer)
			if want == ReasonNone {
				require.NoError(t, err)
				continue
			}
			requireReason(t, want, err)
		}
	})
}

func TestHoldersOwnLook(t *testing.T) {
	t.Parallel()
	l, err := Open([][]byte{sealed(t, testLease(t))})
	require.NoError(t, err)
	require.Equal(t, testLease(t), l)
	holder, gateway, other := testPeer(t, 'h'), testPeer(t, 'g'), testPeer(t, 'x')
	require.NoError(t, l.Usable(holder, gateway, testTime))
	require.NoError(t, l.Usable(holder, name.PeerID{}, testTime))
	requireReason(t, ReasonHolder, l.Usable(other, gateway, testTime))
	requireReason(t, ReasonHolder, l.Usable(name.PeerID{}, gateway, testTime))
	requireReason(t, ReasonGateway, l.Usable(holder, other, testTime))
	requireReason(t, ReasonExpired, l.Usable(holder, gateway, testTime.Add(time.Hour)))
	requireReason(t, ReasonNotYet, l.Usable(holder, gateway, testTime.Add(-time.Hour)))
	_, err = Open([][]byte{sealChanged(t, func(l *Lease) { l.Authority = 2 })})
	requireReason(t, ReasonAuthority, err)
	root := testLease(t)
	root.DepthLeft = 1
	l, err = Open([][]byte{sealed(t, root), delegated(t, root, 'c')})
	require.NoError(t, err)
	require.Equal(t, root.Issuer, l.Issuer)
	require.NoError(t, l.Usable(testPeer(t, 'c'), gateway, testTime))
	requireReason(t, ReasonHolder, l.Usable(holder, gateway, testTime))
	_, err = Open([][]byte{delegated(t, root, 'c')})
	requireReason(t, ReasonLink, err)
}

func TestErrorTextIsSafe(t *testing.T) {
	t.Parallel()
	_, err := Open([][]byte{sealChanged(t, func(l *Lease) { l.Critical = []string{"\x1b[31m\u202e"} })})
	requireReason(t, ReasonCritical, err)
	for _, r := range err.Error() {
		require.True(t, r >= ' ' && r < 127, "%q", err.Error())
	}
	require.Equal(t, "lease a field is missing or out of bounds (link 1): holder: missing",
		(&Error{Reason: ReasonField, Link: 1, Field: "holder", Detail: "missing"}).Error())
}

func TestIDs(t *testing.T) {
	t.Parallel()
	id := NewID()
	require.NotEqual(t, NewID(), id)
	back, err := ParseID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, back)
	for _, s := range []string{"", "00000000000000000000000000000000", "0102", "0102030405060708090A0B0C0D0E0F10", "zz02030405060708090a0b0c0d0e0f10"} {
		var zero ID
		require.Error(t, zero.UnmarshalText([]byte(s)), s)
		require.True(t, zero.IsZero())
	}
}

func BenchmarkVerify(b *testing.B) {
	chain := [][]byte{sealed(b, testLease(b))}
	holder := testPeer(b, 'h')
	for label, size := range map[string]int{"fresh": -1, "cached": 0} {
		b.Run(label, func(b *testing.B) {
			v := testVerifier(b)
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

// Any change of any byte of a sealed lease is refused, and so is any part of it.
// spec: LEASE-4, LEASE-6
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	v, holder := testVerifier(t), testPeer(t, 'h')
	good := sealed(t, testLease(t))
	_, err := v.Verify([][]byte{good}, holder)
	require.NoError(t, err)
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		_, err := v.Verify([][]byte{bad}, holder)
		var e *Error
		require.ErrorAs(t, err, &e, "byte %d", at)
		require.False(t, e.Reason.Precise(), "byte %d", at)
		_, err = v.Verify([][]byte{good[:at]}, holder)
		require.Error(t, err, "cut at %d", at)
	}
}

// The one encoding of a lease survives the round trip, whatever it holds.
// spec: LEASE-6
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	key, _ := testIdentity(t, 'i')
	rapid.Check(t, func(rt *rapid.T) {
		l := testLease(t)
		l.IssuedAt = testTime.Add(time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(rt, "issued")) * time.Millisecond)
		l.NotBefore = l.IssuedAt.Add(time.Duration(rapid.Int64Range(0, 1e6).Draw(rt, "before")) * time.Millisecond)
		l.NotAfter = l.NotBefore.Add(time.Duration(rapid.Int64Range(1, 1e9).Draw(rt, "after")) * time.Millisecond)
		l.MaxOperations, l.MaxConcurrent = rapid.IntRange(1, MaxOperations).Draw(rt, "most"), rapid.IntRange(1, MaxConcurrent).Draw(rt, "at-once")
		l.Purpose = rapid.StringMatching(`[ -~äß]{0,100}`).Draw(rt, "purpose")
		l.DepthLeft = rapid.IntRange(0, 2).Draw(rt, "depth")
		l.Grants = nil
		for _, c := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}`), 1, 5, rapid.ID).Draw(rt, "connectors") {
			g := Grant{Connector: connector(c), Version: version("1"), Finish: rapid.Bool().Draw(rt, "finish"), Pins: map[name.Parameter][]string{}}
			g.Commands = commands(rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z.]{0,8}`), 1, 5, rapid.ID).Draw(rt, "commands")...)
			for _, p := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 0, 3, rapid.ID).Draw(rt, "pins") {
				g.Pins[parameter(p)] = rapid.SliceOfNDistinct(rapid.StringMatching(`[ -~é]{0,10}`), 1, 3, rapid.ID).Draw(rt, "literals")
			}
			l.Grants = append(l.Grants, g)
		}
		b, err := Seal(l, key)
		require.NoError(rt, err)
		got, err := Open([][]byte{b})
		require.NoError(rt, err)
		require.Equal(rt, l.sorted().Grants, got.Grants)
		got.Grants, l.Grants = nil, nil
		require.Equal(rt, l.sorted().Purpose, got.Purpose)
		require.True(rt, l.IssuedAt.Equal(got.IssuedAt) && l.NotBefore.Equal(got.NotBefore) && l.NotAfter.Equal(got.NotAfter))
		require.Equal(rt, []int{l.MaxOperations, l.MaxConcurrent, l.DepthLeft}, []int{got.MaxOperations, got.MaxConcurrent, got.DepthLeft})
	})
}
