package draft

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIdentifier(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"gh": "gh", "@scope/Name": "name", "Tool 9": "tool-9", "9tool": "tool", "--x--": "x", "": "", "ÄÖ": "", "a.b_c": "a.b_c", `C:\x\Y`: "y",
	} {
		require.Equal(t, want, identifier(in), in)
	}
}

func TestInterpreter(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"#!/usr/bin/python3\n": "python3", "#!/usr/bin/env node\n": "node", "#!/usr/bin/env -S deno run\n": "deno", "#! /bin/dash -e\n": "dash", "#!": "", "#!/usr/bin/env": "",
	} {
		got, script := interpreter(head)
		require.True(t, script)
		require.Equal(t, want, got, head)
	}
	_, script := interpreter("\x7fELF")
	require.False(t, script)
}

func TestPackage(t *testing.T) {
	t.Parallel()
	pkg, version, err := Package("@larksuite/cli@1.0.83")
	require.NoError(t, err)
	require.Equal(t, "@larksuite/cli", pkg)
	require.Equal(t, "1.0.83", version)
	for _, bad := range []string{"", "@", "x", "@s/x", "x@", "x@1", "x@^1.0.0", "x@latest", "X@1.0.0", "x@1.0.0@2.0.0", "https://h/x.tgz", "git+ssh://h/x@1.0.0"} {
		_, _, err := Package(bad)
		require.Error(t, err, bad)
	}
}

func TestSameMajor(t *testing.T) {
	t.Parallel()
	require.Equal(t, ">=22.0.0 <23.0.0", sameMajor("22.23.5"))
	require.Empty(t, sameMajor("x"))
}

func TestWriteLeavesNothingAfterAnError(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(src, []byte("\x7fELF"), 0o755))
	d, err := Exec(src, Options{Key: "tool"})
	require.NoError(t, err)
	require.NoError(t, os.Remove(src))
	dir := filepath.Join(t.TempDir(), "new")
	_, err = d.Write(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	require.NoError(t, os.WriteFile(src, []byte("\x7fELF"), 0o755))
	_, err = d.Write(dir)
	require.ErrorIs(t, err, os.ErrExist)
	require.FileExists(t, filepath.Join(dir, "mine"))
}
