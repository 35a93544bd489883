//go:build unix

package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/protocol/name"
)

func one(t testing.TB, leaf string) Shim {
	t.Helper()
	key, err := name.ParseConnectorKey("github")
	require.NoError(t, err)
	command, err := name.ParseCommand("issue.list")
	require.NoError(t, err)
	version, err := name.ParseVersion("2.40.1")
	require.NoError(t, err)
	return Shim{Name: leaf, Lend: "/opt/it's here/lend", Home: "/home/o/$HOME `x`", Peer: "laptop", Connector: key, Version: version, Command: command}
}

func shims(t testing.TB) Directory { t.Helper(); return Directory(filepath.Join(t.TempDir(), "shims")) }

// The file says what it calls, and nothing of what the Connector runs.
func TestShimHoldsNoExecutablePath(t *testing.T) {
	t.Parallel()
	d := shims(t)
	require.NoError(t, d.Add(t.Context(), one(t, "gh"), false))
	b, err := os.ReadFile(d.Path("gh"))
	require.NoError(t, err)
	require.Equal(t, `#!/bin/sh
# lend connector shim 1 {"name":"gh","lend":"/opt/it's here/lend","home":"/home/o/$HOME `+"`x`"+`","peer":"laptop","connector":"github","version":"2.40.1","command":"issue.list"}
# lend connector shim remove NAME takes it away; a file that was edited is nobody's.
exec '/opt/it'\''s here/lend' connector try --dir '/home/o/$HOME `+"`x`"+`' --peer 'laptop' --version '2.40.1' -- 'github' 'issue.list' "$@"
`, string(b))
	info, err := os.Stat(d.Path("gh"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	info, err = os.Stat(string(d))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	ours, foreign, err := d.List()
	require.NoError(t, err)
	require.Equal(t, []Shim{one(t, "gh")}, ours)
	require.Empty(t, foreign)

	short := one(t, "g")
	short.Home, short.Version, short.Command = "", name.Version{}, name.Command{}
	require.NoError(t, d.Add(t.Context(), short, false))
	b, err = os.ReadFile(d.Path("g"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(b), "\nexec '/opt/it'\\''s here/lend' connector try --peer 'laptop' -- 'github' \"$@\"\n"), string(b))
}

// The same again is no change; another takes a word, and what is not ours stays
// whatever is said.
func TestShimNeverOverwritesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]func(t *testing.T, d Directory) error{
		"another-program": func(_ *testing.T, d Directory) error {
			return os.WriteFile(d.Path("gh"), []byte("#!/bin/sh\necho mine\n"), 0o700)
		},
		"edited": func(t *testing.T, d Directory) error {
			t.Helper()
			require.NoError(t, d.Add(t.Context(), one(t, "gh"), false))
			f, err := os.OpenFile(d.Path("gh"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("echo more\n")
			return errors.Join(err, f.Close())
		},
		"renamed": func(t *testing.T, d Directory) error {
			t.Helper()
			require.NoError(t, d.Add(t.Context(), one(t, "other"), false))
			return os.Rename(d.Path("other"), d.Path("gh"))
		},
		"marker-alone": func(_ *testing.T, d Directory) error {
			return os.WriteFile(d.Path("gh"), []byte(head+marker+"{}\n"), 0o700)
		},
		"empty": func(_ *testing.T, d Directory) error { return os.WriteFile(d.Path("gh"), nil, 0o700) },
		"large": func(_ *testing.T, d Directory) error {
			return os.WriteFile(d.Path("gh"), bytes.Repeat([]byte("#"), 1<<20), 0o700)
		},
		"link-to-one-of-ours": func(t *testing.T, d Directory) error {
			t.Helper()
			require.NoError(t, d.Add(t.Context(), one(t, "other"), false))
			return os.Symlink("other", d.Path("gh"))
		},
		"dangling-link": func(_ *testing.T, d Directory) error { return os.Symlink("nowhere", d.Path("gh")) },
		"directory":     func(_ *testing.T, d Directory) error { return os.Mkdir(d.Path("gh"), 0o700) },
		"fifo":          func(_ *testing.T, d Directory) error { return syscall.Mkfifo(d.Path("gh"), 0o700) },
		"for-others": func(t *testing.T, d Directory) error {
			t.Helper()
			require.NoError(t, d.Add(t.Context(), one(t, "gh"), false))
			return os.Chmod(d.Path("gh"), 0o722)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := shims(t)
			require.NoError(t, os.Mkdir(string(d), 0o700))
			require.NoError(t, put(t, d))
			before := look(t, d)
			s := one(t, "gh")
			s.Peer = "desk"
			for _, replace := range []bool{false, true} {
				require.ErrorIs(t, d.Add(t.Context(), s, replace), ErrForeign)
			}
			require.ErrorIs(t, d.Remove(t.Context(), "gh"), ErrForeign)
			_, foreign, err := d.List()
			require.NoError(t, err)
			require.Equal(t, []string{"gh"}, foreign)
			gone, err := d.RemoveOf(t.Context(), s.Connector)
			require.NoError(t, err)
			require.NotContains(t, gone, "gh")
			require.Equal(t, before["gh"], look(t, d)["gh"])
		})
	}
}

// look describes each entry.
func look(t *testing.T, d Directory) map[string]string {
	t.Helper()
	list, err := os.ReadDir(string(d))
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range list {
		info, err := e.Info()
		require.NoError(t, err)
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(d.Path(e.Name()))
			require.NoError(t, err)
			text += string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(d.Path(e.Name()))
			require.NoError(t, err)
			text += to
		}
		out[e.Name()] = text
	}
	return out
}

