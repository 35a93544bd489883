package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/route"
)

func buildShim(t testing.TB) string {
	t.Helper()
	return build(t, "lend-shim", "github.com/lendcli/lend/cmd/lend-shim")
}

// buildExit builds a program that starts fast and exits with the code it is given.
func buildExit(t testing.TB) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "exit.go")
	require.NoError(t, os.WriteFile(source, []byte(`package main

import ("os"; "strconv")

func main() { code, _ := strconv.Atoi(os.Args[1]); os.Exit(code) }
`), 0o600))
	return build(t, "exit", source)
}

func build(t testing.TB, name, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func TestExit(t *testing.T) {
	tr := transport(t, Config{})
	for _, code := range []int{0, 1, 2, 7, 75, 124, 125, 126, 127, 128, 130, 137, 254, 255} {
		p := start(t, tr, spec(marker(t), "exit", strconv.Itoa(code)))
		e := wait(t, p)
		require.Positive(t, e.Duration)
		require.Equal(t, route.Exit{Code: code, Duration: e.Duration}, e)
		require.NoError(t, p.Close())
	}
	for sig, name := range map[int]string{
		1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV",
		13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 40: "SIGRTMIN+6",
	} {
		p := start(t, tr, spec(marker(t), "signal", strconv.Itoa(sig)))
		e := wait(t, p)
		require.Equal(t, route.Exit{Signal: name, Duration: e.Duration}, e) // no core either
	}
}

func TestSignalNames(t *testing.T) {
	for sig, name := range map[syscall.Signal]string{
		1: "SIGHUP", 9: "SIGKILL", 15: "SIGTERM", 31: "SIGSYS", 32: "SIG32", 34: "SIGRTMIN", 35: "SIGRTMIN+1", 64: "SIGRTMIN+30",
	} {
		require.Equal(t, name, signalName(sig))
	}
}

func TestManyStarts(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 50
	}
	tr := transport(t, Config{})
	thinEvery(tr, 50*time.Millisecond)
	program := buildExit(t)
	random := rand.New(rand.NewPCG(1, 2))
	run := func(code int) error {
		p, err := tr.Start(context.Background(), Spec{
			Path: program, Args: []string{"exit", strconv.Itoa(code)}, Dir: "/", Stdin: code%2 == 0,
		})
		if err != nil {
			return err
		}
		e, err := p.Wait(context.Background())
		if err == nil && (e.Code != code || e.Signal != "") {
			err = fmt.Errorf("%d became %v", code, e)
		}
		return errors.Join(err, p.Close())
	}
	for range n {
		require.NoError(t, run(random.IntN(256)))
	}
	before := descriptors(t)
	errs := make([]error, 64)
	var all sync.WaitGroup
	for i := range errs {
		code := random.IntN(256)
		all.Go(func() { errs[i] = run(code) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Eventually(t, func() bool { return descriptors(t) <= before+2*DefaultIdle }, patience, time.Millisecond)
	require.Eventually(t, func() bool { _, idle := tr.Supervisors(); return idle <= DefaultIdle }, patience, time.Millisecond)
	tr.backend.mu.Lock()
	defer tr.backend.mu.Unlock()
	require.Zero(t, tr.backend.running)
	require.Zero(t, tr.backend.spawning)
	require.Empty(t, tr.backend.waiting)
}

// The child gets what the Spec names, and nothing else of this process.
func TestInheritance(t *testing.T) {
	// What a careless parent could pass on: ignored and blocked signals, a umask, an
	// open descriptor without close-on-exec.
	signal.Ignore(unix.SIGHUP, unix.SIGUSR1)
	t.Cleanup(func() { signal.Reset(unix.SIGHUP, unix.SIGUSR1) })
	old := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(old) })
	leak, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(leak)) })
	t.Setenv("LEND_LEAK", "x")

	for kind, shim := range map[string]string{"self": "", "shim": buildShim(t)} {
		for _, stdin := range []bool{true, false} {
			t.Run(kind+"/input-"+strconv.FormatBool(stdin), func(t *testing.T) {
				inherits(t, transport(t, Config{ShimPath: shim}), stdin, leak)
			})
		}
	}
}

