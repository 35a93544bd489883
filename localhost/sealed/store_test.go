package sealed

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "ghp_canary-0123456789"

// fakeKeyring is a keyring that can be locked.
type fakeKeyring struct {
	mu     sync.Mutex
	items  map[string]string
	locked bool
}

func (f *fakeKeyring) with(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locked {
		return errors.New("the keyring is locked")
	}
	return do()
}

func (f *fakeKeyring) Set(id, value string) error {
	return f.with(func() error { f.items[id] = value; return nil })
}

func (f *fakeKeyring) Get(id string) (value string, err error) {
	err = f.with(func() error {
		var ok bool
		if value, ok = f.items[id]; !ok {
			return errors.New("no such item")
		}
		return nil
	})
	return value, err
}

func (f *fakeKeyring) Delete(id string) error {
	return f.with(func() error { delete(f.items, id); return nil })
}

// fixture is a store with everything that its sources need.
type fixture struct {
	dir      string
	keyring  *fakeKeyring
	pass     string
	identity string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: filepath.Join(t.TempDir(), "sealed"), keyring: &fakeKeyring{items: map[string]string{}}, pass: "correct horse"}
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	f.identity = filepath.Join(t.TempDir(), "identity.txt")
	require.NoError(t, os.WriteFile(f.identity, []byte("# mine\n"+id.String()+"\n"), 0o600))
	return f
}

// open is a process that starts.
func (f *fixture) open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(f.dir, func(bool) ([]byte, error) {
		if f.pass == "" {
			return nil, errors.New("no passphrase")
		}
		return []byte(f.pass), nil
	})
	require.NoError(t, err)
	s.keyring = f.keyring
	s.cost.time, s.cost.memory = 1, 64
	return s
}

func (f *fixture) sources() []Source {
	return []Source{{Kind: KeyFile}, {Kind: Passphrase}, {Kind: Keyring}, {Kind: Age, Identity: f.identity}}
}

func place(t *testing.T, connector, connection, label string) Place {
	t.Helper()
	p, err := parsePlace(connector, connection, label)
	require.NoError(t, err)
	return p
}

func requireValue(t *testing.T, s *Store, p Place, want string) {
	t.Helper()
	got, err := s.Get(p)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestSources(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KeyFile, Passphrase, Keyring, Age} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			src := Source{Kind: kind}
			if kind == Age {
				src.Identity = f.identity
			}
			s := f.open(t)
			p := place(t, "github", "default", "token")
			_, err := s.Source()
			require.ErrorIs(t, err, ErrNoSource)
			require.ErrorIs(t, s.Put(p, []byte(canary)), ErrNoSource, "nothing is chosen for the owner")
			require.ErrorIs(t, s.Check(), ErrNoSource)
			require.NoError(t, s.Create(src))
			require.ErrorIs(t, s.Create(src), ErrExists)
			require.NoError(t, s.Put(p, []byte(canary)))
			requireValue(t, s, p, canary)
			requireValue(t, f.open(t), p, canary)
			got, err := s.Source()
			require.NoError(t, err)
			require.Equal(t, src, got)

			// No byte of it shows, whatever it is called.
			err = filepath.WalkDir(f.dir, func(path string, e fs.DirEntry, err error) error {
				require.NoError(t, err)
				info, err := e.Info()
				require.NoError(t, err)
				require.Zero(t, info.Mode().Perm()&0o077, path)
				if e.IsDir() {
					return nil
				}
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				for _, form := range []string{canary, hex.EncodeToString([]byte(canary)), base64.StdEncoding.EncodeToString([]byte(canary))[:20]} {
					require.NotContains(t, string(data), form)
				}
				require.NotContains(t, string(data), f.pass)
				return nil
			})
			require.NoError(t, err)
		})
	}
}

