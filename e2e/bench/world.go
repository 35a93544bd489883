//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
)

// world is an owner with a gateway, and its callers: the command line of another
// LEND_DIR, and this program.
type world struct {
	dir, bin      string
	owner, caller string // LEND_DIRs
	key           crypto.PrivKey
	self          peer.ID
	gateway       *exec.Cmd

	commands, rules string                              // more of the policy, with their indentation
	more            func(context.Context, *world) error // more that is set up before the gateway starts

	in     []string // what starts the gateway elsewhere, in front of its command
	listen []string // multiaddrs; none: loopback
}

const policyText = `policy: 1
issuers:
  owner: {id: %s, connectors: any, max_life: 24h}
peers:
  caller: %s
  bench: %s
%slimits: {operations: 1024, operations_per_peer: 1024, starts_per_minute: 60000, denials: 10000, stdout: unlimited, run: 1h}
commands:
  nothing:
    run: {effect: read, arguments: [run]}
  child:
    produce:
      effect: read
      arguments: [produce]
      timeout: 15m
      parameters: {bytes: {position: 1, type: integer, minimum: 0, maximum: 9007199254740991, required: true}}
    consume: {effect: read, arguments: [consume], timeout: 15m, parameters: {bytes: {stdin: {max_bytes: 1099511627776}}}}
    cat: {effect: read, arguments: [cat], timeout: 15m, parameters: {bytes: {stdin: {max_bytes: 1099511627776}}}}
    sleep: {effect: read, arguments: [sleep], timeout: 1h}
%sallow:
  - {name: nothing, to: [caller, bench], connector: nothing, version: "1.0.0", commands: {run: {}}}
  - {name: the child, to: [caller, bench], connector: child, version: "1.0.0", commands: {produce: {}, consume: {}, cat: {}, sleep: {}}}
%s`

// leaseFlags grant more than any run of the suite uses.
var leaseFlags = []string{"--local-addresses", "--life", "24h", "--operations", "1000000", "--at-once", "1024", "--out", "-"} //nolint:gochecknoglobals // constant

// build makes the programs in dir.
func build(ctx context.Context, dir string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "./cmd/lend", "./cmd/lend-shim", "./e2e/bench/child")
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

// newWorld makes an owner who lends the two programs, and starts the gateway.
// Peers beside those two may connect, and run nothing.
func newWorld(ctx context.Context, dir, bin string, others ...peer.ID) (*world, error) {
	w := &world{dir: dir, bin: bin}
	return w, w.start(ctx, others)
}

func (w *world) start(ctx context.Context, others []peer.ID) (err error) {
	w.owner, w.caller = filepath.Join(w.dir, "owner"), filepath.Join(w.dir, "caller")
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	if w.key, err = newKey(); err != nil {
		return err
	}
	if w.self, err = peer.IDFromPrivateKey(w.key); err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	if err := w.setUp(ctx, others); err != nil {
		return err
	}
	return w.serve(ctx)
}

func (w *world) setUp(ctx context.Context, others []peer.ID) error {
	steps := [][]string{
		{w.owner, "init"},
		{w.caller, "init"},
		{w.owner, "connector", "new", "exec:" + nothing, "--key", "nothing", "--version", "1.0.0", "--out", filepath.Join(w.dir, "nothing")},
		{w.owner, "connector", "add", filepath.Join(w.dir, "nothing")},
		{w.owner, "connector", "new", "exec:" + filepath.Join(w.bin, "child"), "--key", "child", "--version", "1.0.0", "--out", filepath.Join(w.dir, "child")},
		{w.owner, "connector", "add", filepath.Join(w.dir, "child")},
	}
	for _, s := range steps {
		if _, err := w.run(ctx, s[0], s[1:]...); err != nil {
			return err
		}
	}
	if w.more != nil {
		if err := w.more(ctx, w); err != nil {
			return err
		}
	}
	owner, err1 := w.run(ctx, w.owner, "id", "--owner")
	caller, err2 := w.run(ctx, w.caller, "id")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var more strings.Builder
	for i, p := range others {
		fmt.Fprintf(&more, "  peer-%d: %s\n", i, p)
	}
	text := fmt.Sprintf(policyText, owner, caller, w.self, more.String(), w.commands, w.rules)
	return os.WriteFile(filepath.Join(w.owner, "policy.yaml"), []byte(text), 0o600)
}

// command prepares lend for one of the machines.
func (w *world) command(ctx context.Context, home string, args ...string) *exec.Cmd {
	return w.prepare(exec.CommandContext(ctx, filepath.Join(w.bin, "lend"), args...), home)
}

