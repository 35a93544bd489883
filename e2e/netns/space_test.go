//go:build linux

package netns

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
	"github.com/lendcli/lend/e2e/shaper"
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
	require.NoError(t, shaper.IP(t.Context(), args...))
}

// newNamespace makes a network namespace with loopback until the test ends.
func newNamespace(t *testing.T, kind string) string {
	t.Helper()
	ns := fmt.Sprintf("lend-%d-%s-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), kind)
	require.NoError(t, shaper.AddNamespace(t.Context(), ns))
	t.Cleanup(func() { require.NoError(t, shaper.DeleteNamespace(context.Background(), ns)) })
	return ns
}

// newLink carries packets between the namespaces until the end of the test.
func newLink(t *testing.T, s shaper.Shape, seed uint64, namespaces [2]string) *shaper.Link {
	t.Helper()
	l, err := shaper.Open(s, seed, namespaces)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		t.Logf("link: %s", l)
	})
	return l
}

// net is an owner's and a caller's machine with a link between them.
type net struct {
	*rig.World
	link    *shaper.Link
	gateway *rig.Gateway
	caller  string // the namespace
}

// newNet makes the machines and serves; keep is the grace of the policy.
func newNet(t *testing.T, keep string, s shaper.Shape) *net {
	t.Helper()
	rig.Need(t, "ip", "go")
	owner, caller := newNamespace(t, "owner"), newNamespace(t, "caller")
	n := &net{World: rig.New(t, "", keep), caller: caller}
	n.link = newLink(t, s, 1, [2]string{owner, caller})
	for ns, address := range map[string]string{owner: ownerAddress, caller: callerAddress} {
		require.NoError(t, shaper.SetUp(t.Context(), ns, address))
	}
	n.OwnerIn = []string{"ip", "netns", "exec", owner}
	n.CallerIn = []string{"ip", "netns", "exec", caller}
	n.gateway = n.Serve("--log", "debug", "--listen", "/ip4/"+ownerAddress+"/tcp/5363", "--listen", "/ip4/"+ownerAddress+"/udp/5363/quic-v1")
	return n
}

// transports are the two kinds of address, by a part of them.
func transports() map[string]string { return map[string]string{"tcp": "/tcp/", "quic": "/quic-v1"} }
