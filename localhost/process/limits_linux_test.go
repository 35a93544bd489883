package process

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/cgroup"
	"github.com/lendcli/lend/localhost/route"
)

// buildLimits builds a program that tells its limits and tries its memory. It is
// a program of its own, because the race detector maps terabytes.
func buildLimits(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.go")
	require.NoError(t, os.WriteFile(file, []byte(`package main
import ("fmt"; "os"; "strconv"; "syscall")
func main() {
	n := func(i int) int { v, _ := strconv.Atoi(os.Args[i]); return v }
	switch os.Args[1] {
	case "limits":
		for _, r := range []int{2, 6, 7} { // DATA, NPROC, NOFILE
			var l syscall.Rlimit
			_ = syscall.Getrlimit(r, &l)
			fmt.Println(l.Cur, l.Max)
		}
		fmt.Println(os.Getenv("A"), len(os.Environ()), os.Args[2])
	case "map":
		_, err := syscall.Mmap(-1, 0, n(3)<<20, n(2), syscall.MAP_ANON|syscall.MAP_PRIVATE)
		fmt.Println(err)
	}
}`), 0o600))
	return build(t, "limits", file)
}

func limited(t *testing.T, tr *Transport, path string, l route.Limits, args ...string) []string {
	t.Helper()
	p := start(t, tr, Spec{Path: path, Args: append([]string{"x"}, args...), Env: []string{"A=b"}, Dir: "/", Limits: l})
	deadline(t, p)
	out, err := io.ReadAll(p.Stdout())
	require.NoError(t, err)
	require.Equal(t, route.Exit{}, func() route.Exit { e := wait(t, p); e.Duration = 0; return e }())
	require.NoError(t, p.Close())
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// The limits hold before the first instruction of the child, and for good: soft and
// hard are the same. Both kinds of supervisor set them.
func TestLimitsOfTheChild(t *testing.T) {
	program := buildLimits(t)
	for title, c := range map[string]Config{"shim": {ShimPath: buildShim(t)}, "self": {}} {
		t.Run(title, func(t *testing.T) {
			tr := transport(t, c)
			var own, processes unix.Rlimit
			require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
			require.NoError(t, unix.Getrlimit(unix.RLIMIT_NPROC, &processes))

			free := limited(t, tr, program, route.Limits{}, "limits", "z")
			require.Equal(t, fmt.Sprint(uint64(unix.RLIM_INFINITY), uint64(unix.RLIM_INFINITY)), free[0])
			require.Equal(t, fmt.Sprint(processes.Cur, processes.Max), free[1])

			const memory = 64 << 20
			bound := limited(t, tr, program, route.Limits{Processes: 50, Memory: memory}, "limits", "z")
			require.Equal(t, fmt.Sprint(memory, memory), bound[0])
			var soft, hard uint64
			_, err := fmt.Sscan(bound[1], &soft, &hard)
			require.NoError(t, err)
			require.Equal(t, soft, hard)
			require.Greater(t, soft, uint64(50), "the machine has other tasks")
			require.LessOrEqual(t, soft, processes.Max)
			require.Equal(t, "b 1 z", bound[3], "environment and arguments are the child's own")
			require.Equal(t, free[2], bound[2], "open files: whether there are other limits or not")
			require.Equal(t, free[3], bound[3])

			const readWrite, none = "3", "0"
			require.Equal(t, "<nil>", limited(t, tr, program, route.Limits{}, "map", readWrite, "256")[0])
			require.Equal(t, "cannot allocate memory", limited(t, tr, program, route.Limits{Memory: memory}, "map", readWrite, "64")[0])
			require.Equal(t, "<nil>", limited(t, tr, program, route.Limits{Memory: memory}, "map", readWrite, "16")[0])
			require.Equal(t, "<nil>", limited(t, tr, program, route.Limits{Memory: memory}, "map", none, "4096")[0], "reserving is free")
		})
	}
}

// A start with limits fails as one without: nothing runs, and the supervisor is
// good for the next.
func TestStartWithLimitsFails(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	warm(t, tr, 1)
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("no interpreter"), 0o700))
	for title, c := range map[string]struct {
		path, dir string
		errno     unix.Errno
		stage     Stage
	}{
		"missing":     {"/nonexistent/program", "/", unix.ENOENT, StageExecute},
		"no-program":  {script, "/", unix.ENOEXEC, StageExecute},
		"a-directory": {"/", "/", unix.EACCES, StageExecute},
		"directory":   {"/bin/true", "/nonexistent", unix.ENOENT, StageDirectory},
	} {
		_, err := tr.Start(t.Context(), Spec{Path: c.path, Args: []string{"x"}, Dir: c.dir, Limits: route.Limits{Processes: 5}})
		var failed *StartError
		require.ErrorAs(t, err, &failed, title)
		require.Equal(t, StartError{Stage: c.stage, Errno: c.errno}, *failed, title)
	}
	_, err := tr.Start(t.Context(), Spec{Path: "/bin/true", Args: []string{"x"}, Dir: "/", Limits: route.Limits{Memory: -1}})
	require.ErrorIs(t, err, route.ErrInvalid)
	p := start(t, tr, Spec{Path: "/bin/true", Args: []string{"x"}, Dir: "/", Limits: route.Limits{Processes: 5}})
	require.Zero(t, wait(t, p).Code)
}

