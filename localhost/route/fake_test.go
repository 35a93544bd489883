package route

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

// fakeLauncher starts fake processes and counts what happens to them.
type fakeLauncher struct {
	starts, live, closed atomic.Int64
	prepared, dropped    atomic.Int64         // Starters that were made, and dropped
	preparing, starting  *step                // if not nil, stops there
	make                 func(p *fakeProcess) // changes a process before it runs
	fail                 error                // of Prepare
	failStart            error                // of the Starter
	panics               bool                 // in the Starter
	last                 atomic.Pointer[fakeProcess]
}

// step stops a start at one place: it tells that it is there, with its context,
// and goes on, whatever the context says, when the test lets it.
type step struct {
	reached chan context.Context
	pass    chan struct{}
}

func newStep() *step {
	return &step{reached: make(chan context.Context, 8), pass: make(chan struct{})}
}

func (s *step) stop(ctx context.Context) {
	if s != nil {
		s.reached <- ctx
		<-s.pass
	}
}

func (l *fakeLauncher) Prepare(ctx context.Context, _ StartCLIRequest) (Starter, error) {
	l.preparing.stop(ctx)
	if l.fail != nil {
		return nil, l.fail
	}
	l.prepared.Add(1)
	return fakeStarter{l}, nil
}

type fakeStarter struct{ *fakeLauncher }

func (l fakeStarter) Drop() { l.dropped.Add(1) }

func (l fakeStarter) Start(ctx context.Context) (Process, error) {
	l.starting.stop(ctx)
	if l.panics {
		panic("starter")
	}
	if l.failStart != nil {
		return nil, l.failStart
	}
	l.starts.Add(1)
	l.live.Add(1)
	p := &fakeProcess{live: &l.live, done: make(chan struct{})}
	if l.make != nil {
		l.make(p)
	}
	l.last.Store(p)
	return p, nil
}

func (l *fakeLauncher) Close() error {
	l.closed.Add(1)
	return nil
}

// fakeProcess lives until Terminate, Kill or Close.
type fakeProcess struct {
	live     *atomic.Int64
	done     chan struct{}
	once     sync.Once
	exit     Exit
	stubborn bool          // Terminate does nothing
	hang     chan struct{} // if not nil, Close waits for it
	closeErr func() error  // if not nil, decides Close; an error leaves it alive
	closes   atomic.Int64
	terms    atomic.Int64
}

func (p *fakeProcess) end(e Exit) {
	p.once.Do(func() {
		p.exit = e
		p.live.Add(-1)
		close(p.done)
	})
}

func (p *fakeProcess) Stdin() io.WriteCloser { return nil }
func (p *fakeProcess) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader("out")) }
func (p *fakeProcess) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("err")) }

func (p *fakeProcess) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

func (p *fakeProcess) Terminate() error {
	if p.terms.Add(1); !p.stubborn {
		p.end(Exit{Signal: "SIGTERM"})
	}
	return nil
}

func (p *fakeProcess) Kill() error {
	p.end(Exit{Signal: "SIGKILL"})
	return nil
}

func (p *fakeProcess) Close() error {
	p.closes.Add(1)
	if p.hang != nil {
		<-p.hang
	}
	if p.closeErr != nil {
		if err := p.closeErr(); err != nil {
			return err
		}
	}
	return p.Kill()
}

var errClose = errors.New("cannot close")

func connectorKey(t require.TestingT, s string) name.ConnectorKey {
	k, err := name.ParseConnectorKey(s)
	require.NoError(t, err)
	return k
}

func version(t require.TestingT, s string) name.Version {
	v, err := name.ParseVersion(s)
	require.NoError(t, err)
	return v
}

func connectionID(t require.TestingT, s string) name.ConnectionID {
	c, err := name.ParseConnectionID(s)
	require.NoError(t, err)
	return c
}

// candidate describes an unpublished route; content tells releases apart.
func candidate(t require.TestingT, key, ver, connection, content string) Descriptor {
	return Descriptor{
		Identity: Identity{
			Connection: connectionID(t, connection), Connector: connectorKey(t, key), Version: version(t, ver),
			ReleaseDigest: strings.Repeat(content, 64),
			ContractHash:  "sha256:" + strings.Repeat("c", 64),
		},
		DisplayName: "Fake",
		Contract:    argv.Contract{Command: "fake", Arguments: []string{"--json"}},
	}
}

func commit(t *testing.T, r *Registry, d Descriptor, l Launcher) Descriptor {
	t.Helper()
	got, err := r.Commit(t.Context(), d, l)
	require.NoError(t, err)
	return got
}

func request(id Identity) StartCLIRequest {
	return StartCLIRequest{Identity: id, WorkingDirectory: absolute, Arguments: []string{"a"}}
}
