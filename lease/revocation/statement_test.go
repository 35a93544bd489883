package revocation

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// Every prefix and every flipped bit of a good envelope is refused.
// spec: REVOKE-2, REVOKE-3
func TestEveryBitCounts(t *testing.T) {
	t.Parallel()
	good := sealedBy('i')
	for i := range good {
		_, err := Open(good[:i])
		require.Error(t, err, "cut at %d", i)
		for bit := range 8 {
			b := flip(good, i)
			b[i] = good[i] ^ 1<<bit
			s, err := Open(b)
			require.Error(t, err, "byte %d bit %d", i, bit)
			require.Equal(t, Statement{}, s)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	key, _ := testIdentity('i')
	foreign, err := crypto.UnmarshalSecp256k1PrivateKey(append(make([]byte, 31), 1))
	require.NoError(t, err)
	for label, c := range map[string]struct {
		edit func(*Statement)
		key  crypto.PrivKey
		want Reason
	}{
		"no-key":      {func(*Statement) {}, nil, ReasonKeyType},
		"foreign-key": {func(*Statement) {}, foreign, ReasonKeyType},
		"other-key":   {func(s *Statement) { s.Issuer = named('x') }, key, ReasonIssuerKey},
		"nothing":     {func(s *Statement) { s.Entry = Entry{} }, key, ReasonField},
		"no-id":       {func(s *Statement) { s.ID = lease.ID{} }, key, ReasonField},
		"no-issuer":   {func(s *Statement) { s.Issuer = name.PeerID{} }, key, ReasonField},
		"no-gateway":  {func(s *Statement) { s.Gateway = name.PeerID{} }, key, ReasonField},
		"nanoseconds": {func(s *Statement) { s.At = s.At.Add(1) }, key, ReasonField},
		"before-1990": {func(s *Statement) { s.Entry.IssuedBefore = time.Unix(0, 0) }, key, ReasonField},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			b, err := Seal(statement(c.edit), c.key)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.want, refused.Reason)
			require.Nil(t, b)
		})
	}
}

// spec: REVOKE-7
func TestZeroAuthorityAcceptsNothing(t *testing.T) {
	t.Parallel()
	for label, a := range map[string]Authority{
		"zero":     {},
		"no-clock": {Gateway: named('g'), Owner: named('o')},
		"no-list":  {Gateway: named('g'), Now: func() time.Time { return testTime }},
	} {
		for _, letter := range []byte("oi") {
			_, _, err := a.Accept(sealedBy(letter))
			var refused *Error
			require.ErrorAs(t, err, &refused, label)
			require.Equal(t, ReasonUntrusted, refused.Reason, label)
		}
	}
}

// Who has passed a lease on revokes what it has signed, and nothing else.
// spec: REVOKE-7, REVOKE-9
func TestWhoPassesLeasesOnRevokesItsOwn(t *testing.T) {
	t.Parallel()
	key, holder := testIdentity('h')
	a := Authority{
		Gateway: named('g'), Now: func() time.Time { return testTime },
		PassesOn: func(id name.PeerID) bool { return id == holder },
	}
	own := Statement{ID: lease.ID{9}, Issuer: holder, Gateway: named('g'), At: testTime, Entry: Entry{Lease: lease.ID{1}}}
	e, _, err := a.Accept(must(Seal(own, key)))
	require.NoError(t, err)
	require.Equal(t, holder, e.Issuer, "its own only")
	require.False(t, a.Lists(holder))
	require.False(t, a.Lists(name.PeerID{}), "no owner is nobody")
	own.Entry.Issuer = named('i')
	_, _, err = a.Accept(must(Seal(own, key)))
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ReasonNotOwn, refused.Reason)
	_, _, err = a.Accept(sealedBy('x'))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ReasonUntrusted, refused.Reason)
	a.Owner, a.Listed = named('o'), func(id name.PeerID) bool { return id == named('i') }
	require.True(t, a.Lists(named('o')))
	require.True(t, a.Lists(named('i')))
	require.False(t, a.Lists(name.PeerID{}))
}

// spec: REVOKE-12
func TestPrecise(t *testing.T) {
	t.Parallel()
	for r := ReasonNone; r <= reasonEnd; r++ {
		require.Equal(t, r == ReasonNotOwn || r == ReasonFuture || r == ReasonOld, r.Precise(), r.String())
		require.Equal(t, r.Precise(), (&Error{Reason: r, Detail: "secret"}).Public() != "", r.String())
		require.NotContains(t, (&Error{Reason: r, Detail: "secret"}).Public(), "secret")
	}
	require.Equal(t, "revocation: a field is missing or out of bounds: holder: rule", badField("holder", "rule").Error())
}

