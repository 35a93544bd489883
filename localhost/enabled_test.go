package localhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func (r *rig) want(t *testing.T, key string, change func(*intent.Intent)) {
	t.Helper()
	require.NoError(t, r.root.Intent(connectorKey(t, key)).Update(t.Context(), func(i *intent.Intent) error {
		change(i)
		return nil
	}))
}

// A disabled Connector has no route of any connection, of now or later; others go on.
func TestDisabledConnector(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	r.account(t, "github", "home")
	r.account(t, "github", "work")
	r.reconciled(t)
	id := r.current()[0].Identity
	p, err := r.Start(t.Context(), route.StartRequest{Identity: id})
	require.NoError(t, err)

	r.want(t, "github", func(i *intent.Intent) { i.Disabled = true })
	_, err = r.Start(t.Context(), route.StartRequest{Identity: id})
	require.ErrorIs(t, err, route.ErrUnavailable, "at once, before the routes are gone")
	require.ErrorIs(t, err, connection.ErrDisabled)
	require.Equal(t, []string{
		"github@1.0.0 home disabled", "github@1.0.0 home retired",
		"github@1.0.0 work disabled", "github@1.0.0 work retired", "stripe@1.0.0 default kept",
	}, states(r.reconciled(t)))
	e, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, e.Retired, "what runs ends as with any retirement")
	require.NoError(t, p.Close())
	r.account(t, "github", "third")
	r.reconciled(t)
	require.Equal(t, "stripe", r.only(t).Connector.String())

	t.Log("the next host honours it")
	next := again(t, r)
	receipts := next.reconciled(t)
	require.Equal(t, ReasonDisabled, receipts[0].Summary.Reason)
	require.Equal(t, "stripe", next.only(t).Connector.String())

	next.want(t, "github", func(i *intent.Intent) { i.Disabled = false })
	next.reconciled(t)
	require.Len(t, next.current(), 4)
}

// again is another host on the same root, as after a restart or beside the first.
func again(t *testing.T, r *rig) *rig {
	t.Helper()
	n := &rig{
		store: r.store, transport: &recorder{}, log: &syncBuffer{}, root: r.root,
		workspaces: map[string]string{}, prepareErr: map[string]error{}, verifyErr: map[string]error{},
		prepared: map[string]int{}, released: map[string]int{},
	}
	var err error
	n.Host, err = New(Config{Store: n.store, Transport: n.transport, Connections: n.root})
	require.NoError(t, err)
	n.prepare = n.fakePrepare
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// What cannot be understood is not permitted.
func TestUnreadableIntent(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	r.reconciled(t)
	id := r.current()[0].Identity
	file := filepath.Join(r.root.Dir(), "connectors", "github", ".intent.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"schemaVersion":"1","disabled":fal`), 0o600))
	_, err := r.Start(t.Context(), route.StartRequest{Identity: id})
	require.ErrorIs(t, err, route.ErrUnavailable)
	receipts, err := r.Reconcile(t.Context())
	require.Error(t, err)
	require.Equal(t, []string{"github@  failed", "github@1.0.0 default retired", "stripe@1.0.0 default kept"}, states(receipts))
	require.Nil(t, receipts[0].Summary)
	require.Equal(t, "stripe", r.only(t).Connector.String())
}

// While a removal stands, nothing of what it names has a route, and nothing else is
// touched by it.
func TestRemovingHasNoRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "github", "2.0.0", "b"))
	r.reconciled(t)
	r.want(t, "github", func(i *intent.Intent) { i.Removing = &intent.Removal{Versions: []string{"1.0.0"}} })
	_, err := r.Start(t.Context(), route.StartRequest{Identity: r.current()[0].Identity})
	require.ErrorIs(t, err, connection.ErrDisabled)
	require.Equal(t, []string{"github@1.0.0 default retired", "github@2.0.0 default kept"}, states(r.reconciled(t)))
	r.want(t, "github", func(i *intent.Intent) { i.Removing = &intent.Removal{Purge: true} })
	require.Equal(t, []string{"github@2.0.0 default retired"}, states(r.reconciled(t)))
}

