//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

// A canary is a text that nothing else holds, put where something private is. What
// the product writes is searched for each, in every form and in pieces.

const (
	canarySize = 32
	pieceSize  = 8 // the least piece of a canary that is looked for, in bytes of it
)

// newCanary has letters of both cases and digits: no digest or key looks like it.
func newCanary() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, canarySize)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// aviary looks for canaries.
type aviary struct {
	pieces map[string]string // each piece of each form, to the name of its canary
	sizes  []int
}

// add makes all pieces of a canary known.
func (a *aviary) add(name string, canary []byte) {
	if a.pieces == nil {
		a.pieces = map[string]string{}
	}
	percent := ""
	for _, b := range canary {
		percent += fmt.Sprintf("%%%02X", b)
	}
	octets := make([]string, len(canary))
	for i, b := range canary {
		octets[i] = strconv.Itoa(int(b))
	}
	reversed := slices.Clone(canary)
	slices.Reverse(reversed)
	a.form(name, canary, pieceSize)
	a.form(name, reversed, pieceSize)
	a.form(name, bytes.ToLower(canary), pieceSize)
	a.form(name, bytes.ToUpper(canary), pieceSize)
	a.form(name, []byte(hex.EncodeToString(canary)), 2*pieceSize)
	a.form(name, []byte(strings.ToUpper(hex.EncodeToString(canary))), 2*pieceSize)
	a.form(name, []byte(percent), 3*pieceSize)
	a.form(name, []byte(strings.ToLower(percent)), 3*pieceSize)
	a.form(name, []byte(strings.Join(octets, " ")), 3*pieceSize) // %v of a []byte
	a.form(name, []byte(strings.Join(octets, ",")), 3*pieceSize)
	for shift := range 5 { // what comes before it moves the letters of an encoding
		for text, group := range map[string]int{
			base64.StdEncoding.EncodeToString(append(make([]byte, shift), canary...)): 4,
			base64.URLEncoding.EncodeToString(append(make([]byte, shift), canary...)): 4,
			base32.StdEncoding.EncodeToString(append(make([]byte, shift), canary...)): 8,
		} {
			text = strings.TrimRight(text, "=")
			a.form(name, []byte(text[2*group:len(text)-group]), pieceSize*8/5)
		}
	}
}

func (a *aviary) form(name string, text []byte, size int) {
	if !slices.Contains(a.sizes, size) {
		a.sizes = append(a.sizes, size)
	}
	for i := 0; i+size <= len(text); i++ {
		a.pieces[string(text[i:i+size])] = name
	}
}

