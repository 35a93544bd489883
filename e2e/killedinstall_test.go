package e2e

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const toolPolicy = `policy: 1
issuers:
  owner: {id: "${OWNER_KEY}", connectors: [tool], max_life: 1h}
peers:
  caller: ${CALLER_ID}
limits: {starts_per_minute: 60000, denials: 10000}
commands:
  tool:
    args: {effect: read, arguments: [args]}
    lines: {effect: read, arguments: [lines], parameters: {text: {stdin: {max_bytes: 1048576, text: true}}}}
allow:
  - name: the caller
    to: [caller]
    connector: tool
    version: "1.0.0"
    commands: {args: {}, lines: {}}
`

// packTool makes a version of the Connector tool, whose program is in an archive.
func packTool(t *testing.T, s *served, version string) (source, archive string) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(s.bin, "fx"))
	require.NoError(t, err)
	source = filepath.Join(s.dir, "tool-"+version)
	archive = source + ".tar.gz"
	f, err := os.Create(archive)
	require.NoError(t, err)
	g, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(g)
	for at, body := range map[string][]byte{"bin/tool": program, "version": []byte(version)} {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: at, Mode: 0o755, Size: int64(len(body))}))
		_, err = w.Write(body)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), g.Close(), f.Close()))
	packed, err := os.ReadFile(archive)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(source, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(source, "connector-manifest.json"), fmt.Appendf(nil, `{
  "schemaVersion": "1", "key": "tool", "version": %q, "displayName": "Tool",
  "cli": {"command": "tool", "kind": "native", "entrypoint": "bin/tool", "sha256": "%x",
    "archive": {"url": "https://example.com/tool.tar.gz", "hosts": ["example.com"], "sha256": "%x", "size": %d}}
}`, version, sha256.Sum256(program), sha256.Sum256(packed), len(packed)), 0o600))
	return source, archive
}

// runningOld is an operation of the old version that goes on.
type runningOld struct {
	t   *testing.T
	in  io.WriteCloser
	out io.Reader
	n   int
}

func (r *runningOld) goesOn(after string) {
	r.t.Helper()
	r.n++
	_, err := fmt.Fprintf(r.in, "line %d\n", r.n)
	require.NoError(r.t, err, after)
	want := fmt.Sprintf("LINE %d\n", r.n)
	got := make([]byte, len(want))
	_, err = io.ReadFull(r.out, got)
	require.NoError(r.t, err, after)
	require.Equal(r.t, want, string(got), after)
}

// TestKilledInstallLeavesWhatRuns: while the gateway lends the old version and an
// operation of it runs, the process that updates, and then the one that removes, is
// killed at each of its steps. The operation goes on, the old version starts until its
// place is taken, and the same command again does what was left to do.
func TestKilledInstallLeavesWhatRuns(t *testing.T) {
	if !fullRun() {
		t.Skip("needs LEND_TEST_FULL=1: it builds a lend of its own and kills it some 25 times")
	}
	s := serveUnder(t, toolPolicy)
	mortal := filepath.Join(t.TempDir(), "lend")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "failpoint", "-o", mortal, "./cmd/lend")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	owner := s.vars["OWNER"]
	lend := func(args ...string) {
		t.Helper()
		_, err := s.lend(owner, args...)
		require.NoError(t, err)
	}
	gone := func(version string) { // as soon as the gateway lets go of it
		t.Helper()
		require.True(t, until(patience, func() bool {
			lend("connector", "list")
			_, err := os.Stat(filepath.Join(owner, "connectors", "connectors", "tool", version))
			return errors.Is(err, os.ErrNotExist)
		}), "the files of %s go", version)
	}
	kill := func(point string, args ...string) {
		t.Helper()
		cmd := s.command(owner, args...)
		cmd.Path = mortal
		cmd.Env = append(cmd.Env, "LEND_FAILPOINT="+point)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "it comes to the point %s: %s", point, out)
		status, ok := exit.Sys().(syscall.WaitStatus)
		require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%s: %s", point, out)
	}
	old, oldArchive := packTool(t, s, "1.0.0")
	lend("connector", "add", old, "--archive", oldArchive)
	f := s.issueOf("caller", "tool", "args", "lines")
	c := s.client("CALLER", f)
	start := func(after string) {
		t.Helper()
		require.NoError(t, c.Command(t.Context(), "tool", "args").Run(), after)
	}
	cmd := c.Command(t.Context(), "tool", "lines")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	running := &runningOld{t: t, in: in, out: stdout}
	running.goesOn("the start")

	points := []string{
		"staged", "imported", "download-begun", "download-written", "download-received", "candidate", "equipped", "placed", "published",
		"tried", "switched", "superseded", "promote-retired", "promote-current", "promoted",
	}
	for i, point := range points {
		version := fmt.Sprintf("1.1.%d", i) // each with an archive that is not there yet
		next, nextArchive := packTool(t, s, version)
		kill(point, "connector", "update", "tool", next, "--archive", nextArchive)
		running.goesOn(point)
		if i < slices.Index(points, "superseded") {
			start(point)
		}
		lend("connector", "update", "tool", next, "--archive", nextArchive) // what was begun is done
		running.goesOn(point + ", updated")
		lend("connector", "update", "tool", old, "--archive", oldArchive)
		gone(version)
		running.goesOn(point + ", and back")
		start(point + ", and back")
	}
	next, nextArchive := packTool(t, s, "2.0.0")
	for _, point := range []string{"uninstall-begin", "uninstall-written", "uninstall-retired", "uninstall-removed", "uninstall-forgotten"} {
		lend("connector", "add", next, "--archive", nextArchive)
		kill(point, "connector", "remove", "tool", "--version", "2.0.0")
		running.goesOn(point)
		start(point)
		if point != "uninstall-forgotten" {
			lend("connector", "remove", "tool", "--version", "2.0.0")
		}
		gone("2.0.0")
		running.goesOn(point + ", removed")
		start(point + ", removed")
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())

	// All of it: until that is written down nothing has changed, and then it ends.
	kill("uninstall-begin", "connector", "remove", "tool")
	start("uninstall-begin")
	kill("uninstall-written", "connector", "remove", "tool")
	require.Error(t, c.Command(t.Context(), "tool", "args").Run())
	lend("connector", "add", old, "--archive", oldArchive) // ends the removal first
	start("added again")
}