func inherits(t *testing.T, tr *Transport, stdin bool, leak int) {
	t.Helper()
	s := spec(marker(t), "inspect", "", "a b", "\xff\n'\"$(x)")
	s.Env = []string{"A=1", "B=", "C=x=y"}
	s.Dir = t.TempDir()
	s.Stdin = stdin
	r, err := tr.Run(context.Background(), s, 1<<20)
	require.NoError(t, err)
	require.Equal(t, 0, r.Exit.Code)
	got := string(r.Stdout)
	input := "fd 0 /dev/null"
	if stdin {
		input = "fd 0 pipe"
	}
	for _, line := range []string{
		input, "fd 1 pipe", "fd 2 pipe", "env A=1", "env B=", "env C=x=y",
		"arg 0 fx", "arg 4 ", "arg 5 a b", "arg 6 \xff\n'\"$(x)", "dir " + s.Dir, "leader true true",
		"umask 077", "core 0 0", "status NoNewPrivs: 1", "status SigIgn: 0000000000000000", "status SigBlk: 0000000000000000",
	} {
		require.Contains(t, "\n"+got, "\n"+line+"\n")
	}
	require.Equal(t, 3, strings.Count("\n"+got, "\nenv "), got)
	require.NotContains(t, got, "fd "+strconv.Itoa(leak)+" /dev/zero")
	for line := range strings.Lines(got) {
		// The fixture's own runtime has a poller and looks at its processor quota.
		if strings.HasPrefix(line, "fd ") && !strings.Contains(line, " anon_inode") && !strings.Contains(line, " /sys/fs/cgroup/") {
			require.Contains(t, "012", strings.Fields(line)[1], line)
		}
	}
}

func TestStartFailures(t *testing.T) {
	tr := transport(t, Config{})
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	busy := file("busy", "#!/bin/sh\n", 0o700)
	held, err := os.OpenFile(busy, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, held.Close()) })
	good := spec(marker(t), "exit", "0")
	with := func(f func(*Spec)) Spec { s := good; f(&s); return s }
	for _, c := range []struct {
		name  string
		spec  Spec
		stage Stage
		errno syscall.Errno
	}{
		{"no-such-file", with(func(s *Spec) { s.Path = filepath.Join(dir, "none") }), StageExecute, unix.ENOENT},
		{"not-executable", with(func(s *Spec) { s.Path = file("plain", "x", 0o600) }), StageExecute, unix.EACCES},
		{"a-directory", with(func(s *Spec) { s.Path = dir }), StageExecute, unix.EACCES},
		{"no-format", with(func(s *Spec) { s.Path = file("junk", "junk", 0o700) }), StageExecute, unix.ENOEXEC},
		{"interpreter-missing", with(func(s *Spec) { s.Path = file("script", "#!/none/such\n", 0o700) }), StageExecute, unix.ENOENT},
		{"text-busy", with(func(s *Spec) { s.Path = busy }), StageExecute, unix.ETXTBSY},
		{"argument-too-long", with(func(s *Spec) { s.Args = []string{"x", strings.Repeat("a", 131_072)} }), StageExecute, unix.E2BIG},
		{"arguments-too-long", with(func(s *Spec) { s.Args = make([]string, MaxSpec/4+1) }), StageExecute, unix.E2BIG},
		{"no-directory", with(func(s *Spec) { s.Dir = filepath.Join(dir, "none") }), StageDirectory, unix.ENOENT},
		{"directory-is-a-file", with(func(s *Spec) { s.Dir = busy }), StageDirectory, unix.ENOTDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tr.Start(context.Background(), c.spec)
			var failed *StartError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, StartError{Stage: c.stage, Errno: c.errno}, *failed)
			require.ErrorIs(t, err, route.ErrUnavailable)
			require.Equal(t, c.errno == unix.ENOENT, errors.Is(err, fs.ErrNotExist))
			require.NotContains(t, err.Error(), dir)
		})
	}
	for name, s := range map[string]Spec{
		"relative-path":      with(func(s *Spec) { s.Path = "sh" }),
		"relative-directory": with(func(s *Spec) { s.Dir = "" }),
		"no-arguments":       with(func(s *Spec) { s.Args = nil }),
		"nul-in-argument":    with(func(s *Spec) { s.Args = []string{"a\x00b"} }),
		"nul-in-path":        with(func(s *Spec) { s.Path = "/bin/sh\x00" }),
		"nul-in-environment": with(func(s *Spec) { s.Env = []string{"A=\x00"} }),
		"nameless-variable":  with(func(s *Spec) { s.Env = []string{"=x"} }),
		"no-equals-sign":     with(func(s *Spec) { s.Env = []string{"PATH"} }),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tr.Start(context.Background(), s)
			require.ErrorIs(t, err, route.ErrInvalid)
		})
	}
	t.Run("afterwards-all-is-well", func(t *testing.T) {
		require.Equal(t, 0, wait(t, start(t, tr, good)).Code)
	})
}

