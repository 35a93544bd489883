package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// others are the kinds of thing that no flag may put a file in place of.
func others(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	out := map[string]string{"a named pipe": at("pipe"), "a symbolic link": at("link"), "a directory": at("directory")}
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.WriteFile(at("target"), []byte("kept"), 0o600))
	require.NoError(t, os.Symlink(at("target"), at("link")))
	require.NoError(t, os.Mkdir(at("directory"), 0o700))
	if os.Geteuid() == 0 {
		if err := unix.Mknod(at("full"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))); err == nil { // not in every container
			out["a device"] = at("full")
		}
	}
	return out
}

func TestFlagsReplaceRegularFilesOnly(t *testing.T) {
	t.Setenv("LEND_LEASE", "")
	t.Setenv("LEND_LEASE_FILE", "")
	t.Setenv("LEND_SESSION", "")
	commands := map[string]struct {
		args []string
		code int
	}{
		"run":    {[]string{"run", "--result", "FILE", "fx", "exit"}, 125},
		"attach": {[]string{"ops", "attach", "op-of-the-tests-0001", "--result", "FILE"}, 125},
		"mcp":    {[]string{"mcp", "--listen", "127.0.0.1:0", "--bearer-file", "FILE"}, 2},
	}
	for title, c := range commands {
		t.Run(title, func(t *testing.T) {
			for kind, path := range others(t) {
				before, err := os.Lstat(path)
				require.NoError(t, err)
				args := []string{"--dir", t.TempDir()}
				for _, a := range c.args {
					args = append(args, strings.ReplaceAll(a, "FILE", path))
				}
				var out, errs bytes.Buffer
				require.Equal(t, c.code, run(context.Background(), newApp(args, strings.NewReader(""), &out, &errs)), "%s", errs.String())
				require.Contains(t, errs.String(), "is "+kind+"; only a regular file is replaced")
				after, err := os.Lstat(path)
				require.NoError(t, err)
				require.Equal(t, before.Mode(), after.Mode())
				require.True(t, os.SameFile(before, after))
			}
		})
	}
	for kind, path := range others(t) {
		f := checkpointFlags{file: path}
		require.ErrorContains(t, f.check(t.TempDir()), "--checkpoint-file")
		require.ErrorContains(t, writeResult(path, result{}), kind, "also what came there meanwhile")
		require.ErrorContains(t, replaceable("--out", path), "--out ")
	}
}

func TestResultReplacesAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	for range 2 { // new, and in its own place
		code, _, errs := lend(t, t.TempDir(), "run", "--result", file, "--lease", file+".none", "fx", "exit")
		require.Equal(t, 125, code, "%s", errs)
		info, err := os.Lstat(file)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode())
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		var r result
		require.NoError(t, json.Unmarshal(b, &r))
		require.Equal(t, codeNotSent, r.Code)
	}
}

func TestTimesOfFlags(t *testing.T) {
	cases := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "--timeout=-5s", "fx", "exit"}, 125, "want more than 0"},
		{[]string{"run", "--timeout", "0s", "fx", "exit"}, 125, "want more than 0"},
		{[]string{"run", "--timeout", "soon", "fx", "exit"}, 125, "invalid duration"},
		{[]string{"run", "--wait=-5s", "fx", "exit"}, 125, "want 0 or more"},
		{[]string{"ops", "attach", "op-of-the-tests-0001", "--wait=-1s"}, 2, "want 0 or more"},
		{[]string{"broker", "--wait=-1s"}, 2, "want 0 or more"},
		{[]string{"catalog", "--wait=-1s"}, 2, "want 0 or more"},
		{[]string{"mcp", "--wait=-1s"}, 2, "want 0 or more"},
		{[]string{"policy", "diff", "a", "b", "--since=-1h"}, 2, "want 0 or more"},
		{[]string{"lease", "issue", "--to", "x", "--life", "0s", "fx", "exit"}, 2, "want more than 0"},
		{[]string{"lease", "delegate", "l", "--to", "x", "--life=-1m"}, 2, "want more than 0"},
	}
	for _, c := range cases {
		code, out, errs := lend(t, t.TempDir(), c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Empty(t, out)
		require.Contains(t, errs, c.want)
	}
	var none time.Duration
	require.Empty(t, moreThanNone(&none).String())
	require.Equal(t, "10s", atLeastNone(&none, 10*time.Second).String())
	require.NoError(t, atLeastNone(&none, time.Second).Set("0"))
}

func TestOperationIDsOfTheCommandLine(t *testing.T) {
	t.Setenv("LEND_LEASE", "")
	t.Setenv("LEND_LEASE_FILE", "")
	dir := t.TempDir()
	for _, c := range []string{"show", "cancel", "stop", "status", "attach"} {
		status := 2
		if c == "attach" {
			status = 125 // 1 and 2 are the command's
		}
		code, _, errs := lend(t, dir, "ops", c, "")
		require.Equal(t, status, code, "%s", errs)
		require.Contains(t, errs, "the operation ID is empty")
		for _, bad := range []string{"a/b", "op-7KQ2 ", strings.Repeat("x", 65), "\x1b"} {
			code, _, errs = lend(t, dir, "ops", c, bad)
			require.Equal(t, status, code, "%s", errs)
			require.Contains(t, errs, "no operation ID")
		}
	}
	require.NoError(t, operationID("op-7", true), "the beginning of one")
	require.Error(t, operationID("op-7", false))
}
