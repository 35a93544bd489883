//go:build linux

package socket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/lease"
)

func TestCalls(t *testing.T) {
	each(t, func(t *testing.T, f *fake) { //nolint:thelper // the test itself
		p := newPlace(t)
		session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
		require.NoError(t, err)
		out, e := p.try(session, "say", "a", "b")
		require.Equal(t, "a b", out)
		require.Equal(t, wire.Exit{Ended: true}, e)
		_, e = p.try(session, "fail", "now")
		require.Equal(t, wire.Exit{Status: 7, Ended: true}, e)

		c := p.call(wire.Call{Session: session, Name: "fx", Args: []string{"cat"}})
		_, err = c.stdin.WriteString("input")
		require.NoError(t, err)
		require.NoError(t, c.stdin.Close())
		out, e = c.wait(t)
		require.Equal(t, "input", out)
		require.Zero(t, e.Returns())

		c = p.call(wire.Call{Session: session, Name: "fx", Args: []string{"wait"}})
		require.Eventually(t, func() bool { return f.started() == 4 }, patience, time.Millisecond)
		c.cancel(t)
		_, _ = c.conn.Write(wire.Header(wire.KindCancel, 0)) // once more, if it has not ended yet
		_, e = c.wait(t)
		require.Equal(t, 130, e.Returns())

		// no end, no success
		_, e = p.try(session, "vanish")
		require.Equal(t, 255, e.Returns())
		require.False(t, e.Ended)
	})
}

// What a caller's output cannot take is lost, and no success: the broker writes it.
func TestOutputThatCannotBeWritten(t *testing.T) {
	each(t, func(t *testing.T, f *fake) { //nolint:thelper // the test itself
		p := newPlace(t)
		session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
		require.NoError(t, err)
		for word, end := range map[string]string{"say": "a lot", "say a": "a lot " + strings.Repeat("x", 100000)} {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			require.NoError(t, err)
			c := p.callTo(wire.Call{Session: session, Name: "fx", Args: append(strings.Fields(word), end)}, full)
			_, e := c.wait(t)
			require.Equal(t, wire.Exit{
				Status: 255, Ended: true, Message: "standard output: no space left on device; the command has ended with status 0",
			}, e)
		}
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		_, e := p.callTo(wire.Call{Session: session, Name: "fx", Args: []string{"say", "a"}}, w).wait(t)
		require.Equal(t, wire.Exit{Ended: true}, e, "a reader that has left loses nothing")
	})
}

// A caller that is gone takes its command with it.
func TestCallerThatLeaves(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
	require.NoError(t, err)
	c := p.call(wire.Call{Session: session, Name: "fx", Args: []string{"wait"}})
	require.Eventually(t, func() bool { return f.started() == 1 }, patience, time.Millisecond)
	require.NoError(t, c.conn.Close())
	_, err = io.ReadAll(c.stdout) // the broker lets go of it only at the end
	require.NoError(t, err)

	// nor does one that reads nothing hold the broker up
	c = p.call(wire.Call{Session: session, Name: "fx", Args: []string{"say", strings.Repeat("x", 120000)}})
	_, err = c.stdout.Read(make([]byte, 1)) // the rest is more than the pipe takes: the broker waits
	require.NoError(t, err)
	before := descriptorCount(t)
	require.NoError(t, c.conn.Close())
	const held = 3 + 4 + 1 // by the broker: the streams, two pipes, the connection
	require.Eventually(t, func() bool { return descriptorCount(t) <= before-held-1 }, patience, 10*time.Millisecond)
}