// The largest request that the kernel takes goes through in several messages.
func TestLargeRequest(t *testing.T) {
	tr := transport(t, Config{})
	s := spec(marker(t), "inspect")
	for i := range 12 {
		s.Args = append(s.Args, strings.Repeat(string(rune('a'+i)), 131_071))
	}
	r, err := tr.Run(context.Background(), s, 4<<20)
	require.NoError(t, err)
	for i := range 12 {
		require.Contains(t, string(r.Stdout), "arg "+strconv.Itoa(4+i)+" "+s.Args[4+i]+"\n")
	}
}

func TestContextBeforeStart(t *testing.T) {
	tr := transport(t, Config{})
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	mark := marker(t)
	_, err := tr.Start(ctx, spec(mark, "sleep"))
	require.ErrorIs(t, err, cause)
	require.Empty(t, alive(t, mark))

	p := start(t, tr, spec(mark, "sleep"))
	_, err = p.Wait(ctx)
	require.ErrorIs(t, err, cause)
}

func TestBusyAndClosed(t *testing.T) {
	tr := transport(t, Config{Most: 2})
	mark := marker(t)
	one, two := start(t, tr, spec(mark, "sleep")), start(t, tr, spec(mark, "sleep"))
	_, err := tr.Start(context.Background(), spec(mark, "sleep"))
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, err, route.ErrUnavailable)
	require.NoError(t, one.Close())
	three := start(t, tr, spec(mark, "sleep"))
	require.NoError(t, tr.Close())
	require.Empty(t, alive(t, mark))
	require.NoError(t, tr.Close())
	_, err = tr.Start(context.Background(), spec(mark, "sleep"))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, route.ErrUnavailable)
	require.Equal(t, "SIGKILL", wait(t, two).Signal)
	require.Equal(t, "SIGKILL", wait(t, three).Signal)
}

// More starts than may fork at once wait for their turn, and leave the queue when
// their context is done or the transport closes.
func TestQueue(t *testing.T) {
	tr := transport(t, Config{})
	b := tr.backend
	warm(t, tr, 2)
	b.mu.Lock()
	b.spawning += 1000 // as if so many were forking
	b.mu.Unlock()
	mark := marker(t)
	one := start(t, tr, spec(mark, "sleep"))
	start(t, tr, spec(mark, "sleep"))
	queued := func(n int) func() bool {
		return func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiting) == n }
	}
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 3)
	begin := func(ctx context.Context) { _, err := tr.Start(ctx, spec(mark, "sleep")); errs <- err }
	go begin(ctx)
	require.Eventually(t, queued(1), patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.True(t, queued(0)())

	go begin(context.Background())
	require.Eventually(t, queued(1), patience, time.Millisecond)
	go begin(context.Background())
	require.Eventually(t, queued(2), patience, time.Millisecond)
	require.NoError(t, one.Close()) // the first in the queue gets its supervisor
	require.NoError(t, <-errs)
	require.True(t, queued(1)())
	require.NoError(t, tr.Close())
	require.ErrorIs(t, <-errs, ErrClosed)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Zero(t, b.running)
	require.Equal(t, 1000, b.spawning)
}

