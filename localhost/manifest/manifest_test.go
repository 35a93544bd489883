package manifest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/stretchr/testify/require"
)

// native is a small good manifest; edit changes one thing of it.
const native = `{
  "schemaVersion": "1", "key": "printer", "version": "1.2.3", "displayName": "Printer", "description": "Prints.\nThat is all.",
  "cli": {
    "command": "printer", "kind": "native", "entrypoint": "bin/printer", "arguments": ["--quiet"], "environment": ["PRINTER_MODE"],
    "timeout": "30s",
    "commands": {
      "print": {"summary": "Print text.", "effect": "read", "arguments": ["print"], "timeout": "5s",
        "parameters": {
          "text": {"position": 1, "required": true, "pattern": "[a-z]+", "description": "What to print."},
          "mode": {"env": "PRINTER_MODE", "enum": ["a", "b"]},
          "repo": {"flag": "--repo", "aliases": ["-R"], "pattern": "[a-z]+/[a-z]+"}
        }},
      "copy": {"arguments": ["copy"], "parameters": {"in": {"stdin": {"max_bytes": 4096}, "free_text": true}}}
    }
  },
  "secrets": [{"name": "token", "env": "PRINTER_TOKEN", "description": "From the printer's page."}],
  "settings": [{"name": "host", "env": "PRINTER_HOST", "default": "localhost"}],
  "login": {"arguments": ["login"]}
}`

const npmManifest = `{
  "schemaVersion": "1", "key": "json5", "version": "2.2.3", "displayName": "JSON5",
  "cli": {"command": "json5", "kind": "npm", "runtime": {"profile": "node", "range": ">=22.0.0 <23.0.0"},
    "package": {"name": "json5", "version": "2.2.3", "bin": "json5", "lock": "package-lock.json",
      "integrity": "sha512-XmOWe7eyHYH14cLdVPoyg+GOH3rYX++KpzrylJwSW98t3Nk+U8XOl8FWKOgwtzdb8lXGf6zYwDUzeHMWfxasyg=="}}
}`

func edit(t *testing.T, doc, from, to string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(doc, from), "the edit must hit once: %s", from)
	return strings.Replace(doc, from, to, 1)
}

func TestParse(t *testing.T) {
	t.Parallel()
	m, err := Parse([]byte(native))
	require.NoError(t, err)
	require.Equal(t, "printer", m.Key.String())
	require.Equal(t, "1.2.3", m.Version.String())
	require.Equal(t, KindNative, m.CLI.Kind)
	require.Equal(t, "bin/printer", m.CLI.Entrypoint)
	require.Equal(t, []string{"--quiet"}, m.CLI.Contract.Arguments)
	require.Equal(t, 30*time.Second, m.CLI.Contract.Timeout)
	require.Len(t, m.CLI.Contract.Commands, 2)
	require.Equal(t, "copy", m.CLI.Contract.Commands[0].Name.String(), "commands are sorted")
	require.Equal(t, []Secret{{"token", "PRINTER_TOKEN", "From the printer's page."}}, m.Secrets)
	require.Equal(t, []Setting{{Name: "host", Env: "PRINTER_HOST", Default: "localhost"}}, m.Settings)
	require.Equal(t, []string{"login"}, m.Login.Arguments)
	require.Nil(t, m.CLI.Runtime)

	again, err := Parse(m.Canonical())
	require.NoError(t, err)
	require.Equal(t, m, again, "the canonical form means the same")

	m, err = Parse([]byte(npmManifest))
	require.NoError(t, err)
	require.Equal(t, "json5", m.CLI.Package.Name)
	require.Equal(t, "node", m.CLI.Runtime.Profile)
	require.Empty(t, m.CLI.Contract.Commands, "the owner's policy declares them")

	m, err = Parse([]byte(edit(t, npmManifest, `"runtime": {"profile": "node", "range": ">=22.0.0 <23.0.0"},`, "")))
	require.NoError(t, err)
	require.Equal(t, &Runtime{Profile: "node"}, m.CLI.Runtime)
}

