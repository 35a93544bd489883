package localhost

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/route"
)

func damageOf(owner, version string, err error) *install.Damage {
	return &install.Damage{Kind: depot.Connectors, Owner: owner, Version: version, Err: err}
}

// Isolation: a release that cannot be read loses its route, and what runs of it ends as
// with an invalid installation; no other Connector, and no other version, is touched.
func TestDamagedReleaseIsRefusedAlone(t *testing.T) {
	t.Parallel()
	github, next, stripe := release(t, "github", "1.0.0", "a"), release(t, "github", "2.0.0", "b"), release(t, "stripe", "1.0.0", "c")
	r := newRig(t, github, next, stripe)
	r.reconciled(t)
	p, err := r.Start(t.Context(), route.StartRequest{Identity: r.current()[0].Identity})
	require.NoError(t, err)

	damage := damageOf("github", "1.0.0", errors.New("read receipt: unexpected end"))
	r.store.set(next, stripe)
	r.store.damage(damage, damageOf("not a connector", "1.0.0", errors.New("stray")))
	receipts, err := r.Reconcile(t.Context())
	var found *install.Damage
	require.ErrorAs(t, err, &found)
	require.Equal(t, damage, found)
	require.Equal(t, []string{
		"github@1.0.0  failed", "github@1.0.0 default retired", "github@2.0.0 default kept", "stripe@1.0.0 default kept",
	}, states(receipts))
	require.Nil(t, receipts[0].Summary)
	e, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, e.Retired)
	require.NoError(t, p.Close())
	require.Len(t, r.current(), 2)

	t.Log("who needs one release is not told of another")
	require.NoError(t, r.ReconcileRelease(t.Context(), connectorKey(t, "github"), version(t, "2.0.0")))
	require.NoError(t, r.ReconcileRelease(t.Context(), connectorKey(t, "stripe"), version(t, "1.0.0")))
	require.ErrorIs(t, r.ReconcileRelease(t.Context(), connectorKey(t, "github"), version(t, "1.0.0")), damage)

	t.Log("one of which nothing can be listed, and one that is being removed")
	r.store.set(stripe)
	r.store.damage(damageOf("github", "", errors.New("a link is in its place")))
	receipts, err = r.Reconcile(t.Context())
	require.Error(t, err)
	require.Equal(t, []string{"github@  failed", "github@2.0.0 default retired", "stripe@1.0.0 default kept"}, states(receipts))
	require.Error(t, r.ReconcileRelease(t.Context(), connectorKey(t, "github"), version(t, "2.0.0")))
	r.store.damage(damage)
	r.want(t, "github", func(i *intent.Intent) { i.Removing = &intent.Removal{Versions: []string{"1.0.0"}} })
	require.Equal(t, []string{"stripe@1.0.0 default kept"}, states(r.reconciled(t)), "its removal is what is wanted")

	t.Log("mended")
	r.want(t, "github", func(i *intent.Intent) { i.Removing = nil })
	r.store.damage()
	r.store.set(github, next, stripe)
	require.Equal(t, []string{"github@1.0.0 default published", "github@2.0.0 default published", "stripe@1.0.0 default kept"}, states(r.reconciled(t)))
}

// A Connector of which all is damaged gets no connection from that.
func TestDamageMakesNoConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.damage(damageOf("github", "1.0.0", errors.New("no")))
	_, err := r.Reconcile(t.Context())
	require.Error(t, err)
	all, err := r.root.List(connectorKey(t, "github"))
	require.NoError(t, err)
	require.Empty(t, all)
}

// A gateway without descriptors or memory cannot tell what is damaged: what it has stays,
// unless the owner does not want it.
func TestWantOfDescriptorsRetiresNothing(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"1.0.0", ""} {
		github, stripe := release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "c")
		r := newRig(t, github, stripe)
		r.reconciled(t)
		before := r.current()
		r.store.set(stripe)
		r.store.damage(damageOf("github", v, syscall.EMFILE))
		_, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, syscall.EMFILE)
		require.Equal(t, before, r.current())
		r.want(t, "github", func(i *intent.Intent) { i.Disabled = true })
		_, err = r.Reconcile(t.Context())
		require.Error(t, err)
		require.Equal(t, "stripe", r.only(t).Connector.String())
	}
}
