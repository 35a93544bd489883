package depot

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dir string) *Depot {
	t.Helper()
	d, err := Open(dir, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func stage(t *testing.T, d *Depot) *Staging {
	t.Helper()
	g, err := d.Stage(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(g.Path("file"), []byte("x"), 0o600))
	return g
}

func publish(t *testing.T, d *Depot, sl Slot) Receipt {
	t.Helper()
	g := stage(t, d)
	defer g.Drop()
	require.NoError(t, sl.Publish(g, Receipt{Name: "a", Version: "1"}))
	r, err := sl.Read()
	require.NoError(t, err)
	require.FileExists(t, sl.Tree(r, "file"))
	return r
}

func TestSlot(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	sl := d.Slot(Connectors, "a", "1")
	_, err := sl.Read()
	require.ErrorIs(t, err, ErrNotInstalled)
	_, _, err = sl.Use()
	require.ErrorIs(t, err, ErrNotInstalled)
	first := publish(t, d, sl)
	second := publish(t, d, sl)
	require.NotEqual(t, first.Directory, second.Directory, "a directory's name is never used twice")
	require.NoDirExists(t, sl.Tree(first), "what nobody uses goes at once")

	r, l, err := sl.Use()
	require.NoError(t, err)
	require.Equal(t, second, r)
	third := publish(t, d, sl)
	require.FileExists(t, sl.Tree(second, "file"), "it is in use")
	require.NoError(t, sl.Retire())
	require.NoDirExists(t, sl.Tree(third))
	require.FileExists(t, sl.Tree(second, "file"))
	require.NoError(t, l.Close())
	require.NoError(t, sl.Retire())
	require.NoDirExists(t, d.Path(Connectors, "a", "1"))
}

// TestCrash leaves behind what a process that dies at each step would.
func TestCrash(t *testing.T) {
	t.Parallel()
	t.Run("staging", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := open(t, dir)
		dead, alive := stage(t, d), stage(t, d)
		require.NoError(t, os.Mkdir(dead.Path("tree"), 0o500))
		require.NoError(t, dead.lock.Close()) // as the system does for the dead
		open(t, dir)
		require.NoDirExists(t, dead.Path())
		require.NoFileExists(t, dead.Path()+".lock")
		require.FileExists(t, alive.Path("file"), "another live process works there")
		alive.Drop()
		require.NoDirExists(t, alive.Path())
	})
	t.Run("before-receipt", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := open(t, dir)
		sl := d.Slot(Connectors, "a", "1")
		g := stage(t, d)
		require.NoError(t, d.root.MkdirAll(sl.rel, 0o700))
		orphan := filepath.Join(d.Path(sl.rel), "orphan")
		require.NoError(t, os.Rename(g.Path(), orphan))
		_, err := sl.Read()
		require.ErrorIs(t, err, ErrNotInstalled, "without a receipt nothing is current")
		open(t, dir)
		require.NoDirExists(t, orphan)
		require.NoDirExists(t, d.Path(Connectors, "a"))
	})
	t.Run("before-receipt-of-the-next", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := open(t, dir)
		sl := d.Slot(Connectors, "a", "1")
		r := publish(t, d, sl)
		g := stage(t, d)
		require.NoError(t, os.Rename(g.Path(), filepath.Join(d.Path(sl.rel), "orphan")))
		require.NoError(t, os.WriteFile(filepath.Join(d.Path(sl.rel), ".new-1"), []byte("half"), 0o600))
		again, err := open(t, dir).Slot(Connectors, "a", "1").Read()
		require.NoError(t, err)
		require.Equal(t, r, again, "the previous one holds")
		require.NoDirExists(t, filepath.Join(d.Path(sl.rel), "orphan"))
		require.FileExists(t, sl.Tree(r, "file"))
	})
	t.Run("unreadable-receipt", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := open(t, dir)
		sl := d.Slot(Connectors, "a", "1")
		r := publish(t, d, sl)
		require.NoError(t, os.WriteFile(filepath.Join(d.Path(sl.rel), "receipt.json"), []byte(`{"format":9}`), 0o600))
		open(t, dir)
		require.FileExists(t, sl.Tree(r, "file"), "what is not understood is not touched")
	})
	t.Run("sweep-does-not-wait", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := open(t, dir)
		sl := d.Slot(Connectors, "a", "1")
		publish(t, d, sl)
		require.NoError(t, os.Mkdir(filepath.Join(d.Path(sl.rel), "orphan"), 0o700))
		l, err := d.Lock(t.Context(), Connectors, "a")
		require.NoError(t, err)
		open(t, dir)
		require.DirExists(t, filepath.Join(d.Path(sl.rel), "orphan"), "its Connector is being worked on")
		require.NoError(t, l.Close())
		open(t, dir)
		require.NoDirExists(t, filepath.Join(d.Path(sl.rel), "orphan"))
	})
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := Open("relative", zerolog.Nop())
	require.Error(t, err)
	p := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(p, nil, 0o600))
	_, err = Open(p, zerolog.Nop())
	require.Error(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "staging"), nil, 0o600))
	_, err = Open(dir, zerolog.Nop())
	require.NoError(t, err, "a sweep that fails is left for the next time")
	if runtime.GOOS != "windows" {
		dir = t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o777))
		_, err = Open(dir, zerolog.Nop())
		require.ErrorContains(t, err, "others may write")
	}
}

// TestSuperseded: what another version has replaced stays while somebody uses it, and
// can be taken back until it is gone.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	sl := d.Slot(Connectors, "a", "1")
	require.ErrorIs(t, sl.Supersede(true), ErrNotInstalled)
	first := publish(t, d, sl)
	r, l, err := sl.Use()
	require.NoError(t, err)
	require.NoError(t, sl.Supersede(true))
	require.NoError(t, sl.Supersede(true), "again")
	require.NoError(t, sl.Sweep())
	_, kept, err := d.Collect(true)
	require.NoError(t, err)
	require.Empty(t, kept)
	again, err := sl.Read()
	require.NoError(t, err)
	r.Superseded = true
	require.Equal(t, r, again, "in use, so it is all there")
	require.FileExists(t, sl.Tree(first, "file"))

	require.NoError(t, sl.Supersede(false))
	require.NoError(t, l.Close())
	require.NoError(t, sl.Sweep())
	require.FileExists(t, sl.Tree(first, "file"), "taken back")

	require.NoError(t, sl.Supersede(true))
	found, kept, err := d.Collect(false)
	require.NoError(t, err)
	require.Empty(t, kept)
	require.Len(t, found, 1)
	require.Equal(t, "connectors/a/1", found[0].Path)
	require.FileExists(t, sl.Tree(first, "file"), "only asked")
	require.NoError(t, sl.Sweep())
	_, err = sl.Read()
	require.ErrorIs(t, err, ErrNotInstalled)
	require.NoDirExists(t, d.Path(Connectors, "a"))
}