// What one invocation may use, another cannot, whatever it says.
func TestInvocationsDoNotMix(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	one, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute, "echo"), "")
	require.NoError(t, err)
	two, err := p.broker.Accept(f.lend(p.broker, "two", "gh", time.Minute, "echo"), "")
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	for _, handle := range []string{one, two} {
		require.Len(t, handle, 52)
	}
	_, e := p.try(one, "say", "a")
	require.Zero(t, e.Returns())
	_, e = p.try(two, "say", "a")
	require.Equal(t, 127, e.Returns())
	_, e = p.call(wire.Call{Session: one, Name: "gh", Args: []string{"say"}}).wait(t)
	require.Equal(t, 127, e.Returns())
	require.Equal(t, 1, f.started())
	for _, bad := range []string{"", "x", one[:51], one + "A", one + two} {
		_, e = p.try(bad, "say", "a")
		require.Equal(t, 125, e.Returns(), bad)
	}
	// the same invocation has one session; another cannot be joined
	again, err := p.broker.Accept(f.lend(p.broker, "one", "gh", time.Minute, "echo"), "")
	require.NoError(t, err)
	require.Equal(t, one, again)
	_, err = p.broker.Accept(f.lend(p.broker, "two", "x", time.Minute, "echo"), one)
	require.ErrorIs(t, err, broker.ErrOtherInvocation)
	_, err = p.broker.Accept(f.lend(p.broker, "two", "x", time.Minute, "echo"), "nobody")
	require.ErrorIs(t, err, broker.ErrNoSession)

	// it is over when it is closed, and what runs in it is cancelled
	c := p.call(wire.Call{Session: one, Name: "gh", Args: []string{"say", "x"}})
	_, e = c.wait(t)
	require.Zero(t, e.Returns())
	_, err = p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute, "wait"), one)
	require.NoError(t, err)
	before := f.started()
	c = p.call(wire.Call{Session: one, Name: "fx", Args: []string{"wait"}})
	require.Eventually(t, func() bool { return f.started() == before+1 }, patience, time.Millisecond)
	_, err = Ask(t.Context(), p.path, Question{Do: DoClose, Session: one})
	require.NoError(t, err)
	_, e = c.wait(t)
	require.Equal(t, 130, e.Returns())
	_, e = p.try(one, "say", "a")
	require.Equal(t, 125, e.Returns())
	_, err = Ask(t.Context(), p.path, Question{Do: DoClose, Session: one})
	require.ErrorContains(t, err, "no such session")
	_, e = p.call(wire.Call{Session: two, Name: "gh", Args: []string{"say", "x"}}).wait(t)
	require.Zero(t, e.Returns())
}

// Exactly one command is meant, or nothing runs.
func TestOneCommandIsMeant(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute, "echo", "fail", "loud"), "")
	require.NoError(t, err)
	_, e := p.try(session, "say", "soft")
	require.Zero(t, e.Returns())
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"say", "loud"}, 126, "more than one command of fx begins like this; lent: say (echo), say loud (loud)"},
		{[]string{"issue", "list"}, 127, "no lent command of fx begins like this; lent: fail now (fail), say (echo), say loud (loud)"},
		{[]string{"fail"}, 127, "no lent command"},
		{nil, 127, "no lent command"},
		{[]string{"Say"}, 127, "no lent command"},
		{[]string{"--x", "say"}, 127, "no lent command"},
	} {
		_, e := p.try(session, c.args...)
		require.Equal(t, c.want, e.Returns(), c.args)
		require.Contains(t, e.Message, c.says)
	}
	// another lease for the same command on the same gateway makes it no other command
	_, err = p.broker.Accept(f.lend(p.broker, "one", "fx", 2*time.Minute, "echo"), "")
	require.NoError(t, err)
	_, e = p.try(session, "say", "soft")
	require.Zero(t, e.Returns())
	// the same command on another gateway does
	other := newFake(t, "/ip4/127.0.0.1/tcp/0")
	_, err = p.broker.Accept(other.lend(p.broker, "one", "fx", time.Minute, "echo"), session)
	require.NoError(t, err)
	_, e = p.try(session, "say", "soft")
	require.Equal(t, 126, e.Returns())
	require.Equal(t, 2, f.started())
	require.Zero(t, other.started())
}

