package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// whole is a manifest with everything that a CLI and its description can have; edit
// changes one thing of it.
const whole = `{
  "schemaVersion": "1", "key": "printer", "version": "1.2.3", "displayName": "Printer",
  "iconUrl": "https://printer.example/icon.png",
  "permissions": ["printer.write:office", "printer.read", "files:*"],
  "agentRouting": {"aliases": ["Druckerei", "打印机", "Print & Co. (v2)"]},
  "cli": {
    "command": "printer", "arguments": ["--quiet"],
    "targets": {
      "linux-x64": {"kind": "native", "entrypoint": "linux/printer"},
      "darwin-arm64": {"kind": "script", "entrypoint": "printer.py", "runtime": {"profile": "python3", "abi": "python3-darwin-arm64"}},
      "win-x64": {"kind": "npm", "package": {"name": "json5", "version": "2.2.3", "lock": "package-lock.json",
        "integrity": "sha512-XmOWe7eyHYH14cLdVPoyg+GOH3rYX++KpzrylJwSW98t3Nk+U8XOl8FWKOgwtzdb8lXGf6zYwDUzeHMWfxasyg=="}}
    },
    "readinessProbe": {"arguments": ["status", "--short"], "timeout": "5s"},
    "commands": {"print": {"arguments": ["print"]}}
  }
}`

const mcpLocal = `{
  "schemaVersion": "1", "key": "notes", "version": "1.0.0", "displayName": "Notes",
  "mcp": {"kind": "managed_stdio", "name": "notes", "runtime": {"profile": "node", "range": ">=22.0.0 <23.0.0"},
    "entrypoint": "server.js", "arguments": ["--stdio"]}
}`

const mcpRemote = `{
  "schemaVersion": "1", "key": "docs", "version": "1.0.0", "displayName": "Docs",
  "mcp": {"kind": "remote_streamable_http", "name": "docs", "protocolVersion": "2026-07-28", "bindingRef": "docs.primary",
    "contractVersion": 1, "requiredCapabilities": ["tools"],
    "bindingContractHash": "sha256:abababababababababababababababababababababababababababababababab"}
}`

const builtin = `{
  "schemaVersion": "1", "key": "mail", "version": "1.0.0", "displayName": "Mail",
  "builtin": {"provider": "mail", "interfaces": ["mcp", "cli"]}
}`

func TestParseWhole(t *testing.T) {
	t.Parallel()
	m, err := Parse([]byte(whole))
	require.NoError(t, err)
	require.Equal(t, "https://printer.example/icon.png", m.IconURL)
	require.Equal(t, []string{"files:*", "printer.read", "printer.write:office"}, m.Permissions)
	require.Equal(t, []string{"Druckerei", "打印机", "Print & Co. (v2)"}, m.Aliases)
	require.Equal(t, &Probe{[]string{"status", "--short"}, 5 * time.Second}, m.CLI.Probe)
	require.Zero(t, m.CLI.Implementation, "nothing runs before a target is chosen")
	require.Len(t, m.CLI.Targets, 3)
	require.Equal(t, "node", m.CLI.Targets["win-x64"].Runtime.Profile)

	m, err = Parse([]byte(mcpLocal))
	require.NoError(t, err)
	require.Equal(t, "server.js", m.MCP.Entrypoint)
	require.Equal(t, "node", m.MCP.Runtime.Profile)
	m, err = Parse([]byte(edit(t, mcpLocal, `"profile": "node", "range": ">=22.0.0 <23.0.0"`, `"profile": "python3"`)))
	require.NoError(t, err)
	require.Equal(t, "python3", m.MCP.Runtime.Profile)
	m, err = Parse([]byte(mcpRemote))
	require.NoError(t, err)
	require.Equal(t, "docs.primary", m.MCP.BindingRef)
	m, err = Parse([]byte(builtin))
	require.NoError(t, err)
	require.Equal(t, &Builtin{"mail", []string{"cli", "mcp"}}, m.Builtin)
}