// TestNoSilentFallback: a source that is not there locks everything, and putting it
// back opens everything again.
func TestNoSilentFallback(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		kind            Kind
		away, comesBack func(t *testing.T, f *fixture)
	}{
		"keyfile-gone": {
			KeyFile, func(t *testing.T, f *fixture) { t.Helper(); moveKeyFiles(t, f.dir, ".secret", ".away") },
			func(t *testing.T, f *fixture) { t.Helper(); moveKeyFiles(t, f.dir, ".away", ".secret") },
		},
		"keyfile-open-to-others": {
			KeyFile, func(t *testing.T, f *fixture) { t.Helper(); chmodKeyFiles(t, f.dir, 0o644) },
			func(t *testing.T, f *fixture) { t.Helper(); chmodKeyFiles(t, f.dir, 0o600) },
		},
		"passphrase-wrong": {
			Passphrase, func(_ *testing.T, f *fixture) { f.pass = "another one" },
			func(_ *testing.T, f *fixture) { f.pass = "correct horse" },
		},
		"passphrase-missing": {
			Passphrase, func(_ *testing.T, f *fixture) { f.pass = "" },
			func(_ *testing.T, f *fixture) { f.pass = "correct horse" },
		},
		"keyring-locked": {
			Keyring, func(_ *testing.T, f *fixture) { f.keyring.locked = true },
			func(_ *testing.T, f *fixture) { f.keyring.locked = false },
		},
		"age-gone": {
			Age, func(t *testing.T, f *fixture) { t.Helper(); require.NoError(t, os.Rename(f.identity, f.identity+"x")) },
			func(t *testing.T, f *fixture) { t.Helper(); require.NoError(t, os.Rename(f.identity+"x", f.identity)) },
		},
		"age-open-to-others": {
			Age, func(t *testing.T, f *fixture) { t.Helper(); require.NoError(t, os.Chmod(f.identity, 0o644)) },
			func(t *testing.T, f *fixture) { t.Helper(); require.NoError(t, os.Chmod(f.identity, 0o600)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			src := Source{Kind: try.kind}
			if try.kind == Age {
				src.Identity = f.identity
			}
			p := place(t, "github", "default", "token")
			s := f.open(t)
			require.NoError(t, s.Create(src))
			require.NoError(t, s.Put(p, []byte(canary)))
			try.away(t, f)
			later := f.open(t)
			_, err := later.Get(p)
			require.ErrorIs(t, err, ErrLocked)
			require.NotContains(t, err.Error(), canary)
			require.ErrorIs(t, later.Put(p, []byte("x")), ErrLocked)
			require.ErrorIs(t, later.Check(), ErrLocked)
			require.ErrorIs(t, later.Rotate(), ErrLocked)
			require.ErrorIs(t, later.Rewrap(Source{Kind: KeyFile}), ErrLocked)
			has, err := later.Has(p)
			require.NoError(t, err)
			require.True(t, has, "that there is one can be said")
			requireValue(t, s, p, canary) // a process that was let in stays in
			try.comesBack(t, f)
			requireValue(t, later, p, canary)
		})
	}
}

// TestLostDocumentIsNoNewStore: without key.json nothing opens, and no other source is
// taken for the one that was chosen.
func TestLostDocumentIsNoNewStore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := place(t, "github", "default", "token")
	s := f.open(t)
	require.NoError(t, s.Create(Source{Kind: Passphrase}))
	require.NoError(t, s.Put(p, []byte(canary)))
	document := filepath.Join(f.dir, documentFile)
	require.NoError(t, os.Rename(document, document+".away"))
	later := f.open(t)
	_, err := later.Source()
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorIs(t, later.Create(Source{Kind: KeyFile}), ErrExists)
	require.ErrorIs(t, later.Check(), ErrCorrupt)
	require.ErrorIs(t, later.Put(p, []byte("x")), ErrCorrupt)
	require.Empty(t, keyFiles(t, f.dir, keySuffix))
	require.NoFileExists(t, document)
	require.NoError(t, os.Rename(document+".away", document))
	requireValue(t, later, p, canary)
	require.NoError(t, os.Remove(document))
	require.NoError(t, later.Delete(p)) // of what nothing opens any more
	require.NoError(t, later.Create(Source{Kind: KeyFile}))
}

func keyFiles(t *testing.T, dir, suffix string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, keyPrefix+"*"+suffix))
	require.NoError(t, err)
	return all
}

func moveKeyFiles(t *testing.T, dir, from, to string) {
	t.Helper()
	for _, path := range keyFiles(t, dir, from) {
		require.NoError(t, os.Rename(path, strings.TrimSuffix(path, from)+to))
	}
}

func chmodKeyFiles(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	for _, path := range keyFiles(t, dir, keySuffix) {
		require.NoError(t, os.Chmod(path, mode))
	}
}

