package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/supervise"
	"github.com/lendcli/lend/localhost/route"
)

// supervisorOf returns the supervisor that runs the only operation of tr.
func supervisorOf(t *testing.T, tr *Transport) int {
	t.Helper()
	tr.backend.mu.Lock()
	defer tr.backend.mu.Unlock()
	for pid, s := range tr.backend.known {
		s.mu.Lock()
		busy := s.op != nil
		s.mu.Unlock()
		if busy {
			return pid
		}
	}
	t.Fatal("nothing runs")
	return 0
}

// Whatever a command leaves behind, nothing of it lives when Close returns.
func TestNoSurvivors(t *testing.T) {
	const tree = 1 + 3 + 9
	for _, c := range []struct {
		name  string
		args  []string
		lines int
		alive int
	}{
		{"a-sleeper", []string{"sleep"}, 1, 1},
		{"ignores-term", []string{"ignore-term"}, 1, 1},
		{"tree-of-sessions-without-environment", []string{"tree", "2", "3"}, tree, tree},
		{"orphan-that-holds-the-output", []string{"orphan", "hold"}, 1, 1},
		{"orphan-that-holds-nothing", []string{"orphan", "free"}, 1, 1},
	} {
		for how, end := range map[string]func(*testing.T, *Transport, int){
			"close": nil,
			"supervisor-is-killed": func(t *testing.T, _ *Transport, pid int) {
				t.Helper()
				require.NoError(t, unix.Kill(pid, unix.SIGKILL))
			},
			"all-supervisors-killed": killAll,
		} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				tr := transport(t, Config{})
				mark := marker(t)
				p := start(t, tr, spec(mark, c.args[0], c.args[1:]...))
				lines(t, p, c.lines)
				if c.args[0] == "orphan" {
					require.Equal(t, 7, wait(t, p).Code)
				}
				require.Eventually(t, func() bool { return len(alive(t, mark)) == c.alive }, patience, time.Millisecond)
				if end != nil {
					end(t, tr, supervisorOf(t, tr))
					requireNone(t, mark) // without Close
				}
				require.NoError(t, p.Close())
				require.Empty(t, alive(t, mark))
				require.NoError(t, p.Close())
				require.NoError(t, p.Kill())
				require.NoError(t, p.Terminate())
			})
		}
	}
}

func killAll(t *testing.T, tr *Transport, _ int) {
	t.Helper()
	tr.backend.mu.Lock()
	defer tr.backend.mu.Unlock()
	for pid := range tr.backend.known {
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	}
}

// The exit of the child is told at once, whatever holds its outputs; what holds them
// lives until Close.
func TestHeldOutput(t *testing.T) {
	tr := transport(t, Config{})
	mark := marker(t)
	p := start(t, tr, spec(mark, "orphan", "hold"))
	require.Equal(t, 7, wait(t, p).Code)
	lines(t, p, 1)
	require.Len(t, alive(t, mark), 1)
	require.NoError(t, p.Close())
	require.Empty(t, alive(t, mark))
	require.Equal(t, 7, wait(t, p).Code)
}

func TestTerminate(t *testing.T) {
	tr := transport(t, Config{})
	t.Run("is-heard", func(t *testing.T) {
		p := start(t, tr, spec(marker(t), "on-term"))
		lines(t, p, 1)
		require.NoError(t, p.Terminate())
		require.Equal(t, 42, wait(t, p).Code)
		require.NoError(t, p.Terminate())
	})
	t.Run("is-ignored-then-killed", func(t *testing.T) {
		p := start(t, tr, spec(marker(t), "ignore-term"))
		lines(t, p, 1)
		require.NoError(t, p.Terminate())
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := p.Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.Kill())
		require.Equal(t, "SIGKILL", wait(t, p).Signal)
	})
	t.Run("reaches-the-group-after-the-exit-of-its-leader", func(t *testing.T) {
		p := start(t, tr, spec(marker(t), "background"))
		require.Equal(t, 0, wait(t, p).Code)
		in := bufio.NewReader(p.Stdout())
		deadline(t, p)
		l, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ready\n", l)
		require.NoError(t, p.Terminate())
		l, err = in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "terminated\n", l)
	})
}