// Two authorities, no third, no fallback.
func TestAuthority(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	mine := &own{}
	p := newPlace(t, func(c *broker.Config) { c.Local = mine })
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
	require.NoError(t, err)
	_, err = p.broker.Accept(f.lend(p.broker, "one", "gh", time.Minute), "")
	require.NoError(t, err)
	under := func(as, authority string, args ...string) (string, int) {
		out, e := p.call(wire.Call{Session: session, Name: as, HasAuthority: true, Authority: authority, Args: args}).wait(t)
		return out, e.Returns()
	}
	for _, c := range []struct {
		as, authority, out   string
		status, owners, mine int
	}{
		{"fx", "owner", "a", 0, 1, 0},
		{"fx", "caller", "own a", 0, 1, 1},
		{"fx", "", "", 125, 1, 1},
		{"fx", "Owner", "", 125, 1, 1},
		{"fx", "owner ", "", 125, 1, 1},
		{"fx", "caller\x00", "", 125, 1, 1},
		{"gh", "caller", "", 127, 1, 1}, // no route of its own: the owner's is not taken
		{"no", "caller", "", 127, 1, 1},
		{"no", "owner", "", 127, 1, 1},
	} {
		out, status := under(c.as, c.authority, "say", "a")
		require.Equal(t, c.status, status, "%q", c)
		require.Equal(t, c.out, out)
		require.Equal(t, c.owners, f.started())
		require.Equal(t, c.mine, mine.runs)
	}
	_, status := under("fx", "caller", "fail", "now") // lent by the owner, not its own
	require.Equal(t, 127, status)
	none := newPlace(t)
	session, err = none.broker.Accept(f.lend(none.broker, "one", "fx", time.Minute), "")
	require.NoError(t, err)
	_, e := none.call(wire.Call{Session: session, Name: "fx", HasAuthority: true, Authority: "caller", Args: []string{"say"}}).wait(t)
	require.Equal(t, 127, e.Returns())
	require.Equal(t, 1, f.started())
}

// Leases that have expired leave, and their session with the last.
func TestExpiredLeasesLeave(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	p := newPlace(t, func(c *broker.Config) { c.Now = now })
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
	require.NoError(t, err)
	_, err = p.broker.Accept(f.lend(p.broker, "one", "gh", time.Hour), "")
	require.NoError(t, err)
	ahead.Store(int64(2 * time.Minute))
	require.Eventually(t, func() bool { return len(p.broker.Status().Sessions[0].Leases) == 1 }, patience, 10*time.Millisecond)
	_, e := p.try(session, "say", "a")
	require.Equal(t, 127, e.Returns())
	_, err = p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
	var expired *lease.Error
	require.ErrorAs(t, err, &expired)
	ahead.Store(int64(2 * time.Hour))
	require.Eventually(t, func() bool { return len(p.broker.Status().Sessions) == 0 }, patience, 10*time.Millisecond)
	_, e = p.try(session, "say", "a")
	require.Equal(t, 125, e.Returns())
	require.Zero(t, f.started())
}

// A source renews its lease; one of somebody else is not taken.
func TestSourceRenews(t *testing.T) {
	f, other := newFake(t, "/ip4/127.0.0.1/tcp/0"), newFake(t, "/ip4/127.0.0.1/tcp/0")
	other.issuer = f.issuer // the same but for the gateway
	p := newPlace(t)
	var asked atomic.Int32
	from := f
	var mu sync.Mutex
	session, err := p.broker.AcceptSource(t.Context(), func(context.Context) (lease.File, error) {
		asked.Add(1)
		mu.Lock()
		defer mu.Unlock()
		return from.lend(p.broker, "one", "fx", time.Minute), nil
	}, "")
	require.NoError(t, err)
	_, e := p.try(session, "say", "a")
	require.Zero(t, e.Returns())
	require.Greater(t, asked.Load(), int32(1))
	mu.Lock()
	from = other
	mu.Unlock()
	_, e = p.try(session, "say", "a")
	require.Equal(t, 125, e.Returns())
	require.Zero(t, other.started())
}

// The connection is made anew, to where another lease says that the gateway is.
func TestFollowsTheGateway(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1")
	p := newPlace(t, func(c *broker.Config) { c.Wait = patience })
	file := f.lend(p.broker, "one", "fx", time.Minute)
	lost := file
	lost.Addresses = []string{"/ip4/127.0.0.1/tcp/1/p2p/" + f.host.ID().String()}
	session, err := p.broker.Accept(lost, "")
	require.NoError(t, err)
	_, e := p.try(session, "say", "a")
	require.Equal(t, 125, e.Returns())
	require.False(t, p.broker.Status().Sessions[0].Leases[0].Connected)
	more := f.lend(p.broker, "one", "gh", time.Minute)
	_, err = p.broker.Accept(more, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.broker.Status().Sessions[0].Leases[0].Connected }, patience, 10*time.Millisecond, "it is warm before anybody asks")
	for range 2 {
		_, e = p.try(session, "say", "a")
		require.Zero(t, e.Returns(), e.Message)
		for _, c := range f.host.Network().Conns() {
			require.NoError(t, c.Close())
		}
		require.Eventually(t, func() bool { return p.broker.Status().Sessions[0].Leases[0].Connected }, patience, 10*time.Millisecond)
	}
}

func TestTwoHundredAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fake) { //nolint:thelper // the test itself
		p := newPlace(t, func(c *broker.Config) { c.Wait = patience })
		session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
		require.NoError(t, err)
		var wg sync.WaitGroup
		failed := make(chan string, 200)
		for i := range 200 {
			c := p.call(wire.Call{Session: session, Name: "fx", Args: []string{"say", fmt.Sprint(i)}})
			wg.Go(func() {
				out, err := io.ReadAll(c.stdout)
				data, ferr := readFrame(c.conn, wire.KindExit)
				e, perr := wire.ParseExit(data)
				if string(out) != fmt.Sprint(i) || e.Returns() != 0 || errors.Join(err, ferr, perr) != nil {
					failed <- fmt.Sprint(i, " ", string(out), e, err, ferr, perr)
				}
			})
		}
		wg.Wait()
		close(failed)
		for what := range failed {
			t.Error(what)
		}
		require.Equal(t, 200, f.started())
	})
}

// lend run brings its lease, or names a command of a session.
func TestRun(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	file := f.lend(p.broker, "one", "fx", time.Minute)
	text, err := lease.Armor(file.Chain, file.Addresses, lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	session, err := p.broker.Accept(file, "")
	require.NoError(t, err)
	out, err := os.CreateTemp(t.TempDir(), "out")
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	files := [3]*os.File{null, out, null}
	run := func(said wire.Call, o broker.RunOptions) wire.Exit {
		t.Helper()
		e, err := Run(t.Context(), p.path, said, o, files, nil)
		require.NoError(t, err)
		return e
	}
	o := broker.RunOptions{Connector: "fx", Command: "echo", Wait: -1, Stdin: "auto"}
	for range 2 {
		require.Zero(t, run(wire.Call{Lease: text, Args: []string{"a"}}, o).Status)
	}
	require.Zero(t, run(wire.Call{Session: session, Args: []string{"b"}}, o).Status)
	b, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Equal(t, "aab", string(b))
	o.Stdin = "no"
	require.Equal(t, byte(7), run(wire.Call{Session: session}, broker.RunOptions{Connector: "fx", Command: "fail", Wait: -1, Stdin: "no"}).Status)
	for name, c := range map[string]struct {
		said wire.Call
		o    broker.RunOptions
		want int
	}{
		"no-lease":     {wire.Call{}, o, 125},
		"bad-lease":    {wire.Call{Lease: []byte("x")}, o, 125},
		"bad-address":  {wire.Call{Lease: text}, broker.RunOptions{Connector: "fx", Command: "echo", Wait: -1, Addresses: []string{"x"}}, 125},
		"no-wait":      {wire.Call{Lease: text}, broker.RunOptions{Connector: "fx", Command: "echo"}, 125},
		"connector":    {wire.Call{Session: session}, broker.RunOptions{Connector: "gh", Command: "echo", Wait: -1}, 127},
		"command":      {wire.Call{Session: session}, broker.RunOptions{Connector: "fx", Command: "loud", Wait: -1}, 127},
		"version":      {wire.Call{Session: session}, broker.RunOptions{Connector: "fx", Command: "echo", Version: "9", Wait: -1}, 127},
		"no-connector": {wire.Call{Session: session}, broker.RunOptions{Command: "echo", Wait: -1}, 125},
	} {
		e := run(c.said, c.o)
		require.Equal(t, c.want, e.Returns(), name)
	}
	require.Equal(t, 4, f.started())
	_, err = Run(t.Context(), p.path+"x", wire.Call{}, o, files, nil)
	require.ErrorIs(t, err, ErrNotRunning)
	_, err = Run(t.Context(), p.path, wire.Call{Args: make([]string, wire.MaxArguments+1)}, o, files, nil)
	require.ErrorIs(t, err, wire.ErrMalformed)
}

func descriptorCount(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// Bytes that are no request are answered with nothing, start nothing, and leave no
// descriptor behind.
func TestHostileFrames(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
	require.NoError(t, err)
	_, e := p.try(session, "say", "a")
	require.Zero(t, e.Returns())
	good, err := (&wire.Call{Session: session, Name: "fx", Args: []string{"say"}}).Append(nil)
	require.NoError(t, err)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	rights := func(n int) []byte {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		return unix.UnixRights(fds...)
	}
	before := descriptorCount(t)
	for name, c := range map[string]struct{ head, control, rest []byte }{
		"nothing":           {},
		"noise":             {head: []byte("GET / HTTP/1.1\r\n\r\n")},
		"short-header":      {head: []byte{1, 'C'}},
		"version":           {head: []byte{9, 'C', 0, 0, 0, 1}, control: rights(3), rest: good},
		"kind":              {head: []byte{1, 'E', 0, 0, 0, 1}, control: rights(3), rest: good},
		"cancel-first":      {head: wire.Header(wire.KindCancel, 0), control: rights(3)},
		"huge":              {head: []byte{1, 'C', 0xff, 0xff, 0xff, 0xff}, control: rights(3), rest: good},
		"cut":               {head: wire.Header(wire.KindCall, len(good)), control: rights(3), rest: good[:5]},
		"no-descriptors":    {head: wire.Header(wire.KindCall, len(good)), rest: good},
		"two-descriptors":   {head: wire.Header(wire.KindCall, len(good)), control: rights(2), rest: good},
		"four-descriptors":  {head: wire.Header(wire.KindCall, len(good)), control: rights(4), rest: good},
		"many-descriptors":  {head: wire.Header(wire.KindCall, len(good)), control: rights(200), rest: good},
		"control-with-some": {head: wire.Header(wire.KindControl, 2), control: rights(3), rest: []byte("{}")},
		"control-not-json":  {head: wire.Header(wire.KindControl, 1), rest: []byte("{")},
		"malformed":         {head: wire.Header(wire.KindCall, 3), control: rights(3), rest: []byte{9, 9, 9}},
		"run-malformed":     {head: wire.Header(wire.KindRun, 3), control: rights(3), rest: []byte{9, 9, 9}},
	} {
		conn := p.dial()
		if c.head != nil {
			_, _, err := conn.WriteMsgUnix(c.head, c.control, nil)
			require.NoError(t, err, name)
		}
		_, _ = conn.Write(c.rest) // it may have hung up
		require.NoError(t, conn.CloseWrite())
		answer, err := io.ReadAll(conn)
		if !errors.Is(err, syscall.ECONNRESET) {
			require.NoError(t, err, name)
		}
		require.Empty(t, answer, name)
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return descriptorCount(t) <= before }, patience, 10*time.Millisecond, "descriptors are left")
	require.Equal(t, 1, f.started())
	_, e = p.try(session, "say", "a")
	require.Zero(t, e.Returns())
	_, err = Ask(t.Context(), p.path, Question{Do: "lease"})
	require.ErrorContains(t, err, "does not know this question")
}

// Another user is not served, even where the modes would let it in.
func TestOtherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	p := newPlace(t)
	self, err := os.Executable()
	require.NoError(t, err)
	dir := shortDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "t")
	data, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, data, 0o755))
	as := func(uid uint32) int {
		cmd := exec.Command(program)
		cmd.Env = []string{"TEST_CONNECT=" + p.path}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	require.Equal(t, 2, as(65534), "the directory is closed")
	require.NoError(t, os.Chmod(filepath.Dir(p.path), 0o755))
	require.NoError(t, os.Chmod(p.path, 0o666))
	require.Equal(t, 3, as(65534), "not a word")
	require.Zero(t, as(0))
}

