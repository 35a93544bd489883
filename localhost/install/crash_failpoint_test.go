//go:build failpoint && unix

package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the child does, and where it finds what it needs.
const (
	crashDo    = "LEND_CRASH_DO"
	crashStore = "LEND_CRASH_STORE"
	crashOld   = "LEND_CRASH_OLD"
	crashNew   = "LEND_CRASH_NEW"
)

// TestCrashChild is the process that is killed.
func TestCrashChild(t *testing.T) {
	if os.Getenv(crashDo) == "" {
		t.Skip("it is the child of the others")
	}
	s := openStore(t, Config{Dir: os.Getenv(crashStore), Fetch: webOf(t, "1.0.0", "1.1.0").fetch})
	var err error
	switch os.Getenv(crashDo) {
	case "add":
		_, err = s.Add(t.Context(), Source{Path: os.Getenv(crashNew)}, nil)
	case "update":
		_, _, err = update(t, s, Replacement{Key: key(t, "tool"), Source: Source{Path: os.Getenv(crashNew)}})
	case "back": // to a version that is superseded, and that this process keeps on disk
		old := add(t, s, os.Getenv(crashOld))
		l, launchErr := s.Launch(old)
		require.NoError(t, launchErr)
		_, _, err = update(t, s, Replacement{Key: key(t, "tool"), Source: Source{Path: os.Getenv(crashNew)}})
		require.NoError(t, err)
		_, _, err = update(t, s, Replacement{Key: key(t, "tool"), Source: Source{Path: os.Getenv(crashOld)}})
		require.NoError(t, l.Close())
	}
	require.NoError(t, err)
}

type crash struct {
	store, old, new string
}

// kill has a child do something until it comes to the point.
func (c crash) kill(t *testing.T, do, point string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$")
	cmd.Env = append(os.Environ(), crashDo+"="+do, crashStore+"="+c.store, crashOld+"="+c.old, crashNew+"="+c.new, "LEND_FAILPOINT="+point)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "it comes to the point %s: %s", point, out)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "it is killed at %s: %s", point, out)
}

// crashPoints are those of package failpoint, in their order.
func crashPoints() []string {
	return []string{
		"staged", "imported", "download-begun", "download-written", "download-received", "candidate", "equipped", "placed", "published",
		"tried", "switched", "superseded", "promote-retired", "promote-current", "promoted",
	}
}

func newCrash(t *testing.T) crash {
	t.Helper()
	return crash{storeDir(t), remote(t, "1.0.0").dir(t), remote(t, "1.1.0").dir(t)}
}

// TestCrashUpdate kills an update at every step. The old release can start until the
// new one has taken its place, and then that one can; what was begun can be done again.
func TestCrashUpdate(t *testing.T) {
	t.Parallel()
	points := crashPoints()
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			s := openStore(t, Config{Dir: c.store, Fetch: webOf(t, "1.0.0").fetch})
			old := add(t, s, c.old)
			c.kill(t, "update", point)

			next := openStore(t, Config{Dir: c.store, Fetch: webOf(t, "1.1.0").fetch})
			switch {
			case i < slices.Index(points, "published"):
				require.Equal(t, []string{"1.0.0"}, versions(t, next))
			case i < slices.Index(points, "superseded"):
				require.Equal(t, []string{"1.0.0", "1.1.0"}, versions(t, next))
			default:
				require.Equal(t, []string{"1.1.0"}, versions(t, next))
			}
			all := releases(t, next)
			for _, r := range all {
				starts(t, next, r)
				require.NoError(t, next.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version))
			}
			require.Empty(t, staged(t, next))
			if i < slices.Index(points, "superseded") {
				flip(t, filepath.Join(launchDir(t, next, old), "bin", "tool"), 9)
				broken := openStore(t, Config{Dir: c.store}) // nothing is fetched
				starts(t, broken, add(t, broken, c.old))     // the archive of the old release is still there, and repairs it
			}
			_, _, err := update(t, next, Replacement{Key: key(t, "tool"), Source: Source{Path: c.new}})
			require.NoError(t, err)
			c.done(t, next, "1.1.0")
		})
	}
}

// launchDir is where the program of a release is.
func launchDir(t *testing.T, s *Store, r Release) string {
	t.Helper()
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return filepath.Dir(filepath.Dir(l.Path))
}

// done is how it looks when nothing was interrupted.
func (c crash) done(t *testing.T, s *Store, version string) {
	t.Helper()
	c.settled(t, s, version)
	entries, err := os.ReadDir(filepath.Join(c.store, "downloads", "tool"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "current", entries[0].Name())
}

// settled is the same, but that the archive may be gone.
func (c crash) settled(t *testing.T, s *Store, version string) {
	t.Helper()
	require.Equal(t, []string{version}, versions(t, s))
	all := releases(t, s)
	starts(t, s, all[0])
	require.Empty(t, staged(t, s))
	found := collect(t, s, false)
	require.Empty(t, found)
}

// TestCrashAdd kills the first installation at every step: there is a whole release or
// none.
func TestCrashAdd(t *testing.T) {
	t.Parallel()
	for _, point := range crashPoints() {
		if point == "tried" || point == "switched" || point == "superseded" {
			continue
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			c.kill(t, "add", point)
			s := openStore(t, Config{Dir: c.store, Fetch: webOf(t, "1.1.0").fetch})
			all := releases(t, s)
			for _, r := range all {
				starts(t, s, r)
			}
			add(t, s, c.new)
			c.done(t, s, "1.1.0")
		})
	}
}

// TestCrashUpdateBack kills the way back to a version that is still on disk.
func TestCrashUpdateBack(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"superseded:2", "tried:2", "switched:2", "superseded:3", "promoted:2"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			c.kill(t, "back", point)
			s := openStore(t, Config{Dir: c.store, Fetch: webOf(t, "1.0.0", "1.1.0").fetch})
			all := releases(t, s)
			require.NotEmpty(t, all)
			for _, r := range all {
				starts(t, s, r)
			}
			_, _, err := update(t, s, Replacement{Key: key(t, "tool"), Source: Source{Path: c.old}})
			require.NoError(t, err)
			c.settled(t, s, "1.0.0")
		})
	}
}
