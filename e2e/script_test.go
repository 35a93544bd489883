package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// fullRun tells whether every external tool is required. A tool that is missing
// then is a failure.
func fullRun() bool { return os.Getenv("LEND_TEST_FULL") == "1" }

// binaries builds the programs once for all scripts.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lend-e2e-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if raceEnabled {
		// Without what debuggers read it is no larger than a Connector's file may be,
		// which lend demo makes of it.
		args = append(args, "-race", "-ldflags=-w")
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, "./cmd/lend")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	// The supervisor and the fixture are as they ship: a program with the race
	// detector needs a second to exit.
	cmd = exec.CommandContext(context.Background(), "go", "build", "-o", dir+string(filepath.Separator), "./cmd/lend-shim", "./e2e/fx")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // for the programs that the tests start
	if signal.Ignored(syscall.SIGHUP) {          // as under nohup: the programs that the tests start should not inherit it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	nextPort.Store(uint32(os.Getpid()) * 97) // other processes of tests begin elsewhere
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // scripts wait most of the time
	}
	code := m.Run()
	if dir, _ := binaries(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func binDir(t *testing.T) string {
	t.Helper()
	dir, err := binaries()
	require.NoError(t, err)
	return dir
}

func TestScripts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the scripts need Linux")
	}
	testscript.Run(t, scriptParams(binDir(t), "testdata/script"))
}

// TestFullScripts runs the scripts that need tools or registries from outside.
func TestFullScripts(t *testing.T) {
	if !fullRun() {
		t.Skip("needs LEND_TEST_FULL=1: real CLIs and a package registry")
	}
	testscript.Run(t, scriptParams(binDir(t), "testdata/full"))
}

func scriptParams(bin, dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			e.Setenv("BIN", bin)
			e.Setenv("NO_COLOR", "1")
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			port, err := freePort()
			if err != nil {
				return err
			}
			e.Setenv("FREE_PORT", port)
			e.Setenv("OWNER", filepath.Join(e.WorkDir, "owner"))
			e.Setenv("CALLER", filepath.Join(e.WorkDir, "caller"))
			for _, keep := range []string{"NPM_CONFIG_REGISTRY", "SSL_CERT_FILE"} {
				if v := os.Getenv(keep); v != "" {
					e.Setenv(keep, v)
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"world":     cmdWorld,
			"over":      cmdOver,
			"await":     cmdAwait,
			"signals":   cmdSignals,
			"brokered":  cmdBrokered,
			"killed":    cmdKilled,
			"nowhere":   cmdNowhere,
			"sized":     cmdSized,
			"expired":   cmdExpired,
			"alter":     cmdAlter,
			"badpolicy": cmdBadPolicy,
			"idle":      cmdIdle,
			"locate":    cmdLocate,
			"tool":      cmdTool,
			"dead":      cmdDead,
			"gone":      cmdGone,
			"shows":     cmdShows,
			"exits":     cmdExits,
			"capture":   cmdCapture,
			"expand":    cmdExpand,
			"serving":   cmdServing,
			"absent":    cmdAbsent,
			"count":     cmdCount,
			"flip":      cmdFlip,
			"repeat":    cmdRepeat,
			"same":      cmdSame,
			"policy":    cmdPolicy,
			"edit":      cmdEdit,
			"conforms":  cmdConforms,
			"typed":     cmdTyped,
		},
	}
}

// nextPort is where freePort goes on.
var nextPort atomic.Uint32

// freePort is a port for scripts that serve twice at the same address. It is none of
// those that the system gives to whoever asks for any, so that nobody gets it in between.
func freePort() (string, error) {
	for range 1000 {
		port := strconv.Itoa(20000 + int(nextPort.Add(1)%10000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			var u net.PacketConn
			if u, err = net.ListenPacket("udp", "127.0.0.1:"+port); err == nil {
				err = u.Close()
			}
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return port, err
		}
	}
	return "", errors.New("no port is free")
}

// exits CODE PROGRAM [ARGS…]: run it and require this exit status.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// capture VARIABLE PROGRAM [ARGS…]: set a variable to what it prints.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: capture VARIABLE PROGRAM [ARGS…]")
	}
	ts.Check(ts.Exec(args[1], args[2:]...))
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// expand FILE…: replace ${VARIABLE} in files.
func cmdExpand(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! expand")
	}
	for _, file := range args {
		path := ts.MkAbs(file)
		b, err := os.ReadFile(path)
		ts.Check(err)
		text := os.Expand(string(b), func(v string) string {
			if value := ts.Getenv(v); value != "" {
				return value
			}
			return "${" + v + "}"
		})
		ts.Check(os.WriteFile(path, []byte(text), 0o600))
	}
}

// serving DIR: wait until the gateway of that LEND_DIR answers.
func cmdServing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serving DIR")
	}
	w := &world{bin: ts.Getenv("BIN"), dir: ts.Getenv("WORK"), env: scriptEnv(ts)}
	if !until(20*time.Second, func() bool {
		_, err := w.lend(ts.MkAbs(args[0]), "status")
		return err == nil
	}) {
		ts.Fatalf("the gateway of %s does not answer", args[0])
	}
}

// absent TEXT FILE…: no file holds the text.
func cmdAbsent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: absent TEXT FILE…")
	}
	for _, file := range args[1:] {
		if strings.Contains(ts.ReadFile(file), args[0]) {
			ts.Fatalf("%s holds %q", file, args[0])
		}
	}
}

// count N FILE: the file has N lines; a missing file has none.
func cmdCount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: count N FILE")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	b, err := os.ReadFile(ts.MkAbs(args[1]))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		ts.Check(err)
	}
	if got := bytes.Count(b, []byte("\n")); got != want {
		ts.Fatalf("%s has %d lines, want %d", args[1], got, want)
	}
}

// flip PATTERN: change one bit in the middle of the one file that matches.
func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: flip PATTERN")
	}
	found, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%s matches %d files, want 1", args[0], len(found))
	}
	info, err := os.Stat(found[0])
	ts.Check(err)
	ts.Check(os.Chmod(found[0], info.Mode().Perm()|0o200))
	f, err := os.OpenFile(found[0], os.O_RDWR, 0)
	ts.Check(err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, info.Size()/2)
	ts.Check(err)
	b[0] ^= 1
	_, err = f.WriteAt(b, info.Size()/2)
	ts.Check(err)
	ts.Check(f.Close())
	ts.Check(os.Chmod(found[0], info.Mode().Perm()))
}

// repeat N TEXT FILE: write the text N times into a file.
func cmdRepeat(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: repeat N TEXT FILE")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), bytes.Repeat([]byte(args[1]), n), 0o600))
}

// same FILE FILE: the bytes are equal, whatever they are.
func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: same FILE FILE")
	}
	equal := ts.ReadFile(args[0]) == ts.ReadFile(args[1])
	if equal == neg {
		ts.Fatalf("equal: %v", equal)
	}
}