// A caller hands its streams to no socket that is not its own.
func TestForeignSocketIsRefused(t *testing.T) {
	p := newPlace(t)
	ask := func() error {
		_, err := Ask(t.Context(), p.path, Question{Do: DoStatus})
		return err
	}
	require.NoError(t, ask())
	require.NoError(t, os.Chmod(p.path, 0o660))
	require.ErrorContains(t, ask(), "not a socket of yours")
	require.NoError(t, os.Chmod(p.path, 0o600))
	require.NoError(t, os.Chmod(filepath.Dir(p.path), 0o750))
	require.ErrorContains(t, ask(), "must be yours with mode 0700")
	require.NoError(t, os.Chmod(filepath.Dir(p.path), 0o700))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(p.path, 65534, -1))
		require.ErrorContains(t, ask(), "not a socket of yours")
		require.NoError(t, os.Chown(p.path, 0, -1))
	}
	require.NoError(t, ask())
	file := filepath.Join(filepath.Dir(p.path), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Ask(t.Context(), file, Question{})
	require.ErrorContains(t, err, "not a socket of yours")
	_, err = Ask(t.Context(), "/"+string(bytes.Repeat([]byte("x"), 200)), Question{})
	require.ErrorIs(t, err, ErrNotRunning)
}

// A socket that was left behind is replaced, one that is alive is not.
func TestStaleSocket(t *testing.T) {
	p := newPlace(t)
	_, err := Listen(t.Context(), p.path, p.broker, zerolog.Nop())
	require.ErrorIs(t, err, ErrInUse)
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, l.Close())
	_, err = Ask(t.Context(), path, Question{Do: DoStatus})
	require.ErrorIs(t, err, ErrNotRunning)
	s, err := Listen(t.Context(), path, p.broker, zerolog.Nop())
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = Ask(t.Context(), path, Question{Do: DoStatus})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = Listen(t.Context(), path, p.broker, zerolog.Nop())
	require.ErrorContains(t, err, "is not a socket")
	require.FileExists(t, path)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Chmod(dir, 0o755))
	_, err = Listen(t.Context(), path, p.broker, zerolog.Nop())
	require.ErrorContains(t, err, "must be yours with mode 0700")
	_, err = Listen(t.Context(), filepath.Join(dir, string(bytes.Repeat([]byte("x"), 200))), p.broker, zerolog.Nop())
	require.ErrorContains(t, err, "shorter name")
}

