package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/download"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func sha(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func toolManifest(key string) string {
	return strings.Replace(printer("1.0.0")["connector-manifest.json"], `"key": "printer"`, `"key": "`+key+`"`, 1)
}

// program is what the archive of a version holds.
func program(version string) files {
	return files{"bin/tool": binary + " " + version, "share/data": "data " + version}
}

// packed is that archive; remote is a Connector that is made of it.
func packed(t *testing.T, version string) []byte {
	t.Helper()
	return program(version).tgz(t, "tool-"+version+"/")
}

func remote(t *testing.T, version string) files {
	t.Helper()
	b := packed(t, version)
	return files{"connector-manifest.json": `{"schemaVersion": "1", "key": "tool", "version": "` + version + `", "displayName": "Tool",
		"cli": {"command": "tool", "kind": "native", "entrypoint": "bin/tool", "sha256": "` + sha([]byte(program(version)["bin/tool"])) + `",
			"archive": {"url": "https://example.com/tool-` + version + `.tar.gz", "hosts": ["example.com"], "strip": 1,
				"sha256": "` + sha(b) + `", "size": ` + fmt.Sprint(len(b)) + `}}}`}
}

// web is what a Fetcher fetches from.
type web struct {
	mu    sync.Mutex
	asked []string          // guarded by mu
	has   map[string][]byte // by URL
}

func webOf(t *testing.T, versions ...string) *web {
	t.Helper()
	w := &web{has: map[string][]byte{}}
	for _, v := range versions {
		w.has["https://example.com/tool-"+v+".tar.gz"] = packed(t, v)
	}
	return w
}

func (w *web) fetch(_ context.Context, a manifest.Archive, to io.Writer, _ func(done, total int64)) error {
	w.mu.Lock()
	w.asked = append(w.asked, a.URL)
	w.mu.Unlock()
	b, ok := w.has[a.URL]
	if !ok {
		return os.ErrNotExist
	}
	_, err := io.Copy(to, bytes.NewReader(b))
	return err
}

func TestRemoteArchive(t *testing.T) {
	t.Parallel()
	w := webOf(t, "1.0.0", "1.1.0")
	s := openStore(t, Config{Fetch: w.fetch})
	dir := remote(t, "1.0.0").dir(t)
	r := add(t, s, dir)
	l, err := s.Launch(r)
	require.NoError(t, err)
	b, err := os.ReadFile(l.Path)
	require.NoError(t, err)
	require.Equal(t, program("1.0.0")["bin/tool"], string(b))
	require.Empty(t, l.Prefix)
	require.FileExists(t, filepath.Join(filepath.Dir(l.Path), "..", "share", "data"), "what lies beside it is there")
	require.NotEqual(t, l.ContractDir, filepath.Dir(filepath.Dir(l.Path)))
	require.NoError(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version))
	require.Equal(t, r, add(t, s, dir))
	require.Len(t, w.asked, 1)

	flip(t, l.Path, 9)
	require.ErrorIs(t, l.Verify(), ErrTampered)
	require.ErrorIs(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version), ErrTampered)
	require.NoError(t, l.Close())
	r = add(t, s, dir)
	require.Len(t, w.asked, 1, "it is repaired from what was fetched")
	starts(t, s, r)

	_, _, err = update(t, s, Replacement{Key: r.Manifest.Key, Source: Source{Path: remote(t, "1.1.0").dir(t)}})
	require.NoError(t, err)
	require.Equal(t, []string{"1.1.0"}, versions(t, s))
	require.FileExists(t, filepath.Join(s.cfg.Dir, "downloads", "tool", "current", "archive"))
	require.NoDirExists(t, filepath.Join(s.cfg.Dir, "downloads", "tool", "candidate"))
	require.NoError(t, s.Remove(t.Context(), r.Manifest.Key, name.Version{}))
	require.NoDirExists(t, filepath.Join(s.cfg.Dir, "downloads", "tool"))
}

