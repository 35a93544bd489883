package client

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

func TestAChainIsOpenedOnce(t *testing.T) {
	f := newFixture(overTCP)
	defer f.close()
	chain := must(f.config.Leases(context.Background())).Chain
	want, err := lease.Open(chain)
	require.NoError(t, err)
	var o opened
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				got, err := o.open(chain)
				if err != nil || got.ID != want.ID {
					t.Error(got.ID, err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, o.by, 1)
	require.Less(t, testing.AllocsPerRun(100, func() { _, _ = o.open(chain) }), 10.0, "no signature is looked at again")
}

// What differs in a byte, or is cut elsewhere, is another chain, and is looked at.
func TestAnotherChainIsOpened(t *testing.T) {
	f := newFixture(overTCP)
	defer f.close()
	chain := must(f.config.Leases(context.Background())).Chain
	var o opened
	_, err := o.open(chain)
	require.NoError(t, err)
	bad := bytes.Clone(chain[0])
	bad[len(bad)/2] ^= 1
	half := len(chain[0]) / 2
	for _, c := range [][][]byte{nil, {}, {bad}, {chain[0], nil}, {nil, chain[0]}, {chain[0], chain[0]}, {chain[0][:half], chain[0][half:]}} {
		require.NotEqual(t, chainKey(chain), chainKey(c))
		_, err := o.open(c)
		require.Error(t, err)
	}
	require.Len(t, o.by, 1, "what is no chain is not remembered")
	for i := range 2 * mostOpened {
		f.lease.Invocation = must(name.ParseInvocationID("invocation-" + strconv.Itoa(i)))
		got, err := o.open(must(f.config.Leases(context.Background())).Chain)
		require.NoError(t, err)
		require.Equal(t, f.lease.Invocation, got.Invocation)
		require.LessOrEqual(t, len(o.by), mostOpened)
	}
}

// What Lease returns is the caller's own: changing it changes nothing that is used.
func TestALeaseThatIsShownIsACopy(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	shown, err := c.Lease(t.Context())
	require.NoError(t, err)
	shown.Lease.Grants[0].Commands[0] = must(name.ParseCommand("other"))
	again, err := c.Lease(t.Context())
	require.NoError(t, err)
	require.Equal(t, "issue.list", again.Lease.Grants[0].Commands[0].String())
}
