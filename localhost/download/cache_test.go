package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dir string) *Cache {
	t.Helper()
	c, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func key(t *testing.T) name.ConnectorKey {
	t.Helper()
	k, err := name.ParseConnectorKey("github")
	require.NoError(t, err)
	return k
}

func pinOf(b string) Pin {
	sum := sha256.Sum256([]byte(b))
	return Pin{hex.EncodeToString(sum[:]), int64(len(b))}
}

// gives fills with these bytes.
func gives(b string) Fill {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader([]byte(b)))
		return err
	}
}

var errNever = errors.New("nothing is to be fetched")

func never(context.Context, io.Writer) error { return errNever }

// prepare has the archive b ready, and fetches it only if it has to be.
func prepare(t *testing.T, c *Cache, b string, fill Fill) {
	t.Helper()
	at, err := c.Prepare(t.Context(), key(t), pinOf(b), fill)
	require.NoError(t, err)
	got, err := os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, b, string(got))
}

func promote(t *testing.T, c *Cache, b string) {
	t.Helper()
	require.NoError(t, c.Promote(t.Context(), key(t), pinOf(b)))
}

// slots names what there is for the key, hidden or not.
func slots(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "github"))
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestDownloadCacheCurrentAndOneCandidate is the life of three versions.
func TestDownloadCacheCurrentAndOneCandidate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "downloads")
	c := open(t, dir)
	prepare(t, c, "one", gives("one"))
	require.Equal(t, []string{candidate}, slots(t, dir))
	prepare(t, c, "one", never)
	promote(t, c, "one")
	require.Equal(t, []string{current}, slots(t, dir))
	promote(t, c, "one")
	prepare(t, c, "one", never)

	prepare(t, c, "two", gives("two"))
	prepare(t, c, "one", never)
	require.Equal(t, []string{candidate, current}, slots(t, dir), "at most two")
	promote(t, c, "another")
	prepare(t, c, "one", never)
	prepare(t, c, "three", gives("three"))
	require.Equal(t, []string{candidate, current}, slots(t, dir))
	_, err := c.Prepare(t.Context(), key(t), pinOf("two"), never)
	require.ErrorIs(t, err, errNever, "the candidate was another's")
	promote(t, c, "three")
	prepare(t, c, "three", never)
	require.Equal(t, []string{candidate, current}, slots(t, dir))
	prepare(t, c, "one", never) // which was the current one: back to it
	promote(t, c, "one")
	prepare(t, c, "one", never)
	prepare(t, c, "three", never)
	_, err = c.Tidy(t.Context(), key(t), []Pin{pinOf("three")}, true)
	require.NoError(t, err)
	prepare(t, c, "three", never)
	require.Equal(t, []string{candidate}, slots(t, dir))
	promote(t, c, "three")
	require.Equal(t, []string{current}, slots(t, dir))

	keys, err := c.Keys()
	require.NoError(t, err)
	require.Equal(t, []name.ConnectorKey{key(t)}, keys)
	require.NoError(t, c.Drop(key(t)))
	require.NoError(t, c.Drop(key(t)))
	require.NoDirExists(t, filepath.Join(dir, "github"))
	require.Error(t, c.Drop(name.ConnectorKey{}))
	require.DirExists(t, dir)
}

// TestDownloadCacheCrashAtAnyRename makes every state that a promotion can be
// interrupted in, on its first time and later.
func TestDownloadCacheCrashAtAnyRename(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct {
		has  map[string]string // slot → archive
		want string            // what is there without fetching, afterwards
	}{
		"before":              {map[string]string{current: "old", candidate: "new"}, "old"},
		"current-is-retired":  {map[string]string{retired: "old", candidate: "new"}, "old"},
		"candidate-is-there":  {map[string]string{retired: "old", current: "new"}, "new"},
		"after":               {map[string]string{current: "new"}, "new"},
		"first-before":        {map[string]string{candidate: "new"}, "new"},
		"filling":             {map[string]string{current: "old", filling: "half"}, "old"},
		"filling-in-the-turn": {map[string]string{retired: "old", candidate: "new", filling: "half"}, "old"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := open(t, dir)
			for slot, b := range c.has {
				prepare(t, d, b, gives(b))
				require.NoError(t, os.Rename(filepath.Join(dir, "github", candidate), filepath.Join(t.TempDir(), "x")))
				at := filepath.Join(dir, "github", slot)
				require.NoError(t, os.Mkdir(at, 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(at, archiveFile), []byte(b), 0o600))
				require.NoError(t, writeReceipt(filepath.Join(at, receiptFile), pinOf(b)))
				if len(c.has) > 1 { // the next prepare would clean up: put it aside
					require.NoError(t, os.Rename(at, filepath.Join(dir, "put-aside-"+slot)))
				}
			}
			for slot := range c.has {
				if len(c.has) > 1 {
					require.NoError(t, os.Rename(filepath.Join(dir, "put-aside-"+slot), filepath.Join(dir, "github", slot)))
				}
			}
			prepare(t, open(t, dir), c.want, never)
			require.NotContains(t, slots(t, dir), retired)
			require.NotContains(t, slots(t, dir), filling)
			prepare(t, d, "new", gives("new")) // and it goes on
			promote(t, d, "new")
			require.Contains(t, slots(t, dir), current)
			require.Subset(t, []string{candidate, current}, slots(t, dir))
			prepare(t, d, "new", never)
			if _, ok := c.has[current]; ok && c.want == "old" || c.has[retired] != "" {
				prepare(t, d, "old", never) // it may be gone back to
			}
		})
	}
}