// Stale/ambiguous identity: a query that names no connection is never answered with
// another account because one of several has no route now.
func TestAmbiguousThoughOneHasNoRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	q := route.Query{Connector: connectorKey(t, "github"), Version: version(t, "1.0.0")}
	d, err := r.Resolve(q)
	require.NoError(t, err)
	require.Equal(t, connection.Default, d.Identity.Connection.String())

	work := r.account(t, "github", "work")
	r.reconciled(t)
	first, err := r.root.Get(q.Connector, connectionID(t, connection.Default))
	require.NoError(t, err)
	for _, c := range []*connection.Connection{first, work} {
		require.NoError(t, c.SetDisabled(true))
		r.reconciled(t)
		require.Len(t, r.current(), 1)
		_, err = r.Resolve(q)
		require.ErrorIs(t, err, route.ErrAmbiguous, "the other account is not what was meant")
		require.NoError(t, c.SetDisabled(false))
	}
	q.Connection = connectionID(t, "work")
	r.reconciled(t)
	d, err = r.Resolve(q)
	require.NoError(t, err)
	require.Equal(t, "work", d.Identity.Connection.String())
	require.NoError(t, r.root.Remove(q.Connector, q.Connection))
	r.reconciled(t)
	_, err = r.Resolve(q)
	require.ErrorIs(t, err, route.ErrNotFound)
	q.Connection = name.ConnectionID{}
	_, err = r.Resolve(q)
	require.NoError(t, err, "it is the only one again")
}

// Stale/ambiguous identity: a rule that names no connection is not answered as long as
// nobody can tell whether there is a second one; what has a route stays.
func TestAmbiguousWhereConnectionsCannotBeCounted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes are of unix")
	}
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	q := route.Query{Connector: connectorKey(t, "github"), Version: version(t, "1.0.0")}
	own := filepath.Dir(filepath.Dir(r.account(t, "github", "second").Home()))
	second := filepath.Join(own, "second")
	named := q
	named.Connection = connectionID(t, connection.Default)
	refused := func() error {
		_, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, connection.ErrUnsafe)
		require.Len(t, r.current(), 1, "what has a route keeps it")
		_, err = r.Resolve(named)
		require.NoError(t, err, "which is meant is said")
		_, err = r.Resolve(q)
		require.ErrorIs(t, err, route.ErrAmbiguous)
		return err
	}
	require.NoError(t, os.Chmod(second, 0o755))
	require.NotErrorIs(t, refused(), connection.ErrUnsafe, "there are two, whatever the second is")
	require.NoError(t, os.Chmod(own, 0o755))
	err := refused()
	require.ErrorIs(t, err, connection.ErrUnsafe)
	require.ErrorContains(t, err, "the connections of github cannot be counted")
	require.NoError(t, os.Chmod(own, 0o700))
	_, err = r.Resolve(q)
	require.ErrorIs(t, err, route.ErrAmbiguous, "there are two, and one cannot be read")
	require.NoError(t, r.root.Remove(q.Connector, connectionID(t, "second")))
	_, err = r.Resolve(q)
	require.NoError(t, err, "it is the only one again")
	r.reconciled(t)
	_, err = r.Resolve(q)
	require.NoError(t, err)
}