func TestParseNativePackage(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	doc := edit(t, npmManifest, `"bin": "json5"`, `"native": "bin/json5", "lifecycle": {"event": "postinstall", "entrypoint": "install.js", "arguments": ["--now"]}`)
	m, err := Parse([]byte(edit(t, doc, `"kind": "npm",`, `"kind": "npm", "sha256": "`+sum+`",`)))
	require.NoError(t, err)
	require.Equal(t, sum, m.CLI.SHA256)
	m, err = Parse([]byte(edit(t, doc, `"profile": "node"`, `"profile": "node", "abi": "node22-linux-x64"`)))
	require.NoError(t, err)
	require.Equal(t, "node22-linux-x64", m.CLI.Runtime.ABI)
	require.Equal(t, "bin/json5", m.CLI.Package.Native)
	require.Equal(t, &Lifecycle{"postinstall", "install.js", []string{"--now"}}, m.CLI.Package.Lifecycle)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct{ name, doc, from, to, want string }{
		{"schema-version", native, `"schemaVersion": "1"`, `"schemaVersion": "2"`, "schemaVersion"},
		{"schema-version-number", native, `"schemaVersion": "1"`, `"schemaVersion": 1`, "schemaVersion (byte 22): want a string, not a number"},
		{"unknown-field", native, `"secrets"`, `"iconURL": "x", "secrets"`, `did you mean "iconUrl"?`},
		{"unknown-cli-field", native, `"kind": "native",`, `"kind": "native", "path": "/bin/x",`, `cli (byte`},
		{"wrong-case", native, `"displayName"`, `"displayname"`, `did you mean "displayName"?`},
		{"duplicate", native, `"key": "printer",`, `"key": "printer", "key": "printer",`, "duplicate field"},
		{"null", native, `"login": {"arguments": ["login"]}`, `"login": null`, "null"},
		{"trailing", native, `"login": {"arguments": ["login"]}` + "\n}", `"login": {}} x`, "something follows"},
		{"key", native, `"key": "printer"`, `"key": "Printer"`, "key: invalid connector key"},
		{"key-device", native, `"key": "printer"`, `"key": "aux"`, "key: unsafe path"},
		{"version", native, `"version": "1.2.3"`, `"version": "../1"`, "version: invalid version"},
		{"version-dot", native, `"version": "1.2.3"`, `"version": "1."`, "version: unsafe path"},
		{"display-blank", native, `"displayName": "Printer"`, `"displayName": " "`, "displayName"},
		{"display-lines", native, `"displayName": "Printer"`, `"displayName": "a\nb"`, "displayName: want one line"},
		{"display-escape", native, `"displayName": "Printer"`, `"displayName": "a\u001b[31m"`, "U+001B"},
		{"display-bidi", native, `"displayName": "Printer"`, `"displayName": "a\u202eb"`, "U+202E"},
		{"display-long", native, `"displayName": "Printer"`, `"displayName": "` + long(257) + `"`, "longer than 256"},
		{"description-long", native, `Prints.\n`, long(16<<10 + 1), "description: longer"},
		{"kind", native, `"kind": "native"`, `"kind": "shell"`, "cli.kind"},
		{"no-entrypoint", native, `"entrypoint": "bin/printer",`, ``, "cli.entrypoint"},
		{"entrypoint-absolute", native, `"bin/printer"`, `"/bin/printer"`, "cli.entrypoint"},
		{"entrypoint-escape", native, `"bin/printer"`, `"bin/../../printer"`, "cli.entrypoint"},
		{"entrypoint-manifest", native, `"bin/printer"`, `"connector-manifest.json"`, "it is the manifest"},
		{"sha256", native, `"kind": "native",`, `"kind": "native", "sha256": "ABC",`, "cli.sha256"},
		{"native-runtime", native, `"kind": "native",`, `"kind": "native", "runtime": {"profile": "node"},`, "cli.runtime: not with kind"},
		{"script-no-runtime", native, `"kind": "native"`, `"kind": "script"`, "cli.runtime: it is missing"},
		{"command", native, `"command": "printer"`, `"command": "Printer"`, "cli.command"},
		{"argument-nul", native, `["--quiet"]`, `["a\u0000"]`, "cli.arguments[0]: it holds NUL"},
		{"argument-long", native, `["--quiet"]`, `["` + long(4097) + `"]`, "cli.arguments[0]: longer"},
		{"arguments-many", native, `["--quiet"]`, `[` + strings.TrimSuffix(strings.Repeat(`"a",`, 65), ",") + `]`, "cli.arguments: more than 64"},
		{"environment-host", native, `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "PATH"]`, "PATH is set by the host"},
		{"environment-loader", native, `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "LD_PRELOAD"]`, "LD_PRELOAD is set by the host"},
		{"environment-code", native, `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "NODE_OPTIONS"]`, "choose what code runs"},
		{"environment-case", native, `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "node_options"]`, "choose what code runs"},
		{"environment-shape", native, `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "A=B"]`, "name of an environment variable"},
		{"environment-twice", native, `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "PRINTER_MODE"]`, "is there twice"},
		{"timeout-zero", native, `"timeout": "30s"`, `"timeout": "0s"`, "cli.timeout"},
		{"timeout-long", native, `"timeout": "30s"`, `"timeout": "25h"`, "cli.timeout"},
		{"timeout-word", native, `"timeout": "30s"`, `"timeout": "unlimited"`, "cli.timeout"},
		{"command-name", native, `"copy": {`, `"Copy": {`, "cli.commands"},
		{"bare-string", native, `, "pattern": "[a-z]+", "description"`, `, "description"`, "cli.commands.print"},
		{"undeclared-variable", native, `{"env": "PRINTER_MODE"`, `{"env": "PRINTER_OTHER"`, "PRINTER_OTHER"},
		{"unknown-in-command", native, `"effect": "read",`, `"effect": "read", "shell": true,`, "shell"},
		{"secret-variable", native, `"env": "PRINTER_TOKEN"`, `"env": "HOME"`, "HOME is set by the host"},
		{"secret-of-caller", native, `"env": "PRINTER_TOKEN"`, `"env": "PRINTER_MODE"`, "secrets[0].env: declared twice"},
		{"setting-twice", native, `{"name": "host", "env": "PRINTER_HOST"`, `{"name": "token", "env": "PRINTER_HOST"`, "settings[0].name: declared twice"},
		{"secret-name", native, `{"name": "token"`, `{"name": "To ken"`, "secrets[0].name"},
		{"login-nul", native, `["login"]`, `["\u0000"]`, "login.arguments[0]"},
		{"npm-entrypoint", npmManifest, `"kind": "npm",`, `"kind": "npm", "entrypoint": "x",`, "cli.entrypoint: not with kind"},
		{"npm-no-package", npmManifest, `"package"`, `"packages"`, "unknown field"},
		{"npm-runtime", npmManifest, `"profile": "node"`, `"profile": "python3"`, `runs on "node"`},
		{"npm-range", npmManifest, `>=22.0.0 <23.0.0`, `^22.0.0`, "cli.runtime.range"},
		{"npm-abi", npmManifest, `"profile": "node"`, `"profile": "node", "abi": "node22"`, "cli.runtime.abi"},
		{"npm-name", npmManifest, `"name": "json5"`, `"name": "../json5"`, "cli.package"},
		{"npm-version-range", npmManifest, `"version": "2.2.3", "bin"`, `"version": "^2.2.3", "bin"`, "one exact version"},
		{"npm-version-tag", npmManifest, `"version": "2.2.3", "bin"`, `"version": "latest", "bin"`, "one exact version"},
		{"npm-version-build", npmManifest, `"version": "2.2.3", "bin"`, `"version": "2.2.3+x", "bin"`, "one exact version"},
		{"npm-sha1", npmManifest, `sha512-XmOWe7ey`, `sha1-XmOWe7ey`, "cli.package.integrity"},
		{"npm-integrity-short", npmManifest, `sha512-XmOWe7ey`, `sha512-`, "cli.package.integrity"},
		{"npm-no-lock", npmManifest, `"lock": "package-lock.json",`, ``, "cli.package.lock"},
		{"npm-lock-escape", npmManifest, `"package-lock.json"`, `"../package-lock.json"`, "cli.package.lock"},
		{"npm-bin", npmManifest, `"bin": "json5"`, `"bin": "../json5"`, "cli.package.bin"},
		{"npm-native-and-bin", npmManifest, `"bin": "json5"`, `"bin": "json5", "native": "bin/x"`, "cli.package.native: not with a bin"},
		{"npm-native-escape", npmManifest, `"bin": "json5"`, `"native": "../x"`, "cli.package.native"},
		{"npm-sha256", npmManifest, `"kind": "npm",`, `"kind": "npm", "sha256": "` + strings.Repeat("ab", 32) + `",`, "cli.sha256: with kind"},
		{"npm-sha256-shape", npmManifest, `"kind": "npm",`, `"kind": "npm", "sha256": "ABC",`, "cli.sha256: want 64"},
		{"lifecycle-event", npmManifest, `"bin": "json5"`, `"lifecycle": {"event": "preinstall", "entrypoint": "x.js"}`, "cli.package.lifecycle.event"},
		{"lifecycle-path", npmManifest, `"bin": "json5"`, `"lifecycle": {"event": "postinstall", "entrypoint": "/x.js"}`, "cli.package.lifecycle.entrypoint"},
		{"lifecycle-nothing", npmManifest, `"bin": "json5"`, `"lifecycle": {"event": "postinstall"}`, "cli.package.lifecycle.entrypoint"},
		{"lifecycle-nul", npmManifest, `"bin": "json5"`, `"lifecycle": {"event": "postinstall", "entrypoint": "x.js", "arguments": ["\u0000"]}`, "cli.package.lifecycle.arguments[0]"},
		{"lifecycle-unknown", npmManifest, `"bin": "json5"`, `"lifecycle": {"event": "postinstall", "entrypoint": "x.js", "shell": true}`, "unknown field"},
		{"no-cli", npmManifest, `"cli"`, `"clj"`, "unknown field"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := Parse([]byte(edit(t, c.doc, c.from, c.to)))
			require.ErrorContains(t, err, c.want)
			require.Zero(t, m)
		})
	}
}

func TestParseReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`{"schemaVersion":"3","key":"K","version":"","displayName":""}`))
	for _, want := range []string{"schemaVersion", "key", "version", "displayName", "cli: it is missing"} {
		require.ErrorContains(t, err, want)
	}
}

func TestParseBounds(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(native + strings.Repeat(" ", MaxBytes)))
	require.ErrorContains(t, err, "more than 1048576 bytes")
	var many strings.Builder
	for i := range maxCommands + 1 {
		if i > 0 {
			many.WriteString(",")
		}
		b, err := json.Marshal("c" + strings.Repeat("a", i%100) + strings.Repeat("b", i/100))
		require.NoError(t, err)
		many.WriteString(string(b) + `:{"arguments":["x"]}`)
	}
	_, err = Parse([]byte(edit(t, npmManifest, `"kind": "npm"`, `"kind": "npm", "commands": {`+many.String()+`}`)))
	require.ErrorContains(t, err, "cli.commands: more than 256")
}

func TestRange(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", " ", "22", "^22.0.0", "=22.0.0", ">=22.0", ">=22.0.0  <23.0.0", ">=22.0.0-rc.1", ">=v22.0.0", ">=22.0.0 ||", "==1.0.0", "><1.0.0", strings.Repeat(">=1.0.0 ", 8) + ">=1.0.0"} {
		_, err := ParseRange(bad)
		require.Error(t, err, bad)
	}
	r, err := ParseRange(">=22.0.0 <23.0.0")
	require.NoError(t, err)
	for v, want := range map[string]bool{
		"22.0.0": true, "22.23.5": true, "23.0.0": false, "21.9.9": false, "22.1.0-rc.1": false, "x": false, "22.1": false, "v22.1.0": false,
	} {
		require.Equal(t, want, r.Accepts(v), v)
	}
	r, err = ParseRange(">1.0.0 <=2.0.0")
	require.NoError(t, err)
	require.False(t, r.Accepts("1.0.0"))
	require.True(t, r.Accepts("2.0.0"))
	require.True(t, Range{}.Accepts("1.0.0-rc.1"))
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "a/b.txt", ".hidden", "a..b/c", "com10", "console", "nulls/x", "bin/café", "a b/c", "@scope/name"} {
		require.NoError(t, CheckPath(good), good)
	}
	for _, bad := range []string{
		"", ".", "..", "/a", "a/", "a//b", "./a", "a/./b", "a/../b", "../a", "a/..", `a\b`, "a:b", "a\x00b", "a\nb", "a\u0085b", "a\u202eb",
		"a\u200db", "\xff", "a.", "a /b", "a./b", "con", "CON", "con.txt", "a/nul", "Aux.js", "COM1", "lpt9.log", "com¹", "conin$", "con .txt",
		strings.Repeat("a", 256), strings.Repeat("a/", 32) + "a", strings.Repeat(strings.Repeat("a", 200)+"/", 5) + strings.Repeat("a", 100),
	} {
		require.Error(t, CheckPath(bad), "%q", bad)
	}
}

