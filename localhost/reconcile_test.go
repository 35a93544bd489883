package localhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func TestReconcileIsIncremental(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	require.Equal(t, []string{"github@1.0.0 default published", "stripe@1.0.0 default published"}, states(r.reconciled(t)))
	before := r.current()
	require.Equal(t, []string{"github@1.0.0 default kept", "stripe@1.0.0 default kept"}, states(r.reconciled(t)))
	require.Equal(t, before, r.current(), "unchanged routes keep their generation")

	t.Log("a second version and another content of stripe")
	r.store.set(release(t, "github", "1.0.0", "a"), release(t, "github", "2.0.0", "d"), release(t, "stripe", "1.0.0", "e"))
	require.Equal(t, []string{
		"github@1.0.0 default kept", "github@2.0.0 default published", "stripe@1.0.0 default published",
	}, states(r.reconciled(t)))
	after := r.current()
	require.Equal(t, before[0].Identity, after[0].Identity)
	require.Equal(t, digestOf("e"), after[2].Identity.ReleaseDigest)
	require.Greater(t, after[2].Identity.Generation.Number, before[1].Identity.Generation.Number)

	t.Log("stripe is removed; github is not touched")
	r.store.set(release(t, "github", "1.0.0", "a"), release(t, "github", "2.0.0", "d"))
	receipts, err := r.Reconcile(t.Context(), connectorKey(t, "stripe"))
	require.NoError(t, err)
	require.Equal(t, []string{"stripe@1.0.0 default retired"}, states(receipts))
	require.Equal(t, after[:2], r.current())

	r.store.set()
	require.Equal(t, []string{"github@1.0.0 default retired", "github@2.0.0 default retired"}, states(r.reconciled(t)))
	require.Empty(t, r.current())
}

func TestReconcileContractChange(t *testing.T) {
	t.Parallel()
	rel := release(t, "github", "1.0.0", "a")
	r := newRig(t, rel)
	r.reconciled(t)
	before := r.only(t)
	rel.ContractHash = "sha256:" + strings.Repeat("d", 64)
	r.store.set(rel)
	require.Equal(t, []string{"github@1.0.0 default published"}, states(r.reconciled(t)))
	require.NotEqual(t, before, r.only(t))
}

func TestReconcileConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	work := r.account(t, "github", "work")
	r.account(t, "github", "home")
	require.Equal(t, []string{"github@1.0.0 home published", "github@1.0.0 work published"}, states(r.reconciled(t)))

	query := route.Query{Connector: connectorKey(t, "github"), Version: version(t, "1.0.0")}
	_, err := r.Resolve(query)
	require.ErrorIs(t, err, route.ErrAmbiguous)
	query.Connection = connectionID(t, "work")
	d, err := r.Resolve(query)
	require.NoError(t, err)
	require.Equal(t, "work", d.Identity.Connection.String())
	require.Equal(t, "Fake github", d.DisplayName)

	require.NoError(t, work.SetDisabled(true))
	_, err = r.Start(t.Context(), route.StartRequest{Identity: d.Identity})
	require.ErrorIs(t, err, route.ErrUnavailable, "at once, before the route is gone")
	receipts := r.reconciled(t)
	require.Equal(t, []string{
		"github@1.0.0 home kept", "github@1.0.0 work disabled", "github@1.0.0 work retired",
	}, states(receipts))
	require.Equal(t, []string{"token"}, receipts[0].Missing, "a missing secret is said and blocks nothing")
	require.Equal(t, "home", r.only(t).Connection.String())

	require.NoError(t, work.SetDisabled(false))
	require.NoError(t, r.root.Remove(connectorKey(t, "github"), connectionID(t, "home")))
	require.Equal(t, []string{"github@1.0.0 home retired", "github@1.0.0 work published"}, states(r.reconciled(t)))
}

