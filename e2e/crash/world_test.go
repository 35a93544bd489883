//go:build linux

package crash

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
)

const patience = 60 * time.Second

// long tells whether the full numbers are wanted.
func long() bool { return os.Getenv("LEND_TEST_LONG") == "1" }

func pick(plain, full int) int {
	if long() {
		return full
	}
	return plain
}

// binaries builds the programs once, with the points at which they may be killed.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lend-crash-")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", "failpoint", "-o", dir+"/", "./cmd/lend", "./cmd/lend-shim", "./e2e/fx")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := binaries(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

const policyText = `policy: 1
issuers:
  owner: {id: OWNER, connectors: [fx], max_life: 1h}
peers: {caller: CALLER}
limits: {starts_per_minute: 60000, operations: 600, operations_per_peer: 600}
commands:
  fx:
    once:
      effect: write
      arguments: [once]
      parameters:
        id: {position: 1, pattern: "[a-z0-9-]+", required: true}
        status: {position: 2, type: integer, minimum: 0, maximum: 255, required: true}
        ms: {position: 3, type: integer, minimum: 0, maximum: 600000, required: true}
allow:
  - {name: the caller, to: [caller], connector: fx, version: "1.0.0", commands: {once: {}}}
`

// world is an owner with the Connector fx and one caller.
type world struct {
	t                  *testing.T
	bin, owner, caller string // directories
	marks              string // each start of fx, by the operation that it is for
	mark               string // in the environment of each fx
	port               int
	only               string // "tcp" or "quic": the transport; "": both, and callers take QUIC
	file               lease.File
	armor              string // the file of the lease
	gateway            *gateway
}