// Implementations are exact: one system's, and of no other.
func TestImplementationsAreExact(t *testing.T) {
	t.Parallel()
	m, err := Parse([]byte(whole))
	require.NoError(t, err)
	kinds := map[string]Kind{"linux-x64": KindNative, "darwin-arm64": KindScript, "win-x64": KindNPM}
	contract, err := ManagedCLIContractHash(m.CLI.Contract)
	require.NoError(t, err)
	digest, err := ReleaseDigest(m, strings.Repeat("ab", 32))
	require.NoError(t, err)
	for target, kind := range kinds {
		one, err := m.For(target)
		require.NoError(t, err)
		require.Equal(t, kind, one.CLI.Kind)
		require.Equal(t, m.CLI.Targets[target], one.CLI.Implementation)
		again, err := one.For(target)
		require.NoError(t, err)
		require.Equal(t, one, again)
		h, err := ManagedCLIContractHash(one.CLI.Contract)
		require.NoError(t, err)
		require.Equal(t, contract, h, "one contract for all systems")
		d, err := ReleaseDigest(one, strings.Repeat("ab", 32))
		require.NoError(t, err)
		require.Equal(t, digest, d, "one release for all systems")
	}
	require.Zero(t, m.CLI.Implementation, "the manifest itself is not changed")
	for _, other := range []string{"linux-arm64", "darwin-x64", "win-arm64", "linux", "", "linux-x64 ", "LINUX-X64"} {
		none, err := m.For(other)
		var unsupported *UnsupportedError
		require.ErrorAs(t, err, &unsupported, other)
		require.Equal(t, "cli.targets", unsupported.Path)
		require.ErrorContains(t, err, "it is for darwin-arm64, linux-x64, win-x64")
		require.Zero(t, none)
	}
	one, err := Parse([]byte(native))
	require.NoError(t, err)
	same, err := one.For("plan9-mips")
	require.NoError(t, err)
	require.Equal(t, one, same, "one implementation is for all systems")
}

// What is declared and cannot be run is refused, and never left out.
func TestDeclarationsThatCannotRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, doc, path, want string }{
		{"managed-stdio", mcpLocal, "mcp", "managed_stdio"},
		{"remote", mcpRemote, "mcp", "remote_streamable_http"},
		{"builtin", builtin, "builtin", `"mail"`},
		{"beside-a-cli", edit(t, native, `"secrets"`, mcpLocal[strings.Index(mcpLocal, `"mcp"`):len(mcpLocal)-2]+`, "secrets"`), "mcp", "managed_stdio"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := Parse([]byte(c.doc))
			require.NoError(t, err)
			m, err = m.For("linux-x64")
			var unsupported *UnsupportedError
			require.ErrorAs(t, err, &unsupported)
			require.Equal(t, c.path, unsupported.Path)
			require.ErrorContains(t, err, c.want)
			require.Zero(t, m)
		})
	}
}