// vector is what the contract of one manifest in testdata hashes to, and the bytes
// that are hashed, so that another language can check itself.
type vector struct {
	Canonical string `json:"canonical"`
	Hash      string `json:"hash"`
}

func TestContractHashVectors(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "contract-hashes.json"))
	require.NoError(t, err)
	var want map[string]vector
	require.NoError(t, json.Unmarshal(b, &want))
	require.GreaterOrEqual(t, len(want), 3)
	got := map[string]vector{}
	files, err := filepath.Glob(filepath.Join("testdata", "*.manifest.json"))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		m, err := Parse(b)
		require.NoError(t, err, f)
		canonical, err := argv.CanonicalJSON(m.CLI.Contract.Semantics())
		require.NoError(t, err)
		hash, err := ManagedCLIContractHash(m.CLI.Contract)
		require.NoError(t, err)
		got[strings.TrimSuffix(filepath.Base(f), ".manifest.json")] = vector{string(canonical), hash}
	}
	require.Equal(t, want, got)
}

func hashOf(t *testing.T, doc string) string {
	t.Helper()
	m, err := Parse([]byte(doc))
	require.NoError(t, err)
	h, err := ManagedCLIContractHash(m.CLI.Contract)
	require.NoError(t, err)
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, h)
	return h
}