// TestRemoteArchiveByHand: who has the archive needs no network; it is checked all the
// same.
func TestRemoteArchiveByHand(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	dir := remote(t, "1.0.0").dir(t)
	_, err := s.Add(t.Context(), Source{Path: dir}, nil)
	require.ErrorIs(t, err, ErrNoArchive)
	at := filepath.Join(t.TempDir(), "a.tar.gz")
	b := packed(t, "1.0.0")
	require.NoError(t, os.WriteFile(at, append(b, 0), 0o600))
	_, err = s.Add(t.Context(), Source{Path: dir, Archive: at}, nil)
	require.ErrorIs(t, err, download.ErrMismatch)
	_, err = s.Add(t.Context(), Source{Path: dir, Archive: "a.tar.gz"}, nil)
	require.ErrorContains(t, err, "absolute")
	require.NoError(t, os.WriteFile(at, b, 0o600))
	r, err := s.Add(t.Context(), Source{Path: dir, Archive: at}, nil)
	require.NoError(t, err)
	starts(t, s, r)
}

// TestRemoteArchiveRefused: the pinned bytes decide, and then what is in them.
func TestRemoteArchiveRefused(t *testing.T) {
	t.Parallel()
	repin := func(t *testing.T, f files) (files, []byte) {
		t.Helper()
		b := f.tgz(t, "tool-1.0.0/")
		was := packed(t, "1.0.0")
		m := remote(t, "1.0.0")["connector-manifest.json"]
		m = strings.Replace(m, sha(was), sha(b), 1)
		m = strings.Replace(m, fmt.Sprintf(`"size": %d`, len(was)), fmt.Sprintf(`"size": %d`, len(b)), 1)
		return files{"connector-manifest.json": m}, b
	}
	for n, c := range map[string]struct {
		holds files
		want  string
	}{
		"other-program": {program("1.0.0").with("bin/tool", binary+" other"), "the manifest says another"},
		"no-program":    {files{"share/data": "data"}, "entrypoint is not there"},
		"script":        {program("1.0.0").with("bin/tool", "#!/bin/dash"), "it is a script"},
		"traversal":     {program("1.0.0").with("../../x", "x"), "unsafe path"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			src, b := repin(t, c.holds)
			w := &web{has: map[string][]byte{"https://example.com/tool-1.0.0.tar.gz": b}}
			s := openStore(t, Config{Fetch: w.fetch})
			_, err := s.Add(t.Context(), Source{Path: src.dir(t)}, nil)
			require.ErrorAs(t, err, new(*artifact.RefusedError))
			require.ErrorContains(t, err, c.want)
			require.Empty(t, versions(t, s))
			require.Empty(t, staged(t, s))
		})
	}
	t.Run("other-bytes", func(t *testing.T) {
		t.Parallel()
		w := webOf(t, "1.0.0", "1.1.0")
		w.has["https://example.com/tool-1.1.0.tar.gz"] = packed(t, "6.6.6")
		s := openStore(t, Config{Fetch: w.fetch})
		old := add(t, s, remote(t, "1.0.0").dir(t))
		_, _, err := update(t, s, Replacement{Key: old.Manifest.Key, Source: Source{Path: remote(t, "1.1.0").dir(t)}})
		require.ErrorIs(t, err, download.ErrMismatch)
		require.Equal(t, []string{"1.0.0"}, versions(t, s))
		starts(t, s, old)
		require.FileExists(t, filepath.Join(s.cfg.Dir, "downloads", "tool", "current", "archive"))
	})
}

// TestReceiptCannotChooseTheProgram: what an archive's release runs is what the manifest
// pins, though the receipt is made to fit another tree.
func TestReceiptCannotChooseTheProgram(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{Fetch: webOf(t, "1.0.0").fetch})
	r := add(t, s, remote(t, "1.0.0").dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	flip(t, l.Path, 9)
	tree := filepath.Dir(filepath.Dir(l.Path))
	snap, err := artifact.Open(tree, artifact.ConnectorLimits())
	require.NoError(t, err)
	at := filepath.Join(s.cfg.Dir, "connectors", "tool", "1.0.0", "receipt.json")
	rec := jsonOf(t, at)
	b, err := os.ReadFile(at)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, bytes.Replace(b, []byte(rec["packageDigest"].(string)), []byte(snap.Digest()), 1), 0o600))
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrTampered)
	require.ErrorIs(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version), ErrTampered)
	require.NoError(t, os.WriteFile(at, bytes.Replace(b, []byte(`"packageDigest": "`+rec["packageDigest"].(string)+`",`), nil, 1), 0o600))
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrTampered)
}

