//go:build linux

package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/internal/ownersocket"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LEND_TEST_ADMIN_DIAL"); path != "" {
		_, err := NewClient(path).Status(context.Background())
		fmt.Fprintln(os.Stdout, err)
		if err != nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

type fakeBackend struct {
	status Status
	err    error
	enter  chan struct{}
	leave  chan struct{}
}

func (f *fakeBackend) Status(ctx context.Context) (Status, error) {
	if f.enter != nil {
		close(f.enter)
		select {
		case <-f.leave:
		case <-ctx.Done():
		}
	}
	return f.status, f.err
}

func (f *fakeBackend) Operations(context.Context, bool) (Operations, error) {
	return Operations{SchemaVersion: SchemaVersion}, f.err
}

func (f *fakeBackend) Checkpoint(context.Context) error {
	f.status.Ledger.Checkpoint = "signed"
	return f.err
}

func (f *fakeBackend) Cancel(context.Context, Operation, bool) (bool, error) { return false, f.err }

func (f *fakeBackend) Reconcile(context.Context) (Reconciled, error) {
	return Reconciled{SchemaVersion: SchemaVersion, Published: []Route{{Connector: "github"}}}, f.err
}

func serve(t *testing.T, b Backend) (*Server, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "admin.sock")
	s, err := Listen(t.Context(), path, b, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, path
}

func TestRoundTrip(t *testing.T) {
	want := Status{SchemaVersion: 1, PeerID: "12D3", Operations: []Operation{{ID: "op", Stdout: 1 << 40}}}
	_, path := serve(t, &fakeBackend{status: want})
	got, err := NewClient(path).Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
	kept, err := NewClient(path).Checkpoint(t.Context())
	require.NoError(t, err)
	want.Ledger.Checkpoint = "signed"
	require.Equal(t, want, kept)
	r, err := NewClient(path).Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, "github", r.Published[0].Connector)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestBackendErrorReachesTheOwner(t *testing.T) {
	_, path := serve(t, &fakeBackend{err: errors.New("ledger \x1b[31mfailed")})
	_, err := NewClient(path).Status(t.Context())
	require.ErrorContains(t, err, `ledger \x1b[31mfailed`, "the text is escaped")
}

func TestPathsUpToWhatTheSystemTakes(t *testing.T) {
	dir := t.TempDir()
	for n := ownersocket.MaxPath - 1; n <= ownersocket.MaxPath+2; n++ {
		run := filepath.Join(dir, strings.Repeat("x", n-len(dir)-len("//admin.sock")))
		require.NoError(t, os.Mkdir(run, 0o700))
		path := filepath.Join(run, "admin.sock")
		require.Len(t, path, n)
		s, err := Listen(t.Context(), path, &fakeBackend{}, zerolog.Nop())
		if n > ownersocket.MaxPath {
			require.ErrorContains(t, err, "shorter name")
			_, err = NewClient(path).Reconcile(t.Context())
			require.ErrorIs(t, err, ErrNotRunning)
			continue
		}
		require.NoError(t, err)
		_, err = NewClient(path).Status(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}

func TestNotRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	_, err := NewClient(path).Status(t.Context())
	require.ErrorIs(t, err, ErrNotRunning)
}

func TestSecondGatewayIsRefused(t *testing.T) {
	_, path := serve(t, &fakeBackend{})
	_, err := Listen(t.Context(), path, &fakeBackend{}, zerolog.Nop())
	require.ErrorIs(t, err, ErrInUse)
	_, err = NewClient(path).Status(t.Context())
	require.NoError(t, err, "the first one still answers")
}

func TestStaleSocketIsReplaced(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "admin.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	s, err := Listen(t.Context(), path, &fakeBackend{}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoFileExists(t, path, "closing removes the socket")
	require.NoError(t, s.Close(), "closing again does nothing")
}

func TestOtherFilesAreNotReplaced(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "admin.sock")
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err := Listen(t.Context(), path, &fakeBackend{}, zerolog.Nop())
	require.ErrorContains(t, err, "is not a socket")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
}

func TestOpenDirectoryIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o755, 0o770, 0o701} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		_, err := Listen(t.Context(), filepath.Join(dir, "admin.sock"), &fakeBackend{}, zerolog.Nop())
		require.ErrorContains(t, err, "mode 0700", "mode %o", mode)
	}
}

// What the gateway starts for a peer runs as the same user, and must not be able
// to talk to the socket.
func TestDescendantIsRefused(t *testing.T) {
	_, path := serve(t, &fakeBackend{})
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{"LEND_TEST_ADMIN_DIAL=" + path}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "output: %s", out)
	require.Equal(t, 3, exit.ExitCode(), "output: %s", out)
}

func TestCloseWaitsForRequests(t *testing.T) {
	b := &fakeBackend{enter: make(chan struct{}), leave: make(chan struct{})}
	s, path := serve(t, b)
	answered := make(chan error, 1)
	go func() {
		_, err := NewClient(path).Status(context.Background())
		answered <- err
	}()
	<-b.enter
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
		t.Fatal("Close returned while a request was running")
	case <-time.After(50 * time.Millisecond):
	}
	close(b.leave)
	require.NoError(t, <-answered)
	require.NoError(t, <-closed)
}

func TestConnectionsAreBounded(t *testing.T) {
	_, path := serve(t, &fakeBackend{})
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range maxConnections {
		c, err := net.Dial("unix", path)
		require.NoError(t, err)
		open = append(open, c)
	}
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "one more is closed at once")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.Close())
}

// strangers is a listener on which a thousand connections come that nobody can name.
type strangers struct {
	net.Listener
	left int
}

func (s *strangers) Accept() (net.Conn, error) {
	if s.left == 0 {
		return nil, net.ErrClosed
	}
	s.left--
	ours, theirs := net.Pipe()
	return ours, theirs.Close()
}

func TestRefusalsDoNotFloodTheLog(t *testing.T) {
	var lines bytes.Buffer
	l := guard(&strangers{left: 1000}, zerolog.New(&lines))
	_, err := l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.Empty(t, l.slots)
	require.Equal(t, maxRefusalLines, bytes.Count(lines.Bytes(), []byte("\n")))
}
