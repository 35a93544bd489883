package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
)

const patience = 60 * time.Second

// everything is what the policy of the tests lends.
const everything = "args rest env cwd lines cat sum tiny closeout unread deafinput exit die print errprint sleep deaf brief setsid endless"

// world is an owner's machine with the Connector fx, two callers that its policy
// names and one that it does not, each in a LEND_DIR of its own.
type world struct {
	bin, dir string
	env      []string // without LEND_DIR
	vars     map[string]string
}

// machines are the LEND_DIRs, by the variable that names them in scripts.
func machines() []string { return []string{"OWNER", "CALLER", "OTHER", "STRANGER"} }

// makeWorld sets all up but the gateway. The policy may use ${OWNER_ID} and so on.
func makeWorld(bin, dir string, env []string, policyText string) (*world, error) {
	w := &world{bin: bin, dir: dir, env: env, vars: map[string]string{"BIN": bin, "WORK": dir}}
	for _, m := range machines() {
		home := filepath.Join(dir, strings.ToLower(m))
		w.vars[m] = home
		if _, err := w.lend(home, "init"); err != nil {
			return w, err
		}
		for suffix, args := range map[string][]string{"_ID": {"id"}, "_KEY": {"id", "--owner"}} {
			id, err := w.lend(home, args...)
			if err != nil {
				return w, err
			}
			w.vars[m+suffix] = strings.TrimSpace(id)
		}
	}
	for _, args := range [][]string{
		{"connector", "new", "exec:" + filepath.Join(bin, "fx"), "--key", "fx", "--version", "1.0.0", "--out", filepath.Join(dir, "fx")},
		{"connector", "add", filepath.Join(dir, "fx")},
		{"connector", "setting", "set", "fx", "FX_COUNT", w.counter()},
	} {
		if _, err := w.lend(w.vars["OWNER"], args...); err != nil {
			return w, err
		}
	}
	return w, w.setPolicy(policyText)
}

func (w *world) counter() string { return filepath.Join(w.dir, "starts") }

func (w *world) setPolicy(text string) error {
	text = os.Expand(text, func(v string) string { return w.vars[v] })
	return os.WriteFile(filepath.Join(w.vars["OWNER"], "policy.yaml"), []byte(text), 0o600)
}

func (w *world) command(home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(w.bin, "lend"), args...)
	cmd.Env = append(append([]string{}, w.env...), "LEND_DIR="+home)
	cmd.Dir = w.dir
	return cmd
}

// lend runs one command on the machine and returns what it prints.
func (w *world) lend(home string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := w.command(home, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("lend %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// served is a world whose gateway runs.
type served struct {
	*world
	t    *testing.T
	file lease.File
	log  *logBuffer
}

// logBuffer takes what several programs write.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve makes a world and runs its gateway until the test ends, with a lease for
// everything.
func serve(t *testing.T) *served {
	t.Helper()
	text, err := os.ReadFile("testdata/world/policy.yaml")
	require.NoError(t, err)
	s := serveUnder(t, string(text))
	s.file = s.issue("caller", strings.Fields(everything)...)
	return s
}

// serveUnder makes a world with another policy, and issues no lease.
func serveUnder(t *testing.T, policyText string) *served {
	t.Helper()
	w, err := makeWorld(binDir(t), t.TempDir(), os.Environ(), policyText)
	require.NoError(t, err)
	s := &served{world: w, t: t, log: &logBuffer{}}
	cmd := s.command(s.vars["OWNER"], "serve", "--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1")
	cmd.Stderr = s.log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("lend serve: %v\n%s", err, s.log)
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("lend serve does not end\n%s", s.log)
		}
	})
	require.Eventually(t, func() bool {
		_, err := s.lend(s.vars["OWNER"], "status")
		return err == nil
	}, patience, 50*time.Millisecond)
	return s
}

// issue makes a lease for commands of fx.
func (s *served) issue(to string, commands ...string) lease.File {
	s.t.Helper()
	return s.issueOf(to, append([]string{"fx"}, commands...)...)
}

// issueOf makes a lease for commands of a Connector.
func (s *served) issueOf(to string, connectorAndCommands ...string) lease.File {
	s.t.Helper()
	args := append([]string{"lease", "issue", "--to", to, "--local-addresses", "--life", "1h", "--operations", "100000", "--out", "-"}, connectorAndCommands...)
	text, err := s.lend(s.vars["OWNER"], args...)
	require.NoError(s.t, err)
	f, err := lease.ParseArmor([]byte(text), lease.AddressRule{AllowLocal: true})
	require.NoError(s.t, err)
	return f
}

// transports are the two kinds of address, by a part of them.
func transports() map[string]string { return map[string]string{"tcp": "/tcp/", "quic": "/quic-v1"} }

// over keeps the addresses of one transport.
func over(f lease.File, part string) lease.File {
	var kept []string
	for _, a := range f.Addresses {
		if strings.Contains(a, part) {
			kept = append(kept, a)
		}
	}
	f.Addresses = kept
	return f
}

// client makes a client in this process with the identity of one machine.
func (s *served) client(machine string, f lease.File, change ...func(*client.Config)) *client.Client {
	s.t.Helper()
	key, err := ownerfile.LoadKey(filepath.Join(s.vars[machine], "identity.pem"))
	require.NoError(s.t, err)
	config := client.Config{Key: key, Leases: client.Static(f)}
	for _, c := range change {
		c(&config)
	}
	c, err := client.New(config)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, c.Close()) })
	return c
}

// starts counts the processes that the Connector began.
func (s *served) starts() int {
	b, err := os.ReadFile(s.counter())
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s.t, err)
	}
	return bytes.Count(b, []byte("\n"))
}