// TestDownloadsOfOthersGoOn: a download that hangs holds up no other Connector.
func TestDownloadsOfOthersGoOn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	s := openStore(t, Config{Fetch: func(ctx context.Context, _ manifest.Archive, _ io.Writer, _ func(done, total int64)) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	done := make(chan error, 1)
	dir := remote(t, "1.0.0").dir(t)
	go func() {
		_, err := s.Add(ctx, Source{Path: dir}, nil)
		done <- err
	}()
	<-begun
	add(t, s, printer("1.0.0").dir(t))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, []string{"1.0.0"}, versions(t, s))
}

func TestCollectDownloads(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{Fetch: webOf(t, "1.0.0").fetch})
	add(t, s, remote(t, "1.0.0").dir(t))
	orphan := filepath.Join(s.cfg.Dir, "downloads", "gone", "candidate")
	require.NoError(t, os.MkdirAll(orphan, 0o700))
	found := collect(t, s, true)
	require.Equal(t, []Garbage{{"orphan", "downloads/gone", 0}}, found)
	require.NoDirExists(t, filepath.Dir(orphan))
	require.DirExists(t, filepath.Join(s.cfg.Dir, "downloads", "tool", "current"))

	// One that no release is made of; that of a release which a crash kept from being
	// promoted is, and an unreadable release keeps all.
	downloads := filepath.Join(s.cfg.Dir, "downloads", "tool")
	next := filepath.Join(downloads, "candidate")
	require.NoError(t, os.Rename(filepath.Join(downloads, "current"), next))
	found = collect(t, s, true)
	require.Empty(t, found)
	require.NoDirExists(t, next)
	require.FileExists(t, filepath.Join(downloads, "current", "archive"))
	require.NoError(t, os.Mkdir(next, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(next, "archive"), []byte("half"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(next, "receipt.json"), []byte(`{"format": 1, "sha256": "`+strings.Repeat("a", 64)+`", "size": 4}`), 0o600))
	receipt := filepath.Join(s.cfg.Dir, "connectors", "tool", "1.0.0", "receipt.json")
	b, err := os.ReadFile(receipt)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(receipt, []byte("{"), 0o600))
	_, kept, err := s.Collect(t.Context(), true, nil)
	require.NoError(t, err)
	require.Len(t, kept, 1, "it is told")
	require.DirExists(t, next)
	require.NoError(t, os.WriteFile(receipt, b, 0o600))
	l, err := s.depot.Lock(t.Context(), depot.Connectors, "tool")
	require.NoError(t, err)
	found = collect(t, s, true)
	require.Empty(t, found, "somebody is at work")
	require.NoError(t, l.Close())
	for _, remove := range []bool{false, true} {
		found = collect(t, s, remove)
		require.Len(t, found, 1)
		require.Equal(t, "downloads/tool/candidate", found[0].Name)
		require.Greater(t, found[0].Bytes, int64(4))
	}
	require.NoDirExists(t, next)
	require.FileExists(t, filepath.Join(downloads, "current", "archive"))
	found = collect(t, s, true)
	require.Empty(t, found)
}

