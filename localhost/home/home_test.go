package home

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func dirs(t *testing.T) Dirs {
	t.Helper()
	d := In(t.TempDir())
	require.NoError(t, d.Make())
	return d
}

func write(t *testing.T, path, data string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
}

func TestCopy(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are of unix")
	}
	from, to := dirs(t), dirs(t)
	write(t, filepath.Join(from.Home, ".config", "tool", "hosts.yml"), "token")
	write(t, filepath.Join(from.State, "seen"), "1")
	write(t, filepath.Join(from.Temp, "scratch"), "not copied")
	tool := filepath.Join(from.Home, "bin", "tool")
	write(t, tool, "#!")
	require.NoError(t, os.Chmod(tool, 0o555))
	old := time.Unix(1_700_000_000, 0)
	require.NoError(t, os.Chtimes(tool, old, old))
	require.NoError(t, os.Symlink("bin/tool", filepath.Join(from.Home, "near")))
	require.NoError(t, os.Symlink("../bin/tool", filepath.Join(from.Home, ".config", "up")))
	require.NoError(t, os.Symlink("nothing", filepath.Join(from.Home, "dangling")))
	base, err := filepath.EvalSymlinks(from.Home)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(base, "bin"), filepath.Join(from.Home, ".config", "whole")))

	require.NoError(t, to.Copy(t.Context(), from))
	data, err := os.ReadFile(filepath.Join(to.Home, ".config", "tool", "hosts.yml"))
	require.NoError(t, err)
	require.Equal(t, "token", string(data))
	require.FileExists(t, filepath.Join(to.State, "seen"))
	require.NoFileExists(t, filepath.Join(to.Temp, "scratch"))
	info, err := os.Stat(filepath.Join(to.Home, "near"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o500), info.Mode().Perm(), "nobody else")
	require.Equal(t, old, info.ModTime())
	link, err := os.Readlink(filepath.Join(to.Home, ".config", "whole"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join("..", "bin"), link, "the copy's own")
	_, err = os.Lstat(filepath.Join(to.Home, "dangling"))
	require.NoError(t, err)

	// The copy is apart from the baseline.
	write(t, filepath.Join(to.Home, ".config", "tool", "hosts.yml"), "evil")
	write(t, filepath.Join(to.Home, ".config", "whole", "more"), "evil")
	data, err = os.ReadFile(filepath.Join(from.Home, ".config", "tool", "hosts.yml"))
	require.NoError(t, err)
	require.Equal(t, "token", string(data))
	require.NoFileExists(t, filepath.Join(from.Home, "bin", "more"))
}

func TestRebase(t *testing.T) {
	t.Parallel()
	from, to := In("/from"), In("/to")
	env := []string{"A=b", "HOME=" + from.Home, "TMPDIR=" + from.Temp, "XDG_STATE_HOME=" + from.State, "OTHER=" + from.Home + "x"}
	require.Equal(t, []string{"A=b", "HOME=" + to.Home, "TMPDIR=" + to.Temp, "XDG_STATE_HOME=" + to.State, "OTHER=" + from.Home + "x"}, from.Rebase(env, to))
	require.Equal(t, "HOME="+from.Home, env[1], "the given one stays")
}

func TestCopyFollowsNoLinkOut(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links are of unix")
	}
	outside := t.TempDir()
	write(t, filepath.Join(outside, "key"), "private")
	for _, target := range []string{outside, filepath.Join(outside, "key"), "../out", "a/../../out", ".."} {
		from, to := dirs(t), dirs(t)
		require.NoError(t, os.Symlink(target, filepath.Join(from.Home, "link")))
		require.ErrorIs(t, to.Copy(t.Context(), from), ErrLink, target)
	}
	// A home that was replaced by a link is not one.
	from, to := dirs(t), dirs(t)
	require.NoError(t, os.Remove(to.Home))
	require.NoError(t, os.Symlink("nowhere", to.Home))
	require.Error(t, to.Copy(t.Context(), from))
}

func TestCopyEndsAtItsBounds(t *testing.T) {
	t.Parallel()
	t.Run("entries", func(t *testing.T) {
		t.Parallel()
		from := dirs(t)
		for i := range MaxEntries {
			write(t, filepath.Join(from.Home, fmt.Sprint(i)), "")
		}
		require.NoError(t, dirs(t).Copy(t.Context(), from))
		require.NoError(t, from.Check(t.Context()))
		write(t, filepath.Join(from.State, "one-more"), "")
		require.ErrorIs(t, dirs(t).Copy(t.Context(), from), ErrTooLarge, "home and state together")
		require.ErrorIs(t, from.Check(t.Context()), ErrTooLarge)
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		from := dirs(t)
		big := filepath.Join(from.Home, "big")
		write(t, big, "")
		require.NoError(t, os.Truncate(big, MaxBytes))
		require.NoError(t, dirs(t).Copy(t.Context(), from))
		require.NoError(t, from.Check(t.Context()))
		write(t, filepath.Join(from.State, "more"), "x")
		require.ErrorIs(t, dirs(t).Copy(t.Context(), from), ErrTooLarge)
		require.ErrorIs(t, from.Check(t.Context()), ErrTooLarge)
	})
	t.Run("caller-gone", func(t *testing.T) {
		t.Parallel()
		from := dirs(t)
		write(t, filepath.Join(from.Home, "a"), "")
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		require.ErrorIs(t, dirs(t).Copy(ctx, from), gone)
		require.ErrorIs(t, from.Check(ctx), gone)
	})
}
