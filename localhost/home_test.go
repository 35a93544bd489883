package localhost

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
)

// homeOf returns the directories of an environment, which are those of one operation.
func homeOf(t *testing.T, env []string) home.Dirs {
	t.Helper()
	var dir string
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "HOME="); ok {
			dir = filepath.Dir(path)
		}
	}
	require.Contains(t, dir, string(filepath.Separator)+"operations"+string(filepath.Separator))
	return home.In(dir)
}

// TestHomeOfOneOperationDoesNotReachTheNext: an alias, a hook or a plugin that one
// operation writes into its home is not there for the next, nor for the login.
func TestHomeOfOneOperationDoesNotReachTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	account := r.account(t, "github", "work")
	r.reconciled(t)
	login := filepath.Join(".config", "hosts.yml")
	require.NoError(t, os.MkdirAll(filepath.Join(account.Home(), ".config"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(account.Home(), login), []byte("token"), 0o600))
	poison := []string{filepath.Join("home", "alias"), filepath.Join("home", login), filepath.Join("tmp", "x"), filepath.Join("state", "y")}
	r.transport.seen = func(s process.Spec) {
		own := homeOf(t, s.Env)
		data, err := os.ReadFile(filepath.Join(own.Home, login))
		require.NoError(t, err)
		require.Equal(t, "token", string(data), "what the login left is there")
		for i, p := range poison {
			path := filepath.Join(filepath.Dir(own.Home), p)
			if i != 1 {
				require.NoFileExists(t, path)
			}
			require.NoError(t, os.WriteFile(path, []byte("evil"), 0o600))
		}
	}
	a, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	b, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err, "two at the same time")
	first := filepath.Dir(homeOf(t, r.transport.specs[0].Env).Home)
	second := filepath.Dir(homeOf(t, r.transport.specs[1].Env).Home)
	require.NoError(t, os.Chmod(filepath.Join(first, "home", ".config"), 0)) // what a command may leave
	require.NoError(t, a.Close())
	requireGone(t, first)
	require.DirExists(t, second)
	require.NoError(t, b.Close())
	c, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	data, err := os.ReadFile(filepath.Join(account.Home(), login))
	require.NoError(t, err)
	require.Equal(t, "token", string(data))
	requireNoOperation(t, r)

	// The login changes what the next operation gets; while it runs, nothing starts.
	held, err := account.HoldHome()
	require.NoError(t, err)
	_, err = r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.ErrorIs(t, err, home.ErrBusy)
	require.ErrorIs(t, err, route.ErrUnavailable)
	require.NoError(t, held.Close())
	require.Equal(t, 3, r.transport.started())
	requireNoOperation(t, r)
}

// TestNoCopyOfAHomeOutlivesItsRoute: a purge, which comes after the end of the routes,
// leaves no login behind.
func TestNoCopyOfAHomeOutlivesItsRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	account := r.account(t, "github", "work")
	require.NoError(t, os.WriteFile(filepath.Join(account.Home(), "login"), []byte("token"), 0o600))
	r.reconciled(t)
	copies := func() []string {
		found, err := filepath.Glob(filepath.Join(r.root.Dir(), "operations", "*", "*", "home", "login"))
		require.NoError(t, err)
		return found
	}
	require.Eventually(t, func() bool { // until some wait
		p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
		require.NoError(t, err)
		require.NoError(t, p.Close())
		return r.operations.InUse() == 0 && len(copies()) > 0
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, account.SetDisabled(true))
	require.Equal(t, []string{"github@1.0.0 work disabled", "github@1.0.0 work retired"}, states(r.reconciled(t)))
	require.Empty(t, copies())
}

func TestSharedHomeIsTheOwnersChoice(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	account := r.account(t, "github", "work")
	r.reconciled(t)
	require.NoError(t, account.SetSharedHome(true))
	for i := range 2 {
		p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
		require.NoError(t, err)
		require.Contains(t, r.transport.specs[i].Env, "HOME="+account.Home())
		require.Contains(t, r.transport.specs[i].Env, "TMPDIR="+account.Temp())
		require.NoError(t, os.WriteFile(filepath.Join(account.Home(), "renewed"), nil, 0o600))
		require.NoError(t, p.Close())
		require.FileExists(t, filepath.Join(account.Home(), "renewed"))
	}
	require.NoError(t, account.SetSharedHome(false))
	p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(homeOf(t, r.transport.specs[2].Env).Home, "renewed"))
	require.NoError(t, p.Close())
}

// TestHomeThatCannotBeCopiedStartsNothing: too large, or with a link out of it.
func TestHomeThatCannotBeCopiedStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	account := r.account(t, "github", "work")
	r.reconciled(t)
	link := filepath.Join(account.Home(), "link")
	require.NoError(t, os.Symlink(r.root.Dir(), link))
	_, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.ErrorIs(t, err, home.ErrLink)
	require.ErrorIs(t, err, route.ErrUnavailable, "it is the owner's affair")
	require.NoError(t, os.Remove(link))
	for i := range home.MaxEntries + 1 {
		require.NoError(t, os.WriteFile(filepath.Join(account.Home(), fmt.Sprint(i)), nil, 0o600))
	}
	_, err = r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.ErrorIs(t, err, home.ErrTooLarge)
	require.Zero(t, r.transport.started())
	requireNoOperation(t, r)
}