func newWorld(t *testing.T, only ...string) *world {
	t.Helper()
	bin, err := binaries()
	require.NoError(t, err)
	dir := t.TempDir()
	w := &world{
		t: t, only: strings.Join(only, ""), bin: bin, owner: filepath.Join(dir, "owner"), caller: filepath.Join(dir, "caller"),
		marks: filepath.Join(dir, "marks"), mark: "FX_MARK=" + filepath.Base(dir) + strconv.Itoa(os.Getpid()),
		armor: filepath.Join(dir, "all.lease"),
	}
	for _, home := range []string{w.owner, w.caller} {
		w.lend(home, "init")
	}
	w.lend(w.owner, "connector", "new", "exec:"+filepath.Join(bin, "fx"), "--key", "fx", "--version", "1.0.0", "--out", filepath.Join(dir, "fx"))
	w.lend(w.owner, "connector", "add", filepath.Join(dir, "fx"))
	w.lend(w.owner, "connector", "setting", "set", "fx", "FX_ONCE", w.marks)
	w.lend(w.owner, "connector", "setting", "set", "fx", "FX_MARK", strings.TrimPrefix(w.mark, "FX_MARK="))
	text := strings.NewReplacer("OWNER", w.lend(w.owner, "id", "--owner"), "CALLER", w.lend(w.caller, "id")).Replace(policyText)
	require.NoError(t, os.WriteFile(filepath.Join(w.owner, "policy.yaml"), []byte(text), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	require.NoError(t, err)
	w.port = l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	w.serve()
	t.Cleanup(func() { w.gateway.end(t) })
	w.lend(w.owner, "lease", "issue", "--to", "caller", "--local-addresses", "--life", "1h", "--operations", "1000000",
		"--at-once", "1024", "--out", w.armor, "fx", "once")
	armor, err := os.ReadFile(w.armor)
	require.NoError(t, err)
	w.file, err = lease.ParseArmor(armor, lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	return w
}

func (w *world) command(home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(w.bin, "lend"), args...)
	cmd.Env = append(os.Environ(), "LEND_DIR="+home)
	return cmd
}

func (w *world) lend(home string, args ...string) string {
	w.t.Helper()
	var out, errs bytes.Buffer
	cmd := w.command(home, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(w.t, cmd.Run(), "lend %s\n%s", strings.Join(args, " "), &errs)
	return strings.TrimSpace(out.String())
}

// gateway is one run of lend serve.
type gateway struct {
	cmd   *exec.Cmd
	log   *bytes.Buffer
	ended chan struct{}
}

// serve starts the gateway on both transports, or on one only. It returns how long it took until peers
// may come.
func (w *world) serve(env ...string) time.Duration {
	w.t.Helper()
	began := time.Now()
	g := &gateway{log: &bytes.Buffer{}, ended: make(chan struct{})}
	g.cmd = w.command(w.owner, "serve", "--log", "warn")
	if w.only != "quic" {
		g.cmd.Args = append(g.cmd.Args, "--listen", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", w.port))
	}
	if w.only != "tcp" {
		g.cmd.Args = append(g.cmd.Args, "--listen", fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", w.port))
	}
	g.cmd.Env = append(g.cmd.Env, env...)
	g.cmd.Stderr = g.log
	out, err := g.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, g.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	took := time.Since(began)
	go func() {
		_ = g.cmd.Wait()
		close(g.ended)
	}()
	if err != nil {
		<-g.ended
	}
	require.NoError(w.t, err, "%s", g.log)
	require.Contains(w.t, line, "serving as")
	w.gateway = g
	return took
}

func (g *gateway) pid() int { return g.cmd.Process.Pid }

func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// end stops the gateway as its owner does.
func (g *gateway) end(t *testing.T) {
	t.Helper()
	_ = g.cmd.Process.Signal(os.Interrupt)
	select {
	case <-g.ended:
	case <-time.After(patience):
		g.kill()
		t.Errorf("lend serve does not end\n%s", g.log)
	}
}

func (w *world) client(change ...func(*client.Config)) *client.Client {
	w.t.Helper()
	key, err := ownerfile.LoadKey(filepath.Join(w.caller, "identity.pem"))
	require.NoError(w.t, err)
	file := w.file
	file.Addresses = slices.DeleteFunc(slices.Clone(file.Addresses), func(a string) bool { return !strings.Contains(a, w.only) })
	require.NotEmpty(w.t, file.Addresses)
	config := client.Config{Key: key, Leases: client.Static(file), Wait: 20 * time.Second}
	for _, f := range change {
		f(&config)
	}
	c, err := client.New(config)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// starts counts the processes that ran for each operation.
func (w *world) starts() map[string]int {
	b, err := os.ReadFile(w.marks)
	if !os.IsNotExist(err) {
		require.NoError(w.t, err)
	}
	out := map[string]int{}
	for _, id := range strings.Fields(string(b)) {
		out[id]++
	}
	return out
}

// process is what /proc says of one.
type process struct {
	pid, parent int
	state       byte
	ours        bool // fx or a supervisor of this world
	supervisor  bool
}

func (w *world) processes() map[int]process {
	out := map[int]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has gone
		}
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		var p process
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		p.parent, _ = strconv.Atoi(string(f[1]))
		p.state = f[0][0]
		env, _ := os.ReadFile(dir + "/environ")
		exe, _ := os.Readlink(dir + "/exe")
		p.supervisor = exe == filepath.Join(w.bin, "lend-shim")
		p.ours = p.supervisor || bytes.Contains(env, []byte(w.mark+"\x00"))
		out[p.pid] = p
	}
	return out
}

// below tells whether p descends from a process.
func below(all map[int]process, p process, ancestor int) bool {
	for range 100 {
		if p.pid == ancestor {
			return true
		}
		parent, ok := all[p.parent]
		if !ok || p.pid <= 1 {
			return false
		}
		p = parent
	}
	return false
}

// orphans are processes of this world that no gateway looks after; the supervisors
// of other worlds that run at the same time are theirs.
func (w *world) orphans() (pids []int) {
	all := w.processes()
	for _, p := range all {
		if p.ours && p.state != 'Z' && !below(all, p, w.gateway.pid()) && !belongsElsewhere(all, p) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// belongsElsewhere: below a gateway that some other test runs.
func belongsElsewhere(all map[int]process, p process) bool {
	for range 100 {
		if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid)); filepath.Base(exe) == "lend" {
			return true
		}
		parent, ok := all[p.parent]
		if !ok || p.pid <= 1 {
			return false
		}
		p = parent
	}
	return false
}

// supervisors are those of the gateway now.
func (w *world) supervisors() (pids []int) {
	all := w.processes()
	for _, p := range all {
		if p.supervisor && below(all, p, w.gateway.pid()) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// running are the fx processes that are not only waited for.
func (w *world) running() (n int) {
	for _, p := range w.processes() {
		if p.ours && !p.supervisor && p.state != 'Z' {
			n++
		}
	}
	return n
}

// until asks again and again, as nothing tells it when.
func until(limit time.Duration, what func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !what(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
