package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/supervise"
	"github.com/lendcli/lend/localhost/route"
)

// The test binary is supervisor and fixture as well: the arguments "fixture MARK
// MODE …" select what a started copy does. MARK finds it among all processes even
// without an environment.
func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 3 && os.Args[1] == "fixture" {
		fixture(os.Args[2], os.Args[3], os.Args[4:])
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test.
const patience = 20 * time.Second

func fixture(mark, mode string, args []string) {
	time.AfterFunc(60*time.Second, func() { os.Exit(99) }) // whatever happens
	number := func(i int) int { n, _ := strconv.Atoi(args[i]); return n }
	switch mode {
	case "exit":
		os.Exit(number(0))
	case "signal":
		var def [8]uint64 // SIG_DFL, which the runtime does not give to every signal
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number(0)), uintptr(unsafe.Pointer(&def)), 0, 8, 0, 0)
		_ = unix.Kill(os.Getpid(), unix.Signal(number(0)))
		select {}
	case "inspect":
		inspect()
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		exitOn(err)
	case "write":
		for n := number(0); n > 0; n -= 1 << 10 {
			if _, err := os.Stdout.Write(make([]byte, min(n, 1<<10))); err != nil {
				os.Exit(3)
			}
		}
	case "close-output":
		_ = os.Stdout.Close()
		_ = os.Stderr.Close()
		_, err := io.Copy(io.Discard, os.Stdin)
		exitOn(err)
	case "sleep":
		say("ready")
		select {}
	case "ignore-term":
		signal.Ignore(unix.SIGTERM)
		say("ready")
		select {}
	case "on-term":
		c := make(chan os.Signal, 1)
		signal.Notify(c, unix.SIGTERM)
		say("ready")
		<-c
		os.Exit(42)
	case "tree": // MODE depth width: a tree of sessions without environment
		if number(0) > 0 {
			for range number(1) {
				spawn(mark, true, true, "tree", strconv.Itoa(number(0)-1), args[1])
			}
		}
		say("ready")
		select {}
	case "orphan": // leaves a daemon that holds the outputs, or nothing, and exits 7
		spawn(mark, true, args[0] == "hold", "sleep")
		if args[0] != "hold" {
			say("left")
		}
		os.Exit(7)
	case "chain": // each link starts the next, in a new session, and leaves
		say("ready")
		if n := number(0); n > 0 {
			spawn(mark, true, true, "chain", strconv.Itoa(n-1))
			os.Exit(0)
		}
	case "background": // a child in the same group that says when it is terminated
		spawn(mark, false, true, "on-term-say")
		os.Exit(0)
	case "on-term-say":
		c := make(chan os.Signal, 1)
		signal.Notify(c, unix.SIGTERM)
		say("ready")
		<-c
		say("terminated")
	case "kill-parent": // the supervisor, from inside
		_ = unix.Kill(os.Getppid(), unix.SIGKILL)
		select {}
	case "stop-parent": // and live on, or leave
		_ = unix.Kill(os.Getppid(), unix.SIGSTOP)
		say("ready")
		if args[0] == "leave" {
			os.Exit(7)
		}
		signal.Ignore(unix.SIGTERM)
		select {}
	case "gateway":
		gateway(mark)
	case "interactive":
		t := New(Config{})
		e, err := t.Interactive(context.Background(), spec(mark, args[0], args[1:]...))
		fmt.Println(e.Code, e.Signal, err, t.Close())
	default:
		os.Exit(98)
	}
	os.Exit(0)
}

func exitOn(err error) {
	if err != nil {
		os.Exit(97)
	}
}

func say(s string) { _, _ = os.Stdout.WriteString(s + "\n") }

// spawn starts a copy of the fixture without environment and does not wait for it.
func spawn(mark string, setsid, output bool, args ...string) {
	c := exec.Command("/proc/self/exe", append([]string{"fixture", mark}, args...)...)
	c.Env = []string{}
	if output {
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
	exitOn(c.Start())
}

// inspect prints what a child has got.
func inspect() {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil { // not the directory that was read
			fmt.Printf("fd %s %s\n", fd.Name(), strings.Split(to, ":")[0])
		}
	}
	for _, e := range os.Environ() {
		fmt.Println("env", e)
	}
	for i, a := range os.Args {
		fmt.Println("arg", i, a)
	}
	dir, _ := os.Getwd()
	sid, _ := unix.Getsid(0)
	fmt.Println("dir", dir)
	fmt.Println("leader", sid == os.Getpid(), unix.Getpgrp() == os.Getpid())
	fmt.Printf("umask %03o\n", unix.Umask(0))
	var core unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	fmt.Println("core", core.Cur, core.Max)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 2 {
			fmt.Println("status", f[0], f[1])
		}
	}
}

// gateway runs trees under a Transport of its own until it is killed.
func gateway(mark string) {
	t := New(Config{})
	for range 2 {
		p, err := t.Start(context.Background(), spec(mark, "tree", "2", "2"))
		exitOn(err)
		in := bufio.NewScanner(p.Stdout())
		for range 7 {
			in.Scan()
		}
	}
	say("up")
	select {}
}

func spec(mark, mode string, args ...string) Spec {
	exe, _ := os.Executable()
	return Spec{Path: exe, Args: append([]string{"fx", "fixture", mark, mode}, args...), Dir: "/"}
}

// marker returns a mark that no other test has.
func marker(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("mark-%d-%d-%s", os.Getpid(), time.Now().UnixNano(), filepath.Base(t.Name()))
}

// alive returns the processes that carry mark and are not zombies.
func alive(t *testing.T, mark string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, name := range all {
		line, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(line), mark) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func requireNone(t *testing.T, mark string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(alive(t, mark)) == 0 }, 2*time.Second, time.Millisecond)
}

// transport returns a Transport that is closed at the end of the test, and checks
// then that descriptors and children are back to what they were.
func transport(t *testing.T, c Config) *Transport {
	t.Helper()
	before := descriptors(t)
	tr := New(c)
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.Empty(t, supervise.Children(nil), "children are left")
		require.LessOrEqual(t, descriptors(t), before, "descriptors are left")
	})
	return tr
}

// warm waits until n supervisors are idle and none is being started.
func warm(t *testing.T, tr *Transport, n int) {
	t.Helper()
	b := tr.backend
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.spawning == 0 && len(b.idle) == n
	}, patience, time.Millisecond)
}

func descriptors(t *testing.T) int {
	t.Helper()
	r, w, err := os.Pipe() // so that the poller's own are there from the beginning
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Close(), w.Close()))
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

func start(t *testing.T, tr *Transport, s Spec) route.Process {
	t.Helper()
	p, err := tr.Start(context.Background(), s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// lines waits for n lines of output.
func lines(t *testing.T, p route.Process, n int) []string {
	t.Helper()
	deadline(t, p)
	in := bufio.NewReader(p.Stdout())
	var got []string
	for range n {
		l, err := in.ReadString('\n')
		require.NoError(t, err)
		got = append(got, strings.TrimSpace(l))
	}
	return got
}

func deadline(t *testing.T, p route.Process) {
	t.Helper()
	f, ok := p.Stdout().(*os.File)
	require.True(t, ok)
	require.NoError(t, f.SetReadDeadline(time.Now().Add(patience)))
}

func wait(t *testing.T, p route.Process) route.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := p.Wait(ctx)
	require.NoError(t, err)
	return e
}
