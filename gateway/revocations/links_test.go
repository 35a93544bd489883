package revocations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
)

// What is recorded of an operation is revoked by each link of its lease.
func TestPast(t *testing.T) {
	t.Parallel()
	last := leaseOf(3)
	root, middle := last, last
	root.Lease, root.Holder, root.IssuedAt = lease.ID{1}, testKey('m').id, testTime.Add(-time.Hour)
	middle.Lease, middle.Issuer = lease.ID{3}, testKey('m').id
	links := Links(last, []lease.Subject{root, middle, last})
	unknown := last
	unknown.IssuedAt = time.Time{}
	before := func(d time.Duration) time.Time { return testTime.Add(d) }
	for label, c := range map[string]struct {
		entry revocation.Entry
		want  bool
	}{
		"last":            {revocation.Entry{Lease: lease.ID{3}}, true},
		"root":            {revocation.Entry{Lease: lease.ID{1}}, true},
		"root-holder":     {revocation.Entry{Holder: testKey('m').id}, true},
		"delegator":       {revocation.Entry{Issuer: testKey('m').id}, true},
		"issuer":          {revocation.Entry{Issuer: testKey('i').id}, true},
		"other-lease":     {revocation.Entry{Lease: lease.ID{2}}, false},
		"other-holder":    {revocation.Entry{Holder: testKey('x').id}, false},
		"before-root":     {revocation.Entry{IssuedBefore: before(-time.Hour)}, false},
		"before-last":     {revocation.Entry{IssuedBefore: before(0)}, true}, // the root is older
		"before-its-last": {revocation.Entry{Lease: lease.ID{3}, IssuedBefore: before(0)}, false},
		"after-its-last":  {revocation.Entry{Lease: lease.ID{3}, IssuedBefore: before(time.Millisecond)}, true},
	} {
		s := must(revocation.New(c.entry))
		require.Equal(t, c.want, Past(s, unknown, links), label)
	}
	never := must(revocation.New(revocation.Entry{IssuedBefore: time.Unix(0, 0)}))
	for _, links := range []string{"", "x", "x:1", "03000000000000000000000000000000:x", links + " y:z", links + ":q:r"} {
		require.True(t, Past(never, unknown, links), "%q: it may have been issued at any time", links)
		require.True(t, Past(nil, unknown, links))
	}
	require.False(t, Past(never, unknown, links))
}
