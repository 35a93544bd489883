package localhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
)

// 200 starts a second go on while one version after another takes the place of the one
// before, and its files go: each start runs whichever is current, whole. With
// LEND_TEST_LONG=1 for a minute.
func TestStartsWhileVersionsAreUpdated(t *testing.T) {
	lasts := time.Second
	if os.Getenv("LEND_TEST_LONG") == "1" {
		lasts = time.Minute
	}
	good, _ := trueAndFalse(t)
	h := newNativeHost(t, good, 0)
	key := connectorKey(t, "native")
	ctx, cancel := context.WithTimeout(t.Context(), lasts+2*time.Minute)
	defer cancel()
	var done atomic.Bool
	var updater sync.WaitGroup
	updates := 0
	updater.Go(func() {
		for n := 1; !done.Load() || updates == 0; n++ {
			source := nativeSource(t, h.base, fmt.Sprintf("1.0.%d", n), good, 256<<10)
			take := func(ctx context.Context, _ install.Release) error {
				_, err := h.Reconcile(ctx, key)
				return err
			}
			_, _, err := h.store.Update(ctx, install.Replacement{Key: key, Source: install.Source{Path: source}, Switch: take}, nil)
			if err == nil {
				err = take(ctx, install.Release{})
			}
			if err != nil {
				t.Error(err)
				return
			}
			updates++
		}
	})
	start := func() error {
		for { // whoever meets the moment of an update looks again, as a gateway's callers do
			all := h.current()
			if len(all) == 0 {
				return errors.New("nothing is current")
			}
			p, err := h.Start(ctx, route.StartRequest{Identity: all[len(all)-1].Identity})
			if ctx.Err() == nil && (errors.Is(err, route.ErrIdentityMismatch) || errors.Is(err, route.ErrUnavailable) && !errors.Is(err, install.ErrTampered)) {
				continue
			}
			if err != nil {
				return err
			}
			e, err := p.Wait(ctx)
			if err = errors.Join(err, p.Close()); err == nil && (e.Code != 0 || e.Signal != "" || e.Retired) {
				err = fmt.Errorf("it ended as %+v", e)
			}
			return err
		}
	}
	var all sync.WaitGroup
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	starts := 0
	for began := time.Now(); time.Since(began) < lasts; starts++ {
		<-tick.C
		all.Go(func() {
			if err := start(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	done.Store(true)
	updater.Wait()
	t.Logf("%d starts, %d updates", starts, updates)
	require.Positive(t, starts)
	require.Positive(t, updates)

	// What was replaced goes when the next process looks, since nothing runs of it.
	_, err := h.Reconcile(ctx, key)
	require.NoError(t, err)
	require.Len(t, h.current(), 1)
	next, err := install.Open(install.Config{Dir: filepath.Join(h.base, "install")})
	require.NoError(t, err)
	require.NoError(t, next.Close())
	left, err := h.store.Versions(key)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, fmt.Sprintf("1.0.%d", updates), left[0].String())
	require.NoError(t, h.store.Remove(ctx, key, name.Version{}))
}