// Reconcile receipt: the bounded summary belongs to the committed generation, and is
// made for what has no route as well.
func TestReconcileReceipt(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"), release(t, "vercel", "1.0.0", "d"))
	r.fail(r.prepareErr, digestOf("d"), errLaunch)
	r.want(t, "stripe", func(i *intent.Intent) { i.Disabled = true })
	receipts, err := r.Reconcile(t.Context())
	require.ErrorIs(t, err, errLaunch)
	require.Equal(t, []string{"github@1.0.0 default published", "stripe@1.0.0 default disabled", "vercel@1.0.0 default failed"}, states(receipts))
	for i, want := range []Reason{"", ReasonDisabled, ReasonFailed} {
		s := receipts[i].Summary
		require.NotNil(t, s)
		require.NoError(t, s.Check())
		require.Equal(t, want, s.Reason)
		require.Equal(t, want == "", s.Ready)
		require.Equal(t, receipts[i].Identity, s.Identity)
		require.Equal(t, "Fake "+s.Identity.Connector.String(), s.DisplayName)
	}
	require.Equal(t, r.only(t), receipts[0].Summary.Identity, "of exactly the route that was committed")
	require.Zero(t, receipts[1].Summary.Identity.Generation)

	r.store.set(release(t, "github", "1.0.0", "e"))
	receipts = r.reconciled(t)
	require.Equal(t, r.only(t), receipts[0].Summary.Identity)
	r.store.set()
	receipts = r.reconciled(t)
	require.Equal(t, StateRetired, receipts[0].State)
	require.Nil(t, receipts[0].Summary, "there is nothing to say about what is gone")
}

// Discovery summary: what is out of bounds, or says that it is ready and is not, is
// refused.
func TestDiscoverySummary(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	good := *r.reconciled(t)[0].Summary
	require.NoError(t, good.Check())
	long := strings.Repeat("x", MaxSummaryDescription+1)
	for title, change := range map[string]func(*Summary){
		"name":                func(s *Summary) { s.DisplayName = long[:MaxSummaryName+1] },
		"description":         func(s *Summary) { s.Description = long },
		"command":             func(s *Summary) { s.Command = long[:MaxSummaryName+1] },
		"commands":            func(s *Summary) { s.Commands = make([]name.Command, MaxSummaryCommands+1) },
		"ready-with-a-reason": func(s *Summary) { s.Reason = ReasonSecrets },
		"not-ready-without":   func(s *Summary) { s.Ready = false },
		"ready-without-route": func(s *Summary) { s.Identity.Generation = route.Generation{} },
		"no-connection":       func(s *Summary) { s.Identity.Connection = name.ConnectionID{} },
		"no-connector":        func(s *Summary) { s.Identity.Connector = name.ConnectorKey{} },
		"no-version":          func(s *Summary) { s.Identity.Version = name.Version{} },
	} {
		bad := good
		change(&bad)
		require.ErrorIs(t, bad.Check(), ErrSummary, title)
	}
	rel := release(t, "github", "1.0.0", "f")
	rel.Manifest.Description = long
	r.store.set(rel)
	require.Nil(t, r.reconciled(t)[0].Summary)
}

// A route whose secrets are locked is not ready, says why, and becomes ready by itself.
func TestLockedSecretsAreNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	c := r.account(t, "github", connection.Default)
	require.NoError(t, c.SetSecret(connection.DeclaredBy(release(t, "github", "1.0.0", "a").Manifest), label(t, "token"), "", strings.NewReader("s3cret-canary")))
	keys, err := filepath.Glob(filepath.Join(r.root.Dir(), "sealed", "key-*"))
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.NoError(t, os.Rename(keys[0], keys[0]+".away"))
	locked, err := connection.Open(r.root.Dir()) // as the next process finds it
	require.NoError(t, err)
	r.root = locked
	next := again(t, r)
	receipts := next.reconciled(t)
	require.Equal(t, []string{"github@1.0.0 default published", "stripe@1.0.0 default published"}, states(receipts))
	require.ErrorIs(t, receipts[0].Blocked, sealed.ErrLocked)
	require.Equal(t, ReasonSecrets, receipts[0].Summary.Reason)
	require.False(t, receipts[0].Summary.Ready)
	require.NoError(t, receipts[1].Blocked, "a connection without secrets needs no key")
	require.True(t, receipts[1].Summary.Ready)
	id := receipts[0].Identity
	require.ErrorIs(t, next.Blocked(id), sealed.ErrLocked)
	_, err = next.Start(t.Context(), route.StartRequest{Identity: id})
	require.ErrorIs(t, err, sealed.ErrLocked)
	require.NotContains(t, next.log.String(), "canary")

	require.NoError(t, os.Rename(keys[0]+".away", keys[0]))
	require.NoError(t, next.Blocked(id), "the key is back")
	p, err := next.Start(t.Context(), route.StartRequest{Identity: id})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.True(t, next.reconciled(t)[0].Summary.Ready)
	id.Generation.Number++
	require.ErrorIs(t, next.Blocked(id), route.ErrIdentityMismatch)
}

