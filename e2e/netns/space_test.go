//go:build linux

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The addresses of the two machines, and the one that the caller changes to.
const (
	ownerAddress  = "10.213.0.1"
	callerAddress = "10.213.0.2"
	otherAddress  = "10.213.0.3"
)

func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// newNamespace makes a network namespace with loopback until the test ends.
func newNamespace(t *testing.T, kind string) string {
	t.Helper()
	ns := fmt.Sprintf("lend-%d-%s-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), kind)
	ip(t, "netns", "add", ns)
	t.Cleanup(func() {
		out, err := exec.Command("ip", "netns", "del", ns).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	ip(t, "-n", ns, "link", "set", "lo", "up")
	return ns
}

// inNamespace calls f on a thread that ends afterwards.
func inNamespace(ns string, f func(), failed *error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread must not come back
		fd, err := unix.Open("/run/netns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			*failed = err
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			*failed = err
			return
		}
		f()
	}()
	<-done
}

// net is an owner's and a caller's machine with a link between them.
type net struct {
	*rig.World
	link    *link
	gateway *rig.Gateway
	caller  string // the namespace
}

// newNet makes the machines and serves; keep is the grace of the policy.
func newNet(t *testing.T, keep string, s shape) *net {
	t.Helper()
	rig.Need(t, "ip", "go")
	owner, caller := newNamespace(t, "owner"), newNamespace(t, "caller")
	n := &net{World: rig.New(t, "", keep), caller: caller}
	n.link = newLink(t, s, 1, [2]string{owner, caller})
	for ns, address := range map[string]string{owner: ownerAddress, caller: callerAddress} {
		ip(t, "-n", ns, "address", "add", address+"/24", "dev", "lend0")
		ip(t, "-n", ns, "link", "set", "lend0", "up", "txqueuelen", "1000")
	}
	n.OwnerIn = []string{"ip", "netns", "exec", owner}
	n.CallerIn = []string{"ip", "netns", "exec", caller}
	n.gateway = n.Serve("--log", "debug", "--listen", "/ip4/"+ownerAddress+"/tcp/5363", "--listen", "/ip4/"+ownerAddress+"/udp/5363/quic-v1")
	return n
}

// transports are the two kinds of address, by a part of them.
func transports() map[string]string { return map[string]string{"tcp": "/tcp/", "quic": "/quic-v1"} }