// Nothing that is said of a broker, and nothing that it logs, is a lease or a handle.
func TestNothingIsToldOfLeases(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	var log bytes.Buffer
	logger := zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.DebugLevel)
	p := newPlace(t, func(c *broker.Config) { c.Log = logger })
	file := f.lend(p.broker, "one", "fx", time.Minute)
	text, err := lease.Armor(file.Chain, file.Addresses, lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	a, err := Ask(t.Context(), p.path, Question{Do: DoAccept, Lease: string(text)})
	require.NoError(t, err)
	_, e := p.try(a.Session, "say", "secret-word")
	require.Zero(t, e.Returns())
	status, err := Ask(t.Context(), p.path, Question{Do: DoStatus})
	require.NoError(t, err)
	require.Len(t, status.Status.Sessions, 1)
	require.Empty(t, status.Session)
	_, err = Ask(t.Context(), p.path, Question{Do: DoClose, Session: a.Session})
	require.NoError(t, err)
	p.close()
	said := log.String() + fmt.Sprintf("%+v", status.Status)
	for _, no := range []string{a.Session, "secret-word", "BEGIN LEND", string(text[100:140])} {
		require.NotContains(t, said, no)
	}
}

func TestSessionText(t *testing.T) {
	text, path, ok := SplitSession(JoinSession("ABC", "/run/a:b.sock"))
	require.True(t, ok)
	require.Equal(t, "ABC", text)
	require.Equal(t, "/run/a:b.sock", path)
	for _, bad := range []string{"", "x", ":", "x:", ":/a", "x:a"} {
		_, _, ok := SplitSession(bad)
		require.False(t, ok, bad)
	}
}

// Help is written for who asks for it and is refused, and makes no success.
func TestHelp(t *testing.T) {
	each(t, func(t *testing.T, f *fake) { //nolint:thelper // the test itself
		var asked []string
		p := newPlace(t, func(c *broker.Config) {
			c.Help = func(to io.Writer, as string, lines []native.Line) {
				asked = append(asked, fmt.Sprint(as, len(lines)))
				_, _ = io.WriteString(to, "help\n")
			}
		})
		session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute), "")
		require.NoError(t, err)
		for _, args := range [][]string{{"--help"}, {}, {"help", "say"}, {"say", "it", "--help"}, {"nothing"}, {"say", "--help"}} {
			c := p.call(wire.Call{Session: session, Name: "fx", Args: args})
			out, e := c.wait(t)
			said, err := io.ReadAll(c.stderr)
			require.NoError(t, err)
			switch {
			case len(args) > 0 && args[0] == "say": // it is lent: what its words mean is the gateway's to say
				require.Equal(t, strings.Join(args[1:], " "), out)
				require.Zero(t, e.Returns())
				require.Empty(t, said)
				continue
			case len(args) > 0 && args[0] == "nothing":
				require.Empty(t, said)
				require.Contains(t, e.Message, "lent: ")
			default:
				require.Equal(t, "help\n", string(said))
				require.NotContains(t, e.Message, "lent: ")
			}
			require.Empty(t, out)
			require.Equal(t, 127, e.Returns())
			require.False(t, e.Ended)
		}
		require.Equal(t, []string{"fx5", "fx5", "fx1"}, asked)
	})
}
