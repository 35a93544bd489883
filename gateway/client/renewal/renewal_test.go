package renewal_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client/renewal"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// now is a wall clock that is in this century inside of a bubble too.
func now() time.Time { return time.Now().AddDate(26, 0, 0) }

type identity struct {
	key crypto.PrivKey
	id  name.PeerID
}

func newIdentity() identity {
	public, key := must2(ed25519.GenerateKey(rand.Reader))
	return identity{must(crypto.UnmarshalEd25519PrivateKey(key)), must(name.PeerIDFromKey(public))}
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// office issues leases, and can be told to do so badly.
type office struct {
	issuer, holder, gateway identity
	life                    time.Duration

	asked atomic.Int64
	mu    sync.Mutex // guards what follows
	fail  error
	takes time.Duration
	deaf  bool
	bend  func(*lease.Lease)
}

func newOffice() *office {
	return &office{issuer: newIdentity(), holder: newIdentity(), gateway: newIdentity(), life: 10 * time.Minute}
}

func (o *office) set(f func(*office)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(o)
}

func (o *office) issue(bend func(*lease.Lease)) lease.File {
	n := now()
	l := lease.Lease{
		ID: lease.NewID(), Issuer: o.issuer.id, Holder: o.holder.id, Gateway: o.gateway.id,
		Invocation: must(name.ParseInvocationID("task-1")), Authority: lease.AuthorityOwner,
		IssuedAt: n, NotBefore: n, NotAfter: n.Add(o.life), MaxOperations: 10, MaxConcurrent: 1,
		Grants: []lease.Grant{{
			Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
			Commands: []name.Command{must(name.ParseCommand("echo"))},
		}},
	}
	if bend != nil {
		bend(&l)
	}
	return lease.File{Chain: [][]byte{must(lease.Seal(l, o.issuer.key))}}
}

func (o *office) fetch(ctx context.Context) (lease.File, error) {
	o.asked.Add(1)
	o.mu.Lock()
	fail, takes, deaf, bend := o.fail, o.takes, o.deaf, o.bend
	o.mu.Unlock()
	if deaf {
		ctx = context.Background()
	}
	if takes > 0 {
		select {
		case <-time.After(takes): // the bubble's clock
		case <-ctx.Done():
			return lease.File{}, ctx.Err()
		}
	}
	if fail != nil {
		return lease.File{}, fail
	}
	return o.issue(bend), nil
}

func open(t *testing.T, o *office, change func(*renewal.Config)) *renewal.Source {
	t.Helper()
	c := renewal.Config{Fetch: o.fetch, Holder: o.holder.id, Now: now}
	if change != nil {
		change(&c)
	}
	s, err := renewal.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func get(t *testing.T, s *renewal.Source) lease.File {
	t.Helper()
	f, err := s.Lease(t.Context())
	require.NoError(t, err)
	require.True(t, now().Before(f.Lease.NotAfter))
	return f
}

// One lease serves until half of its life is over; then the next one is fetched beside
// the work, before the first expires.
func TestRenewsBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		s := open(t, o, nil)
		require.Zero(t, o.asked.Load(), "New asks for nothing")
		first := get(t, s)
		time.Sleep(5*time.Minute - time.Second)
		require.Equal(t, first.Lease.ID, get(t, s).Lease.ID)
		require.EqualValues(t, 1, o.asked.Load())
		o.set(func(o *office) { o.takes = 5 * time.Second })
		time.Sleep(2 * time.Minute) // 7 of 10: it is due for certain
		began := time.Now()
		require.Equal(t, first.Lease.ID, get(t, s).Lease.ID)
		require.Zero(t, time.Since(began), "the work does not wait")
		time.Sleep(6 * time.Second)
		require.NotEqual(t, first.Lease.ID, get(t, s).Lease.ID)
		require.EqualValues(t, 2, o.asked.Load())
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 2, o.asked.Load(), "what nobody needs is not renewed")
		get(t, s)
		require.EqualValues(t, 3, o.asked.Load())
	})
}