// RouteTable/RouteRegistry: an identity of an earlier boot, or from behind the fence,
// is nothing to the next host.
func TestGenerationsAcrossRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	before := r.only(t)
	seen := []string{before.Generation.Epoch}
	for range 3 {
		next := again(t, r)
		next.reconciled(t)
		now := next.only(t)
		require.NotContains(t, seen, now.Generation.Epoch, "fresh")
		seen = append(seen, now.Generation.Epoch)
		_, err := next.Start(t.Context(), route.StartRequest{Identity: before})
		require.ErrorIs(t, err, route.ErrIdentityMismatch)
		swapped := now
		swapped.Generation.Epoch = before.Generation.Epoch
		_, err = next.Start(t.Context(), route.StartRequest{Identity: swapped})
		require.ErrorIs(t, err, route.ErrIdentityMismatch)
		require.Zero(t, next.transport.started())
		require.NoError(t, next.Close())
		before = now
	}
}

// stuck is a process that cannot be closed until it is let go.
type stuck struct {
	*fakeProcess
	held chan struct{}
}

var errStuck = errors.New("cannot be closed")

func (s *stuck) Close() error {
	select {
	case <-s.held:
		return s.fakeProcess.Close()
	default:
		return errStuck
	}
}

// transportFunc is a transport made of a function.
type transportFunc func(context.Context, process.Spec) (route.Process, error)

func (f transportFunc) Start(ctx context.Context, s process.Spec) (route.Process, error) {
	return f(ctx, s)
}

// Route retirement: a close that fails is kept and tried again, in the lane of its
// Connector alone; the candidate is current before that.
func TestFailedCloseIsKeptForRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b"))
	held := make(chan struct{})
	r.cfg.Transport = transportFunc(func(ctx context.Context, s process.Spec) (route.Process, error) {
		p, err := r.transport.Start(ctx, s)
		if err != nil {
			return nil, err
		}
		return &stuck{p.(*fakeProcess), held}, nil
	})
	r.reconciled(t)
	old := r.current()[0].Identity
	p, err := r.Start(t.Context(), route.StartRequest{Identity: old})
	require.NoError(t, err)

	r.store.set(release(t, "github", "1.0.0", "c"), release(t, "stripe", "1.0.0", "b"))
	receipts, err := r.Reconcile(t.Context())
	require.ErrorIs(t, err, errStuck)
	require.Equal(t, []string{"github@1.0.0 default published", "stripe@1.0.0 default kept"}, states(receipts))
	require.Equal(t, digestOf("c"), r.current()[0].Identity.ReleaseDigest, "the candidate is current all the same")
	require.True(t, receipts[0].Summary.Ready)
	_, err = r.Start(t.Context(), route.StartRequest{Identity: old})
	require.ErrorIs(t, err, route.ErrIdentityMismatch)

	t.Log("others do not even see it")
	other, err := r.Reconcile(t.Context(), connectorKey(t, "stripe"))
	require.NoError(t, err)
	require.Equal(t, []string{"stripe@1.0.0 default kept"}, states(other))

	t.Log("it is tried again, though nothing of its Connector is wanted any more")
	r.store.set(release(t, "stripe", "1.0.0", "b"))
	_, err = r.Reconcile(t.Context())
	require.ErrorIs(t, err, errStuck)
	require.Equal(t, "stripe", r.only(t).Connector.String())
	close(held)
	receipts = r.reconciled(t)
	require.Contains(t, states(receipts), "github@1.0.0 default retired")
	require.Empty(t, r.left)
	require.ErrorIs(t, p.Close(), errStuck, "the same error each time, though nothing is left")
	require.Equal(t, []string{"stripe@1.0.0 default kept"}, states(r.reconciled(t)))
}

