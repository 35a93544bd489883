//go:build unix

package ownerfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	write := func(text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
	has := func(text string, mode os.FileMode) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(b))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing is left beside it")
	}
	for _, mode := range []os.FileMode{0o600, 0o644, 0o400} {
		write("old", mode)
		require.NoError(t, Rewrite(path, Trusted, []byte("old"), []byte("new")))
		has("new", mode)
		require.NoError(t, os.Chmod(path, 0o600))
	}
	for _, meanwhile := range []string{"olf", "older", "", "ol"} {
		write(meanwhile, 0o644)
		require.ErrorIs(t, Rewrite(path, Trusted, []byte("old"), []byte("new")), ErrChanged)
		has(meanwhile, 0o644)
	}
	write("old", 0o666)
	require.ErrorIs(t, Rewrite(path, Trusted, []byte("old"), []byte("new")), ErrUnsafe)
	has("old", 0o666)

	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Link(path, path+".2"))
	require.ErrorIs(t, Rewrite(path, Trusted, []byte("old"), []byte("new")), ErrUnsafe)
	require.NoError(t, os.Remove(path+".2"))
	has("old", 0o600)

	require.NoError(t, os.Rename(path, path+".real"))
	require.NoError(t, os.Symlink(path+".real", path))
	require.ErrorIs(t, Rewrite(path, Trusted, []byte("old"), []byte("new")), ErrUnsafe, "a link is not replaced")
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, Rewrite(path, Trusted, []byte("old"), []byte("new")), os.ErrNotExist)
}

// What the disk does not confirm after the rename has been written all the same.
func TestRewriteThatIsNotConfirmed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	broken := errors.New("broken")
	sync := func(dir string) error {
		require.Equal(t, filepath.Dir(path), dir)
		return broken
	}
	err := rewrite(path, Trusted, []byte("old"), []byte("new"), sync)
	require.ErrorIs(t, err, ErrUnsynced)
	require.ErrorIs(t, err, broken)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(b))
	err = rewrite(path, Trusted, []byte("old"), []byte("newer"), sync)
	require.ErrorIs(t, err, ErrChanged)
	require.NotErrorIs(t, err, ErrUnsynced, "nothing was written")
}

// Of several that start from the same content, one wins, and the others are told.
func TestRewritesWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for range 20 {
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		var done sync.WaitGroup
		results := make([]error, 8)
		for i := range results {
			done.Go(func() { results[i] = Rewrite(path, Trusted, []byte("old"), fmt.Appendf(nil, "new %d", i)) })
		}
		done.Wait()
		won := 0
		for _, err := range results {
			if err == nil {
				won++
				continue
			}
			require.ErrorIs(t, err, ErrChanged)
		}
		require.Equal(t, 1, won)
	}
}
