package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lendcli/lend/lease"
)

// More commands for scripts; those of script_test.go are the simpler ones.

// scriptEnv is the environment of the script, without what scripts set themselves.
func scriptEnv(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "NO_COLOR", "NPM_CONFIG_REGISTRY", "SSL_CERT_FILE"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// world [POLICY]: make an owner with the Connector fx, CALLER and OTHER that the
// policy names, and STRANGER that it does not; set …_ID and …_KEY of each.
func cmdWorld(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: world [POLICY]")
	}
	var text []byte
	var err error
	if len(args) == 1 {
		text = []byte(ts.ReadFile(args[0]))
	} else {
		text, err = os.ReadFile("testdata/world/policy.yaml")
		ts.Check(err)
	}
	w, err := makeWorld(ts.Getenv("BIN"), ts.Getenv("WORK"), scriptEnv(ts), string(text))
	ts.Check(err)
	for name, value := range w.vars {
		ts.Setenv(name, value)
	}
	ts.Setenv("STARTS", w.counter())
}

// over tcp|quic|none LEASE OUT: copy a lease with the addresses of one transport.
func cmdOver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: over tcp|quic|none LEASE OUT")
	}
	part, ok := transports()[args[0]]
	if !ok {
		part = "no address"
	}
	f, err := lease.ParseArmor([]byte(ts.ReadFile(args[1])), lease.AddressRule{AllowLocal: true})
	ts.Check(err)
	f = over(f, part)
	text, err := lease.Armor(f.Chain, f.Addresses, lease.AddressRule{AllowLocal: true})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), text, 0o600))
}

func lines(file string) int {
	b, _ := os.ReadFile(file)
	return bytes.Count(b, []byte("\n"))
}

// until asks again and again, as nothing tells it when.
func until(limit time.Duration, what func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !what(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// await N FILE: wait until the file has N lines.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await N FILE")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if !until(patience, func() bool { return lines(ts.MkAbs(args[1])) >= want }) {
		ts.Fatalf("%s has %d lines, want %d", args[1], lines(ts.MkAbs(args[1])), want)
	}
}

// signals CODE SIGNAL N FILE PROGRAM [ARGS…]: run it with an open input, send it the
// signal once the file has N lines, and require this exit status.
func cmdSignals(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: signals CODE SIGNAL N FILE PROGRAM [ARGS…]")
	}
	known := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	cmd := exec.Command(filepath.Join(ts.Getenv("BIN"), args[4]), args[5:]...)
	cmd.Env = append(scriptEnv(ts), "LEND_DIR="+ts.Getenv("LEND_DIR"), "LEND_LEASE_FILE="+ts.Getenv("LEND_LEASE_FILE"))
	cmd.Dir = ts.MkAbs(".")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	began := until(patience, func() bool { return lines(ts.MkAbs(args[3])) >= n })
	ts.Check(cmd.Process.Signal(known[args[1]]))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		ts.Fatalf("%s does not end", args[4])
	}
	_ = in.Close()
	ts.Logf("%s", out.String())
	var exit *exec.ExitError
	switch {
	case !began:
		ts.Fatalf("nothing ran")
	case err != nil && !errors.As(err, &exit):
		ts.Check(err)
	case cmd.ProcessState.ExitCode() != code:
		ts.Fatalf("exit status %d, want %d", cmd.ProcessState.ExitCode(), code)
	}
}

// nowhere TEXT DIR [EXCEPT…]: no file below the directory holds the text, but
// those whose path has one of the last parts in it, and these do.
func cmdNowhere(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: nowhere TEXT DIR [EXCEPT…]")
	}
	seen := map[string]bool{}
	ts.Check(filepath.WalkDir(ts.MkAbs(args[1]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(b, []byte(args[0])) {
			return err
		}
		at := slices.IndexFunc(args[2:], func(part string) bool { return strings.Contains(path, part) })
		if at < 0 {
			ts.Fatalf("%s holds %q", path, args[0])
		}
		seen[args[2+at]] = true
		return nil
	}))
	for _, part := range args[2:] {
		if !seen[part] {
			ts.Fatalf("no file of %s holds %q", part, args[0])
		}
	}
}

// sized N FILE: the file has N bytes.
func cmdSized(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sized N FILE")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := len(ts.ReadFile(args[1])); got != want {
		ts.Fatalf("%s has %d bytes, want %d", args[1], got, want)
	}
}

// expired FILE: wait until the lease has expired.
func cmdExpired(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expired FILE")
	}
	f, err := lease.ParseArmor([]byte(ts.ReadFile(args[0])), lease.AddressRule{AllowLocal: true})
	ts.Check(err)
	if !until(patience, func() bool { return time.Now().After(f.Lease.NotAfter) }) {
		ts.Fatalf("it lives until %s", f.Lease.NotAfter)
	}
}