func TestContractHashCoversMeaningOnly(t *testing.T) {
	t.Parallel()
	base := hashOf(t, native)
	copyCommand := `"copy": {"arguments": ["copy"], "parameters": {"in": {"stdin": {"max_bytes": 4096}, "free_text": true}}}`
	for _, c := range []struct {
		name, from, to string
		same           bool
	}{
		{"summary", "Print text.", "Print some text.", true},
		{"parameter-description", "What to print.", "The text.", true},
		{"display-name", `"Printer"`, `"The Printer"`, true},
		{"entrypoint", "bin/printer", "libexec/printer-2", true},
		{"version", "1.2.3", "1.2.4", true},
		{"secrets", "PRINTER_TOKEN", "PRINTER_KEY", true},
		{"login", `["login"]`, `["auth", "login"]`, true},
		{"parameter-order", `"mode": {"env": "PRINTER_MODE", "enum": ["a", "b"]},
          "repo": {"flag": "--repo", "aliases": ["-R"], "pattern": "[a-z]+/[a-z]+"}`, `"repo": {"flag": "--repo", "aliases": ["-R"], "pattern": "[a-z]+/[a-z]+"},
          "mode": {"env": "PRINTER_MODE", "enum": ["a", "b"]}`, true},
		{"command-order", `"print": {"summary"`, copyCommand + `, "print": {"summary"`, true},

		{"public-command", `"command": "printer"`, `"command": "print"`, false},
		{"cli-arguments", `["--quiet"]`, `["--loud"]`, false},
		{"cli-timeout", `"30s"`, `"31s"`, false},
		{"command-arguments", `["print"]`, `["print", "x"]`, false},
		{"command-name", `"copy": {`, `"copy2": {`, false},
		{"command-timeout", `"5s"`, `"6s"`, false},
		{"effect", `"effect": "read",`, ``, false},
		{"place", `{"env": "PRINTER_MODE", "enum"`, `{"flag": "--mode", "enum"`, false},
		{"flag", `"--repo"`, `"--repository"`, false},
		{"alias", `["-R"]`, `["-r"]`, false},
		{"pattern", `[a-z]+/[a-z]+`, `[a-z]+/[a-z0-9]+`, false},
		{"enum", `["a", "b"]`, `["a", "b", "c"]`, false},
		{"required", `"position": 1, "required": true,`, `"position": 1,`, false},
		{"stdin-bytes", `4096`, `4097`, false},
		{"environment", `"environment": ["PRINTER_MODE"]`, `"environment": ["PRINTER_MODE", "PRINTER_X"]`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc := native
			if c.name == "command-order" {
				doc = edit(t, doc, ",\n      "+copyCommand, "")
			}
			got := hashOf(t, edit(t, doc, c.from, c.to))
			if c.same {
				require.Equal(t, base, got)
			} else {
				require.NotEqual(t, base, got)
			}
		})
	}
}