// in returns the canaries of which there is a piece in what was written.
func (a *aviary) in(written []byte) []string {
	found := map[string]bool{}
	for _, size := range a.sizes {
		for i := 0; i+size <= len(written); i++ {
			if name, ok := a.pieces[string(written[i:i+size])]; ok {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestCanaryIsFound leaks on purpose.
func TestCanaryIsFound(t *testing.T) {
	t.Parallel()
	var a aviary
	secret, other := newCanary(), newCanary()
	a.add("secret", []byte(secret))
	a.add("other", []byte(other))
	for title, leak := range map[string]string{
		"plain": secret, "in-a-line": `{"level":"info","x":"` + secret + `"}`, "lower": strings.ToLower(secret), "upper": strings.ToUpper(secret),
		"hex": hex.EncodeToString([]byte(secret)), "hex-upper": strings.ToUpper(hex.EncodeToString([]byte("x" + secret))),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64-of-a-header": base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
		"base64-url": base64.RawURLEncoding.EncodeToString([]byte("ab" + secret + "?")), "base32": base32.StdEncoding.EncodeToString([]byte("u:" + secret)),
		"percent": percentEncoded(secret),
		"bytes":   fmt.Sprintf("%v", []byte(secret)), "quoted": strconv.QuoteToASCII("\x1b" + secret), "reversed": string(reversedBytes(secret)),
	} {
		require.Equal(t, []string{"secret"}, a.in([]byte("before "+leak+" after")), title)
	}
	for cut := 0; cut <= canarySize; cut++ { // in two pieces, one of which is long enough
		require.Equal(t, []string{"secret"}, a.in([]byte(secret[:cut]+"\n{\"a\":"+secret[cut:])), "cut at %d", cut)
	}
	require.Equal(t, []string{"other", "secret"}, a.in([]byte(secret[5:13]+" "+other[20:28])))
	require.Empty(t, a.in([]byte(secret[:pieceSize-1]+" "+newCanary()+" "+strings.Repeat("0123456789abcdef", 100))))
}

func percentEncoded(s string) (out string) {
	for _, b := range []byte(s) {
		out += fmt.Sprintf("%%%02x", b)
	}
	return out
}

func reversedBytes(s string) []byte {
	b := []byte(s)
	slices.Reverse(b)
	return b
}

const canaryPolicy = `
policy: 1
issuers:
  owner: {id: ${OWNER_KEY}, connectors: [fx], max_life: 1h}
peers:
  caller: ${CALLER_ID}
limits: {starts_per_minute: 60000, denials: 10000}
workspaces:
  site: {path: ${WORK}/site}
commands:
  fx:
    args: {effect: read, arguments: [args], parameters: {word: {flag: --word, pattern: "[a-zA-Z0-9]+"}}}
    env: {effect: read, arguments: [env]}
    cat: {effect: read, arguments: [cat], parameters: {bytes: {stdin: {max_bytes: 1048576}}}}
    lines: {effect: read, arguments: [lines], parameters: {text: {stdin: {max_bytes: 1048576, text: true}}}}
    fail: {effect: read, arguments: [print], parameters: {word: {position: 1, pattern: "[a-zA-Z0-9]+", required: true}}}
    read: {effect: read, arguments: [read], parameters: {file: {position: 1, kind: path, required: true}}}
    sleep: {effect: read, arguments: [sleep, 10m], parameters: {note: {flag: --note, pattern: "[a-zA-Z0-9]+"}, bytes: {stdin: {max_bytes: 1048576}}}}
allow:
  - name: the caller
    to: [caller]
    connector: fx
    version: "1.0.0"
    workspace: site
    commands: {args: {}, env: {}, cat: {}, lines: {}, fail: {}, read: {}, sleep: {}}
`

// where a canary belongs: a place that has it is no leak, and has to have it, or the
// search would prove nothing.
type home struct{ canary, place, why string }

func homes() []home {
	return []home{
		{"secret", `^stdout of run env$`, "a command that prints its environment shows what it was given"},
		{"argv", `^stdout of (run args|try args)$`, "the command prints its arguments"},
		{"argv", `^stderr of run fail$`, "the command complains about its argument"},
		{"argv", `^stdout of explain$`, "the owner's own question, answered with the canonical arguments"},
		{"refused-flag", `^stderr of refused flag$`, "the caller is told which of its own flags it was; the record is not"},
		{"stdin", `^stdout of run cat$`, "the command copies its input"},
		{"workspace", `^stdout of run read$`, "the command prints the file"},
		{"identity-key", `^file (owner/identity)\.pem$`, "the key's own file"},
		{"owner-key", `^file owner/owner\.pem$`, "the key's own file"},
		{"caller-key", `^file caller/identity\.pem$`, "the key's own file"},
		{"gateway-environment", `^environ of the gateway$`, "what the owner's shell gave it"},
	}
}

// TestCanary lives a whole life with the real program, and looks for what must stay
// private in all that it writes.
func TestCanary(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "site"), 0o700))
	w, err := makeWorld(binDir(t), dir, os.Environ(), canaryPolicy)
	require.NoError(t, err)
	owner, caller := w.vars["OWNER"], w.vars["CALLER"]

	var birds aviary
	canaries := map[string]string{}
	for _, name := range []string{"secret", "argv", "refused-argv", "stdin", "refused-flag", "workspace", "gateway-environment", "caller-environment"} {
		canaries[name] = newCanary()
		birds.add(name, []byte(canaries[name]))
	}
	for name, file := range map[string]string{"identity-key": owner + "/identity.pem", "owner-key": owner + "/owner.pem", "caller-key": caller + "/identity.pem"} {
		birds.addKey(t, name, file)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "site", "notes.txt"), []byte(canaries["workspace"]), 0o600))

	life := &life{world: w, t: t, written: map[string][]byte{}}
	life.run("secret set", owner, canaries["secret"]+"\n", 0, "connector", "secret", "set", "fx", "token", "--env", "FX_TOKEN")
	life.serve("LEND_CANARY=" + canaries["gateway-environment"])
	f := (&served{world: w, t: t}).issue("caller", "args", "env", "cat", "lines", "fail", "read", "sleep")
	birds.add("lease-signature", f.Chain[0][len(f.Chain[0])-64:])
	file := filepath.Join(dir, "caller.lease")
	text, err := lease.Armor(f.Chain, f.Addresses, lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	w.env = append(w.env, "LEND_LEASE_FILE="+file, "CALLERS_TOKEN="+canaries["caller-environment"])

	sleeping, token := life.hold(f, canaries["argv"])
	birds.add("attach-token", token)
	for _, c := range []struct {
		name, in string
		exit     int
		args     []string
	}{
		{"run args", "", 0, []string{"args", "--word", canaries["argv"]}},
		{"run env", "", 0, []string{"env"}},
		{"run cat", canaries["stdin"], 0, []string{"cat"}},
		{"run fail", "", 64, []string{"fail", canaries["argv"]}},
		{"run read", "", 0, []string{"read", "notes.txt"}},
		{"refused value", "", 126, []string{"args", "--word", canaries["refused-argv"] + "!"}},
		{"refused position", "", 126, []string{"args", canaries["refused-argv"]}},
		{"refused flag", "", 126, []string{"args", "--" + canaries["refused-flag"] + "=1"}},
		{"refused path", "", 126, []string{"read", "../" + canaries["refused-argv"]}},
		{"refused input", "\xff" + canaries["stdin"], 124, []string{"lines"}},
		{"refused command", "", 127, []string{strings.ToLower("c" + canaries["refused-argv"][1:])}},
	} {
		life.run(c.name, caller, c.in, c.exit, append([]string{"run", "fx"}, c.args...)...)
	}
	life.look(canaries["argv"], file)
	require.NoError(t, sleeping())
	life.run("after", owner, "", 0, "ops", "list", "--all", "--json")
	life.stop()
	life.run("try args", owner, "", 0, "connector", "try", "--peer", "caller", "fx", "args", "--word", canaries["argv"])
	life.run("try refused", owner, "", 126, "connector", "try", "--peer", "caller", "fx", "args", "--word", canaries["refused-argv"]+"!")
	life.run("explain", owner, "", 0, "policy", "explain", "--peer", "caller", "--issuer", "owner", "--", "fx", "args", "--word", canaries["argv"])
	for _, command := range []string{"audit show", "audit show --json", "audit verify", "audit verify --json", "audit export", "audit checkpoint"} {
		life.run(command, owner, "", 0, strings.Fields(command)...)
	}
	life.files(owner, caller)

	at := map[home]bool{}
	for _, place := range slices.Sorted(maps.Keys(life.written)) {
		for _, canary := range birds.in(life.written[place]) {
			i := slices.IndexFunc(homes(), func(h home) bool { return h.canary == canary && regexp.MustCompile(h.place).MatchString(place) })
			if i >= 0 {
				at[homes()[i]] = true
				continue
			}
			t.Errorf("the %s is in the %s", canary, place)
		}
	}
	for _, h := range homes() {
		require.True(t, at[h], "the %s is not in %s: the test looks at nothing", h.canary, h.place)
	}
	for _, place := range []string{
		"stderr of serve", "metrics", "answer to /v1/operations", "cmdline of the gateway", "environ of the gateway", "cmdline of a supervisor",
		"stdout of audit export", "file owner/identity.pem",
	} {
		require.NotEmpty(t, life.written[place], "nothing was read from the %s", place)
	}
	require.Contains(t, string(life.written["stderr of serve"]), `"level":"debug"`)
	t.Logf("%d places, %d pieces", len(life.written), len(birds.pieces))
}

