package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

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