// A chain in which each link leaves as soon as it has started the next, each in a
// new session, is caught.
func TestForkChain(t *testing.T) {
	tr := transport(t, Config{})
	for _, kill := range []bool{false, true} {
		mark := marker(t)
		p := start(t, tr, spec(mark, "chain", "90"))
		require.Equal(t, 0, wait(t, p).Code)
		lines(t, p, 10) // it is on its way
		if kill {
			require.NoError(t, unix.Kill(supervisorOf(t, tr), unix.SIGKILL))
			requireNone(t, mark)
		}
		require.NoError(t, p.Close())
		require.Empty(t, alive(t, mark))
	}
}

func TestForkStorm(t *testing.T) {
	tr := transport(t, Config{})
	mark := marker(t)
	p := start(t, tr, spec(mark, "tree", "4", "3")) // 121 at most
	lines(t, p, 2)
	require.NoError(t, p.Close())
	require.Empty(t, alive(t, mark))
}

// Zombies of adopted processes are reaped while the command runs, and the pool gets
// the supervisor back without Close when all is over by itself.
func TestBackToThePool(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	warm(t, tr, 1)
	tr.backend.mu.Lock()
	pid := tr.backend.idle[0].pid
	tr.backend.mu.Unlock()
	mark := marker(t)
	p := start(t, tr, spec(mark, "chain", "5"))
	deadline(t, p)
	_, err := io.ReadAll(p.Stdout())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return tr.backend.runningNow() == 0 }, patience, time.Millisecond)
	q := start(t, tr, spec(mark, "sleep"))
	require.Equal(t, pid, supervisorOf(t, tr), "the warm supervisor serves again")
	// A command that comes too late is for the operation that is over, not the next.
	op, ok := p.(*operation)
	require.True(t, ok)
	op.super.send(supervise.Kill, op.seq)
	lines(t, q, 1)
	require.NoError(t, q.Terminate())
	require.Equal(t, "SIGTERM", wait(t, q).Signal)
}

func (b *backend) runningNow() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

func TestSupervisorLost(t *testing.T) {
	t.Run("in-mid-run", func(t *testing.T) {
		tr := transport(t, Config{})
		mark := marker(t)
		p := start(t, tr, spec(mark, "kill-parent"))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := p.Wait(ctx)
		require.ErrorIs(t, err, ErrLost)
		requireNone(t, mark)
		require.NoError(t, p.Close())
	})
	t.Run("while-idle", func(t *testing.T) {
		tr := transport(t, Config{})
		warm(t, tr, 2)
		killAll(t, tr, 0)
		warm(t, tr, 0)
		require.Equal(t, 0, wait(t, start(t, tr, spec(marker(t), "exit", "0"))).Code)
	})
	t.Run("at-the-moment-of-a-start", func(t *testing.T) {
		tr := transport(t, Config{})
		mark := marker(t)
		for range 20 {
			killAll(t, tr, 0)
			p := start(t, tr, spec(mark, "exit", "5"))
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			e, err := p.Wait(ctx)
			cancel()
			if err == nil {
				require.Equal(t, 5, e.Code)
			} else {
				require.ErrorIs(t, err, ErrLost) // never an exit that was not seen
			}
			require.NoError(t, p.Close())
			require.Empty(t, alive(t, mark))
		}
	})
	t.Run("too-slow", func(t *testing.T) {
		tr := transport(t, Config{})
		tr.backend.patience = time.Nanosecond
		mark := marker(t)
		p := start(t, tr, spec(mark, "tree", "1", "2"))
		lines(t, p, 3)
		require.NoError(t, p.Close())
		require.Empty(t, alive(t, mark))
	})
}