// addKey adds the secret of a key file: an Ed25519 seed is the last 32 bytes.
func (a *aviary) addKey(t *testing.T, name, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	block, _ := pem.Decode(b)
	require.NotNil(t, block)
	a.add(name, block.Bytes[len(block.Bytes)-32:])
}

// life collects all that the program writes, by where.
type life struct {
	*world
	t        *testing.T
	written  map[string][]byte
	gateway  *exec.Cmd
	log, out bytes.Buffer
	metrics  string
}

// run runs one command, and keeps what it says.
func (l *life) run(name, home, in string, exit int, args ...string) {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := l.command(home, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
	err := cmd.Run()
	l.written["stdout of "+name], l.written["stderr of "+name] = stdout.Bytes(), stderr.Bytes()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		require.NoError(l.t, err)
	}
	require.Equal(l.t, exit, cmd.ProcessState.ExitCode(), "%s: %s%s", name, &stdout, &stderr)
}

// serve runs the gateway with all that it can say.
func (l *life) serve(env ...string) {
	l.t.Helper()
	l.gateway = l.command(l.vars["OWNER"], "serve", "--log", "debug", "--metrics", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1")
	l.gateway.Env = append(l.gateway.Env, env...)
	l.gateway.Stdout, l.gateway.Stderr = &l.out, &l.log
	require.NoError(l.t, l.gateway.Start())
	l.t.Cleanup(func() { _ = l.gateway.Process.Kill() }) // one that has ended is not found
	require.Eventually(l.t, func() bool {
		status, err := l.lend(l.vars["OWNER"], "status")
		at := regexp.MustCompile(`http://\S+/metrics`).FindString(status)
		l.metrics = at
		return err == nil && at != ""
	}, patience, 50*time.Millisecond)
}

func (l *life) stop() {
	l.t.Helper()
	require.NoError(l.t, l.gateway.Process.Signal(os.Interrupt))
	require.NoError(l.t, l.gateway.Wait(), "%s", &l.log)
	l.written["stderr of serve"], l.written["stdout of serve"] = l.log.Bytes(), l.out.Bytes()
}

// hold starts an operation that runs until the function that is returned is called,
// and returns its attach token.
func (l *life) hold(f lease.File, note string) (end func() error, token []byte) {
	l.t.Helper()
	s := &served{world: l.world, t: l.t}
	r := s.dial(l.t, "CALLER", over(f, "/tcp/"))
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	st, err := r.host.NewStream(network.WithNoDial(ctx, "connected"), r.to, protocol.RunID)
	require.NoError(l.t, err)
	start := startOf(f, "held-operation-1", "fx", "sleep", "--note", note)
	_, err = st.Write(start)
	require.NoError(l.t, err)
	in := protocol.NewReader(st, protocol.Caller)
	frame, err := in.Read()
	require.NoError(l.t, err)
	accepted, ok := frame.(*protocol.Accepted)
	require.True(l.t, ok, "%#v", frame)
	require.Len(l.t, accepted.Token, protocol.TokenSize)
	return func() error { return st.Reset() }, accepted.Token
}

// look asks the gateway, while it runs something, in every way that there is, and
// looks at its processes.
func (l *life) look(argv, file string) {
	l.t.Helper()
	owner := l.vars["OWNER"]
	for _, command := range []string{
		"status", "status --json", "ops list", "ops list --json", "ops list --all", "ops list --all --json", "ops show held-operation-1",
		"ops show held-operation-1 --json", "policy check", "policy check --json", "connector list --json", "connector show fx --json",
		"connector secret list fx", "connector secret list fx --json", "connector setting list fx --json",
	} {
		l.run(command, owner, "", 0, strings.Fields(command)...)
	}
	l.written["metrics"] = fetch(l.t, http.DefaultTransport, l.metrics)
	socket := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(owner, "run", "admin.sock"))
	}}
	defer socket.CloseIdleConnections()
	for _, path := range []string{"/v1/status", "/v1/operations", "/v1/operations?all=true", "/v1/operations/held-operation-1"} {
		l.written["answer to "+path] = fetch(l.t, socket, "http://lend"+path)
	}
	l.processes()
	require.NotContains(l.t, string(l.written["metrics"]), "fx", "no Connector is named")
	for _, label := range []string{"peer", "holder", "connector", "command", "invocation"} {
		require.NotContains(l.t, string(l.written["metrics"]), label+"=")
	}
	l.run("cancel", owner, "", 0, "ops", "cancel", "held-operation-1", "--now")
	l.run("lease list", owner, "", 0, "lease", "list", "--json")
	l.run("lockdown", owner, "", 0, "lockdown")
	l.run("refused by lockdown", l.vars["CALLER"], "", 126, "run", "fx", "args", "--word", argv)
	l.run("unlock", owner, "", 0, "unlock")
	narrow := filepath.Join(l.dir, "narrow.yaml")
	text := strings.Replace(canaryPolicy, "commands: {args: {}, ", "commands: {", 1)
	require.NoError(l.t, os.WriteFile(narrow, []byte(os.Expand(text, func(v string) string { return l.vars[v] })), 0o600))
	l.run("policy diff", owner, "", 0, "policy", "diff", narrow)
	l.run("policy diff --json", owner, "", 0, "policy", "diff", "--json", narrow)
	l.run("policy who-can", owner, "", 0, "policy", "who-can", "fx/args", "--json")
	l.run("lease show", owner, "", 0, "lease", "show", file, "--json")
	l.run("lease revoke", owner, "", 0, "lease", "revoke", file)
	l.run("refused by revocation", l.vars["CALLER"], "", 126, "run", "fx", "args", "--word", argv)
}