// TestValuesCannotBeSwapped: between names, connections, Connectors and stores.
func TestValuesCannotBeSwapped(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	s, foreign := f.open(t), other.open(t)
	require.NoError(t, s.Create(Source{Kind: KeyFile}))
	require.NoError(t, foreign.Create(Source{Kind: KeyFile}))
	p := place(t, "github", "default", "token")
	require.NoError(t, s.Put(p, []byte(canary)))
	require.NoError(t, foreign.Put(p, []byte("foreign")))
	sealedValue, err := os.ReadFile(s.path(p))
	require.NoError(t, err)
	for _, to := range []Place{place(t, "github", "default", "other"), place(t, "github", "work", "token"), place(t, "gitlab", "default", "token")} {
		require.NoError(t, s.Put(to, []byte("x")))
		require.NoError(t, os.WriteFile(s.path(to), sealedValue, 0o600))
		_, err := s.Get(to)
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoError(t, s.Put(to, []byte("x")), "it can be set again")
		requireValue(t, s, to, "x")
	}
	theirs, err := os.ReadFile(foreign.path(p))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path(p), theirs, 0o600))
	_, err = s.Get(p)
	require.ErrorIs(t, err, ErrCorrupt)

	// Each changed byte, and each truncation.
	for i := range sealedValue {
		changed := bytes.Clone(sealedValue)
		changed[i] ^= 1
		for _, data := range [][]byte{changed, sealedValue[:i]} {
			require.NoError(t, os.WriteFile(s.path(p), data, 0o600))
			_, err := s.Get(p)
			require.ErrorIs(t, err, ErrCorrupt, i)
			require.NotContains(t, err.Error(), canary)
		}
	}
	require.NoError(t, os.WriteFile(s.path(p), make([]byte, maxSealed+1), 0o600))
	_, err = s.Get(p)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, os.WriteFile(s.path(p), sealedValue, 0o600))
	requireValue(t, s, p, canary)
}

// A file or link in the place of a directory of values is told of, never followed, and
// gives way to the next value or to a removal.
func TestValuesBlocked(t *testing.T) {
	t.Parallel()
	s := newFixture(t).open(t)
	require.NoError(t, s.Create(Source{Kind: KeyFile}))
	p, beside := place(t, "github", "default", "token"), place(t, "gitlab", "default", "token")
	elsewhere := t.TempDir()
	for _, dir := range []string{filepath.Dir(filepath.Dir(s.path(p))), filepath.Dir(s.path(p))} {
		for _, block := range []func() error{
			func() error { return os.WriteFile(dir, nil, 0o600) },
			func() error { return os.Symlink(elsewhere, dir) },
		} {
			require.NoError(t, s.Put(p, []byte("x")))
			require.NoError(t, s.Put(beside, []byte("x")))
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, block())
			_, err := s.Has(p)
			require.ErrorIs(t, err, ErrBlocked)
			_, err = s.Get(p)
			require.ErrorIs(t, err, ErrBlocked)
			require.ErrorIs(t, s.Delete(p), ErrBlocked)
			require.ErrorIs(t, s.Reachable(p), ErrBlocked)
			require.NoError(t, s.Reachable(beside))
			require.NoError(t, s.Put(p, []byte(canary)))
			requireValue(t, s, p, canary)
			requireValue(t, s, beside, "x")

			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, block())
			require.NoError(t, s.DeleteAll(p))
			require.NoError(t, s.Reachable(p))
		}
	}
	left, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestBounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.open(t)
	require.NoError(t, s.Create(Source{Kind: KeyFile}))
	p := place(t, "github", "default", "token")
	require.ErrorIs(t, s.Put(p, nil), ErrInvalid)
	require.ErrorIs(t, s.Put(p, make([]byte, MaxValueBytes+1)), ErrInvalid)
	require.NoError(t, s.Put(p, make([]byte, MaxValueBytes)))
	requireValue(t, s, p, string(make([]byte, MaxValueBytes)))
	require.ErrorIs(t, s.Put(Place{}, []byte("x")), ErrInvalid)
	_, err := s.Get(Place{Connector: p.Connector, Connection: p.Connection})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = s.Has(Place{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorIs(t, s.Delete(Place{}), ErrInvalid)
	require.ErrorIs(t, s.DeleteAll(Place{}), ErrInvalid)
	_, err = Open("relative", nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, s.Delete(p))
	require.ErrorIs(t, s.Delete(p), ErrNotFound)
	_, err = s.Get(p)
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, s.Put(p, []byte("a")))
	work := place(t, "github", "work", "token")
	require.NoError(t, s.Put(work, []byte("b")))
	require.NoError(t, s.DeleteAll(p))
	require.NoError(t, s.DeleteAll(p), "nothing is no error")
	has, err := s.Has(p)
	require.NoError(t, err)
	require.False(t, has)
	requireValue(t, s, work, "b")

	require.NoError(t, s.DeleteAll(Place{Connector: work.Connector}))
	require.NoDirExists(t, filepath.Join(s.values(), "github"))
	require.DirExists(t, s.values())
	require.NoError(t, s.Put(work, []byte("b")))
	require.NoError(t, s.DeleteAll(work))
	require.NoDirExists(t, filepath.Join(s.values(), "github"), "its directories go with the last value")
	require.NoError(t, s.Put(work, []byte("b")))
	requireValue(t, s, work, "b")

	link := place(t, "gitlab", "work", "token")
	require.NoError(t, os.Symlink("github", filepath.Join(s.values(), "gitlab")))
	require.NoError(t, s.DeleteAll(link))
	requireValue(t, s, work, "b") // no link is followed
	require.NoError(t, s.Put(link, []byte("c")))
	requireValue(t, s, work, "b")
}

