//go:build unix

package uninstall

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

// removeAndDie is a process that removes the Connector tool and is killed at a step.
func removeAndDie(dir, step string, purge bool) int {
	r, err := openRig(dir)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	c := r.config()
	c.at = func(s string) {
		if s == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	c.Retire = func(context.Context, name.ConnectorKey) error { return nil }
	c.Withdraw = c.Retire
	if err := Remove(context.Background(), c, Request{Connector: r.tool, Purge: purge}); err != nil {
		fmt.Println(err)
		return 4
	}
	return 0
}

// Killed at every step, the Connector is either whole or its removal is written down,
// not routed, and brought to its end by the next process; so is a second kill at each
// step of that. Another Connector is not touched.
func TestUninstallKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	steps := []string{"begin", "written", "retired", "withdrawn", "removed 1.0.0", "removed 2.0.0"}
	for _, purge := range []bool{false, true} {
		how := "keep"
		if purge {
			how = "purge"
			steps = append(steps, "purged default", "purged work")
		}
		for _, step := range append(steps, "forgotten") {
			t.Run(how+" "+step, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				die(t, r.dir, step, how)
				i := r.intent(t, r.tool)
				switch step {
				case "begin":
					require.Nil(t, i.Removing)
					require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"))
				case "forgotten":
					require.Nil(t, i.Removing)
				default:
					require.NotNil(t, i.Removing)
					require.True(t, i.Removes(parsed(t, name.ParseVersion, "1.0.0")))
					require.Equal(t, purge, i.Removing.Purge)
					if !strings.HasPrefix(step, "purged") {
						require.Equal(t, "default work", r.accounts(t, r.tool), "secrets go last")
					}
					die(t, r.dir, "retired", how) // the second process dies as well
				}
				resumed, err := Resume(t.Context(), r.config())
				require.NoError(t, err)
				if step == "begin" {
					require.Empty(t, resumed)
					require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: purge}))
				}
				require.Empty(t, r.store.Versions(r.tool))
				require.Nil(t, r.intent(t, r.tool).Removing)
				want := "default work"
				if purge {
					want = ""
				}
				require.Equal(t, want, r.accounts(t, r.tool))
				require.True(t, r.whole(t, r.other, "1.0.0"))
				left, err := filepath.Glob(filepath.Join(r.dir, "store", "connectors", "tool", "*"))
				require.NoError(t, err)
				require.Empty(t, left)
			})
		}
	}
}

func die(t *testing.T, dir, step, how string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := os.CreateTemp(t.TempDir(), "out")
	require.NoError(t, err)
	defer func() { _ = out.Close() }()
	p, err := os.StartProcess(self, []string{self, "remove-and-die", dir, step, how}, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{nil, out, out},
	})
	require.NoError(t, err)
	state, err := p.Wait()
	require.NoError(t, err)
	status, ok := state.Sys().(syscall.WaitStatus)
	text, _ := os.ReadFile(out.Name())
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%v %s", state, text)
}
