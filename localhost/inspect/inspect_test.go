package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const toolManifest = `{"schemaVersion": "1", "key": "tool", "version": "VERSION", "displayName": "Tool",
 "cli": {"command": "tool", "kind": "KIND", "entrypoint": "bin/tool"RUNTIME}}`

// world is a machine with a store.
type world struct {
	t     *testing.T
	store string
	key   name.ConnectorKey

	publishers *signature.File // nil: none
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		require.NoError(t, artifact.Remove(root, "store"))
		require.NoError(t, root.Close())
	})
	key, err := name.ParseConnectorKey("tool")
	require.NoError(t, err)
	return &world{t: t, store: filepath.Join(dir, "store"), key: key}
}

func version(t *testing.T, s string) name.Version {
	t.Helper()
	v, err := name.ParseVersion(s)
	require.NoError(t, err)
	return v
}

// add installs a release whose executable no kernel would run.
func (w *world) add(ver, kind, runtime string) {
	w.t.Helper()
	src := w.t.TempDir()
	m := strings.NewReplacer("VERSION", ver, "KIND", kind, "RUNTIME", runtime).Replace(toolManifest)
	require.NoError(w.t, os.WriteFile(filepath.Join(src, "connector-manifest.json"), []byte(m), 0o600))
	require.NoError(w.t, os.Mkdir(filepath.Join(src, "bin"), 0o700))
	require.NoError(w.t, os.WriteFile(filepath.Join(src, "bin", "tool"), []byte("\x7fELF tool"), 0o700))
	w.open(func(s *install.Store) error {
		_, err := s.Add(w.t.Context(), install.Source{Path: src}, nil)
		return err
	})
}

func (w *world) runtime(text string) {
	w.t.Helper()
	exec := filepath.Join(w.t.TempDir(), "py")
	require.NoError(w.t, os.WriteFile(exec, append(head(w.t), text...), 0o700))
	w.open(func(s *install.Store) error {
		_, err := s.AddRuntime(w.t.Context(), install.RuntimeSource{Name: "py", Version: "3.1.0", Exec: exec}, nil)
		return err
	})
}

// head is how an executable of this system begins.
func head(t *testing.T) []byte {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := os.Open(self)
	require.NoError(t, err)
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	require.NoError(t, errors.Join(err, f.Close()))
	return b
}

func (w *world) open(f func(*install.Store) error) {
	w.t.Helper()
	s, err := install.Open(install.Config{Dir: w.store})
	require.NoError(w.t, err)
	require.NoError(w.t, f(s))
	require.NoError(w.t, s.Close())
}

func (w *world) inspector() *Inspector {
	w.t.Helper()
	i, err := Open(w.store, w.publishers)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, i.Close()) })
	return i
}

// file finds the only installed file of that name.
func (w *world) file(base string) string {
	w.t.Helper()
	found := ""
	require.NoError(w.t, filepath.WalkDir(w.store, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == base && !d.IsDir() {
			require.Empty(w.t, found)
			found = p
		}
		return err
	}))
	require.NotEmpty(w.t, found, base)
	return found
}

func (w *world) write(file, text string) {
	w.t.Helper()
	require.NoError(w.t, os.Chmod(file, 0o600))
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o600))
}

// tree is every path below the store with what a writer would change of it.
func (w *world) tree() []string {
	w.t.Helper()
	var all []string
	require.NoError(w.t, filepath.WalkDir(w.store, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all = append(all, fmt.Sprint(p, info.Mode(), info.Size(), info.ModTime().UnixNano()))
		return err
	}))
	return all
}

func requireState(t *testing.T, r Result, s State, why Reason) {
	t.Helper()
	require.Equal(t, s, r.State, "%v", r.Err)
	require.Equal(t, why, r.Reason)
	require.Equal(t, s == Present, r.Err == nil)
	if s == Present {
		require.NotNil(t, r.Release)
	}
}