// TestArchiveOfAFailureGoes: a failed update keeps the archive of what is installed, and
// a failed first installation nothing.
func TestArchiveOfAFailureGoes(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{Fetch: webOf(t, "1.0.0", "1.1.0").fetch})
	downloads := filepath.Join(s.cfg.Dir, "downloads", "tool")
	bad := remote(t, "1.0.0")
	bad["connector-manifest.json"] = strings.Replace(bad["connector-manifest.json"], sha([]byte(program("1.0.0")["bin/tool"])), strings.Repeat("a", 64), 1)
	_, err := s.Add(t.Context(), Source{Path: bad.dir(t)}, nil)
	require.Error(t, err)
	require.NoDirExists(t, downloads)

	old := add(t, s, remote(t, "1.0.0").dir(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := errors.New("no gateway")
	_, _, err = s.Update(ctx, Replacement{Key: old.Manifest.Key, Source: Source{Path: remote(t, "1.1.0").dir(t)}, Switch: func(context.Context, Release) error {
		require.FileExists(t, filepath.Join(downloads, "candidate", "archive"))
		cancel(failed)
		return failed
	}}, nil)
	require.ErrorIs(t, err, failed)
	require.NoDirExists(t, filepath.Join(downloads, "candidate"))
	require.FileExists(t, filepath.Join(downloads, "current", "archive"))
	require.Equal(t, []string{"1.0.0"}, versions(t, s))
	flip(t, filepath.Join(filepath.Dir(filepath.Dir(launched(t, s, old))), "bin", "tool"), 9)
	s.cfg.Fetch = nil
	starts(t, s, add(t, s, remote(t, "1.0.0").dir(t))) // which it is repaired from
}

// TestBackToTheVersionBefore: while something of it runs, an update back and a repair
// afterwards need no network; when nothing does, its archive goes.
func TestBackToTheVersionBefore(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{Fetch: webOf(t, "1.0.0", "1.1.0").fetch})
	old, next := remote(t, "1.0.0").dir(t), remote(t, "1.1.0").dir(t)
	first := add(t, s, old)
	runs, err := s.Launch(first)
	require.NoError(t, err)
	to := func(dir string) Release {
		t.Helper()
		r, _, err := update(t, s, Replacement{Key: first.Manifest.Key, Source: Source{Path: dir}})
		require.NoError(t, err)
		return r
	}
	second := to(next)
	s.cfg.Fetch = nil // the network is gone
	collect(t, s, true)
	starts(t, s, to(old))
	flip(t, launched(t, s, first), 9)
	require.ErrorIs(t, s.Verify(t.Context(), first.Manifest.Key, first.Manifest.Version), ErrTampered)
	starts(t, s, add(t, s, old))

	require.NoError(t, runs.Close())
	collect(t, s, true)
	downloads := filepath.Join(s.cfg.Dir, "downloads", "tool")
	require.NoDirExists(t, filepath.Join(downloads, "candidate"), "nothing runs of the other one")
	_, _, err = s.Update(t.Context(), Replacement{Key: first.Manifest.Key, Source: Source{Path: next}}, nil)
	require.ErrorIs(t, err, ErrNoArchive)
	require.NotEqual(t, first.Digest, second.Digest)
}

// TestRepairOfTheArtifact: what an archive brought, or npm, and is whole, is copied; what
// is not is fetched.
func TestRepairOfTheArtifact(t *testing.T) {
	t.Parallel()
	w := webOf(t, "1.0.0")
	s := openStore(t, Config{Fetch: w.fetch})
	dir := remote(t, "1.0.0").dir(t)
	r := add(t, s, dir)
	spoil := func() {
		t.Helper()
		l, err := s.Launch(r)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		flip(t, filepath.Join(l.ContractDir, "connector-manifest.json"), 9)
	}
	spoil()
	require.NoError(t, os.RemoveAll(filepath.Join(s.cfg.Dir, "downloads", "tool")))
	s.cfg.Fetch = nil
	starts(t, s, add(t, s, dir))
	program := launched(t, s, r)
	flip(t, program, 9)
	_, err := s.Add(t.Context(), Source{Path: dir}, nil)
	require.ErrorIs(t, err, ErrNoArchive, "nobody has its bytes")
	s.cfg.Fetch = w.fetch
	starts(t, s, add(t, s, dir))
	require.Len(t, w.asked, 2)

	n, f := npmStore(t)
	hi := hello().dir(t)
	r = add(t, n, hi)
	ran := f.runs
	l, err := n.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	flip(t, filepath.Join(l.ContractDir, "connector-manifest.json"), 9)
	n.cfg.Registry = ""
	starts(t, n, add(t, n, hi))
	require.Equal(t, ran, f.runs, "npm does not run")
}

func launched(t *testing.T, s *Store, r Release) string {
	t.Helper()
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Path
}
