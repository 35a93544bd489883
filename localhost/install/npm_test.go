package install

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// native is a program of this system.
func native(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(self)
	require.NoError(t, err)
	return string(b[:64<<10])
}

// edited changes the manifest of hello.
func edited(t *testing.T, from, to string) files {
	t.Helper()
	m := hello()["connector-manifest.json"]
	require.Contains(t, m, from)
	return hello().with("connector-manifest.json", strings.Replace(m, from, to, 1))
}

// A package's command that is a native executable is started itself, without node.
func TestNativeBin(t *testing.T) {
	t.Parallel()
	program := native(t)
	sum := sha256.Sum256([]byte(program))
	for n, c := range map[string]struct{ from, to, at string }{
		"bin":    {`"lock"`, `"bin": "hello", "lock"`, "cli.js"},
		"native": {`"lock"`, `"native": "libexec/tool", "lock"`, "libexec/tool"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s, f := npmStore(t)
			f.tree["node_modules/hello/"+c.at] = program
			r := add(t, s, edited(t, c.from, c.to).dir(t))
			require.Empty(t, r.Runtime, "node installed it and does not run it")
			l, err := s.Launch(r)
			require.NoError(t, err)
			defer l.Close()
			require.Equal(t, filepath.Base(filepath.FromSlash(c.at)), filepath.Base(l.Path))
			require.Empty(t, l.Prefix)
			require.Empty(t, l.Env)
			info, err := os.Stat(l.Path)
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&0o100, "it can be executed, whatever npm left")
			require.NoError(t, l.Verify())
			flip(t, l.Path, 100)
			require.ErrorIs(t, l.Verify(), ErrTampered)
			_, err = s.Launch(r)
			require.ErrorIs(t, err, ErrTampered)
		})
	}
	for digest, want := range map[string]string{hex.EncodeToString(sum[:]): "", strings.Repeat("ab", 32): "the manifest says another"} {
		s, f := npmStore(t)
		f.tree["node_modules/hello/tool"] = program
		m := edited(t, `"lock"`, `"native": "tool", "lock"`)
		m["connector-manifest.json"] = strings.Replace(m["connector-manifest.json"], `"kind": "npm",`, `"kind": "npm", "sha256": "`+digest+`",`, 1)
		_, err := s.Add(t.Context(), Source{Path: m.dir(t)}, nil)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// A receipt that calls a script a native executable starts nothing: it has no bit.
func TestReceiptCannotMakeAScriptNative(t *testing.T) {
	t.Parallel()
	s, _ := npmStore(t)
	r := add(t, s, hello().dir(t))
	at := filepath.Join(s.cfg.Dir, "connectors", "hello", "1.0.0", "receipt.json")
	b, err := os.ReadFile(at)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, []byte(strings.Replace(string(b), `"script":`, `"native": true, "script":`, 1)), 0o600))
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrTampered)
}