func TestShimReplaceAndRemove(t *testing.T) {
	t.Parallel()
	d := shims(t)
	require.ErrorIs(t, d.Remove(t.Context(), "gh"), ErrNotFound, "no directory")
	s := one(t, "gh")
	require.NoError(t, d.Add(t.Context(), s, false))
	before, err := os.Stat(d.Path("gh"))
	require.NoError(t, err)
	require.NoError(t, d.Add(t.Context(), s, false))
	after, err := os.Stat(d.Path("gh"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the same again writes nothing")
	s.Peer = "desk"
	require.ErrorIs(t, d.Add(t.Context(), s, false), ErrExists)
	require.NoError(t, os.WriteFile(d.Path(newFile), []byte("half"), 0o600), "of a process that died")
	require.NoError(t, d.Add(t.Context(), s, true))
	got, err := d.read("gh")
	require.NoError(t, err)
	require.Equal(t, s, got)
	require.NoFileExists(t, d.Path(newFile))

	another := one(t, "jq")
	another.Connector, err = name.ParseConnectorKey("jq")
	require.NoError(t, err)
	require.NoError(t, d.Add(t.Context(), another, false))
	require.NoError(t, d.Add(t.Context(), one(t, "gh2"), false))
	gone, err := d.RemoveOf(t.Context(), s.Connector)
	require.NoError(t, err)
	require.Equal(t, []string{"gh", "gh2"}, gone)
	require.NoError(t, d.Remove(t.Context(), "jq"))
	require.ErrorIs(t, d.Remove(t.Context(), "jq"), ErrNotFound)
	require.ErrorIs(t, d.Remove(t.Context(), "../jq"), ErrInvalid)
	ours, foreign, err := d.List()
	require.NoError(t, err)
	require.Empty(t, slices.Concat(foreign, make([]string, len(ours))))
}

func TestShimRefuses(t *testing.T) {
	t.Parallel()
	d := shims(t)
	for what, change := range map[string]func(*Shim){
		"empty-name":     func(s *Shim) { s.Name = "" },
		"long-name":      func(s *Shim) { s.Name = strings.Repeat("a", maxName+1) },
		"name-with-path": func(s *Shim) { s.Name = "a/b" },
		"hidden-name":    func(s *Shim) { s.Name = ".new" },
		"option-name":    func(s *Shim) { s.Name = "-rf" },
		"name-of-ours":   func(s *Shim) { s.Name = "lend" },
		"name-with-line": func(s *Shim) { s.Name = "a\nb" },
		"no-connector":   func(s *Shim) { s.Connector = name.ConnectorKey{} },
		"no-lend":        func(s *Shim) { s.Lend = "" },
		"relative-lend":  func(s *Shim) { s.Lend = "lend" },
		"relative-home":  func(s *Shim) { s.Home = "home" },
		"no-peer":        func(s *Shim) { s.Peer = "" },
		"option-as-peer": func(s *Shim) { s.Peer = "--version" },
		"line-in-peer":   func(s *Shim) { s.Peer = "a\nrm -rf x" },
		"line-in-path":   func(s *Shim) { s.Lend = "/a\nrm" },
		"odd-in-path":    func(s *Shim) { s.Home = "/a\u202e" },
		"bytes-in-path":  func(s *Shim) { s.Home = "/a\xff" },
		"long-path":      func(s *Shim) { s.Home = "/" + strings.Repeat("a", maxPath) },
	} {
		s := one(t, "gh")
		change(&s)
		require.ErrorIs(t, d.Add(t.Context(), s, true), ErrInvalid, what)
	}
	require.NoDirExists(t, string(d))

	require.NoError(t, os.Mkdir(string(d), 0o755))
	require.NoError(t, os.Chmod(string(d), 0o755))
	require.ErrorIs(t, d.Add(t.Context(), one(t, "gh"), false), private.ErrUnsafe)
	_, _, err := d.List()
	require.ErrorIs(t, err, private.ErrUnsafe)
	require.NoError(t, os.Remove(string(d)))
	require.NoError(t, os.Symlink(t.TempDir(), string(d)))
	require.ErrorIs(t, d.Add(t.Context(), one(t, "gh"), false), private.ErrUnsafe)
}

func TestShimsAreBounded(t *testing.T) {
	t.Parallel()
	d := shims(t)
	require.NoError(t, os.Mkdir(string(d), 0o700))
	for i := range maxEntries {
		require.NoError(t, os.WriteFile(d.Path(fmt.Sprintf("f%d", i)), nil, 0o600))
	}
	require.ErrorIs(t, d.Add(t.Context(), one(t, "gh"), false), ErrFull)
	require.NoError(t, os.Remove(d.Path("f0")))
	require.NoError(t, d.Add(t.Context(), one(t, "gh"), false))
	s := one(t, "gh")
	s.Peer = "desk"
	require.NoError(t, d.Add(t.Context(), s, true), "one more is one too many, another is not")
}

// Many processes at once: each name ends with one whole file, and readers see no half.
func TestShimsAtOnce(t *testing.T) {
	t.Parallel()
	d := shims(t)
	require.NoError(t, os.Mkdir(string(d), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			if _, err := d.read("gh"); err != nil && !errors.Is(err, ErrNotFound) {
				t.Error(err)
				return
			}
		}
	})
	for i := range 4 {
		writers.Go(func() {
			for n := range 10 {
				s := one(t, "gh")
				s.Peer = fmt.Sprintf("peer%d-%d", i, n)
				if err := d.Add(ctx, s, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	require.Equal(t, []string{lockFile, "gh"}, slices.Sorted(func(yield func(string) bool) {
		for k := range look(t, d) {
			if !yield(k) {
				return
			}
		}
	}))
}

func TestOnPath(t *testing.T) {
	t.Parallel()
	d := Directory("/a/shims")
	require.True(t, d.OnPath("/bin:/a/shims/:/x"))
	require.False(t, d.OnPath("/bin::shims:/a"))
	require.False(t, d.OnPath(""))
}

// What is accepted as ours is what would be written.
func FuzzParse(f *testing.F) {
	b, err := one(f, "gh").render()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(head + marker + `{"name":"gh"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := parse("gh", b)
		if !ok {
			require.Zero(t, s)
			return
		}
		again, err := s.render()
		require.NoError(t, err)
		require.Equal(t, b, again)
		require.Equal(t, 4, bytes.Count(b, []byte("\n")))
	})
}
