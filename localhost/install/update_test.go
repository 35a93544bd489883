package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func versions(t *testing.T, s *Store) []string {
	t.Helper()
	all := releases(t, s)
	out := []string{}
	for _, r := range all {
		out = append(out, r.Manifest.Version.String())
	}
	return out
}

// starts tells whether a release can be launched, every byte verified.
func starts(t *testing.T, s *Store, r Release) {
	t.Helper()
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Verify())
	require.NoError(t, l.Close())
}

func update(t *testing.T, s *Store, u Replacement) (Release, name.Version, error) {
	t.Helper()
	if u.Key.IsZero() {
		u.Key = key(t, "printer")
	}
	return s.Update(t.Context(), u, nil)
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	old := add(t, s, printer("1.0.0").dir(t))
	running, err := s.Launch(old)
	require.NoError(t, err)
	asked := 0
	src := Source{Path: printer("1.1.0").dir(t)}
	now, from, err := update(t, s, Replacement{Source: src, Switch: func(_ context.Context, r Release) error {
		asked++
		require.Equal(t, "1.1.0", r.Manifest.Version.String())
		require.Equal(t, []string{"1.0.0", "1.1.0"}, versions(t, s), "the new one is beside the old one, which can start until it is replaced")
		starts(t, s, old)
		starts(t, s, r)
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, 1, asked)
	require.Equal(t, "1.0.0", from.String())
	require.Equal(t, []string{"1.1.0"}, versions(t, s))
	starts(t, s, now)

	require.True(t, s.Superseded(old.Manifest.Key, old.Manifest.Version, old.Digest))
	require.False(t, s.Superseded(old.Manifest.Key, old.Manifest.Version, now.Digest))
	require.False(t, s.Superseded(now.Manifest.Key, now.Manifest.Version, now.Digest))
	require.False(t, s.Superseded(name.ConnectorKey{}, name.Version{}, ""))
	require.NoError(t, running.Verify(), "what runs of it stays whole")
	_, err = s.Launch(old)
	require.ErrorIs(t, err, ErrNotInstalled, "but nothing starts from it any more")
	_, err = s.Release(old.Manifest.Key, old.Manifest.Version)
	require.ErrorIs(t, err, ErrNotInstalled)
	openStore(t, Config{Dir: s.cfg.Dir})
	require.NoError(t, running.Verify(), "another process's sweep leaves it alone")
	require.NoError(t, running.Close())
	openStore(t, Config{Dir: s.cfg.Dir})
	require.NoDirExists(t, running.ContractDir, "then it goes")
	require.False(t, s.Superseded(old.Manifest.Key, old.Manifest.Version, old.Digest))

	again, from, err := update(t, s, Replacement{Source: src})
	require.NoError(t, err)
	require.Equal(t, now, again)
	require.True(t, from.IsZero(), "it is the only one already")
	require.Empty(t, staged(t, s))
}

// TestUpdateBack: the owner goes back to a version, whether it is still on disk or not.
func TestUpdateBack(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		s := openStore(t, Config{})
		src := Source{Path: printer("1.0.0").dir(t)}
		old := add(t, s, src.Path)
		if held {
			l, err := s.Launch(old)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
		}
		_, _, err := update(t, s, Replacement{Source: Source{Path: printer("1.1.0").dir(t)}})
		require.NoError(t, err)
		require.Equal(t, held, s.Superseded(old.Manifest.Key, old.Manifest.Version, old.Digest))

		// First it does not work: what was superseded is so again, or gone.
		wrong := errors.New("wrong")
		_, _, err = update(t, s, Replacement{Source: src, Switch: func(context.Context, Release) error { return wrong }})
		require.ErrorIs(t, err, wrong)
		require.Equal(t, []string{"1.1.0"}, versions(t, s))
		require.Equal(t, held, s.Superseded(old.Manifest.Key, old.Manifest.Version, old.Digest))

		back, from, err := update(t, s, Replacement{Source: src})
		require.NoError(t, err)
		require.Equal(t, old, back)
		require.Equal(t, "1.1.0", from.String())
		require.Equal(t, []string{"1.0.0"}, versions(t, s))
		starts(t, s, back)
	}
}

// TestReleaseInstallerFailureLeavesThePreviousRelease: whatever goes wrong, the old
// release can start, and nothing of the new one is left.
func TestReleaseInstallerFailureLeavesThePreviousRelease(t *testing.T) {
	t.Parallel()
	wrong := errors.New("the gateway does not take it")
	newer := func(t *testing.T) Source {
		t.Helper()
		return Source{Path: printer("1.1.0").dir(t)}
	}
	for n, c := range map[string]struct {
		with func(t *testing.T) Replacement
		want error
	}{
		"switch-fails": {func(t *testing.T) Replacement {
			t.Helper()
			return Replacement{Source: newer(t), Switch: func(context.Context, Release) error { return wrong }}
		}, wrong},
		"bad-release": {func(t *testing.T) Replacement {
			t.Helper()
			return Replacement{Source: Source{Path: printer("1.1.0").with("bin/printer", "#!/bin/dash").dir(t)}}
		}, nil},
		"no-runtime": {func(t *testing.T) Replacement {
			t.Helper()
			return Replacement{Source: Source{Path: greeter("").dir(t)}, Key: key(t, "greet")}
		}, ErrNotInstalled},
		"other-connector": {func(t *testing.T) Replacement {
			t.Helper()
			return Replacement{Source: Source{Path: greeter("").dir(t)}}
		}, ErrOtherConnector},
		"not-installed": {func(t *testing.T) Replacement {
			t.Helper()
			return Replacement{Source: newer(t), From: version(t, "0.1.0")}
		}, ErrNotInstalled},
		"same-version": {func(t *testing.T) Replacement {
			t.Helper()
			return Replacement{Source: Source{Path: printer("1.0.0").with("doc/readme", "other").dir(t)}}
		}, ErrConflict},
		"archive-for-none": {func(t *testing.T) Replacement {
			t.Helper()
			src := newer(t)
			src.Archive = src.Path
			return Replacement{Source: src}
		}, nil},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{})
			old := add(t, s, printer("1.0.0").dir(t))
			_, _, err := update(t, s, c.with(t))
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			require.Equal(t, []string{"1.0.0"}, versions(t, s))
			starts(t, s, old)
			require.Empty(t, staged(t, s))
			require.NoDirExists(t, filepath.Join(s.cfg.Dir, "connectors", "printer", "1.1.0"))
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, Config{})
		old := add(t, s, printer("1.0.0").dir(t))
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := s.Update(ctx, Replacement{Source: newer(t), Key: key(t, "printer"), Switch: func(ctx context.Context, _ Release) error {
			cancel()
			return context.Cause(ctx)
		}}, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"1.0.0"}, versions(t, s))
		starts(t, s, old)
	})
	t.Run("tampered-while-it-is-tried", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, Config{})
		old := add(t, s, printer("1.0.0").dir(t))
		_, _, err := s.Update(t.Context(), Replacement{Source: newer(t), Key: key(t, "printer")}, func(stage string, _, _ int64) {
			if stage == "try printer 1.1.0" {
				found, err := filepath.Glob(filepath.Join(s.cfg.Dir, "connectors", "printer", "1.1.0", "*", "artifact", "bin", "printer"))
				require.NoError(t, err)
				require.Len(t, found, 1)
				flip(t, found[0], 9)
			}
		})
		require.ErrorIs(t, err, ErrTampered)
		require.Equal(t, []string{"1.0.0"}, versions(t, s))
		starts(t, s, old)
	})
	t.Run("tampered-before", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, Config{})
		add(t, s, printer("1.0.0").dir(t))
		src := newer(t)
		l, err := s.Launch(add(t, s, src.Path))
		require.NoError(t, err)
		require.NoError(t, l.Close())
		flip(t, l.Path, 9)
		now, _, err := update(t, s, Replacement{Source: src})
		require.NoError(t, err, "it is repaired")
		require.Equal(t, []string{"1.1.0"}, versions(t, s))
		starts(t, s, now)
	})
}

