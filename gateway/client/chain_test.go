package client

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// A lease that was passed on is looked at as a whole before anything is sent, and
// is sent as a whole, under the name of the root's issuer.
func TestChainOfLeases(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		t.Helper()
		_, raw, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		middle := must(cryptoKey(raw))
		chain := func(root, link func(*lease.Lease)) [][]byte {
			r, l := f.lease, f.lease
			r.ID, r.Holder, r.DepthLeft = lease.NewID(), must(name.PeerIDFromKey(raw.Public().(ed25519.PublicKey))), 1
			root(&r)
			first := must(lease.Seal(r, f.issuer))
			link(&l)
			return must(lease.Delegate([][]byte{first}, l, middle))
		}
		same := func(*lease.Lease) {}
		var presented [][]byte
		f.config.Leases = func(context.Context) (lease.File, error) { return lease.File{Chain: presented}, nil }
		c := f.dial(t)
		two := func() *Cmd { return c.Command(context.Background(), "two", "a") }
		long := func(l *lease.Lease) {
			l.IssuedAt, l.NotBefore = l.IssuedAt.Add(-time.Hour), l.NotBefore.Add(-time.Hour)
			l.NotAfter = l.NotBefore.Add(30 * time.Minute)
		}

		good := chain(same, func(l *lease.Lease) { l.Grants = l.Grants[:2] })
		for label, tc := range map[string]struct {
			chain  [][]byte
			cmd    *Cmd
			status int
			text   string
		}{
			"dead":       {chain(long, long), list(c), 125, "expired"},
			"its-root":   {good[:1], list(c), 125, "made out to another peer"},
			"no-root":    {good[1:], list(c), 125, "its root is missing"},
			"spliced":    {[][]byte{chain(same, same)[0], good[1]}, list(c), 125, "another parent"},
			"not-passed": {good, &Cmd{Connector: "two", Name: "a", Version: "2", ctx: context.Background(), client: c}, 127, "VERSION_UNKNOWN"},
		} {
			presented = tc.chain
			err := tc.cmd.Run()
			require.ErrorContains(t, err, tc.text, label)
			require.Equal(t, tc.status, ExitStatus(err), label)
		}
		require.Empty(t, c.dialer.Host.Network().Conns(), "nobody was dialled")

		presented = good
		f.then(exits(&protocol.Exit{}))
		cmd := two() // of the two versions that the root grants, one was passed on
		require.NoError(t, cmd.Run())
		require.Equal(t, good, f.seen()[0].Lease)
		require.Equal(t, "1", f.seen()[0].Version.String())
		require.Equal(t, f.lease.Issuer, cmd.op.key.Issuer)
	})
}
