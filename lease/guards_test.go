package lease

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/lendcli/lend/lease/envelope"
	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

// Each guard of this file's tests stands where another one would often catch the same
// thing, so they are asked alone.

// TestSameTerms: grants that differ in anything but their commands stay two grants.
func TestSameTerms(t *testing.T) {
	t.Parallel()
	g := testLease(t).Grants[0]
	same := g
	same.Commands = commands("pr.list")
	require.True(t, g.sameTerms(same))
	for title, change := range map[string]func(*Grant){
		"connector": func(o *Grant) { o.Connector = connector("gitlab") },
		"version":   func(o *Grant) { o.Version = version("9.9.9") },
		"finish":    func(o *Grant) { o.Finish = !o.Finish },
		"pins":      func(o *Grant) { o.Pins = map[name.Parameter][]string{parameter("repo"): {"acme/a"}} },
		"no-pins":   func(o *Grant) { o.Pins = nil },
	} {
		other := g
		change(&other)
		require.False(t, g.sameTerms(other), title)
	}
}

// TestRevokedByNobody: who is not asked has revoked everything.
func TestRevokedByNobody(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	require.True(t, (&Verified{Lease: l, Root: l.Issuer, Links: []Lease{l}}).Revoked(nil))
	require.True(t, (&Verified{Lease: l, Root: l.Issuer}).Revoked(nobody{}), "no links")
	require.False(t, (&Verified{Lease: l, Root: l.Issuer, Links: []Lease{l}}).Revoked(nobody{}))
}

type nobody struct{}

func (nobody) Revoked(Subject) bool { return false }

// TestPrintable: each reason alone.
func TestPrintable(t *testing.T) {
	t.Parallel()
	require.True(t, printable("nightly triage", 14))
	require.False(t, printable("nightly triage", 13))
	require.False(t, printable("a\xffb", 14), "not UTF-8, though its replacement would be printable")
	require.False(t, printable("a\u202eb", 14))
	require.False(t, printable("a\nb", 14))
}

// TestSizesAreBounded: one envelope by itself, as a holder opens it.
func TestSizesAreBounded(t *testing.T) {
	t.Parallel()
	var refused *Error
	_, err := openEnvelope(nil)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ReasonSize, refused.Reason)
	_, err = openEnvelope(make([]byte, MaxEnvelope+1))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ReasonSize, refused.Reason)
}

// TestSizesComeFirst: no signature of a chain is verified if one of its envelopes is
// refused for its size.
func TestSizesComeFirst(t *testing.T) {
	t.Parallel()
	forged := sealed(t, testLease(t))
	forged[len(forged)-1] ^= 1
	_, err := openChain([][]byte{forged, forged})
	requireReason(t, ReasonSignature, err)
	for _, second := range [][]byte{{}, make([]byte, MaxEnvelope+1)} {
		_, err = openChain([][]byte{forged, second})
		var refused *Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, ReasonSize, refused.Reason)
		require.Equal(t, 1, refused.Link)
		require.Equal(t, fmt.Sprintf("%d bytes", len(second)), refused.Detail)
	}
}

// TestWhatIsWrongIsSaid: a payload that is no message, and a name that is none, are
// not reported as what a later look would find missing.
func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	payload, err := l.encode()
	require.NoError(t, err)
	_, err = decode(payload[:len(payload)-1])
	require.Equal(t, refuse(ReasonEncoding, "not a protobuf message of this kind"), err)

	m := new(lendv1.Lease)
	require.NoError(t, proto.Unmarshal(payload, m))
	m.Holder += " "
	_, err = decode(must(envelope.Encode(m)))
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ReasonField, refused.Reason)
	require.Equal(t, "holder", refused.Field)
	_, invalid := name.ParsePeerID(m.GetHolder())
	require.Equal(t, invalid.Error(), refused.Detail)
}

// TestEveryBoundOfALease: each by itself, with what is wrong in its own words.
func TestEveryBoundOfALease(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*Lease){
		"lease_id":       func(l *Lease) { l.ID = ID{} },
		"issuer":         func(l *Lease) { l.Issuer = name.PeerID{} },
		"holder":         func(l *Lease) { l.Holder = name.PeerID{} },
		"gateway":        func(l *Lease) { l.Gateway = name.PeerID{} },
		"invocation":     func(l *Lease) { l.Invocation = name.InvocationID{} },
		"max_operations": func(l *Lease) { l.MaxOperations = MaxOperations + 1 },
		"max_concurrent": func(l *Lease) { l.MaxConcurrent = MaxConcurrent + 1 },
		"depth_left":     func(l *Lease) { l.DepthLeft = MaxChain },
		"purpose":        func(l *Lease) { l.Purpose = "\n" },
		"issued_at_ms":   func(l *Lease) { l.IssuedAt = l.IssuedAt.Add(time.Microsecond) },
		"not_before_ms":  func(l *Lease) { l.NotBefore = l.NotBefore.Add(time.Microsecond) },
		"not_after_ms":   func(l *Lease) { l.NotAfter = l.NotAfter.Add(time.Microsecond) },
		"critical":       func(l *Lease) { l.Critical = []string{"b", "a"} },
		"grants":         func(l *Lease) { l.Grants = grantsOf(MaxGrants + 1) },
	} {
		l := testLease(t)
		require.NoError(t, l.check())
		change(&l)
		var refused *Error
		require.ErrorAs(t, l.check(), &refused, field)
		require.Equal(t, ReasonField, refused.Reason, field)
		require.Equal(t, field, refused.Field)
	}
	l := testLease(t)
	l.Grants = grantsOf(MaxGrants)
	require.NoError(t, l.check())
}