func TestParseSource(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"keyfile", "passphrase", "keyring", "age:/home/me/identity.txt"} {
		src, err := ParseSource(good)
		require.NoError(t, err)
		require.Equal(t, good, src.String())
		require.Equal(t, good == "keyfile", src.Weak())
	}
	for _, bad := range []string{"", "age", "age:", "age:relative", "age:/a/../b", "keyfile:", "keyfile:/x", "keychain", "passphrase:hunter2", "age:/" + strings.Repeat("x", maxPath)} {
		_, err := ParseSource(bad)
		require.ErrorIs(t, err, ErrInvalid, bad)
	}
}

// TestKeyFileIsStrict: what is not exactly a key file of this version locks the
// store, and asks nobody for a cost without bound.
func TestKeyFileIsStrict(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.open(t)
	require.NoError(t, s.Create(Source{Kind: Passphrase}))
	p := place(t, "github", "default", "token")
	require.NoError(t, s.Put(p, []byte(canary)))
	good, err := os.ReadFile(s.documentPath())
	require.NoError(t, err)
	for name, change := range map[string][2]string{
		"version":       {`"schemaVersion": "1"`, `"schemaVersion": "2"`},
		"unknown-field": {`"store"`, `"more": 1, "store"`},
		"memory":        {`"memory": 64`, fmt.Sprintf(`"memory": %d`, maxMemory+1)},
		"no-time":       {`"time": 1,`, ``},
		"time":          {`"time": 1`, `"time": 4000000000`},
		"source":        {`"source": "passphrase"`, `"source": "keyfile"`},
		"no-source":     {`"source": "passphrase"`, `"source": ""`},
		"path":          {`"memory": 64`, `"memory": 64, "identity": "../x"`},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		require.NotEqual(t, string(good), bad, name)
		require.NoError(t, os.WriteFile(s.documentPath(), []byte(bad), 0o600))
		_, err := f.open(t).Get(p)
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.ErrorIs(t, f.open(t).Create(Source{Kind: KeyFile}), ErrCorrupt, name)
	}
	require.NoError(t, os.WriteFile(s.documentPath(), good, 0o644))
	require.NoError(t, os.Chmod(s.documentPath(), 0o644))
	_, err = f.open(t).Get(p)
	require.Error(t, err)
}

func TestSourcesAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.open(t)
	require.ErrorIs(t, s.Create(Source{}), ErrInvalid)
	inside := filepath.Join(f.dir, "identity.txt")
	data, err := os.ReadFile(f.identity)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(inside, data, 0o600))
	require.ErrorIs(t, s.Create(Source{Kind: Age, Identity: inside}), ErrInvalid, "that would be a key file")
	require.NoError(t, os.Remove(inside))
	require.NoError(t, os.WriteFile(f.identity, []byte("AGE-SECRET-KEY-1"+canary), 0o600))
	err = s.Create(Source{Kind: Age, Identity: f.identity})
	require.ErrorIs(t, err, ErrInvalid)
	require.NotContains(t, err.Error(), canary)
	for _, pass := range []string{"", "short", strings.Repeat("x", maxPassphrase+1)} {
		f.pass = pass
		require.Error(t, s.Create(Source{Kind: Passphrase}))
	}
	nobody, err := Open(f.dir, nil)
	require.NoError(t, err)
	require.Error(t, nobody.Create(Source{Kind: Passphrase}))
	_, err = s.Source()
	require.ErrorIs(t, err, ErrNoSource, "nothing was chosen by a failure")
	t.Run("real-keyring-without-a-bus", func(t *testing.T) {
		if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
			t.Skip("there is a session bus")
		}
		require.Error(t, nobody.Create(Source{Kind: Keyring}))
	})
}
