package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// fake makes a directory that looks like a delegated cgroup.
func fake(t *testing.T, controllers, procs string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": procs} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(b)
}

func TestGroup(t *testing.T) {
	dir := fake(t, "cpu memory pids\n", "")
	tree, err := Open(dir, zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, tree.Close()) }()
	require.Equal(t, []string{"pids", "memory"}, tree.Controllers())
	require.Equal(t, dir, tree.Dir())
	require.Equal(t, "+memory", content(t, dir, "cgroup.subtree_control"), "the last that was written")

	g := tree.New(Limits{Processes: 7, Memory: 1 << 30})
	require.NotNil(t, g)
	for name, want := range map[string]string{"pids.max": "7", "memory.max": "1073741824", "memory.swap.max": "0", "memory.oom.group": "1"} {
		require.Equal(t, want, content(t, g.Dir(), name), name)
	}
	require.False(t, g.OutOfMemory())
	events := filepath.Join(g.Dir(), "memory.events")
	require.NoError(t, os.WriteFile(events, []byte("low 0\noom 3\noom_kill 0\n"), 0o600))
	require.False(t, g.OutOfMemory())
	require.NoError(t, os.WriteFile(events, []byte("low 0\noom 3\noom_kill 2\n"), 0o600))
	require.True(t, g.OutOfMemory())
	require.NoError(t, g.Kill())
	require.Equal(t, "1", content(t, g.Dir(), "cgroup.kill"))
	g.End()
	require.DirExists(t, g.Dir(), "plain files do not vanish with their directory")

	plain := tree.New(Limits{})
	require.NotNil(t, plain)
	require.NotEqual(t, g.Dir(), plain.Dir())
	left, err := os.ReadDir(plain.Dir())
	require.NoError(t, err)
	require.Empty(t, left, "without limits nothing is written")
	require.NoError(t, plain.remove())
	require.NoError(t, plain.remove(), "again does nothing")
	require.NoDirExists(t, plain.Dir())

	none := (*Tree)(nil).New(Limits{Processes: 1})
	require.Nil(t, none)
	require.Empty(t, none.Dir())
	require.False(t, none.OutOfMemory())
	require.NoError(t, none.Kill())
	none.End()
}

func TestControllersThatAreNotDelegated(t *testing.T) {
	tree, err := Open(fake(t, "cpu pids", ""), zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, tree.Close()) }()
	require.Equal(t, []string{"pids"}, tree.Controllers())
	g := tree.New(Limits{Processes: 1, Memory: 1 << 20})
	require.NotNil(t, g)
	require.Equal(t, "1", content(t, g.Dir(), "pids.max"))
	require.NoFileExists(t, filepath.Join(g.Dir(), "memory.max"))
}

// What an earlier gateway left is ended when the directory is opened again.
func TestLeftOver(t *testing.T) {
	dir := fake(t, "", "")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lend-1-1"), 0o700))
	stubborn := filepath.Join(dir, "lend-1-2")
	require.NoError(t, os.Mkdir(stubborn, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(stubborn, "cgroup.kill"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	tree, err := Open(dir, zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, tree.Close()) }()
	require.Equal(t, "1", content(t, stubborn, "cgroup.kill"))
	require.NoFileExists(t, filepath.Join(dir, "other", "cgroup.kill"), "not ours")
}

func TestGatewayLeavesTheDirectory(t *testing.T) {
	dir := fake(t, "pids", strconv.Itoa(os.Getpid())+"\n")
	tree, err := Open(dir, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, tree.Close())
	require.Equal(t, "0", content(t, dir, "gateway", "cgroup.procs"))
}

func TestOpenRefuses(t *testing.T) {
	for title, dir := range map[string]string{
		"relative":         "cgroup",
		"not-there":        filepath.Join(t.TempDir(), "none"),
		"not-a-cgroup":     t.TempDir(),
		"somebody-else-in": fake(t, "pids", "1\n"),
		"several-in":       fake(t, "pids", strconv.Itoa(os.Getpid())+"\n1\n"),
	} {
		_, err := Open(dir, zerolog.Nop())
		require.ErrorIs(t, err, ErrUnusable, title)
	}
	dir := fake(t, "pids", "")
	tree, err := Open(dir, zerolog.Nop())
	require.NoError(t, err)
	_, err = Open(dir, zerolog.Nop())
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, tree.Close())
	tree, err = Open(dir, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, tree.Close())
}

func TestLocate(t *testing.T) {
	const unified = "25 30 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ self, mounts, want string }{
		{"0::/system.slice/lend.service\n", unified, "/sys/fs/cgroup/system.slice/lend.service"},
		{"9:name=systemd:/x\n0::/a\n", "24 1 0:5 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" + unified, "/sys/fs/cgroup/a"},
		{"0::/docker/1/b\n", "25 30 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/b"},
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"1:pids:/x\n", unified, ""},
		{"0::/a\n", "24 1 0:5 / /proc rw - proc proc rw\n", ""},
		{"0::/a\n", "25 30 0:26 /b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", ""},
	} {
		dir, ok := locate([]byte(c.self), []byte(c.mounts))
		require.Equal(t, c.want, dir)
		require.Equal(t, c.want != "", ok)
	}
	if dir, ok := Detect(); ok {
		require.DirExists(t, dir)
	}
}