// A command, a process of the same user, may stop supervisors. Nothing waits for
// closeBudget or answerBudget because of that.
func TestStoppedSupervisor(t *testing.T) {
	stopped := func(t *testing.T, pid int) {
		t.Helper()
		require.Eventually(t, func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && bytes.Contains(b, []byte(") T "))
		}, patience, time.Millisecond)
	}
	t.Run("close", func(t *testing.T) {
		tr := transport(t, Config{})
		mark := marker(t)
		p := start(t, tr, spec(mark, "stop-parent", "stay"))
		pid := supervisorOf(t, tr)
		lines(t, p, 1)
		stopped(t, pid)
		began := time.Now()
		require.NoError(t, p.Close())
		require.Less(t, time.Since(began), closeBudget/2)
		require.Empty(t, alive(t, mark))
	})
	t.Run("terminate-brings-the-exit", func(t *testing.T) {
		tr := transport(t, Config{})
		p := start(t, tr, spec(marker(t), "stop-parent", "leave"))
		pid := supervisorOf(t, tr)
		lines(t, p, 1)
		stopped(t, pid)
		_, err := io.Copy(io.Discard, p.Stdout()) // until it has left
		require.NoError(t, err)
		require.NoError(t, p.Terminate())
		require.Equal(t, 7, wait(t, p).Code)
	})
	t.Run("before-it-answers", func(t *testing.T) {
		tr := transport(t, Config{Idle: 1})
		warm(t, tr, 1)
		pid := tr.backend.idle[0].pid
		began, stopping := time.Now(), make(chan struct{})
		go func() {
			defer close(stopping)
			for time.Since(began) < nudgeAfter/2 {
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}()
		require.Equal(t, 5, wait(t, start(t, tr, spec(marker(t), "exit", "5"))).Code)
		require.Less(t, time.Since(began), answerBudget/2)
		<-stopping
	})
	t.Run("next-start", func(t *testing.T) {
		tr := transport(t, Config{Idle: 1})
		warm(t, tr, 1)
		for pid := range tr.backend.known {
			require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
			stopped(t, pid)
		}
		began := time.Now()
		require.Equal(t, 5, wait(t, start(t, tr, spec(marker(t), "exit", "5"))).Code)
		require.Less(t, time.Since(began), answerBudget/2)
	})
}

// The children of the program around the transport are not touched when a supervisor
// dies, nor do they lose their status.
func TestOtherChildren(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	tr := transport(t, Config{})
	t.Cleanup(runtime.GC)
	mark := marker(t)
	others := make([]*exec.Cmd, 0, 2)
	for _, setsid := range []bool{false, true} {
		if setsid && noNewPrivs(os.Getpid()) {
			continue // then such a child cannot be told from one of ours: docs/adr/0052
		}
		c := exec.Command(exe, "fixture", mark, "on-term")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		others = append(others, c)
	}
	p := start(t, tr, spec(marker(t), "tree", "1", "2"))
	lines(t, p, 3)
	require.NoError(t, unix.Kill(supervisorOf(t, tr), unix.SIGKILL))
	require.NoError(t, p.Close())
	require.Len(t, alive(t, mark), len(others))
	for _, c := range others {
		require.NoError(t, c.Process.Signal(unix.SIGTERM))
		var failed *exec.ExitError
		require.ErrorAs(t, c.Wait(), &failed)
		require.Equal(t, 42, failed.ExitCode())
	}
}