// TestInstallationInspectionReceiptsOnly: each of the four states, with its reason,
// of installations that could not run, and nothing is changed by looking.
func TestInstallationInspectionReceiptsOnly(t *testing.T) {
	t.Parallel()

	t.Run("nothing-was-ever-installed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		i := w.inspector()
		require.Empty(t, i.All(t.Context()))
		requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), Absent, NotInstalled)
		require.NoDirExists(t, w.store)
		require.NoError(t, os.Mkdir(w.store, 0o700))
		require.Empty(t, w.inspector().All(t.Context()))
		entries, err := os.ReadDir(w.store)
		require.NoError(t, err)
		require.Empty(t, entries, "not even a directory is made")
	})

	t.Run("present", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("2.0.0", "native", "")
		w.add("1.0.0", "native", "")
		i := w.inspector()
		before := w.tree()
		all := i.All(t.Context())
		require.Len(t, all, 2)
		require.Equal(t, "1.0.0", all[0].Version.String())
		requireState(t, all[0], Present, "")
		require.False(t, all[0].Verified)
		require.Equal(t, "tool", all[0].Release.Manifest.Key.String())
		requireState(t, i.One(t.Context(), w.key, version(t, "3.0.0")), Absent, NotInstalled)
		requireState(t, i.One(t.Context(), name.ConnectorKey{}, version(t, "1.0.0")), Absent, NotInstalled)
		requireState(t, i.One(t.Context(), w.key, name.Version{}), Absent, NotInstalled)
		require.Equal(t, before, w.tree())
		deep := i.Deep(t.Context(), w.key, version(t, "1.0.0"))
		requireState(t, deep, Present, "")
		require.True(t, deep.Verified)
		requireState(t, i.Deep(t.Context(), w.key, version(t, "3.0.0")), Absent, NotInstalled)
	})

	t.Run("bytes-changed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		w.write(w.file("tool"), "\x7fELF evil")
		i := w.inspector()
		requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), Present, "")
		deep := i.Deep(t.Context(), w.key, version(t, "1.0.0"))
		requireState(t, deep, Invalid, FilesChanged)
		require.False(t, deep.Verified)
		require.NotNil(t, deep.Release, "what the receipt says is known all the same")
	})

	t.Run("manifest-changed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		w.write(w.file("connector-manifest.json"), strings.NewReplacer("VERSION", "1.0.0", "KIND", "native", "RUNTIME", "", "Tool", "Fool").Replace(toolManifest))
		all := w.inspector().All(t.Context())
		require.Len(t, all, 1)
		requireState(t, all[0], Invalid, FilesChanged)
		require.Nil(t, all[0].Release)
		require.NoError(t, os.Remove(w.file("connector-manifest.json")))
		requireState(t, w.inspector().All(t.Context())[0], Invalid, FilesChanged)
	})

	t.Run("receipt-that-nobody-understands", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		receipt := w.file("receipt.json")
		const add, replace = "lend connector add SOURCE, with what it was added from", "lend connector add --replace SOURCE, with what it was added from"
		for text, fix := range map[string]string{"": add, "{}": replace, "nonsense": add, `{"format": 99}`: replace} {
			require.NoError(t, os.WriteFile(receipt, []byte(text), 0o600))
			all := w.inspector().All(t.Context())
			require.Len(t, all, 1, text)
			requireState(t, all[0], Invalid, ReceiptInvalid)
			require.Equal(t, fix, all[0].Fix())
		}
		require.NoError(t, os.Remove(receipt))
		require.Empty(t, w.inspector().All(t.Context()), "an orphan is not installed")
		requireState(t, w.inspector().One(t.Context(), w.key, version(t, "1.0.0")), Absent, NotInstalled)
	})

	t.Run("runtime", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.runtime("py")
		w.add("1.0.0", "script", `, "runtime": {"profile": "py"}`)
		i := w.inspector()
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Present, "")
		w.write(w.file("py"), "\x7fELF no")
		requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), Present, "")
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Invalid, FilesChanged)

		root, err := os.OpenRoot(w.store)
		require.NoError(t, err)
		require.NoError(t, artifact.Remove(root, "runtimes/py"))
		require.NoError(t, root.Close())
		gone := i.One(t.Context(), w.key, version(t, "1.0.0"))
		requireState(t, gone, Invalid, RuntimeAbsent)
		require.ErrorIs(t, gone.Err, install.ErrNoRuntime)
		w.runtime("another")
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Invalid, RuntimeReplaced)
		receipt := filepath.Join(w.store, "runtimes", "py", "3.1.0", "receipt.json")
		require.NoError(t, os.WriteFile(receipt, []byte("{}"), 0o600))
		r := i.One(t.Context(), w.key, version(t, "1.0.0"))
		requireState(t, r, Invalid, ReceiptInvalid)
		require.Equal(t, "lend runtime add py --version 3.1.0, from what it came from, then lend connector add DIRECTORY again", r.Fix())
	})

	t.Run("publishers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.publishers = signature.At(filepath.Join(t.TempDir(), "publishers.json"))
		w.add("1.0.0", "native", "")
		i := w.inspector()
		look := func(s State, why Reason) Result {
			t.Helper()
			requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), s, why)
			all := i.All(t.Context())
			require.Len(t, all, 1)
			requireState(t, all[0], s, why)
			r := i.Deep(t.Context(), w.key, version(t, "1.0.0"))
			requireState(t, r, s, why)
			return r
		}
		look(Present, "")
		require.NoError(t, w.publishers.Edit(t.Context(), func(t *signature.Trust) error { t.Require = []string{"tool"}; return nil }))
		r := look(Invalid, SignatureRequired)
		require.ErrorIs(t, r.Err, signature.ErrUnsigned)
		require.NotNil(t, r.Release, "what it is can be told")
		require.NoError(t, w.publishers.Edit(t.Context(), func(t *signature.Trust) error { t.Require = nil; t.RequireAll = true; return nil }))
		look(Invalid, SignatureRequired)
		require.NoError(t, w.publishers.Edit(t.Context(), func(t *signature.Trust) error { t.RequireAll = false; return nil }))
		look(Present, "")
	})

	t.Run("publishers-unreadable", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		at := filepath.Join(t.TempDir(), "publishers.json")
		w.publishers = signature.At(at)
		w.add("1.0.0", "native", "")
		require.NoError(t, os.WriteFile(at, []byte("{"), 0o600))
		i := w.inspector()
		requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), Indeterminate, PublishersUnreadable)
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Indeterminate, PublishersUnreadable)
	})

	t.Run("superseded", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		w.add("2.0.0", "native", "")
		d, err := depot.OpenAsIs(w.store, zerolog.Nop())
		require.NoError(t, err)
		require.NoError(t, d.Slot(depot.Connectors, "tool", "1.0.0").Supersede(true))
		require.NoError(t, d.Close())
		i := w.inspector()
		all := i.All(t.Context())
		require.Len(t, all, 1)
		require.Equal(t, "2.0.0", all[0].Version.String())
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Absent, Superseded)
	})

	t.Run("time-is-over", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		i := w.inspector()
		requireState(t, i.One(ctx, w.key, version(t, "1.0.0")), Indeterminate, Interrupted)
		requireState(t, i.Deep(ctx, w.key, version(t, "1.0.0")), Indeterminate, Interrupted)
		all := i.All(ctx)
		require.Len(t, all, 1, "what could not be looked at is not left out")
		requireState(t, all[0], Indeterminate, Interrupted)
	})

	t.Run("store-of-somebody-else", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		require.NoError(t, os.Chmod(w.store, 0o777))
		_, err := Open(w.store, nil)
		require.ErrorContains(t, err, "others may write")
		require.NoError(t, os.Chmod(w.store, 0o700))
		file := filepath.Join(t.TempDir(), "connectors")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err = Open(filepath.Dir(file), nil)
		require.ErrorContains(t, err, "not a directory")
	})

	t.Run("stray-directories", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.add("1.0.0", "native", "")
		require.NoError(t, os.MkdirAll(filepath.Join(w.store, "connectors", "No Key", "1.0.0"), 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(w.store, "connectors", "tool", "no version"), 0o700))
		require.Len(t, w.inspector().All(t.Context()), 1)
	})
}