// Sources that began together do not come back together.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		began := time.Now()
		var sources []*renewal.Source
		var offices []*office
		for range 20 {
			o := newOffice()
			s := open(t, o, nil)
			get(t, s)
			sources, offices = append(sources, s), append(offices, o)
		}
		for range 7 * 60 {
			time.Sleep(time.Second)
			for i, s := range sources {
				before := offices[i].asked.Load()
				get(t, s)
				synctest.Wait()
				if offices[i].asked.Load() > before {
					asked = append(asked, time.Since(began))
				}
			}
		}
		require.Len(t, asked, 20)
		seen := map[time.Duration]int{}
		for _, d := range asked {
			seen[d]++
			require.GreaterOrEqual(t, d, 5*time.Minute)
			require.LessOrEqual(t, d, 6*time.Minute+41*time.Second)
		}
		require.Greater(t, len(seen), 10)
	})
}

func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		o.takes = time.Second
		s := open(t, o, nil)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { get(t, s) })
		}
		wg.Wait()
		require.EqualValues(t, 1, o.asked.Load())
	})
}

// A failure does not take a lease away that is still good, and is not repeated at once.
func TestFailuresAreFewAndHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		s := open(t, o, nil)
		first := get(t, s)
		down := errors.New("the office is closed")
		o.set(func(o *office) { o.fail = down })
		time.Sleep(7 * time.Minute)
		for range 60 {
			require.Equal(t, first.Lease.ID, get(t, s).Lease.ID)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		require.Less(t, o.asked.Load(), int64(9), "1 + 2 + 4 + 8 + 16 + 30 s")
		time.Sleep(3 * time.Minute)
		_, err := s.Lease(t.Context())
		require.ErrorIs(t, err, down)
		before := o.asked.Load()
		for range 1000 {
			_, err = s.Lease(t.Context())
			require.ErrorIs(t, err, down)
		}
		require.Equal(t, before, o.asked.Load(), "without a pause it is the same failure again")
		o.set(func(o *office) { o.fail = nil })
		time.Sleep(40 * time.Second)
		get(t, s)
	})
}

// Near its end a lease is no use for something new: the next one is waited for, but a
// failure then gives the old one still.
func TestAlmostOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		o.takes = 100 * time.Millisecond
		s := open(t, o, nil)
		first := get(t, s)
		time.Sleep(10*time.Minute - time.Second)
		require.NotEqual(t, first.Lease.ID, get(t, s).Lease.ID)

		second := get(t, s)
		time.Sleep(time.Until(second.Lease.NotAfter.AddDate(-26, 0, 0)) - time.Second)
		o.set(func(o *office) { o.fail = errors.New("closed") })
		require.Equal(t, second.Lease.ID, get(t, s).Lease.ID)
	})
}

// A lease for other work is never swapped in: the same operation ID would run again.
func TestOnlyTheSameWork(t *testing.T) {
	for label, c := range map[string]struct {
		bend func(o *office, l *lease.Lease)
		want error
	}{
		"invocation": {func(_ *office, l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("task-2")) }, renewal.ErrOther},
		"gateway":    {func(_ *office, l *lease.Lease) { l.Gateway = newIdentity().id }, renewal.ErrOther},
		"not-newer":  {func(_ *office, l *lease.Lease) { l.NotAfter = l.NotBefore.Add(time.Minute) }, renewal.ErrNotNewer},
		"holder":     {func(_ *office, l *lease.Lease) { l.Holder = newIdentity().id }, nil},
		"expired": {func(_ *office, l *lease.Lease) {
			l.IssuedAt, l.NotBefore, l.NotAfter = l.IssuedAt.Add(-2*time.Hour), l.IssuedAt.Add(-2*time.Hour), l.IssuedAt.Add(-time.Hour)
		}, nil},
		"later": {func(_ *office, l *lease.Lease) {
			l.NotBefore, l.NotAfter = l.NotBefore.Add(30*time.Minute), l.NotAfter.Add(30*time.Minute)
		}, nil},
	} {
		t.Run(label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice()
				var log bytes.Buffer
				s := open(t, o, func(c *renewal.Config) { c.Log = zerolog.New(&log) })
				first := get(t, s)
				o.set(func(of *office) { of.bend = func(l *lease.Lease) { c.bend(o, l) } })
				time.Sleep(7 * time.Minute)
				require.Equal(t, first.Lease.ID, get(t, s).Lease.ID)
				synctest.Wait()
				require.EqualValues(t, 2, o.asked.Load())
				require.Equal(t, first.Lease.ID, get(t, s).Lease.ID, "it was not taken")
				require.Contains(t, log.String(), "lease not renewed")
				if c.want != nil {
					require.Contains(t, log.String(), c.want.Error())
				}
			})
		})
	}
}

