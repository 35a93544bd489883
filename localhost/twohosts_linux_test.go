package localhost

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
)

// hostProcess is a process with a host of its own on a root: it starts one command
// that sleeps, says where things are, and goes on as its input says, line by line.
func hostProcess(base string) int {
	if err := hostOn(base, os.Stdin, os.Stdout); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	return 0
}

func hostOn(base string, in io.Reader, out io.Writer) (err error) {
	store, err := install.Open(install.Config{Dir: filepath.Join(base, "install")})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	root, err := connection.Open(filepath.Join(base, "connections"))
	if err != nil {
		return err
	}
	transport := process.New(process.Config{Idle: 1})
	defer func() { _ = transport.Close() }()
	h, err := New(Config{Store: store, Transport: transport, Connections: root})
	if err != nil {
		return err
	}
	if _, err := h.Reconcile(context.Background()); err != nil {
		return err
	}
	d := h.current()[0]
	r := route.StartRequest{Identity: d.Identity}
	r.Call.Arguments = append(append([]string{}, d.Contract.Arguments...), "sleep")
	p, err := h.Start(context.Background(), r)
	if err != nil {
		return err
	}
	var pid int
	if _, err := fmt.Fscanln(p.Stdout(), &pid); err != nil {
		return err
	}
	fmt.Fprintln(out, h.routes.Epoch(), pid)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case "start": // another one, which ends by itself
			r.Call.Arguments = append(append([]string{}, d.Contract.Arguments...), "copy")
			q, err := h.Start(context.Background(), r)
			if err != nil {
				return err
			}
			e, err := q.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintln(out, "ended", e.Code, q.Close())
		case "end":
			if err := p.Terminate(); err != nil {
				return err
			}
			e, err := p.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintln(out, "ended", e.Signal, e.Retired, p.Close())
		case "close":
			fmt.Fprintln(out, "closed", h.Close())
			return nil
		}
	}
	return lines.Err()
}

// otherHost is such a process, as the test sees it.
type otherHost struct {
	t     *testing.T
	p     *os.Process
	in    *os.File
	out   *bufio.Scanner
	epoch string
	child int // the command's process
}

func startHost(t *testing.T, base string) *otherHost {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	o := &otherHost{t: t, in: inW, out: bufio.NewScanner(outR)}
	o.p, err = os.StartProcess(self, []string{self, "fixture", "host", base}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{inR, outW, os.Stderr},
	})
	require.NoError(t, err)
	require.NoError(t, inR.Close())
	require.NoError(t, outW.Close())
	t.Cleanup(func() {
		_ = o.p.Kill()
		_, _ = o.p.Wait()
		_, _ = inW.Close(), outR.Close()
	})
	_, err = fmt.Sscan(o.line(), &o.epoch, &o.child)
	require.NoError(t, err)
	return o
}

func (o *otherHost) line() string {
	o.t.Helper()
	require.True(o.t, o.out.Scan(), "the other host ended")
	require.NotContains(o.t, o.out.Text(), "failed")
	return o.out.Text()
}

func (o *otherHost) ask(what string) string {
	o.t.Helper()
	_, err := fmt.Fprintln(o.in, what)
	require.NoError(o.t, err)
	return o.line()
}

// parts names the hosts that have operation directories below a root.
func parts(t *testing.T, base string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(base, "connections", "operations"))
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}

// Startup clean-up: two live processes on one root. A host that was killed leaves its
// snapshots, homes and operation directories; the next host removes them before its
// first route, and nothing of the one that lives, which goes on to its end. What the
// dead one ran is gone with it.
func TestTwoHostsOnOneRoot(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	base := filepath.Dir(h.installed)
	require.NoError(t, h.Close())
	require.NoError(t, os.WriteFile(filepath.Join(h.account.Temp(), "old"), nil, 0o600))
	alive := startHost(t, base)
	require.NoFileExists(t, filepath.Join(h.account.Temp(), "old"), "it was alone then")
	require.NoError(t, os.WriteFile(filepath.Join(h.account.Temp(), "kept"), nil, 0o600))
	dead := startHost(t, base)
	require.ElementsMatch(t, []string{alive.epoch, dead.epoch}, parts(t, base))
	first := treeOf(t, base, alive.epoch)
	require.NotEmpty(t, first)

	// A release that is replaced is held by both; one lives.
	require.NoError(t, h.store.Remove(t.Context(), connectorKey(t, "fixture"), name.Version{}))
	old, err := filepath.Glob(filepath.Join(h.installed, "connectors", "fixture", "1.0.0", "*", "artifact"))
	require.NoError(t, err)
	require.Len(t, old, 1, "its files are in use")
	_, err = h.store.Add(t.Context(), install.Source{Path: filepath.Join(base, "source")}, nil)
	require.NoError(t, err)

	require.NoError(t, dead.p.Signal(syscall.SIGKILL))
	_, err = dead.p.Wait()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(dead.child, 0) != nil }, 20*time.Second, 10*time.Millisecond, "its supervisors end with it, and what they ran")
	require.Contains(t, parts(t, base), dead.epoch, "it could not clean up")

	next := startHost(t, base)
	require.ElementsMatch(t, []string{alive.epoch, next.epoch}, parts(t, base))
	require.FileExists(t, filepath.Join(h.account.Temp(), "kept"), "another host is alive and may use it")
	require.Subset(t, treeOf(t, base, alive.epoch), first, "of the live one nothing is missing")
	require.NoError(t, syscall.Kill(alive.child, 0))
	require.DirExists(t, old[0], "nor of the release that it holds")
	require.True(t, strings.HasPrefix(alive.ask("start"), "ended 7 <nil>"), "it starts from it, though it was replaced")
	require.Equal(t, "ended SIGTERM false <nil>", alive.ask("end"))
	require.Equal(t, "closed <nil>", alive.ask("close"))
	require.Equal(t, []string{next.epoch}, parts(t, base))
	require.NoError(t, syscall.Kill(next.child, 0), "closing one ends nothing of the other")
	require.Equal(t, "ended SIGTERM false <nil>", next.ask("end"))
	require.Equal(t, "closed <nil>", next.ask("close"))
	require.Empty(t, parts(t, base))

	last, err := install.Open(install.Config{Dir: h.installed})
	require.NoError(t, err)
	require.NoError(t, last.Close())
	require.NoDirExists(t, old[0], "nobody holds it any more")
}

// treeOf lists the operation directories of a host, and the homes in them.
func treeOf(t *testing.T, base, epoch string) (all []string) {
	t.Helper()
	root := filepath.Join(base, "connections", "operations", epoch)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
		if _, err := os.Stat(home.In(filepath.Join(root, e.Name())).Home); err == nil {
			all = append(all, e.Name()+"/home")
		}
	}
	return all
}