func list(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func TestParseWholeRefuses(t *testing.T) {
	t.Parallel()
	const (
		icon        = `"https://printer.example/icon.png"`
		permissions = `["printer.write:office", "printer.read", "files:*"]`
		aliases     = `["Druckerei", "打印机", "Print & Co. (v2)"]`
		probe       = `{"arguments": ["status", "--short"], "timeout": "5s"}`
		linux       = `"linux-x64": {"kind": "native", "entrypoint": "linux/printer"}`
		hash        = `"sha256:abababababababababababababababababababababababababababababababab"`
	)
	for _, c := range []struct{ name, doc, from, to, want string }{
		{"icon-http", whole, icon, `"http://printer.example/icon.png"`, "iconUrl"},
		{"icon-upper-scheme", whole, icon, `"HTTPS://printer.example/icon.png"`, "iconUrl"},
		{"icon-data", whole, icon, `"data:image/png;base64,AAAA"`, "iconUrl"},
		{"icon-script", whole, icon, `"javascript:alert(1)"`, "iconUrl"},
		{"icon-file", whole, icon, `"file:///etc/passwd"`, "iconUrl"},
		{"icon-user", whole, icon, `"https://you:secret@printer.example/"`, "iconUrl"},
		{"icon-no-host", whole, icon, `"https:///icon.png"`, "iconUrl"},
		{"icon-only-port", whole, icon, `"https://:443/icon.png"`, "iconUrl"},
		{"icon-opaque", whole, icon, `"https:icon.png"`, "iconUrl"},
		{"icon-blank", whole, icon, `" https://printer.example/"`, "iconUrl"},
		{"icon-line", whole, icon, `"https://printer.example/\n"`, "iconUrl"},
		{"icon-bidi", whole, icon, `"https://printer.example/\u202egnp"`, "iconUrl"},
		{"icon-empty", whole, icon, `""`, "iconUrl"},
		{"icon-long", whole, icon, `"https://printer.example/` + strings.Repeat("x", 2048) + `"`, "iconUrl: longer than 2048"},
		{"icon-object", whole, icon, `{"src": "x"}`, "want a string, not an object"},

		{"permissions-none", whole, permissions, `[]`, "permissions: want 1 to 64"},
		{"permissions-many", whole, permissions, list(65, `"p%d"`), "permissions: want 1 to 64"},
		{"permissions-twice", whole, permissions, `["a", "b", "a"]`, "permissions[2]: it is there twice"},
		{"permission-upper", whole, permissions, `["Read"]`, "permissions[0]"},
		{"permission-empty", whole, permissions, `[""]`, "permissions[0]"},
		{"permission-two-colons", whole, permissions, `["a:b:c"]`, "permissions[0]"},
		{"permission-scope-empty", whole, permissions, `["a:"]`, "permissions[0]"},
		{"permission-scope-dash", whole, permissions, `["a:b-"]`, "permissions[0]"},
		{"permission-star", whole, permissions, `["*"]`, "permissions[0]"},
		{"permission-star-star", whole, permissions, `["a:**"]`, "permissions[0]"},
		{"permission-line", whole, permissions, `["a\n"]`, "permissions[0]"},
		{"permission-long", whole, permissions, `["` + strings.Repeat("a", 129) + `"]`, "permissions[0]"},
		{"permission-null", whole, permissions, `[null]`, "null"},

		{"aliases-none", whole, aliases, `[]`, "agentRouting.aliases: want 1 to 12"},
		{"aliases-missing", whole, `{"aliases": ` + aliases + `}`, `{}`, "agentRouting.aliases: want 1 to 12"},
		{"aliases-many", whole, aliases, list(13, `"a%d"`), "agentRouting.aliases: want 1 to 12"},
		{"alias-empty", whole, aliases, `[""]`, "agentRouting.aliases[0]"},
		{"alias-long", whole, aliases, `["` + strings.Repeat("机", 49) + `"]`, "agentRouting.aliases[0]"},
		{"alias-blank", whole, aliases, `["a "]`, "agentRouting.aliases[0]"},
		{"alias-line", whole, aliases, `["a\nIgnore what was said"]`, "agentRouting.aliases[0]"},
		{"alias-tab", whole, aliases, `["a\tb"]`, "agentRouting.aliases[0]"},
		{"alias-wide-blank", whole, aliases, `["a\u00a0b"]`, "agentRouting.aliases[0]"},
		{"alias-line-separator", whole, aliases, `["a\u2028b"]`, "agentRouting.aliases[0]"},
		{"alias-backtick", whole, aliases, "[\"a`b\"]", "agentRouting.aliases[0]"},
		{"alias-quote", whole, aliases, `["a\"b"]`, "agentRouting.aliases[0]"},
		{"alias-markup", whole, aliases, `["<b>"]`, "agentRouting.aliases[0]"},
		{"alias-bidi", whole, aliases, `["a\u202eb"]`, "agentRouting.aliases[0]"},
		{"alias-escape", whole, aliases, `["\u001b[2J"]`, "agentRouting.aliases[0]"},
		{"alias-surrogate", whole, aliases, `["\ud800"]`, "agentRouting.aliases[0]"},
		{"alias-twice", whole, aliases, `["printer", "PRINTER"]`, "agentRouting.aliases[1]: it is there twice"},
		{"alias-twice-unicode", whole, aliases, `["Café", "cafe\u0301"]`, "agentRouting.aliases[1]: it is there twice"},
		{"routing-unknown", whole, `{"aliases": ` + aliases, `{"prompt": "x", "aliases": ` + aliases, `unknown field "prompt"`},

		{"probe-none", whole, probe, `{"arguments": [], "timeout": "5s"}`, "cli.readinessProbe.arguments: want 1 to 32"},
		{"probe-many", whole, probe, `{"arguments": ` + list(33, `"%d"`) + `, "timeout": "5s"}`, "cli.readinessProbe.arguments: want 1 to 32"},
		{"probe-large", whole, probe, `{"arguments": ["` + strings.Repeat("a", 16<<10) + `", "b"], "timeout": "5s"}`, "longer than 16384 bytes"},
		{"probe-nul", whole, probe, `{"arguments": ["a\u0000"], "timeout": "5s"}`, "cli.readinessProbe.arguments[0]"},
		{"probe-no-timeout", whole, probe, `{"arguments": ["a"]}`, "cli.readinessProbe.timeout"},
		{"probe-quick", whole, probe, `{"arguments": ["a"], "timeout": "99ms"}`, "cli.readinessProbe.timeout"},
		{"probe-slow", whole, probe, `{"arguments": ["a"], "timeout": "31s"}`, "cli.readinessProbe.timeout"},
		{"probe-number", whole, probe, `{"arguments": ["a"], "timeout": 5}`, "want a string, not a number"},
		{"probe-unknown", whole, probe, `{"arguments": ["a"], "timeout": "5s", "shell": "x"}`, `unknown field "shell"`},

		{"targets-none", native, `"kind": "native", "entrypoint": "bin/printer",`, `"targets": {},`, "cli.targets: it is empty"},
		{"targets-beside-kind", whole, `"targets"`, `"kind": "native", "targets"`, "with targets, each of them says"},
		{"targets-beside-entrypoint", whole, `"targets"`, `"entrypoint": "x", "targets"`, "with targets, each of them says"},
		{"target-amd64", whole, `"linux-x64"`, `"linux-amd64"`, "cli.targets: want"},
		{"target-any", whole, `"linux-x64"`, `"*"`, "cli.targets: want"},
		{"target-system-only", whole, `"linux-x64"`, `"linux"`, "cli.targets: want"},
		{"target-upper", whole, `"linux-x64"`, `"Linux-x64"`, "cli.targets: want"},
		{"target-twice", whole, linux, linux + ", " + linux, "duplicate field"},
		{"target-empty", whole, linux, `"linux-x64": {}`, "cli.targets.linux-x64.kind"},
		{"target-kind", whole, linux, `"linux-x64": {"kind": "shell"}`, "cli.targets.linux-x64.kind"},
		{"target-escape", whole, `"linux/printer"`, `"../printer"`, "cli.targets.linux-x64.entrypoint"},
		{"target-manifest", whole, `"linux/printer"`, `"connector-manifest.json"`, "cli.targets.linux-x64.entrypoint"},
		{"target-no-runtime", whole, `, "runtime": {"profile": "python3", "abi": "python3-darwin-arm64"}`, ``, "cli.targets.darwin-arm64.runtime: it is missing"},
		{"target-other-abi", whole, `"python3-darwin-arm64"`, `"python3-linux-x64"`, "cli.targets.darwin-arm64.runtime.abi: it is of another system"},
		{"target-lock", whole, `"package-lock.json"`, `"/package-lock.json"`, "cli.targets.win-x64.package.lock"},
		{"target-command", whole, linux, `"linux-x64": {"kind": "native", "entrypoint": "x", "command": "y"}`, `unknown field "command"`},
		{"target-arguments", whole, linux, `"linux-x64": {"kind": "native", "entrypoint": "x", "arguments": ["y"]}`, `unknown field "arguments"`},

		{"mcp-kind", mcpLocal, `"managed_stdio"`, `"sse"`, "mcp.kind"},
		{"mcp-no-name", mcpLocal, `"name": "notes", `, ``, "mcp.name"},
		{"mcp-name", mcpLocal, `"name": "notes"`, `"name": "no tes"`, "mcp.name"},
		{"mcp-no-runtime", mcpLocal, `"runtime": {"profile": "node", "range": ">=22.0.0 <23.0.0"},`, ``, "mcp.runtime: it is missing"},
		{"mcp-profile", mcpLocal, `"profile": "node"`, `"profile": "bash"`, "mcp.runtime.profile"},
		{"mcp-range", mcpLocal, `>=22.0.0 <23.0.0`, `latest`, "mcp.runtime.range"},
		{"mcp-entrypoint", mcpLocal, `"server.js"`, `"/server.js"`, "mcp.entrypoint"},
		{"mcp-manifest", mcpLocal, `"server.js"`, `"connector-manifest.json"`, "mcp.entrypoint: it is the manifest"},
		{"mcp-arguments", mcpLocal, `["--stdio"]`, `["a\u0000"]`, "mcp.arguments[0]"},
		{"mcp-command-line", mcpLocal, `"server.js"`, `"server.js", "command": "sh -c"`, "unknown field"},
		{"mcp-env", mcpLocal, `"server.js"`, `"server.js", "env": {"A": "b"}`, "unknown field"},
		{"mcp-both", mcpLocal, `"entrypoint"`, `"bindingRef": "x", "entrypoint"`, "fields of the other kind"},
		{"remote-both", mcpRemote, `"protocolVersion"`, `"entrypoint": "x", "protocolVersion"`, "fields of the other kind"},
		{"remote-protocol", mcpRemote, `2026-07-28`, `2025-03-26`, "mcp.protocolVersion"},
		{"remote-url", mcpRemote, `"docs.primary"`, `"https://docs.example/mcp"`, "mcp.bindingRef"},
		{"remote-ref-dots", mcpRemote, `"docs.primary"`, `"docs..primary"`, "mcp.bindingRef"},
		{"remote-ref-upper", mcpRemote, `"docs.primary"`, `"Docs"`, "mcp.bindingRef"},
		{"remote-ref-long", mcpRemote, `"docs.primary"`, `"` + strings.Repeat("d", 129) + `"`, "mcp.bindingRef"},
		{"remote-contract-version", mcpRemote, `"contractVersion": 1`, `"contractVersion": 2`, "mcp.contractVersion"},
		{"remote-contract-version-real", mcpRemote, `"contractVersion": 1`, `"contractVersion": 1.5`, "want a whole number in its range, not a number"},
		{"remote-hash", mcpRemote, hash, `"ab"`, "mcp.bindingContractHash"},
		{"remote-hash-upper", mcpRemote, hash, strings.ToUpper(hash), "mcp.bindingContractHash"},
		{"remote-capabilities", mcpRemote, `["tools"]`, `["tools", "resources"]`, "mcp.requiredCapabilities"},
		{"remote-no-capabilities", mcpRemote, ` "requiredCapabilities": ["tools"],`, ``, "mcp.requiredCapabilities"},
		{"remote-endpoint", mcpRemote, `"name"`, `"endpoint": "https://docs.example", "name"`, "unknown field"},

		{"builtin-provider", builtin, `"provider": "mail"`, `"provider": ""`, "builtin.provider"},
		{"builtin-nothing", builtin, `["mcp", "cli"]`, `[]`, "builtin.interfaces"},
		{"builtin-other", builtin, `["mcp", "cli"]`, `["http"]`, "builtin.interfaces"},
		{"builtin-twice", builtin, `["mcp", "cli"]`, `["cli", "cli"]`, "builtin.interfaces"},
		{"builtin-and-mcp", builtin, `"builtin"`, `"mcp": {"kind": "managed_stdio", "name": "x", "entrypoint": "x", "runtime": {"profile": "node"}}, "builtin"`, "builtin: not with"},
		{"login-without-cli", builtin, `"builtin"`, `"login": {}, "builtin"`, "login: without a cli"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := Parse([]byte(edit(t, c.doc, c.from, c.to)))
			require.ErrorContains(t, err, c.want)
			require.Zero(t, m)
		})
	}
}