func fetch(t *testing.T, transport http.RoundTripper, url string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	a, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer func() { _ = a.Body.Close() }()
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return append([]byte(fmt.Sprint(a.Header)), b...)
}

// processes reads the command lines and environments of the gateway and of what it
// started, but for the Connector.
func (l *life) processes() {
	l.t.Helper()
	pids := []int{l.gateway.Process.Pid}
	for i := 0; i < len(pids); i++ {
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		require.NoError(l.t, err)
		for _, file := range children {
			b, _ := os.ReadFile(file) // it may have ended
			for _, f := range strings.Fields(string(b)) {
				pid, err := strconv.Atoi(f)
				require.NoError(l.t, err)
				pids = append(pids, pid)
			}
		}
	}
	require.Greater(l.t, len(pids), 1, "the gateway has no children")
	for i, pid := range pids {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && !strings.HasPrefix(filepath.Base(exe), "lend") && i > 0 {
			continue // the Connector: its arguments and environment are its own
		}
		who := "the gateway"
		if i > 0 {
			who = "a supervisor"
		}
		for _, what := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
			if err == nil { // another process may not read what is protected, which is as good
				l.written[what+" of "+who] = append(l.written[what+" of "+who], b...)
			}
		}
	}
}

// files reads all that is left on disk.
func (l *life) files(dirs ...string) {
	l.t.Helper()
	for _, dir := range dirs {
		require.NoError(l.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(l.dir, path)
			if err != nil {
				return err
			}
			l.written["name of file "+rel] = []byte(rel)
			if strings.HasPrefix(rel, "owner/connectors/") && filepath.Base(rel) == "fx" {
				return nil // the program of the tests, megabytes
			}
			b, err := os.ReadFile(path)
			l.written["file "+rel] = b
			return err
		}))
	}
}
