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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/install"
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
	if step == "told" {
		fmt.Println("now")
	}
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
				require.Empty(t, r.versions(t, r.tool))
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
				if purge {
					require.NoDirExists(t, filepath.Join(r.dir, "connections", "connectors", "tool"))
					require.NoDirExists(t, filepath.Join(r.dir, "connections", "sealed", "values", "tool"))
				}
			})
		}
	}
}

// Killed at moments that no step names, in the midst of what a step does, all the same
// holds. Each moment is later than the one before, until it is through.
func TestUninstallKilledAtAnyMoment(t *testing.T) {
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1: it kills a process some 100 times")
	}
	for _, how := range []string{"keep", "purge"} {
		whole, half, through := 0, 0, 0
		for wait := time.Duration(0); through < 3; wait += max(200*time.Microsecond, wait/5) {
			r := newRigOf(t, t.TempDir(), "/bin/true")
			killed := dieWithin(t, r.dir, wait, how)
			i := r.intent(t, r.tool)
			switch {
			case !killed:
				require.Nil(t, i.Removing)
				through++
			case i.Removing != nil:
				require.True(t, i.Removes(parsed(t, name.ParseVersion, "1.0.0")))
				half++
			case len(r.versions(t, r.tool)) > 0:
				require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"))
				whole++
			}
			_, err := Resume(t.Context(), r.config())
			require.NoError(t, err)
			if err := Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: how == "purge"}); err != nil {
				require.ErrorIs(t, err, install.ErrNotInstalled)
			}
			require.Empty(t, r.versions(t, r.tool))
			require.Nil(t, r.intent(t, r.tool).Removing)
			require.Equal(t, how == "keep", r.accounts(t, r.tool) == "default work")
			require.True(t, r.whole(t, r.other, "1.0.0"))
		}
		t.Logf("%s: %d before it was written down, %d in between, %d through", how, whole, half, through)
		require.Positive(t, half)
	}
}

// dieWithin kills the process that removes some time after it began to, unless it has
// ended by then.
func dieWithin(t *testing.T, dir string, wait time.Duration, how string) (killed bool) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	p, err := os.StartProcess(self, []string{self, "remove-and-die", dir, "told", how}, &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, w, os.Stderr}})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = r.Read(make([]byte, 1)) // it is open, and begins now
	require.NoError(t, err)
	<-time.After(wait)
	_ = p.Kill()
	state, err := p.Wait()
	require.NoError(t, err)
	status, ok := state.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled() || status.ExitStatus() == 0, "%v", state)
	return status.Signaled()
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