func grantsOf(n int) []Grant {
	var out []Grant
	for i := range n {
		out = append(out, Grant{Connector: connector(fmt.Sprintf("c%03d", i)), Version: version("1"), Commands: commands("get")})
	}
	return out
}

// TestMessagesAreBoundedBeforeTheyAreRead: what is too long is not converted, and said
// to be too long.
func TestMessagesAreBoundedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	payload, err := l.encode()
	require.NoError(t, err)
	for field, change := range map[string]func(*lendv1.Lease){
		"grants": func(m *lendv1.Lease) {
			for len(m.GetGrants()) <= MaxGrants {
				m.Grants = append(m.Grants, &lendv1.LeaseGrant{Connector: "not a name"})
			}
		},
		"parent": func(m *lendv1.Lease) { m.Parent = bytes.Repeat([]byte{1}, 33) },
	} {
		m := new(lendv1.Lease)
		require.NoError(t, proto.Unmarshal(payload, m))
		change(m)
		_, err := fromMessage(m)
		var refused *Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
	}
}

// TestGrantOfARootIsItsOwn: nothing above it takes anything away.
func TestGrantOfARootIsItsOwn(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	want := l.Grants[1]
	require.True(t, want.Finish)
	got, err := (&Verified{Lease: l, Root: l.Issuer, Links: []Lease{l}}).Grant(want.Connector, want.Version, want.Commands[0])
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestEveryBoundOfAGrant: each by itself.
func TestEveryBoundOfAGrant(t *testing.T) {
	t.Parallel()
	none := name.Parameter{}
	for title, c := range map[string]struct {
		field  string
		change func(*Grant)
	}{
		"connector":   {"connector", func(g *Grant) { g.Connector = name.ConnectorKey{} }},
		"version":     {"version", func(g *Grant) { g.Version = name.Version{} }},
		"no-commands": {"commands", func(g *Grant) { g.Commands = nil }},
		"no-command":  {"commands", func(g *Grant) { g.Commands = []name.Command{{}} }},
		"unsorted":    {"commands", func(g *Grant) { g.Commands = commands("b", "a") }},
		"no-name":     {"pins", func(g *Grant) { g.Pins = map[name.Parameter][]string{none: {"a"}} }},
		"no-literal":  {"pins", func(g *Grant) { g.Pins = map[name.Parameter][]string{parameter("a"): {}} }},
		"not-utf-8":   {"pins", func(g *Grant) { g.Pins = map[name.Parameter][]string{parameter("a"): {"\xff"}} }},
	} {
		g := testLease(t).Grants[0]
		field, rule := g.check()
		require.Empty(t, field+rule)
		c.change(&g)
		field, rule = g.check()
		require.Equal(t, c.field, field, title)
		require.NotEmpty(t, rule, title)
	}
}

// TestNoPolicyAllowsMoreThanTheHardDepth, were a chain longer than any that is read.
func TestNoPolicyAllowsMoreThanTheHardDepth(t *testing.T) {
	t.Parallel()
	rule := IssuerRule{MaxDepth: MaxDepth + 1, MayName: func(name.PeerID) bool { return true }}
	require.NoError(t, rule.checkDepth(make([]Lease, MaxDepth+1)))
	requireReason(t, ReasonDepth, rule.checkDepth(make([]Lease, MaxDepth+2)))
}

// TestOnlyChainsOfLegalShapeAreRemembered: others have no key.
func TestOnlyChainsOfLegalShapeAreRemembered(t *testing.T) {
	t.Parallel()
	peer := testPeer(t, 'h')
	whole := make([]byte, MaxEnvelope)
	_, ok := chainKey([][]byte{whole, whole, whole}, peer)
	require.True(t, ok)
	for title, chain := range map[string][][]byte{
		"none": nil, "long": {whole, whole, whole, whole}, "large": {whole, append(whole, 0)},
	} {
		_, ok := chainKey(chain, peer)
		require.False(t, ok, title)
	}
}