func TestReconcileFailures(t *testing.T) {
	t.Parallel()

	t.Run("one-release-fails-and-the-others-go-on", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
		r.fail(r.prepareErr, digestOf("a"), errLaunch)
		receipts, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, errLaunch)
		require.Equal(t, []string{"github@1.0.0 default failed", "stripe@1.0.0 default published"}, states(receipts))
		require.Equal(t, "stripe", r.only(t).Connector.String())
		r.fail(r.prepareErr, digestOf("a"), nil)
		require.Equal(t, []string{"github@1.0.0 default published", "stripe@1.0.0 default kept"}, states(r.reconciled(t)))
	})

	t.Run("a-changed-release-that-fails-does-not-run-as-the-old-one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.reconciled(t)
		r.store.set(release(t, "github", "1.0.0", "b"))
		r.fail(r.prepareErr, digestOf("b"), errLaunch)
		receipts, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, errLaunch)
		require.Equal(t, []string{"github@1.0.0 default failed", "github@1.0.0 default retired"}, states(receipts))
		require.Empty(t, r.current())
	})

	t.Run("a-store-that-cannot-be-read-changes-nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.reconciled(t)
		before := r.current()
		broken := errors.New("disk")
		r.store.err = broken
		_, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, broken)
		_, err = r.Reconcile(t.Context(), connectorKey(t, "github"))
		require.ErrorIs(t, err, broken)
		require.Equal(t, before, r.current())
	})

	t.Run("unsafe-connections-are-refused", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("modes are of unix")
		}
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		c := r.account(t, "github", "work")
		require.NoError(t, os.Chmod(filepath.Dir(c.Home()), 0o755))
		receipts, err := r.Reconcile(t.Context())
		require.Error(t, err)
		require.Equal(t, StateFailed, receipts[0].State)
		require.Empty(t, r.current())
	})

	t.Run("damaged-files-are-prepared-again-under-a-new-generation", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.reconciled(t)
		before := r.only(t)
		r.fail(r.verifyErr, digestOf("a"), errTamper)
		require.Equal(t, []string{"github@1.0.0 default published"}, states(r.reconciled(t)))
		require.Greater(t, r.only(t).Generation.Number, before.Generation.Number)
	})

	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Reconcile(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, r.current())
	})
}

func TestReconcileRetiresWhatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	running := r.transport.last
	dir := r.transport.specs[0].Dir

	r.store.set(release(t, "github", "1.0.0", "b"))
	require.Equal(t, []string{"github@1.0.0 default published"}, states(r.reconciled(t)))
	e, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, e.Retired)
	require.EqualValues(t, 1, running.closes.Load())
	requireGone(t, dir) // nothing runs in it any more
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.EqualValues(t, 1, running.closes.Load(), "released once")
}

// The changes of one Connector wait for each other; another Connector goes on.
func TestLanes(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	leave, err := r.lanes.enter(t.Context(), connectorKey(t, "github"))
	require.NoError(t, err)

	receipts, err := r.Reconcile(t.Context(), connectorKey(t, "stripe"))
	require.NoError(t, err)
	require.Equal(t, []string{"stripe@1.0.0 default published"}, states(receipts))

	for _, keys := range [][]name.ConnectorKey{{connectorKey(t, "github")}, nil} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err = r.Reconcile(ctx, keys...)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	leave()
	require.Len(t, r.reconciled(t), 2)
	require.Empty(t, r.lanes.of, "lanes that nobody needs are forgotten")
}

func TestReconcileConcurrently(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			switch i % 4 {
			case 0:
				_, _ = r.Reconcile(t.Context())
			case 1:
				_, _ = r.Reconcile(t.Context(), connectorKey(t, "github"))
			case 2:
				r.store.set(release(t, "github", "1.0.0", "ab"[i%2:i%2+1]), release(t, "stripe", "1.0.0", "b"))
			default:
				if d, err := r.Resolve(route.Query{Connector: connectorKey(t, "github"), Version: version(t, "1.0.0")}); err == nil {
					if p, err := r.Start(t.Context(), route.StartRequest{Identity: d.Identity}); err == nil {
						_ = p.Close()
					}
				}
			}
		})
	}
	wg.Wait()
	r.reconciled(t)
	require.Len(t, r.current(), 2)
}

func TestReceiptsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.cfg.Now = func() time.Time { return at }
	for range MaxReceipts + 10 {
		r.reconciled(t)
	}
	all := r.Receipts()
	require.Len(t, all, MaxReceipts)
	require.Equal(t, StateKept, all[0].State, "the oldest are dropped")
	require.Equal(t, at, all[0].At)
	require.Equal(t, r.only(t), all[0].Identity)
}