func TestUpdateOfSeveral(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	for _, v := range []string{"1.0.0", "2.0.0"} {
		add(t, s, printer(v).dir(t))
	}
	src := Source{Path: printer("2.1.0").dir(t)}
	_, _, err := update(t, s, Replacement{Source: src})
	require.ErrorIs(t, err, ErrSeveral)
	require.Equal(t, []string{"1.0.0", "2.0.0"}, versions(t, s))
	_, from, err := update(t, s, Replacement{Source: src, From: version(t, "2.0.0")})
	require.NoError(t, err)
	require.Equal(t, "2.0.0", from.String())
	require.Equal(t, []string{"1.0.0", "2.1.0"}, versions(t, s))

	// An update that a crash has cut off between the two: run again, it goes on.
	_, from, err = update(t, s, Replacement{Source: src})
	require.NoError(t, err)
	require.Equal(t, "1.0.0", from.String())
	require.Equal(t, []string{"2.1.0"}, versions(t, s))
}

// TestReleaseInstallerLocksOneConnector: what takes long for one Connector holds up
// no other, and a second change of the same one waits.
func TestReleaseInstallerLocksOneConnector(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	add(t, s, printer("1.0.0").dir(t))
	other := printer("1.0.0").with("connector-manifest.json", toolManifest("other")).dir(t)
	_, _, err := update(t, s, Replacement{Source: Source{Path: printer("1.1.0").dir(t)}, Switch: func(ctx context.Context, _ Release) error {
		second := openStore(t, Config{Dir: s.cfg.Dir})
		_, err := second.Add(ctx, Source{Path: other}, nil)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 50e6)
		defer cancel()
		_, err = second.Add(short, Source{Path: printer("1.2.0").dir(t)}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, second.Remove(short, key(t, "printer"), name.Version{}), context.DeadlineExceeded)
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"1.0.0", "1.1.0"}, versions(t, s))
}