// spec: REVOKE-11
func TestKeptUntilAllIsDead(t *testing.T) {
	t.Parallel()
	now := testTime.Add(123456)
	e := Entry{Holder: named('h'), IssuedBefore: testTime}.Kept(now)
	require.Equal(t, now.Truncate(time.Millisecond), e.At)
	last := subject()
	last.Holder, last.IssuedAt = named('h'), testTime.Add(-time.Millisecond)
	require.True(t, must(New(e)).Revoked(last))
	require.False(t, e.Until.Before(last.IssuedAt.Add(lease.HardCap)), "the last lease that it names is dead by then")
	require.Zero(t, Entry{Lease: lease.ID{1}}.Kept(now).Until, "it may be issued later than now")
	require.Zero(t, Entry{Invocation: invocation("a")}.Kept(now).Until)
}

func TestCovers(t *testing.T) {
	t.Parallel()
	now := testTime
	one := Entry{Lease: lease.ID{1}, Issuer: named('i'), IssuedBefore: now}.Kept(now)
	later := one
	later.IssuedBefore = now.Add(time.Second)
	for label, c := range map[string]struct {
		by, of Entry
		want   bool
	}{
		"itself":         {one, one, true},
		"said-later":     {one, Entry{Lease: lease.ID{1}, Issuer: named('i'), IssuedBefore: now}.Kept(now.Add(time.Hour)), true},
		"wider":          {Entry{Issuer: named('i')}.Kept(now), one, true},
		"narrower":       {one, Entry{Issuer: named('i')}.Kept(now), false},
		"other-issuer":   {Entry{Issuer: named('x')}.Kept(now), one, false},
		"later-time":     {later.Kept(now), one, true},
		"earlier-time":   {one, later.Kept(now), false},
		"timed-of-never": {one, Entry{Lease: lease.ID{1}, Issuer: named('i')}.Kept(now), false},
		"soon-forgotten": {Entry{Lease: lease.ID{1}, Until: now}, Entry{Lease: lease.ID{1}, Until: now.Add(1)}, false},
	} {
		require.Equal(t, c.want, c.by.Covers(c.of), label)
	}
}

func FuzzOpen(f *testing.F) {
	for _, v := range vectors() {
		f.Add(v.envelope)
	}
	a := &Authority{Gateway: named('g'), Owner: named('o'), Now: func() time.Time { return testTime }}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Open(b)
		if err != nil {
			require.Equal(t, Statement{}, s)
			return
		}
		require.Equal(t, b, resealed(t, s))
		_, _, _ = a.Accept(b)
	})
}

// FuzzPayload goes below the signature.
func FuzzPayload(f *testing.F) {
	f.Add(must(ptr(statement()).encode()))
	f.Add(must(ptr(statement(func(s *Statement) { s.Entry = Entry{Holder: named('h'), Issuer: named('i')} })).encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			require.Equal(t, Statement{}, s)
			return
		}
		require.Equal(t, b, must(s.encode()))
	})
}

// TestSpecification: every rule of docs/revocation.md is cited by code and by a
// test, here or in the package of the store, and every citation names a rule.
func TestSpecification(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "revocation.md"))
	require.NoError(t, err)
	rules := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- \[(REVOKE-\d+)\]`).FindAllStringSubmatch(string(doc), -1) {
		require.False(t, rules[m[1]], "%s is there twice", m[1])
		rules[m[1]] = true
	}
	require.NotEmpty(t, rules)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join("..", "..", "gateway", "revocations", "*.go"))
	require.NoError(t, err)
	cited := map[bool]map[string]bool{false: {}, true: {}}
	for _, file := range append(files, more...) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		text := regexp.MustCompile(`\n\s*// ?`).ReplaceAllString(string(b), " ")
		for _, m := range regexp.MustCompile(`spec: ((?:REVOKE-\d+(?:, | to )?)+)`).FindAllStringSubmatch(text, -1) {
			for _, r := range spelledOut(m[1]) {
				cited[strings.HasSuffix(file, "_test.go")][r] = true
			}
		}
	}
	for r := range rules {
		require.True(t, cited[false][r], "no code cites %s", r)
		require.True(t, cited[true][r], "no test cites %s", r)
	}
	for _, c := range cited {
		for r := range c {
			require.True(t, rules[r], "%s is cited but is no rule", r)
		}
	}
}

// spelledOut lists the rules of a citation, of which "A to B" is a range.
func spelledOut(citation string) (out []string) {
	number := func(s string) int { return must(strconv.Atoi(strings.TrimPrefix(s, "REVOKE-"))) }
	for part := range strings.SplitSeq(strings.TrimSuffix(citation, ", "), ", ") {
		from, to, ranged := strings.Cut(part, " to ")
		if !ranged {
			to = from
		}
		for n := number(from); n <= number(to); n++ {
			out = append(out, "REVOKE-"+strconv.Itoa(n))
		}
	}
	return out
}