// Route retirement: starts that race a Connector that is disabled and enabled again
// leave nothing alive. In every round something runs, a start is with the transport when
// the fence comes and gives a process after it, and others try without a pause, also with
// the identity of before: once it is written down that it is disabled none of them
// starts, and when that was acted on nothing lives.
func TestDisableRacesStarts(t *testing.T) {
	t.Parallel()
	const rounds, workers = 5, 4
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	var late atomic.Pointer[chan struct{}] // closed by the start that ends after the fence
	r.cfg.Transport = transportFunc(func(ctx context.Context, s process.Spec) (route.Process, error) {
		if entered := late.Swap(nil); entered != nil {
			close(*entered)
			<-ctx.Done() // the fence
		}
		return r.transport.Start(ctx, s)
	})
	r.reconciled(t)
	query := route.Query{Connector: connectorKey(t, "github"), Version: version(t, "1.0.0")}

	var epoch atomic.Int64 // odd: it is written down that it is disabled, and not taken back yet
	var started, refused, retired atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	work := func(last route.Identity) {
		var open []route.Process
		for !isClosed(stop) {
			if d, err := r.Resolve(query); err == nil { // else it tries behind the fence
				last = d.Identity
			}
			if len(open) == 8 { // enough to end at once
				_ = open[0].Close()
				open = open[1:]
			}
			was := epoch.Load()
			p, err := r.Start(context.WithoutCancel(t.Context()), route.StartRequest{Identity: last})
			switch {
			case err != nil:
				if was%2 == 1 {
					refused.Add(1)
				}
				<-time.After(time.Millisecond) // others have work to do as well
			case was%2 == 1 && epoch.Load() == was:
				t.Error("it was disabled before this start began")
				return
			default:
				started.Add(1)
				open = append(open, p)
			}
		}
		for _, p := range open {
			if e, err := p.Wait(t.Context()); err == nil && e.Retired {
				retired.Add(1)
			}
			_ = p.Close()
		}
	}
	first := r.only(t)
	for range workers {
		wg.Go(func() { work(first) })
	}
	more := func(n *atomic.Int64, by int64) {
		t.Helper()
		before := n.Load()
		require.Eventually(t, func() bool { return n.Load() >= before+by }, 30*time.Second, time.Millisecond)
	}
	for range rounds {
		more(&started, workers)
		entered := make(chan struct{})
		late.Store(&entered)
		<-entered
		r.want(t, "github", func(i *intent.Intent) { i.Disabled = true })
		epoch.Add(1)
		more(&refused, workers)
		r.reconciled(t)
		require.Empty(t, r.current())
		require.Zero(t, r.transport.live.Load(), "what ran has ended, and what was starting")
		more(&refused, workers)
		require.Zero(t, r.transport.live.Load(), "nothing was started since")
		epoch.Add(1)
		r.want(t, "github", func(i *intent.Intent) { i.Disabled = false })
		r.reconciled(t)
		require.NotEqual(t, first.Generation, r.only(t).Generation)
	}
	close(stop)
	r.want(t, "github", func(i *intent.Intent) { i.Disabled = true })
	r.reconciled(t)
	wg.Wait()
	require.Zero(t, r.transport.live.Load())
	require.NotZero(t, retired.Load(), "who ran one learns why it ended")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
