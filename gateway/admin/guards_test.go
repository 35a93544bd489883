//go:build linux

package admin

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// TestOtherUserIsRefused: somebody else who gets to the socket, past the directory and
// its mode.
func TestOtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("", "lend-admin-") //nolint:usetesting // another user has to get into it
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "dial") // where another user can run it
	b, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, b, 0o755))

	path := filepath.Join(dir, "s")
	raw, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o666))
	g := guard(raw, zerolog.Nop())
	refused := make(chan error, 1)
	go func() {
		c, err := raw.Accept()
		if err != nil {
			refused <- err
			return
		}
		refused <- g.admit(c)
		_ = c.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{"LEND_TEST_ADMIN_DIAL=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	require.EqualError(t, <-refused, "user 65534 is not the owner")
	require.NoError(t, raw.Close())
}

func TestDirectoryOfAnotherIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chown(dir, 65534, 65534))
	_, err := Listen(t.Context(), filepath.Join(dir, "admin.sock"), &fakeBackend{}, zerolog.Nop())
	require.ErrorContains(t, err, "must be yours")
}

func TestDirectoryThatIsNotThere(t *testing.T) {
	_, err := Listen(t.Context(), filepath.Join(t.TempDir(), "none", "admin.sock"), &fakeBackend{}, zerolog.Nop())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestOnlyUnixConnections: whose credentials cannot be asked for is nobody.
func TestOnlyUnixConnections(t *testing.T) {
	g := guard(nil, zerolog.Nop())
	ours, theirs := net.Pipe()
	defer func() { _ = errors.Join(ours.Close(), theirs.Close()) }()
	require.ErrorContains(t, g.admit(ours), "not a unix connection")
	require.Empty(t, g.slots)
}

// TestProcessThatIsGone has no ancestry that could be read.
func TestProcessThatIsGone(t *testing.T) {
	require.ErrorContains(t, notOurs(1<<22+5), "ancestry of process")
	_, err := parentOf(1<<22 + 5)
	require.ErrorIs(t, err, os.ErrNotExist)
	parent, err := parentOf(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getppid(), parent)
	require.NoError(t, notOurs(os.Getpid()))
	require.NoError(t, notOurs(parent))
}

// TestParentIsRead: the name of a process may hold anything, what is not of the form
// tells no parent.
func TestParentIsRead(t *testing.T) {
	for text, want := range map[string]int{
		"7 (sh) S 5 7 7 0": 5, "7 (a) S 1 (b)) R 12 7": 12, "7 (x) Z 0": 0,
	} {
		got, err := readParent([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "7 5 8", "7 (sh)", "7 (sh) S", "7 (sh) S x", "7 (sh) S 99999999999999999999"} {
		_, err := readParent([]byte(text))
		require.Error(t, err, text)
	}
}

// noCheckpoint can do everything else.
type noCheckpoint struct{ fakeBackend }

func (noCheckpoint) Checkpoint(context.Context) error { return errors.New("no disk") }

func TestCheckpointThatFailsIsSaid(t *testing.T) {
	_, path := serve(t, &noCheckpoint{})
	_, err := NewClient(path).Checkpoint(t.Context())
	require.ErrorContains(t, err, "no disk")
}