func TestReleaseDigest(t *testing.T) {
	t.Parallel()
	m, err := Parse([]byte(native))
	require.NoError(t, err)
	tree := strings.Repeat("ab", 32)
	base, err := ReleaseDigest(m, tree)
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{64}$`, base)

	spaced, err := Parse([]byte(edit(t, native, `"key": "printer",`, `"key":      "printer",`)))
	require.NoError(t, err)
	same, err := ReleaseDigest(spaced, tree)
	require.NoError(t, err)
	require.Equal(t, base, same, "white space means nothing")

	other, err := Parse([]byte(edit(t, native, "Print text.", "Print it.")))
	require.NoError(t, err)
	changed, err := ReleaseDigest(other, tree)
	require.NoError(t, err)
	require.NotEqual(t, base, changed, "every word of the manifest is covered")
	changed, err = ReleaseDigest(m, strings.Repeat("ac", 32))
	require.NoError(t, err)
	require.NotEqual(t, base, changed)

	_, err = ReleaseDigest(m, "ab")
	require.Error(t, err)
	_, err = ReleaseDigest(Manifest{}, tree)
	require.Error(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(native))
	f.Add([]byte(npmManifest))
	for _, doc := range []string{whole, mcpLocal, mcpRemote, builtin} {
		f.Add([]byte(doc))
	}
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := Parse(in)
		if err != nil {
			require.Zero(t, m)
			return
		}
		again, err := Parse(m.Canonical())
		require.NoError(t, err)
		require.Equal(t, m, again)
		_, err = ManagedCLIContractHash(m.CLI.Contract)
		require.NoError(t, err)
	})
}

func FuzzCheckPath(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "a\\b", "con", "café"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckPath(p) != nil {
			return
		}
		require.True(t, filepath.IsLocal(filepath.FromSlash(p)), "%q", p)
		require.Equal(t, p, filepath.ToSlash(filepath.Clean(filepath.FromSlash(p))))
		require.NotContains(t, p, "\x00")
	})
}

// The manifest in the documentation is a good one.
func TestDocumentedManifest(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "localhost.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "```json\n")
	require.True(t, ok)
	doc, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	m, err := Parse([]byte(doc))
	require.NoError(t, err)
	require.Len(t, m.CLI.Contract.Commands, 1)
}