func (w *world) prepare(cmd *exec.Cmd, home string) *exec.Cmd {
	cmd.Env = append(os.Environ(), "LEND_DIR="+home)
	cmd.Dir = w.dir
	return cmd
}

func (w *world) run(ctx context.Context, home string, args ...string) (string, error) {
	var said strings.Builder
	cmd := w.command(ctx, home, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("lend %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// serve starts the gateway and waits until it says that it is ready.
func (w *world) serve(ctx context.Context) error {
	listen := w.listen
	if len(listen) == 0 {
		listen = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}
	}
	args := append(slices.Clone(w.in), filepath.Join(w.bin, "lend"), "serve", "--log", "error")
	for _, l := range listen {
		args = append(args, "--listen", l)
	}
	w.gateway = w.prepare(exec.CommandContext(ctx, args[0], args[1:]...), w.owner)
	w.gateway.Stderr = os.Stderr
	out, err := w.gateway.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.gateway.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	return nil
}

func (w *world) stop() {
	if w.gateway == nil || w.gateway.Process == nil {
		return
	}
	_ = w.gateway.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(20*time.Second, func() { _ = w.gateway.Process.Kill() })
	defer late.Stop()
	_ = w.gateway.Wait()
}

// lends are the commands of each Connector.
func lends() map[string][]string {
	return map[string][]string{"nothing": {"run"}, "child": {"produce", "consume", "cat", "sleep"}}
}

// issue makes a lease for everything of one Connector, with the addresses of one
// transport.
func (w *world) issue(ctx context.Context, to, connector, transport string) (lease.File, []byte, error) {
	return w.issueFor(ctx, to, transport, connector, lends()[connector]...)
}

func (w *world) issueFor(ctx context.Context, to, transport, connector string, commands ...string) (lease.File, []byte, error) {
	args := append([]string{"lease", "issue", "--to", to}, leaseFlags...)
	text, err := w.run(ctx, w.owner, append(append(args, connector), commands...)...)
	if err != nil {
		return lease.File{}, nil, err
	}
	rule := lease.AddressRule{AllowLocal: true}
	f, err := lease.ParseArmor([]byte(text+"\n"), rule)
	if err != nil {
		return lease.File{}, nil, err
	}
	f.Addresses = slices.DeleteFunc(f.Addresses, func(a string) bool { return strings.Contains(a, "/quic") != (transport == "QUIC") })
	text2, err := lease.Armor(f.Chain, f.Addresses, rule)
	return f, text2, err
}

// sdk runs commands through the client package, on one warm connection.
type sdk struct {
	host    host.Host
	clients map[string]*client.Client // by Connector
}

func (w *world) sdk(ctx context.Context, transport string) (*sdk, error) {
	h, err := newHost(transport, w.key)
	if err != nil {
		return nil, err
	}
	s := &sdk{host: h, clients: map[string]*client.Client{}}
	for connector := range lends() {
		f, _, err := w.issue(ctx, "bench", connector, transport)
		if err != nil {
			s.close()
			return nil, err
		}
		c, err := client.New(client.Config{Host: h, Leases: client.Static(f), Wait: time.Minute})
		if err != nil {
			s.close()
			return nil, err
		}
		s.clients[connector] = c
	}
	return s, nil
}

func (s *sdk) close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
	_ = s.host.Close()
}

// command splits what is to be run into a Connector, its command and arguments.
func lent(command []string) (connector, name string, args []string) {
	if command[0] == "true" {
		return "nothing", "run", nil
	}
	return "child", command[0], command[1:]
}

func (s *sdk) run(ctx context.Context, command []string, stdin io.Reader, stdout io.Writer) error {
	connector, name, args := lent(command)
	cmd := s.clients[connector].Command(ctx, connector, name, args...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	return cmd.Run()
}

// commandLine is lend run with a lease for one transport; each makes a connection
// of its own.
func (w *world) commandLine(ctx context.Context, transport string) (way, error) {
	files := map[string]string{}
	for connector := range lends() {
		_, text, err := w.issue(ctx, "caller", connector, transport)
		if err != nil {
			return nil, err
		}
		files[connector] = filepath.Join(w.dir, transport+"-"+connector+".lease")
		if err := os.WriteFile(files[connector], text, 0o600); err != nil {
			return nil, err
		}
	}
	line := func(command []string) []string {
		connector, name, args := lent(command)
		return append([]string{filepath.Join(w.bin, "lend"), "run", "--lease", files[connector], connector, name}, args...)
	}
	return processes(line, "LEND_DIR="+w.caller), nil
}
