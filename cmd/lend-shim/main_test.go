package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the shim links decides how fast it starts.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		for _, no := range []string{
			"net", "fmt", "log", "os/exec", "encoding/json", "regexp", "crypto/", "google.golang.org/", "github.com/libp2p/",
			"github.com/rs/zerolog",
		} {
			require.False(t, dep == no || strings.HasSuffix(no, "/") && strings.HasPrefix(dep, no) || strings.HasPrefix(dep, no+"/"), dep)
		}
	}
	require.Contains(t, string(out), "golang.org/x/sys/unix")
}

func TestStartedByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lend-shim")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, args := range [][]string{{path}, {path, "--help"}, {"lend: supervisor", "x"}} {
		c := &exec.Cmd{Path: path, Args: args}
		out, err := c.CombinedOutput()
		var failed *exec.ExitError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, exitUsage, failed.ExitCode())
		require.Contains(t, string(out), "lend-shim: hint: ")
	}
	// Without its socket a supervisor does nothing.
	c := &exec.Cmd{Path: path, Args: []string{"lend: supervisor"}}
	out, err = c.CombinedOutput()
	require.NoError(t, err)
	require.Empty(t, out)
}
