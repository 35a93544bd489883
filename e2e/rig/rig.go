package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
)

// Patience is how long a test waits for what should take no time.
const Patience = 60 * time.Second

// Long tells whether the parts that take minutes are asked for.
func Long() bool { return os.Getenv("LEND_TEST_LONG") == "1" }

// Need skips the test unless LEND_TEST_FULL=1; then each tool has to be there, and
// the test has to be root's.
func Need(t *testing.T, tools ...string) {
	t.Helper()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skipf("needs LEND_TEST_FULL=1: root and %s", strings.Join(tools, ", "))
	}
	for _, tool := range tools {
		_, err := exec.LookPath(tool)
		require.NoError(t, err)
	}
	require.Zero(t, os.Geteuid(), "the test needs root")
}

// built are the programs as they ship, made once.
//
//nolint:gochecknoglobals // all tests of a package share them
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lend-rig-")
	if err != nil {
		return "", err
	}
	if err := lookAtSources(); err != nil {
		return dir, err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", dir+"/", "./cmd/lend", "./cmd/lend-shim", "./e2e/fx")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

// lookAtSources reads the directories of what is built, so that go test takes no
// result from its cache when a source has changed.
func lookAtSources() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		return err
	})
}

// Main is TestMain: it runs the tests and removes the programs.
func Main(m *testing.M) {
	code := m.Run()
	if os.Getenv("LEND_TEST_FULL") == "1" {
		if dir, _ := built(); dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// World is an owner, whose policy names a caller.
type World struct {
	T *testing.T
	// Bin has the programs; Owner and Caller are LEND_DIRs.
	Bin, Owner, Caller string
	// Counter has a line for each process that the Connector started.
	Counter string
	// OwnerIn and CallerIn go before the programs of each: where to run them.
	OwnerIn, CallerIn []string

	dir string
}

// New makes a world whose policy lends the commands that are needed here. owner is
// the owner's LEND_DIR; "" makes one. keep is how long an operation outlives its
// link, as the policy writes it.
func New(t *testing.T, owner, keep string) *World {
	t.Helper()
	bin, err := built()
	require.NoError(t, err)
	dir := t.TempDir()
	w := &World{T: t, Bin: bin, dir: dir, Owner: owner, Caller: filepath.Join(dir, "caller"), Counter: filepath.Join(dir, "starts")}
	if w.Owner == "" {
		w.Owner = filepath.Join(dir, "owner")
	}
	for _, home := range []string{w.Owner, w.Caller} {
		w.Lend(home, "init")
	}
	package_ := filepath.Join(dir, "fx")
	w.Lend(w.Owner, "connector", "new", "exec:"+filepath.Join(bin, "fx"), "--key", "fx", "--version", "1.0.0", "--out", package_)
	w.Lend(w.Owner, "connector", "add", package_)
	w.Lend(w.Owner, "connector", "setting", "set", "fx", "FX_COUNT", w.Counter)
	text := os.Expand(policy, func(v string) string {
		return map[string]string{"OWNER": w.Lend(w.Owner, "id", "--owner"), "CALLER": w.Lend(w.Caller, "id"), "KEEP": keep}[v]
	})
	require.NoError(t, os.WriteFile(filepath.Join(w.Owner, "policy.yaml"), []byte(text), 0o600))
	return w
}

const policy = `policy: 1
issuers:
  owner: {id: ${OWNER}, connectors: [fx], max_life: 1h}
peers:
  caller: ${CALLER}
limits: {starts_per_minute: 60000, denials: 10000, stdout: unlimited, on_disconnect: {keep: ${KEEP}}}
commands:
  fx:
    cat: {effect: read, arguments: [cat], timeout: 15m, parameters: {bytes: {stdin: {max_bytes: 1073741824}}}}
    print:
      effect: read
      arguments: [print]
      timeout: 15m
      parameters: {bytes: {position: 1, type: integer, minimum: 0, maximum: 1073741824, required: true}}
    sleep: {effect: read, arguments: [sleep, 10m]}
allow:
  - name: the caller
    to: [caller]
    connector: fx
    version: "1.0.0"
    commands: {cat: {}, print: {}, sleep: {}}
`

// Command prepares lend on one of the machines.
func (w *World) Command(home string, args ...string) *exec.Cmd {
	in := w.CallerIn
	if home == w.Owner {
		in = w.OwnerIn
	}
	words := append(append(append([]string{}, in...), filepath.Join(w.Bin, "lend")), args...)
	cmd := exec.CommandContext(context.Background(), words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "LEND_DIR="+home)
	cmd.Dir = w.dir
	return cmd
}

// Try runs lend and returns what it prints on standard output; the error has the
// other output.
func (w *World) Try(home string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := w.Command(home, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("lend %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Lend is Try, which has to work.
func (w *World) Lend(home string, args ...string) string {
	w.T.Helper()
	out, err := w.Try(home, args...)
	require.NoError(w.T, err)
	return out
}

// Starts counts the processes that the Connector started.
func (w *World) Starts() int {
	b, err := os.ReadFile(w.Counter)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(w.T, err)
	}
	return bytes.Count(b, []byte("\n"))
}

// Verify checks the owner's ledger as it is in the files.
func (w *World) Verify() {
	w.T.Helper()
	_, err := ledger.Verify(filepath.Join(w.Owner, "ledger"))
	require.NoError(w.T, err)
}

// Lease writes a lease for everything to a file; part picks addresses.
func (w *World) Lease(part string) string {
	w.T.Helper()
	text := w.Lend(w.Owner, "lease", "issue", "--to", "caller", "--local-addresses", "--life", "1h", "--operations", "100000",
		"--at-once", "64", "--out", "-", "fx", "cat", "print", "sleep")
	f, err := lease.ParseArmor([]byte(text), lease.AddressRule{AllowLocal: true})
	require.NoError(w.T, err)
	var kept []string
	for _, a := range f.Addresses {
		if strings.Contains(a, part) {
			kept = append(kept, a)
		}
	}
	require.NotEmpty(w.T, kept)
	b, err := lease.Armor(f.Chain, kept, lease.AddressRule{AllowLocal: true})
	require.NoError(w.T, err)
	file, err := os.CreateTemp(w.dir, "*.lease")
	require.NoError(w.T, err)
	_, err = file.Write(b)
	require.NoError(w.T, err)
	require.NoError(w.T, file.Close())
	return file.Name()
}

// Operation is what the owner's list shows.
type Operation struct {
	ID, State, Code string
	Attached        bool
	Stdout, Stdin   uint64
}

// Operations is what the owner's gateway lists.
func (w *World) Operations() []Operation {
	w.T.Helper()
	var list struct{ Operations []Operation }
	require.NoError(w.T, json.Unmarshal([]byte(w.Lend(w.Owner, "ops", "list", "--json")), &list))
	return list.Operations
}

// Gateway is lend serve.
type Gateway struct {
	Cmd   *exec.Cmd
	log   Log
	ended chan struct{}
	err   error
}

// Log is a buffer that may be read while it is written.
type Log struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Serve starts the gateway and waits until it is ready. It is stopped at the end of
// the test, unless it has ended by then.
func (w *World) Serve(args ...string) *Gateway {
	w.T.Helper()
	g, err := w.TryServe(args...)
	require.NoError(w.T, err)
	return g
}

// TryServe is Serve; the error is what the gateway says when it does not start.
func (w *World) TryServe(args ...string) (*Gateway, error) {
	w.T.Helper()
	g := &Gateway{Cmd: w.Command(w.Owner, append([]string{"serve"}, args...)...), ended: make(chan struct{})}
	g.Cmd.Stderr = &g.log
	require.NoError(w.T, g.Cmd.Start())
	go func() {
		g.err = g.Cmd.Wait()
		close(g.ended)
	}()
	w.T.Cleanup(func() {
		_ = g.Stop(w.T)
		if w.T.Failed() {
			w.T.Logf("lend serve:\n%s", g.log.String())
		}
	})
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); {
		select {
		case <-g.ended:
			return g, fmt.Errorf("lend serve: %w\n%s", g.err, g.log.String())
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := w.Try(w.Owner, "status"); err == nil {
			return g, nil
		}
	}
	return g, fmt.Errorf("lend serve is not ready\n%s", g.log.String())
}

// Text is what the gateway wrote so far.
func (g *Gateway) Text() string { return g.log.String() }

// Running tells whether the gateway has not ended.
func (g *Gateway) Running() bool {
	select {
	case <-g.ended:
		return false
	default:
		return true
	}
}

// Stop ends the gateway as ^C does and returns how it ended.
func (g *Gateway) Stop(t *testing.T) error {
	t.Helper()
	_ = g.Cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-g.ended:
	case <-time.After(Patience):
		_ = g.Cmd.Process.Kill()
		t.Errorf("lend serve does not end")
	}
	return g.err
}

// Run is one lend run.
type Run struct {
	Cmd    *exec.Cmd
	Stderr Log
	ended  chan struct{}
}

// Run prepares a lend run; out and in may be set in Cmd before Start.
func (w *World) Run(lease, op string, args ...string) *Run {
	words := []string{"run", "--lease", lease}
	if op != "" {
		words = append(words, "--op", op)
	}
	r := &Run{Cmd: w.Command(w.Caller, append(append(words, "fx"), args...)...), ended: make(chan struct{})}
	r.Cmd.Stderr = &r.Stderr
	return r
}

// Start starts it; it is killed if it runs at the end of the test.
func (r *Run) Start(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Cmd.Start())
	t.Cleanup(func() { _ = r.Cmd.Process.Kill() }) // an ended one is not found
	go func() {
		defer close(r.ended)
		_ = r.Cmd.Wait() // Wait has the status
	}()
}

// Wait returns the exit status.
func (r *Run) Wait(t *testing.T, atMost time.Duration) int {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(atMost):
		require.Fail(t, "lend run does not end", r.Stderr.String())
	}
	return r.Cmd.ProcessState.ExitCode()
}

// Pattern is what fx print N prints.
func Pattern(n int) []byte {
	return bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz\n"), n/37+1)[:n]
}

// Until polls.
func Until(atMost time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(atMost); ; {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(20 * time.Millisecond)
	}
}