// At every bound exactly, it is still taken.
func TestParseWholeAtItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to string }{
		{"icon", `https://printer.example/icon.png`, `https://printer.example/` + strings.Repeat("x", 2048-len("https://printer.example/"))},
		{"permissions", `["printer.write:office", "printer.read", "files:*"]`, list(64, `"p%d:s"`)},
		{"permission", `"files:*"`, `"` + strings.Repeat("a", 128) + ":" + strings.Repeat("b", 128) + `"`},
		{"aliases", `["Druckerei", "打印机", "Print & Co. (v2)"]`, list(12, `"a%d"`)},
		{"alias", `"打印机"`, `"` + strings.Repeat("机", 48) + `"`},
		{"probe", `["status", "--short"]`, `["` + strings.Repeat("a", 16<<10) + `"]`},
		{"probe-arguments", `["status", "--short"]`, list(32, `"%d"`)},
		{"probe-quick", `"5s"`, `"100ms"`},
		{"probe-slow", `"5s"`, `"30s"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(edit(t, whole, c.from, c.to)))
			require.NoError(t, err)
		})
	}
}

// Names that other formats of Connectors have and this one does not are refused,
// wherever they stand.
func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"releaseDigest", "compatibility", "authorizationKind", "authorizationInteraction", "requiredCapabilities", "implementation", "targetImplementations", "credentialBroker", "$schema", "signature"} {
		_, err := Parse([]byte(edit(t, whole, `"iconUrl"`, fmt.Sprintf(`%q: {}, "iconUrl"`, f))))
		require.ErrorContains(t, err, "unknown field", f)
		_, err = Parse([]byte(edit(t, whole, `"arguments": ["--quiet"]`, fmt.Sprintf(`"arguments": ["--quiet"], %q: {}`, f))))
		require.ErrorContains(t, err, "unknown field", f)
	}
}

// releaseVector is one release, so that another language can check itself.
type releaseVector struct {
	Canonical string `json:"canonical"` // of the manifest, in the form of RFC 8785
	Tree      string `json:"tree"`      // digest of the artifact
	Digest    string `json:"digest"`
}

func TestReleaseDigestVectors(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "release-digests.json"))
	require.NoError(t, err)
	var want map[string]releaseVector
	require.NoError(t, json.Unmarshal(b, &want))
	require.GreaterOrEqual(t, len(want), 5)
	got := map[string]releaseVector{}
	for n, doc := range map[string]string{"native": native, "npm": npmManifest, "whole": whole, "mcp-local": mcpLocal, "mcp-remote": mcpRemote, "builtin": builtin} {
		m, err := Parse([]byte(doc))
		require.NoError(t, err)
		tree := want[n].Tree
		d, err := ReleaseDigest(m, tree)
		require.NoError(t, err, n)
		got[n] = releaseVector{string(m.Canonical()), tree, d}
	}
	require.Equal(t, want, got)
}

// The release digest binds the manifest: every single word of it.
func TestReleaseDigestBindsTheManifest(t *testing.T) {
	t.Parallel()
	tree := strings.Repeat("ab", 32)
	seen := map[string]string{}
	for _, doc := range []string{
		whole, native, npmManifest, mcpLocal, mcpRemote, builtin,
		edit(t, whole, "icon.png", "icon.svg"),
		edit(t, whole, "files:*", "files:a"),
		edit(t, whole, "Druckerei", "Drucker"),
		edit(t, whole, "linux/printer", "linux/printer2"),
		edit(t, whole, "python3-darwin-arm64", "python4-darwin-arm64"),
		edit(t, whole, "--short", "--long"),
		edit(t, whole, `"5s"`, `"6s"`),
		edit(t, mcpLocal, "--stdio", "--http"),
		edit(t, mcpRemote, "docs.primary", "docs.secondary"),
		edit(t, builtin, `["mcp", "cli"]`, `["cli"]`),
	} {
		m, err := Parse([]byte(doc))
		require.NoError(t, err)
		d, err := ReleaseDigest(m, tree)
		require.NoError(t, err)
		require.Empty(t, seen[d], "another manifest has that digest")
		seen[d] = doc
	}
}

// What is shown or decides where and how something runs is no part of an invocation's
// meaning.
func TestContractHashLeavesTheReleaseOut(t *testing.T) {
	t.Parallel()
	base := hashOf(t, whole)
	for _, c := range [][2]string{
		{"icon.png", "icon.svg"},
		{"files:*", "files:a"},
		{"Druckerei", "Drucker"},
		{"linux/printer", "linux/printer2"},
		{`"win-x64"`, `"linux-arm64"`},
		{"--short", "--long"},
		{`"5s"`, `"6s"`},
	} {
		require.Equal(t, base, hashOf(t, edit(t, whole, c[0], c[1])), c)
	}
	require.NotEqual(t, base, hashOf(t, edit(t, whole, `["print"]`, `["copy"]`)))
}

// Every manifest of an earlier version means what it did.
func TestEarlierManifestsStayValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.manifest.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		m, err := Parse(b)
		require.NoError(t, err, f)
		one, err := m.For("linux-x64")
		require.NoError(t, err)
		require.Equal(t, m, one)
		require.NotEmpty(t, one.CLI.Kind)
	}
}

// FuzzFor: whatever is parsed is either run whole on a system, or refused.
func FuzzFor(f *testing.F) {
	for _, doc := range []string{whole, native, npmManifest, mcpLocal, mcpRemote, builtin} {
		f.Add([]byte(doc), "linux-x64")
	}
	f.Fuzz(func(t *testing.T, in []byte, target string) {
		m, err := Parse(in)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(m.CLI.Targets), 6)
		require.True(t, slices.IsSorted(m.Permissions))
		one, err := m.For(target)
		if err != nil {
			require.Zero(t, one)
			return
		}
		require.Contains(t, []Kind{KindNative, KindScript, KindNPM}, one.CLI.Kind)
		require.Nil(t, one.MCP)
		require.Nil(t, one.Builtin)
		require.Equal(t, m.Canonical(), one.Canonical())
		if m.CLI.Targets != nil {
			require.Contains(t, slices.Collect(maps.Keys(m.CLI.Targets)), target)
		}
	})
}