func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		o.takes = time.Hour
		s := open(t, o, func(c *renewal.Config) { c.Timeout = 3 * time.Second })
		began := time.Now()
		_, err := s.Lease(t.Context())
		require.ErrorIs(t, err, renewal.ErrTimeout)
		require.Equal(t, 3*time.Second, time.Since(began))
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Lease(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the caller's own patience")

		// One that does not notice its context holds nobody but itself.
		deaf := newOffice()
		deaf.takes, deaf.deaf = time.Minute, true
		s = open(t, deaf, func(c *renewal.Config) { c.Timeout = 3 * time.Second })
		for range 3 {
			_, err = s.Lease(t.Context())
			require.ErrorIs(t, err, renewal.ErrTimeout)
		}
		require.EqualValues(t, 1, deaf.asked.Load())
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice()
		o.takes = 5 * time.Second
		s := open(t, o, nil)
		failed := make(chan error, 1)
		go func() {
			_, err := s.Lease(context.Background())
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		require.Error(t, <-failed)
		_, err := s.Lease(t.Context())
		require.ErrorIs(t, err, renewal.ErrClosed)
		require.NoError(t, s.Close())
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	o := newOffice()
	_, err := renewal.New(renewal.Config{})
	require.Error(t, err)
	_, err = renewal.New(renewal.Config{Fetch: o.fetch, First: lease.File{Chain: [][]byte{{1}}}})
	require.Error(t, err)
	_, err = renewal.New(renewal.Config{Fetch: o.fetch, First: o.issue(nil), Holder: o.gateway.id})
	require.ErrorIs(t, err, renewal.ErrOther)
	s := open(t, o, func(c *renewal.Config) { c.First = o.issue(nil) })
	get(t, s)
	require.Zero(t, o.asked.Load())
	old := o.issue(func(l *lease.Lease) {
		l.IssuedAt, l.NotBefore, l.NotAfter = l.IssuedAt.Add(-time.Hour), l.NotBefore.Add(-time.Hour), l.NotAfter.Add(-time.Hour)
	})
	s = open(t, o, func(c *renewal.Config) { c.First = old })
	get(t, s)
	require.EqualValues(t, 1, o.asked.Load())
}

// Whatever is printed, no lease is in it.
func TestNeverPrintsALease(t *testing.T) {
	t.Parallel()
	o := newOffice()
	var log bytes.Buffer
	first := o.issue(nil)
	s := open(t, o, func(c *renewal.Config) { c.Log, c.First = zerolog.New(&log).Level(zerolog.TraceLevel), first })
	get(t, s)
	o.set(func(o *office) { o.bend = func(l *lease.Lease) { l.NotAfter = l.NotBefore.Add(time.Second) } })
	empty := open(t, o, func(c *renewal.Config) { c.Log = zerolog.New(&log).Level(zerolog.TraceLevel) })
	f := get(t, empty)
	shown := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, empty)
	}
	for _, bytes := range [][]byte{first.Chain[0], f.Chain[0]} {
		part := bytes[len(bytes)-48:]
		for _, secret := range []string{string(part), hex.EncodeToString(part), base64.StdEncoding.EncodeToString(part)[:40], fmt.Sprint(part)} {
			require.NotContains(t, shown, secret)
		}
	}
	require.Contains(t, shown, "lease renewed")
}