// When the gateway is killed, its supervisors kill what they run and leave.
func TestGatewayKilled(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	warm(t, transport(t, Config{Idle: 1}), 1) // makes us a subreaper, so that whatever is left becomes our child
	mark := marker(t)
	c := exec.Command(exe, "fixture", mark, "gateway")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	in := bufio.NewScanner(out)
	require.True(t, in.Scan())
	require.Equal(t, "up", in.Text())
	require.Len(t, alive(t, mark), 1+2*7)
	ours := supervise.Children(nil)
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	requireNone(t, mark)
	require.Eventually(t, func() bool {
		left := 0
		for _, pid := range supervise.Children(nil) {
			if slices.Contains(ours, pid) {
				continue
			}
			left++
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		return left == 0
	}, 2*time.Second, time.Millisecond, "supervisors are left")
}

func TestOwns(t *testing.T) {
	tr := transport(t, Config{})
	mark := marker(t)
	p := start(t, tr, spec(mark, "tree", "1", "2"))
	lines(t, p, 3)
	for _, pid := range alive(t, mark) {
		require.True(t, tr.Owns(pid))
	}
	require.True(t, tr.Owns(supervisorOf(t, tr)))
	require.False(t, tr.Owns(os.Getpid()))
	require.False(t, tr.Owns(os.Getppid()))
	require.False(t, tr.Owns(1))
	require.False(t, tr.Owns(1<<22+1))
}

func TestConcurrentUse(t *testing.T) {
	tr := transport(t, Config{})
	p := start(t, tr, spec(marker(t), "sleep"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			e, err := p.Wait(context.Background())
			if err != nil || e.Signal == "" {
				t.Error(e, err)
			}
		})
		all.Go(func() { _ = p.Terminate() })
		all.Go(func() { _ = p.Kill() })
		all.Go(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Many operations at once, whose supervisors are killed at random moments: each ends
// as it must or is lost, none disturbs another, nothing is left.
func TestTorture(t *testing.T) {
	tr := transport(t, Config{})
	mark := marker(t)
	const workers, each = 6, 12
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		random := rand.New(rand.NewPCG(uint64(w), 7))
		all.Go(func() {
			for range each {
				errs[w] = errors.Join(errs[w], torture(tr, mark, random))
			}
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Empty(t, alive(t, mark))
	require.Zero(t, tr.backend.runningNow())
}

func torture(tr *Transport, mark string, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	action := random.IntN(4)
	s := spec(mark, "tree", "1", "2")
	if action == 0 {
		s = spec(mark, "exit", "33")
	}
	p, err := tr.Start(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	if action > 0 { // somewhere in its start
		_, _ = io.CopyN(io.Discard, p.Stdout(), int64(random.IntN(3)*len("ready\n")))
	}
	want, lost := "SIGKILL", false
	switch action {
	case 0:
		want = ""
	case 1:
		err = p.Close()
	case 2:
		err = p.Kill()
	case 3:
		lost = true
		p.(*operation).super.kill() //nolint:forcetypeassert // ours
	}
	e, werr := p.Wait(ctx)
	switch {
	case lost && (errors.Is(werr, ErrLost) || e.Signal == want):
		werr = nil
	case werr == nil && (e.Signal != want || (want == "" && e.Code != 33)):
		werr = fmt.Errorf("action %d ended as %v", action, e)
	}
	return errors.Join(err, werr, p.Close())
}

func TestSupervisorsAreCounted(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	start(t, tr, spec(marker(t), "tree", "1", "1"))
	start(t, tr, spec(marker(t), "tree", "1", "1"))
	busy, idle := tr.Supervisors()
	require.GreaterOrEqual(t, busy, 2)
	require.LessOrEqual(t, idle, 1)
}

func thinEvery(tr *Transport, lull time.Duration) {
	tr.backend.mu.Lock()
	defer tr.backend.mu.Unlock()
	tr.backend.lull = lull
}

// TestCrowdKeepsItsSupervisors: those of a crowd serve the next one, and are ended
// when there is none.
func TestCrowdKeepsItsSupervisors(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	thinEvery(tr, time.Hour)
	crowd := func(n int) map[int]bool {
		var all []route.Process
		for range n {
			all = append(all, start(t, tr, spec(marker(t), "sleep")))
		}
		pids := map[int]bool{}
		tr.backend.mu.Lock()
		for pid := range tr.backend.known {
			pids[pid] = true
		}
		tr.backend.mu.Unlock()
		for _, p := range all {
			require.NoError(t, p.Close())
		}
		return pids
	}
	idle := func() int { _, n := tr.Supervisors(); return n }
	warm(t, tr, 1)
	first := crowd(6)
	require.Equal(t, 6, idle())
	require.Equal(t, first, crowd(6), "no other supervisors")

	thin := func() {
		tr.backend.mu.Lock()
		require.True(t, tr.backend.thinning.Stop())
		tr.backend.mu.Unlock()
		tr.backend.thin()
	}
	thin()
	require.Equal(t, 6, idle(), "all were needed")
	thin()
	require.Equal(t, 1, idle(), "none was needed")

	thinEvery(tr, 10*time.Millisecond)
	crowd(6)
	require.Eventually(t, func() bool { return idle() == 1 }, patience, time.Millisecond)
}

func TestSupervisorsHaveABound(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	thinEvery(tr, time.Hour)
	var all []route.Process
	for range mostWarm + 2 {
		all = append(all, start(t, tr, spec(marker(t), "sleep")))
	}
	for _, p := range all {
		require.NoError(t, p.Close())
	}
	_, idle := tr.Supervisors()
	require.Equal(t, mostWarm, idle)
}
