package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

const commands = "args cat die endless errprint exit lines print sum unread"

// policyText lends what main.js runs.
const policyText = `policy: 1
issuers:
  owner: {id: ${OWNER}, connectors: [fx], max_life: 1h}
peers:
  caller: ${CALLER}
  other: ${OTHER}
limits: {starts_per_minute: 60000, denials: 10000}
commands:
  fx:
    args: {effect: read, arguments: [args], parameters: {word: {flag: --word, pattern: "[a-z]+"}, name: {position: 1, pattern: "[a-z]+"}}}
    cat: {effect: read, arguments: [cat], parameters: {bytes: {stdin: {max_bytes: 1073741824}}}}
    die: {effect: read, arguments: [signal], parameters: {number: {position: 1, type: integer, minimum: 1, maximum: 15, required: true}}}
    endless: {effect: read, arguments: ["yes"]}
    errprint: {effect: read, arguments: [errprint], parameters: {bytes: {position: 1, type: integer, minimum: 0, maximum: 1073741824, required: true}}}
    exit: {effect: read, arguments: [exit], parameters: {status: {position: 1, type: integer, minimum: 0, maximum: 255, required: true}}}
    hidden: {effect: read, arguments: [read, /etc/passwd]}
    lines: {effect: read, arguments: [lines], parameters: {text: {stdin: {max_bytes: 1048576, text: true}}}}
    print: {effect: read, arguments: [print], parameters: {bytes: {position: 1, type: integer, minimum: 0, maximum: 1073741824, required: true}}}
    sum: {effect: read, arguments: [sum], parameters: {bytes: {stdin: {max_bytes: 1073741824}}}}
    unread: {effect: read, arguments: [exit, "3"], parameters: {bytes: {stdin: {max_bytes: 1073741824}}}}
allow:
  - name: the caller
    to: [caller]
    connector: fx
    version: "1.0.0"
    commands:
      {args: {}, cat: {}, die: {}, endless: {}, errprint: {}, exit: {}, hidden: {}, lines: {}, print: {}, sum: {}, unread: {}}
`

// A client in another language that knows the documents alone is understood, gets every
// byte once over links that are cut, and reports no success without the gateway's Exit.
func TestJavaScript(t *testing.T) {
	rig.Need(t, "node", "npm")
	version, err := exec.Command("node", "--version").Output()
	require.NoError(t, err)
	major, err := strconv.Atoi(strings.SplitN(strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), ".", 2)[0])
	require.NoError(t, err)
	require.GreaterOrEqual(t, major, 20, "js-libp2p needs Node 20")
	dir := install(t)

	w := rig.New(t, "", "60s")
	other, stranger := filepath.Join(dir, "other"), filepath.Join(dir, "stranger")
	w.Lend(other, "init")
	w.Lend(stranger, "init")
	text := os.Expand(policyText, func(v string) string {
		return map[string]string{"OWNER": w.Lend(w.Owner, "id", "--owner"), "CALLER": w.Lend(w.Caller, "id"), "OTHER": w.Lend(other, "id")}[v]
	})
	require.NoError(t, os.WriteFile(filepath.Join(w.Owner, "policy.yaml"), []byte(text), 0o600))
	w.Serve("--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1")
	lease := filepath.Join(dir, "caller.lease")
	w.Lend(w.Owner, append([]string{
		"lease", "issue", "--to", "caller", "--local-addresses", "--life", "1h", "--operations", "100000", "--at-once", "64", "--out", lease, "fx",
	}, strings.Fields(commands)...)...)

	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	names := strings.Fields(commands)
	sort.Strings(names)
	transports := []string{"tcp"}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		transports = append(transports, "quic") // the only native part whose hash is in the lock file
	}
	config, err := json.Marshal(map[string]any{
		"caller": filepath.Join(w.Caller, "identity.pem"), "other": filepath.Join(other, "identity.pem"), "lease": lease,
		"stranger": filepath.Join(stranger, "identity.pem"),
		"starts":   w.Counter, "transports": transports, "commands": names,
	})
	require.NoError(t, err)
	file := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	out := run(t, dir, "node", "main.js", root, file)
	t.Log(out)
	require.True(t, strings.HasSuffix(out, "\nall holds\n"), out)
	w.Verify()
}

// install copies the client to a directory of the test and gets its packages.
func install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob("*.js*")
	require.NoError(t, err)
	require.Contains(t, files, "package-lock.json")
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), b, 0o600))
	}
	run(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
	return dir
}

// run runs a program to its end and returns its standard output.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*rig.Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &stdout, &stderr, rig.Patience
	err := cmd.Run()
	require.NoError(t, err, "%s\n%s", &stdout, &stderr)
	return stdout.String()
}

// The versions are pinned, with what they must hash to, and no host is named: the
// registry is that of whoever runs the test.
func TestLockFile(t *testing.T) {
	b, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	var lock struct {
		Packages map[string]struct{ Version, Integrity, Resolved string }
	}
	require.NoError(t, json.Unmarshal(b, &lock))
	require.NotEmpty(t, lock.Packages)
	for path, p := range lock.Packages {
		if path == "" {
			continue
		}
		require.NotEmpty(t, p.Version, path)
		native := strings.HasPrefix(path, "node_modules/@chainsafe/libp2p-quic-") && !strings.HasSuffix(path, "-linux-x64-gnu")
		require.True(t, native || strings.HasPrefix(p.Integrity, "sha512-"), path) // native ones of other systems are not loaded
		require.Empty(t, p.Resolved, path)
	}
	require.NotContains(t, string(b), "http")
	b, err = os.ReadFile("package.json")
	require.NoError(t, err)
	var manifest struct{ Dependencies map[string]string }
	require.NoError(t, json.Unmarshal(b, &manifest))
	for name, version := range manifest.Dependencies {
		require.Regexp(t, `^\d+\.\d+\.\d+$`, version, name)
		require.Equal(t, version, lock.Packages["node_modules/"+name].Version, name)
	}
}