// TestImporterTakesNothingElse: whatever comes, from the web or from a file, is exactly
// what was pinned, or it is nothing, and the current archive stays.
func TestImporterTakesNothingElse(t *testing.T) {
	t.Parallel()
	wrong := errors.New("cut off")
	for n, c := range map[string]struct {
		fill Fill
		want error
	}{
		"shorter":     {gives("ne"), ErrMismatch},
		"longer":      {gives("newer"), ErrMismatch},
		"other-bytes": {gives("neW"), ErrMismatch},
		"nothing":     {gives(""), ErrMismatch},
		"broken": {func(_ context.Context, w io.Writer) error {
			_, err := w.Write([]byte("new"))
			return errors.Join(err, wrong)
		}, wrong},
		"swallows-the-refusal": {func(_ context.Context, w io.Writer) error {
			_, _ = w.Write([]byte("new"))
			_, _ = w.Write([]byte("more"))
			return nil
		}, ErrMismatch},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := open(t, dir)
			prepare(t, d, "old", gives("old"))
			promote(t, d, "old")
			_, err := d.Prepare(t.Context(), key(t), pinOf("new"), c.fill)
			require.ErrorIs(t, err, c.want)
			if n == "shorter" {
				require.ErrorContains(t, err, "it has 2 bytes, not 3", "the owner is told what is wrong")
			}
			require.Equal(t, []string{current}, slots(t, dir))
			prepare(t, d, "old", never)
		})
	}
	d := open(t, t.TempDir())
	for n, p := range map[string]Pin{
		"no-size": {pinOf("x").SHA256, 0}, "no-digest": {"", 1}, "capitals": {"AB" + pinOf("x").SHA256[2:], 1}, "short": {"ab", 1},
	} {
		_, err := d.Prepare(t.Context(), key(t), p, gives("x"))
		require.Error(t, err, n)
	}
	_, err := d.Prepare(t.Context(), name.ConnectorKey{}, pinOf("x"), gives("x"))
	require.Error(t, err)
	_, err = Open("relative")
	require.Error(t, err)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Prepare(done, key(t), pinOf("x"), gives("x"))
	require.ErrorIs(t, err, context.Canceled)
}

// TestDownloadCacheHashesWhatItHas: a receipt proves nothing.
func TestDownloadCacheHashesWhatItHas(t *testing.T) {
	t.Parallel()
	for n, spoil := range map[string]func(t *testing.T, at string){
		"one-byte": func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(at, archiveFile), []byte("olD"), 0o600))
		},
		"longer": func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(at, archiveFile), []byte("old!"), 0o600))
		},
		"no-archive": func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(at, archiveFile)))
		},
		"no-receipt": func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(at, receiptFile)))
		},
		"bad-receipt": func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(at, receiptFile), []byte("{}"), 0o600))
		},
		"directory": func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(at, archiveFile)))
			require.NoError(t, os.Mkdir(filepath.Join(at, archiveFile), 0o700))
		},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := open(t, dir)
			prepare(t, d, "old", gives("old"))
			promote(t, d, "old")
			spoil(t, filepath.Join(dir, "github", current))
			_, err := d.Prepare(t.Context(), key(t), pinOf("old"), never)
			require.ErrorIs(t, err, errNever)
			prepare(t, d, "old", gives("old"))
			promote(t, d, "old")
			require.Equal(t, []string{current}, slots(t, dir))
			prepare(t, d, "old", never)
		})
	}
}

func TestFromFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, filepath.Join(dir, "downloads"))
	at := filepath.Join(dir, "archive")
	require.NoError(t, os.WriteFile(at, []byte("one"), 0o600))
	prepare(t, d, "one", FromFile(at))
	require.NoError(t, os.WriteFile(at, []byte("two"), 0o600))
	prepare(t, d, "one", never) // it was copied
	for n, p := range map[string]string{"relative": "archive", "absent": at + "x", "directory": dir} {
		_, err := d.Prepare(t.Context(), key(t), pinOf("two"), FromFile(p))
		require.Error(t, err, n)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, FromFile(at)(done, io.Discard), context.Canceled)
}
