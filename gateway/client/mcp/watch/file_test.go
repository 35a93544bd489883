package watch_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client/mcp/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// start watches until the test ends.
func start(t *testing.T, path string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	changed, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- watch.File(ctx, path, func() { changed <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return changed
}

// until does something again and again, each time otherwise, until it is noticed: nobody
// says when the watch has begun.
func until(t *testing.T, changed <-chan struct{}, do func(text string)) {
	t.Helper()
	end := time.Now().Add(patience)
	for text := "x"; time.Now().Before(end); text += "x" {
		do(text)
		select {
		case <-changed:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	require.Fail(t, "it is not noticed")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// However a file comes to be another one, it is noticed; what happens beside it is not.
func TestFile(t *testing.T) {
	t.Parallel()
	for label, do := range map[string]func(t *testing.T, path, text string){
		"written": write,
		"replaced": func(t *testing.T, path, text string) {
			t.Helper()
			write(t, path+".new", text)
			require.NoError(t, os.Rename(path+".new", path))
		},
		"removed-and-made": func(t *testing.T, path, text string) {
			t.Helper()
			_ = os.Remove(path)
			write(t, path, text)
		},
		"link-turned": func(t *testing.T, path, text string) {
			t.Helper()
			at := filepath.Join(t.TempDir(), "a")
			write(t, at, text)
			_ = os.Remove(path + ".link")
			require.NoError(t, os.Symlink(at, path+".link"))
			require.NoError(t, os.Rename(path+".link", path))
		},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a.lease")
			write(t, path, "")
			changed := start(t, path)
			for range 3 {
				until(t, changed, func(text string) { do(t, path, text) })
			}
		})
	}
}

func TestFileBehindALink(t *testing.T) {
	t.Parallel()
	at, path := filepath.Join(t.TempDir(), "real"), filepath.Join(t.TempDir(), "a.lease")
	write(t, at, "")
	require.NoError(t, os.Symlink(at, path))
	changed := start(t, path)
	until(t, changed, func(text string) { write(t, at, text) })
	until(t, changed, func(text string) { write(t, at, text+"more") })
}

// What happens to others in its directory is nothing.
func TestOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.lease")
	write(t, path, "")
	changed := start(t, path)
	until(t, changed, func(text string) { write(t, path, text) })
	for i := range 20 {
		write(t, path+".other", string(rune('a'+i)))
	}
	select {
	case <-changed: // what had been written last before
	case <-time.After(300 * time.Millisecond):
	}
	write(t, path+".other", "more")
	select {
	case <-changed:
		require.Fail(t, "another file was written")
	case <-time.After(300 * time.Millisecond):
	}
}

func TestNothingToWatch(t *testing.T) {
	t.Parallel()
	err := watch.File(t.Context(), filepath.Join(t.TempDir(), "absent", "a.lease"), func() {})
	require.ErrorIs(t, err, os.ErrNotExist)
}
