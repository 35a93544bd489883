//go:build unix

package localhost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/probe"
	"github.com/lendcli/lend/localhost/route"
)

func TestPublishedAsDeclared(t *testing.T) {
	t.Parallel()
	rel := release(t, "github", "1.0.0", "a")
	rel.Manifest.Aliases = []string{"GitHub"}
	rel.Manifest.CLI.Probe = &manifest.Probe{Arguments: []string{"auth", "status"}, Timeout: 5 * time.Second}
	r := newRig(t, rel)
	r.reconciled(t)
	d := r.current()[0]
	require.Equal(t, &route.Probe{Arguments: []string{"auth", "status"}, Timeout: 5 * time.Second}, d.Probe)
	require.Equal(t, []string{"GitHub"}, d.Aliases)
	rel.Manifest.Aliases[0], rel.Manifest.CLI.Probe.Arguments[0] = "changed", "changed"
	require.Equal(t, d, r.current()[0], "nothing is shared with the manifest")
	require.Equal(t, "GitHub", d.Aliases[0])
}

// probed gives the routes of a registry a probe.
type probed struct {
	*route.Registry
	probe route.Probe
}

func (p probed) Snapshot() (uint64, []route.Descriptor) {
	revision, routes := p.Registry.Snapshot()
	for i := range routes {
		routes[i].Probe = &p.probe
	}
	return revision, routes
}

// TestReadinessProbeRunsVerified: through StartCLI and a real process, in a home of its
// own, and not at all once a byte of the release has changed.
func TestReadinessProbeRunsVerified(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	readiness := func(timeout time.Duration, args ...string) probe.Readiness {
		t.Helper()
		p := probe.New(probe.Config{Routes: probed{h.Routes(), route.Probe{Arguments: args, Timeout: timeout}}, Starter: h.Host})
		defer p.Close()
		<-p.Changed(0)
		_, all := p.All()
		require.Len(t, all, 1)
		return all[0]
	}
	got := readiness(20*time.Second, "show")
	require.Equal(t, probe.Ready, got.State, got.Reason)
	got = readiness(20*time.Second, "copy")
	require.Equal(t, probe.ExitStatus, got.Reason, "it has no input, which ends at once")
	require.Equal(t, 7, got.Status)
	got = readiness(300*time.Millisecond, "sleep")
	require.Equal(t, probe.Timeout, got.Reason)
	_, running := h.Routes().Activity()
	require.Zero(t, running[0].Running)

	at, routes := h.Routes().Snapshot()
	h.tamper(t)
	got = readiness(20*time.Second, "show")
	require.Equal(t, probe.Unknown, got.State)
	require.Equal(t, probe.NotStarted, got.Reason)
	now, after := h.Routes().Snapshot()
	require.Equal(t, at, now)
	require.Equal(t, routes, after, "a probe decides nothing about routes")
}