func TestTooManyProcesses(t *testing.T) {
	for title, width := range map[string]string{"one-at-a-time": "chain", "all-at-once": "tree"} {
		t.Run(title, func(t *testing.T) {
			tr := transport(t, Config{})
			mark := marker(t)
			s := spec(mark, "tree", "5", "2") // 63 processes with some threads each
			if width == "chain" {
				s = spec(mark, "tree", "63", "1")
			}
			s.Limits.Processes = 60
			began := time.Now()
			p := start(t, tr, s)
			e := wait(t, p)
			require.True(t, e.Limited)
			require.Equal(t, "SIGKILL", e.Signal)
			require.NoError(t, p.Close())
			require.Empty(t, alive(t, mark))
			t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
		})
	}
	t.Run("few-enough", func(t *testing.T) {
		tr := transport(t, Config{})
		mark := marker(t)
		s := spec(mark, "tree", "1", "2")
		s.Limits.Processes = 500
		p := start(t, tr, s)
		lines(t, p, 3)
		time.AfterFunc(10*countPeriod, func() { _ = p.Terminate() })
		e := wait(t, p)
		require.False(t, e.Limited)
		require.Equal(t, "SIGTERM", e.Signal)
	})
}

const countPeriod = 25 * time.Millisecond

func TestOperationInACgroup(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": "pids memory", "cgroup.subtree_control": "", "cgroup.procs": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	tree, err := cgroup.Open(dir, zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, tree.Close()) }()
	tr := transport(t, Config{Cgroup: tree})
	group := func(n int) string {
		return filepath.Join(dir, "lend-"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(n))
	}
	content := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(path...))
		require.NoError(t, err)
		return string(b)
	}

	s := spec(marker(t), "sleep")
	s.Limits = route.Limits{Processes: 300, Memory: 9 << 40}
	p := start(t, tr, s)
	lines(t, p, 1)
	require.Equal(t, "0", content(group(1), "cgroup.procs"), "the child joined by itself")
	require.Equal(t, "300", content(group(1), "pids.max"))
	require.NoFileExists(t, filepath.Join(group(1), "cgroup.kill"))
	require.NoError(t, p.Close())
	require.Equal(t, "1", content(group(1), "cgroup.kill"))

	s.Limits = route.Limits{} // a group for the kill alone
	p = start(t, tr, s)
	lines(t, p, 1)
	require.Equal(t, "0", content(group(2), "cgroup.procs"))
	require.NoFileExists(t, filepath.Join(group(2), "pids.max"))
	require.NoError(t, os.WriteFile(filepath.Join(group(2), "memory.events"), []byte("oom_kill 1\n"), 0o600))
	require.NoError(t, p.Kill())
	require.True(t, wait(t, p).Limited, "out of memory")
	require.NoError(t, p.Close())

	require.NoError(t, os.Chmod(group(2), 0o700))
	require.NoError(t, os.WriteFile(group(3), nil, 0o600)) // no group can be made
	p = start(t, tr, spec(marker(t), "exit", "4"))
	require.Equal(t, 4, wait(t, p).Code, "nothing depends on it")
}
