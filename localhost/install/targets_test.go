package install

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/stretchr/testify/require"
)

// portable is a Connector with one program for each of the targets.
func portable(targets ...string) files {
	f, all := files{}, []string{}
	for _, t := range targets {
		p := t + "/printer"
		f[p] = binary + " for " + t
		all = append(all, `"`+t+`": {"kind": "native", "entrypoint": "`+p+`"}`)
	}
	f["connector-manifest.json"] = `{"schemaVersion": "1", "key": "printer", "version": "1.0.0", "displayName": "Printer",
		"cli": {"command": "printer", "targets": {` + strings.Join(all, ", ") + `}}}`
	return f
}

func others() []string {
	var out []string
	for _, t := range []string{"linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win-x64"} {
		if t != interpreter.Target() {
			out = append(out, t)
		}
	}
	return out
}

// Of several implementations exactly this system's runs.
func TestAddTakesThisSystemsImplementation(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	r := add(t, s, portable(append(others(), interpreter.Target())...).dir(t))
	require.Equal(t, manifest.KindNative, r.Manifest.CLI.Kind)
	require.Len(t, r.Manifest.CLI.Targets, len(others())+1)
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(l.ContractDir, interpreter.Target(), "printer"), l.Path)
	require.NoError(t, l.Verify())
	require.NoError(t, l.Close())
	require.NoError(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version))
	again, err := openStore(t, Config{Dir: s.cfg.Dir}).Release(r.Manifest.Key, r.Manifest.Version)
	require.NoError(t, err)
	require.Equal(t, r, again)
}

// There is no fallback to what is alike.
func TestAddRefusesOtherTargets(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	_, err := s.Add(t.Context(), Source{Path: portable(others()...).dir(t)}, nil)
	var unsupported *manifest.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.ErrorContains(t, err, `"`+interpreter.Target()+`"`)
	for _, o := range others() {
		require.ErrorContains(t, err, o)
	}
	all := releases(t, s)
	require.Empty(t, all)
	require.Empty(t, staged(t, s))
}

// An executable says in its header where it runs.
func TestAddRefusesAnExecutableOfAnotherSystem(t *testing.T) {
	t.Parallel()
	elf := func(machine byte) string {
		return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + string([]byte{machine}) + "\x00" + strings.Repeat("\x00", 64)
	}
	macho := "\xcf\xfa\xed\xfe\x0c\x00\x00\x01\x00\x00\x00\x00\x02\x00\x00\x00" + strings.Repeat("\x00", 64)
	pe := "MZ" + strings.Repeat("\x00", 58) + "\x40\x00\x00\x00" + "PE\x00\x00\x64\x86" + strings.Repeat("\x00", 64)
	all := map[string]string{"linux-x64": elf(62), "linux-arm64": elf(183), "darwin-arm64": macho, "win-x64": pe}
	for n, body := range all {
		s := openStore(t, Config{})
		_, err := s.Add(t.Context(), Source{Path: printer("1.0.0").with("bin/printer", body).dir(t)}, nil)
		if n == interpreter.Target() {
			require.NoError(t, err, n)
			continue
		}
		var refused *artifact.RefusedError
		require.ErrorAs(t, err, &refused, n)
		require.Equal(t, "bin/printer", refused.Path)
		require.ErrorContains(t, err, "executable of another system")
		require.ErrorContains(t, err, interpreter.Target())
	}
}

// What a manifest declares and this version does not run is no release here.
func TestAddRefusesWhatItWouldIgnore(t *testing.T) {
	t.Parallel()
	with := func(more string) files {
		f := printer("1.0.0")
		return f.with("connector-manifest.json", strings.Replace(f["connector-manifest.json"], `"cli":`, more+`, "cli":`, 1))
	}
	for n, c := range map[string]struct {
		src  files
		want string
	}{
		"managed-stdio": {with(`"mcp": {"kind": "managed_stdio", "name": "x", "entrypoint": "x.js", "runtime": {"profile": "node"}}`), "mcp: this lend runs no MCP servers"},
		"remote": {with(`"mcp": {"kind": "remote_streamable_http", "name": "x", "protocolVersion": "2026-07-28", "bindingRef": "x",
			"contractVersion": 1, "requiredCapabilities": ["tools"], "bindingContractHash": "sha256:` + strings.Repeat("ab", 32) + `"}`), "mcp: this lend runs no MCP servers"},
		"builtin": {files{"connector-manifest.json": `{"schemaVersion": "1", "key": "mail", "version": "1.0.0", "displayName": "Mail",
			"builtin": {"provider": "mail", "interfaces": ["cli"]}}`}, "builtin: this lend has no provider"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{})
			_, err := s.Add(t.Context(), Source{Path: c.src.dir(t)}, nil)
			var unsupported *manifest.UnsupportedError
			require.ErrorAs(t, err, &unsupported)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, staged(t, s))
		})
	}
	s := openStore(t, Config{})
	r := add(t, s, with(`"iconUrl": "https://printer.example/i.png", "permissions": ["print"], "agentRouting": {"aliases": ["Drucker"]}`).dir(t))
	require.Equal(t, []string{"print"}, r.Manifest.Permissions)
}