// faulty fails as the system would.
type faulty struct{ release, verify error }

func (f faulty) Release(name.ConnectorKey, name.Version) (install.Release, error) {
	return install.Release{}, f.release
}

func (f faulty) SignersAsIs(install.Release) ([]signature.Signer, error) { return nil, nil }

func (f faulty) Verify(context.Context, name.ConnectorKey, name.Version) error { return f.verify }

// TestWhatCannotBeReadIsNeverPresent: nor is it called changed.
func TestWhatCannotBeReadIsNeverPresent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("1.0.0", "native", "")
	i := w.inspector()
	real := i.releases
	defer func() { i.releases = real }()
	for _, errno := range []error{syscall.EACCES, syscall.EPERM, syscall.EIO, syscall.EMFILE, syscall.ENOMEM} {
		err := fmt.Errorf("tool: %w: %w", install.ErrTampered, &fs.PathError{Op: "open", Path: "/p", Err: errno})
		i.releases = faulty{release: err}
		requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), Indeterminate, Unreadable)
		i.releases = faulty{verify: err}
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Indeterminate, Unreadable)
	}
	for _, errno := range []error{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP} {
		i.releases = faulty{verify: fmt.Errorf("tool: %w: %w", install.ErrTampered, &fs.PathError{Op: "open", Path: "/p", Err: errno})}
		requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Invalid, FilesChanged)
	}
	i.releases = faulty{verify: fmt.Errorf("verify: %w", context.DeadlineExceeded)}
	requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Indeterminate, Interrupted)
	i.releases = faulty{release: install.ErrNotInstalled}
	requireState(t, i.One(t.Context(), w.key, version(t, "1.0.0")), Absent, NotInstalled)
	i.releases = faulty{verify: errors.New("something new")}
	requireState(t, i.Deep(t.Context(), w.key, version(t, "1.0.0")), Invalid, ReceiptInvalid)
}
