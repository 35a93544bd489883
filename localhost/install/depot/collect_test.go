package depot

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/internal/filelock"
)

// Whoever wants to use something while it is being asked whether anything needs it
// waits for the answer, and gets it if it stays.
func TestRetireUnused(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	sl := d.Slot(Runtimes, "a", "1")
	r := publish(t, d, sl)
	got := make(chan error, 1)
	_, ok, err := sl.RetireUnused(true, func(q Receipt) (bool, error) {
		require.Equal(t, r, q)
		go func() {
			_, l, err := sl.Use()
			got <- errors.Join(err, closeIf(l))
		}()
		return false, nil
	})
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, <-got)

	no := errors.New("no")
	_, ok, err = sl.RetireUnused(true, func(Receipt) (bool, error) { return true, no })
	require.ErrorIs(t, err, no)
	require.False(t, ok)
	_, l, err := sl.Use()
	require.NoError(t, err)
	never := func(Receipt) (bool, error) { t.Error("it is in use"); return true, nil }
	_, ok, err = sl.RetireUnused(true, never)
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, l.Close())

	yes := func(Receipt) (bool, error) { return true, nil }
	g, ok, err := sl.RetireUnused(false, yes)
	require.NoError(t, err)
	require.True(t, ok)
	require.Positive(t, g.Bytes)
	require.FileExists(t, sl.Tree(r, "file"))
	_, ok, err = sl.RetireUnused(true, yes)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoDirExists(t, d.Path(Runtimes, "a", "1"))
	_, _, err = sl.RetireUnused(true, yes)
	require.ErrorIs(t, err, ErrNotInstalled)
}

func TestDropCache(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	_, ok, err := d.DropCache(true)
	require.NoError(t, err)
	require.False(t, ok, "there is nothing in it")
	require.NoError(t, d.root.WriteFile("cache/x", []byte("abc"), 0o600))
	l, err := d.UseCache(t.Context())
	require.NoError(t, err)
	again, err := d.UseCache(t.Context())
	require.NoError(t, err, "several may use it")
	require.NoError(t, again.Close())
	_, ok, err = d.DropCache(true)
	require.NoError(t, err)
	require.False(t, ok)
	require.FileExists(t, d.Path("cache", "x"))
	require.NoError(t, l.Close())
	g, ok, err := d.DropCache(true)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Garbage{"cache", 3}, g)
	require.DirExists(t, d.Path("cache"))
	require.NoFileExists(t, d.Path("cache", "x"))
}

// The lock of what is not there goes with it, unless somebody has it.
func TestLocksOfNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	publish(t, d, d.Slot(Connectors, "a", "1"))
	var locks []*filelock.Lock
	for _, owner := range []string{"a", "gone", "held"} {
		l, err := d.Lock(t.Context(), Connectors, owner)
		require.NoError(t, err)
		locks = append(locks, l)
	}
	require.NoError(t, errors.Join(locks[0].Close(), locks[1].Close()))
	_, _, err := d.Collect(false)
	require.NoError(t, err)
	require.FileExists(t, d.lockPath(Connectors, "gone"), "it only looks")
	_, _, err = d.Collect(true)
	require.NoError(t, err)
	require.NoFileExists(t, d.lockPath(Connectors, "gone"))
	require.FileExists(t, d.lockPath(Connectors, "a"))
	require.FileExists(t, d.lockPath(Connectors, "held"))
	require.NoError(t, d.Unlock(locks[2], Connectors, "held"))
	require.NoFileExists(t, d.lockPath(Connectors, "held"))
	l, err := d.Lock(t.Context(), Connectors, "a")
	require.NoError(t, err)
	require.NoError(t, d.Unlock(l, Connectors, "a"))
	require.FileExists(t, d.lockPath(Connectors, "a"))
}
