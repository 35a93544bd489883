package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/supervise"
	"github.com/lendcli/lend/localhost/route"
)

// usesShim says what the supervisors of tr are started from.
func usesShim(t *testing.T, tr *Transport) bool {
	t.Helper()
	warm(t, tr, 2)
	tr.backend.mu.Lock()
	defer tr.backend.mu.Unlock()
	shims := 0
	for pid := range tr.backend.known {
		path := tr.backend.known[pid].cmd.Path
		if strings.HasSuffix(path, "lend-shim") {
			shims++
		} else {
			require.Equal(t, "/proc/self/exe", path, pid)
		}
	}
	require.Contains(t, []int{0, 2}, shims)
	return shims > 0
}

func TestShim(t *testing.T) {
	built := buildShim(t)
	image, err := os.ReadFile(built)
	require.NoError(t, err)
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	script := "#!/bin/sh\n: >" + ran + "\nexit 0\n"
	place := func(t *testing.T, content string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "lend-shim")
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	works := func(t *testing.T, tr *Transport) {
		t.Helper()
		require.Equal(t, 9, wait(t, start(t, tr, spec(marker(t), "exit", "9"))).Code)
	}
	t.Run("same-build", func(t *testing.T) {
		tr := transport(t, Config{ShimPath: built})
		require.True(t, usesShim(t, tr))
		works(t, tr)
	})
	for name, path := range map[string]string{
		"missing":           filepath.Join(dir, "none"),
		"something-else":    place(t, script, 0o755),
		"another-build":     place(t, strings.ReplaceAll(string(image), "func (s *server) sweep(", "func (s *server) sweeq("), 0o755),
		"writable-by-group": place(t, string(image), 0o775),
		"not-a-file":        dir,
	} {
		t.Run(name, func(t *testing.T) {
			tr := transport(t, Config{ShimPath: path})
			require.False(t, usesShim(t, tr))
			works(t, tr)
			require.NoFileExists(t, ran, "it was run")
		})
	}
	t.Run("beside-the-executable", func(t *testing.T) {
		exe, err := os.Executable()
		require.NoError(t, err)
		beside := filepath.Join(filepath.Dir(exe), "lend-shim")
		require.NoFileExists(t, beside)
		require.NoError(t, os.WriteFile(beside, image, 0o755))
		t.Cleanup(func() { require.NoError(t, os.Remove(beside)) })
		require.True(t, usesShim(t, transport(t, Config{})))
	})
	t.Run("never-through-path", func(t *testing.T) {
		t.Setenv("PATH", filepath.Dir(built))
		require.False(t, usesShim(t, transport(t, Config{})))
	})
	t.Run("a-link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "lend-shim")
		require.NoError(t, os.Symlink(built, link))
		require.False(t, usesShim(t, transport(t, Config{ShimPath: link})))
	})
	t.Run("replaced-later", func(t *testing.T) {
		path := place(t, string(image), 0o755)
		tr := transport(t, Config{ShimPath: path})
		require.True(t, usesShim(t, tr))
		other := place(t, script, 0o755)
		require.NoError(t, os.Rename(other, path))
		killAll(t, tr, 0)
		warm(t, tr, 0)
		works(t, tr)
		require.NoFileExists(t, ran, "the new file was run")
	})
	t.Run("says-the-wrong-word", func(t *testing.T) {
		path := place(t, script+strings.Join(supervise.Sources(), "\n"), 0o755)
		tr := transport(t, Config{ShimPath: path})
		require.False(t, usesShim(t, tr))
		works(t, tr)
	})
}

// Without Main, starting this executable again would start the program again.
func TestMainNotCalled(t *testing.T) {
	mainCalled.Store(false)
	t.Cleanup(func() { mainCalled.Store(true) })
	tr := transport(t, Config{})
	_, err := tr.Start(t.Context(), spec(marker(t), "exit", "0"))
	require.ErrorIs(t, err, ErrMain)
	require.ErrorIs(t, err, route.ErrUnavailable)
}

// A supervisor that gets what it does not understand leaves, and is replaced.
func TestMalformedMessage(t *testing.T) {
	for name, message := range map[string][]byte{
		"short":               []byte("junk"),
		"unknown-kind":        supervise.Message{Kind: 99}.Append(nil),
		"a-report":            supervise.Message{Kind: supervise.Empty}.Append(nil),
		"start-without-files": supervise.Message{Kind: supervise.Start, Value: 16}.Append(nil),
		"start-too-large":     supervise.Message{Kind: supervise.Start, Value: 1 << 31}.Append(nil),
		"more-without-start":  supervise.Message{Kind: supervise.More}.Append(nil),
		"request-malformed":   append(supervise.Message{Kind: supervise.Start, Value: 3}.Append(nil), 1, 2, 3),
	} {
		t.Run(name, func(t *testing.T) {
			tr := transport(t, Config{Idle: 1})
			warm(t, tr, 1)
			tr.backend.mu.Lock()
			s := tr.backend.idle[0]
			tr.backend.mu.Unlock()
			require.NoError(t, s.write(message, nil))
			if name == "start-without-files" { // it waits for the rest
				require.NoError(t, s.write(append(supervise.Message{Kind: supervise.More}.Append(nil), make([]byte, 16)...), nil))
			}
			warm(t, tr, 0)
			require.Equal(t, 1, wait(t, start(t, tr, spec(marker(t), "exit", "1"))).Code)
		})
	}
}

// A supervisor that reports nonsense is not believed.
func TestMalformedReport(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	p := start(t, tr, spec(marker(t), "sleep"))
	op, ok := p.(*operation)
	require.True(t, ok)
	s := op.super
	for _, m := range []supervise.Message{
		{Kind: supervise.Exited, Seq: op.seq + 1},
		{Kind: supervise.Started, Seq: op.seq + 1},
		{Kind: supervise.Kill, Seq: op.seq},
		{Kind: supervise.Hello, Seq: op.seq},
	} {
		require.False(t, s.report(m))
	}
	op.answered(nil)
	require.False(t, s.report(supervise.Message{Kind: supervise.Started, Seq: op.seq}), "twice")
	require.False(t, isClosed(op.exited))
}

func TestHarden(t *testing.T) {
	require.NoError(t, Harden())
	t.Cleanup(func() { require.NoError(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)) })
	// Everything still works in a process that is not dumpable.
	tr := transport(t, Config{})
	mark := marker(t)
	p := start(t, tr, spec(mark, "tree", "1", "2"))
	lines(t, p, 3)
	killAll(t, tr, 0)
	requireNone(t, mark)
	require.NoError(t, p.Close())
	e := wait(t, start(t, tr, spec(mark, "exit", "4")))
	require.Equal(t, 4, e.Code)
	require.Less(t, e.Duration, time.Minute)
}