func TestStreams(t *testing.T) {
	tr := transport(t, Config{})
	t.Run("echo", func(t *testing.T) {
		s := spec(marker(t), "cat")
		s.Stdin = true
		p := start(t, tr, s)
		_, err := io.WriteString(p.Stdin(), "hello\n")
		require.NoError(t, err)
		require.Equal(t, []string{"hello"}, lines(t, p, 1))
		require.NoError(t, p.Stdin().Close())
		require.Equal(t, 0, wait(t, p).Code)
	})
	t.Run("never-reads-its-input", func(t *testing.T) {
		s := spec(marker(t), "sleep")
		s.Stdin = true
		p := start(t, tr, s)
		lines(t, p, 1)
		in, ok := p.Stdin().(*os.File)
		require.True(t, ok)
		require.NoError(t, in.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := in.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		done := make(chan error, 1)
		require.NoError(t, in.SetWriteDeadline(time.Time{}))
		go func() { _, err := in.Write(make([]byte, 1<<20)); done <- err }()
		require.NoError(t, p.Close())
		require.Error(t, <-done)
	})
	t.Run("closes-its-output-first", func(t *testing.T) {
		s := spec(marker(t), "close-output")
		s.Stdin = true
		p := start(t, tr, s)
		deadline(t, p)
		b, err := io.ReadAll(p.Stdout())
		require.NoError(t, err)
		require.Empty(t, b)
		_, err = io.WriteString(p.Stdin(), strings.Repeat("x", 1<<20))
		require.NoError(t, err)
		require.NoError(t, p.Stdin().Close())
		require.Equal(t, 0, wait(t, p).Code)
	})
	t.Run("reader-goes-away", func(t *testing.T) {
		p := start(t, tr, spec(marker(t), "write", strconv.Itoa(1<<30)))
		_, err := io.ReadFull(p.Stdout(), make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, p.Stdout().Close())
		require.Equal(t, "SIGPIPE", wait(t, p).Signal) // as in any shell
	})
	t.Run("output-after-exit-is-kept", func(t *testing.T) {
		p := start(t, tr, spec(marker(t), "write", "5000"))
		require.Equal(t, 0, wait(t, p).Code)
		deadline(t, p)
		b, err := io.ReadAll(p.Stdout())
		require.NoError(t, err)
		require.Len(t, b, 5000)
	})
	t.Run("no-input-is-a-nil-interface", func(t *testing.T) {
		require.Nil(t, start(t, tr, spec(marker(t), "exit", "0")).Stdin())
	})
}

func TestRun(t *testing.T) {
	tr := transport(t, Config{})
	ctx := context.Background()
	mark := marker(t)
	r, err := tr.Run(ctx, spec(mark, "write", "4096"), 4096)
	require.NoError(t, err)
	require.Len(t, r.Stdout, 4096)
	r, err = tr.Run(ctx, spec(mark, "write", strconv.Itoa(1<<30)), 4096)
	require.ErrorIs(t, err, ErrOutput)
	require.Equal(t, 1, strings.Count(err.Error(), ErrOutput.Error()))
	require.Contains(t, []string{"SIGKILL", "SIGPIPE"}, r.Exit.Signal)
	require.Len(t, r.Stdout, 4096)
	r, err = tr.Run(ctx, spec(mark, "exit", "3"), 10)
	require.NoError(t, err)
	require.Equal(t, 3, r.Exit.Code)
	_, err = tr.Run(ctx, Spec{}, 10)
	require.ErrorIs(t, err, route.ErrInvalid)
	s := spec(mark, "cat")
	s.Stdin = true
	_, err = tr.Run(ctx, s, 10)
	require.NoError(t, err)
	input := strings.Repeat("x", 1<<20) // more than a pipe holds
	r, err = tr.Feed(ctx, s, []byte(input), len(input))
	require.NoError(t, err)
	require.Equal(t, input, string(r.Stdout))
	s.Args = spec(mark, "exit", "3").Args
	r, err = tr.Feed(ctx, s, []byte(input), 10)
	require.NoError(t, err, "a command need not read its input")
	require.Equal(t, 3, r.Exit.Code)

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = tr.Run(short, spec(mark, "ignore-term"), 10)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	r, err = tr.Run(ctx, spec(mark, "orphan", "hold"), 10) // the drain budget ends it
	require.NoError(t, err)
	require.Equal(t, 7, r.Exit.Code)
	require.Empty(t, alive(t, mark))
}

// A person's terminal stays the command's, which is in its session and group.
func TestInteractive(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	for args, want := range map[string]string{"exit 3": "3  <nil> <nil>\n", "signal 15": "0 SIGTERM <nil> <nil>\n"} {
		mark := marker(t)
		c := exec.Command(exe, append([]string{"fixture", mark, "interactive"}, strings.Fields(args)...)...)
		out, err := c.CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, want, string(out))
		requireNone(t, mark)
	}
	mark := marker(t)
	out, err := exec.Command(exe, "fixture", mark, "interactive", "inspect").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "\nleader false false\n")
	require.Contains(t, string(out), "\numask 077\n")
	c := exec.Command(exe, "fixture", mark, "interactive", "cat")
	c.Stdin = strings.NewReader("typed\n")
	out, err = c.CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "typed\n0  <nil> <nil>\n", string(out))
}