// alter LEASE: change one bit of what was signed, in good armour.
func cmdAlter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: alter LEASE")
	}
	f, err := lease.ParseArmor([]byte(ts.ReadFile(args[0])), lease.AddressRule{AllowLocal: true})
	ts.Check(err)
	altered := bytes.Clone(f.Chain[0])
	at := bytes.Index(altered, []byte("args"))
	if at < 0 {
		ts.Fatalf("the lease does not grant args")
	}
	altered[at] ^= 1
	text := string(pem.EncodeToMemory(&pem.Block{Type: "LEND LEASE", Bytes: altered}))
	text = strings.Replace(text, "\n", "\n\n", 1) // the hints end with an empty line
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// badpolicy FILE PATTERN: the file is refused by lend policy check and by lend
// serve, with exit status 2 and text that matches, and nothing serves.
func cmdBadPolicy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: badpolicy FILE PATTERN")
	}
	if info, err := os.Stat(ts.MkAbs(args[0])); err == nil && !info.IsDir() && info.Mode().Perm() == 0o666&^0o022 {
		ts.Check(os.Chmod(ts.MkAbs(args[0]), 0o600))
	}
	for _, command := range [][]string{
		{"lend", "policy", "check", args[0]},
		{"lend", "serve", "--policy", args[0], "--listen", "/ip4/127.0.0.1/tcp/0"},
	} {
		cmdExits(ts, false, append([]string{"2"}, command...))
		if out := ts.ReadFile("stderr"); !regexp.MustCompile(args[1]).MatchString(out) {
			ts.Fatalf("%s does not match %q", strings.Join(command, " "), args[1])
		}
		cmdExits(ts, false, []string{"1", "lend", "status"})
	}
}

// idle DIR: wait until nothing runs at the gateway of that LEND_DIR.
func cmdIdle(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: idle DIR")
	}
	var status struct{ Operations []struct{} }
	ask := func() bool {
		ts.Check(ts.Exec("lend", "status", "--json", "--dir", ts.MkAbs(args[0])))
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &status))
		return len(status.Operations) == 0
	}
	if !until(patience, ask) {
		ts.Fatalf("%d operations still run", len(status.Operations))
	}
}

// shows DIR PATTERN: wait until the status of the gateway of that LEND_DIR matches.
func cmdShows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: shows DIR PATTERN")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	w := &world{bin: ts.Getenv("BIN"), dir: ts.Getenv("WORK"), env: scriptEnv(ts)}
	text := ""
	if !until(patience, func() bool {
		text, err = w.lend(ts.MkAbs(args[0]), "status")
		return err == nil && want.MatchString(text)
	}) {
		ts.Fatalf("the status of %s is not %s: %v\n%s", args[0], args[1], err, text)
	}
}

// gone FILE: the process whose ID the file holds is not there.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone FILE")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		ts.Fatalf("process %d is there: %v", pid, err)
	}
}

// locate VARIABLE DIR END: set a variable to the one regular file below the
// directory whose path ends so.
func cmdLocate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: locate VARIABLE DIR END")
	}
	var found []string
	ts.Check(filepath.WalkDir(ts.MkAbs(args[1]), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, "/"+args[2]) {
			found = append(found, path)
		}
		return err
	}))
	if len(found) != 1 {
		ts.Fatalf("%d files end in %s: %q", len(found), args[2], found)
	}
	ts.Setenv(args[0], found[0])
}

// tool VARIABLE NAME: set a variable to where a program of this machine is, links
// followed. Without it the script fails.
func cmdTool(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tool VARIABLE NAME")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	path, err = filepath.EvalSymlinks(path)
	ts.Check(err)
	ts.Setenv(args[0], path)
}

// dead FILE: no process of the IDs that the file lists is left.
func cmdDead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: dead FILE")
	}
	for _, field := range strings.Fields(ts.ReadFile(args[0])) {
		pid, err := strconv.Atoi(field)
		ts.Check(err)
		if !until(patience, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }) {
			ts.Fatalf("process %d is still there", pid)
		}
	}
}

// brokered CODE SIGNAL N FILE PROGRAM [ARGS…]: run a shim found on the script's PATH,
// send it a signal when FILE has N lines, and require its exit status; -1 is any.
func cmdBrokered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: brokered CODE SIGNAL N FILE PROGRAM [ARGS…]")
	}
	known := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	shimUntil(ts, args[0], args[3], n, args[4:], func(p *os.Process) error { return p.Signal(known[args[1]]) })
}

// killed CODE NAME FILE PROGRAM [ARGS…]: run a shim, kill the broker of this LEND_DIR
// when FILE has a line, and require the shim's exit status.
func cmdKilled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: killed CODE NAME FILE PROGRAM [ARGS…]")
	}
	shimUntil(ts, args[0], args[2], 1, args[3:], func(*os.Process) error {
		for _, b := range ts.BackgroundCmds() {
			if len(b.Args) == 2 && filepath.Base(b.Args[0]) == "lend" && b.Args[1] == args[1] {
				return b.Process.Kill()
			}
		}
		return errors.New("it does not run")
	})
}

func shimUntil(ts *testscript.TestScript, want, file string, n int, args []string, do func(*os.Process) error) {
	code, err := strconv.Atoi(want)
	ts.Check(err)
	var path string
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, args[0])); err == nil {
			path = filepath.Join(dir, args[0])
			break
		}
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env = append(scriptEnv(ts), "LEND_SESSION="+ts.Getenv("LEND_SESSION"), "LEND_AUTHORITY="+cmp.Or(ts.Getenv("LEND_AUTHORITY"), "owner"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	began := until(patience, func() bool { return lines(ts.MkAbs(file)) >= n })
	ts.Check(do(cmd.Process))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		ts.Fatalf("%s does not end", args[0])
	}
	_ = in.Close()
	ts.Logf("%s", out.String())
	var exit *exec.ExitError
	switch {
	case !began:
		ts.Fatalf("nothing ran")
	case err != nil && !errors.As(err, &exit):
		ts.Check(err)
	case cmd.ProcessState.ExitCode() != code:
		ts.Fatalf("exit status %d, want %d", cmd.ProcessState.ExitCode(), code)
	}
}