// TestUpdateLeavesNothing: the place of the old version goes with it.
func TestUpdateLeavesNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	add(t, s, printer("1.0.0").dir(t))
	_, _, err := update(t, s, Replacement{Source: Source{Path: printer("1.1.0").dir(t)}})
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "connectors", "printer"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.NoError(t, s.Remove(t.Context(), key(t, "printer"), name.Version{}))
	require.NoDirExists(t, filepath.Join(s.cfg.Dir, "connectors", "printer"))
}

// Whoever waits for another command says so, and nobody else does.
func TestWaitingIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // who says nothing waits for ever
	defer cancel()
	s, _ := npmStore(t)
	first, next := hello().dir(t), printer("1.1.0").dir(t)
	old := add(t, s, printer("1.0.0").dir(t))
	const waits = "wait until another command has done with "
	for owner, what := range map[string]struct {
		kind string
		do   func(p Progress) error
	}{
		"hello": {depot.Connectors, func(p Progress) error {
			_, err := s.Add(ctx, Source{Path: first}, p)
			return err
		}},
		"printer": {depot.Connectors, func(p Progress) error {
			_, _, err := s.Update(ctx, Replacement{Source: Source{Path: next}, Key: old.Manifest.Key}, p)
			return err
		}},
		"node": {depot.Runtimes, func(p Progress) error {
			_, _, err := s.CollectRuntimes(ctx, false, p)
			return err
		}},
	} {
		var told []string
		l, err := s.depot.Lock(ctx, what.kind, owner)
		require.NoError(t, err)
		require.NoError(t, what.do(func(stage string, _, _ int64) {
			if strings.HasPrefix(stage, waits) {
				told = append(told, stage)
				require.NoError(t, l.Close())
			}
		}))
		require.Equal(t, []string{waits + owner}, told)
		require.NoError(t, what.do(func(stage string, _, _ int64) { require.NotContains(t, stage, waits) }))
	}
}
