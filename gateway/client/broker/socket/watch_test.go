//go:build linux

package socket

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/lease"
)

// change waits for a change, however many questions it takes.
func (p *place) change(session string, seen uint64) (now uint64, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if now, err = Watch(p.t.Context(), p.path, session, seen); err != nil || now != seen {
			return now, err
		}
	}
	require.Fail(p.t, "nothing is noticed")
	return now, err
}

// Whatever changes what a session may run is noticed: a lease that comes, that is renewed,
// that ends by its time or because its gateway says so, and the end of the session.
func TestWatch(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	files := make(chan lease.File, 1)
	first := f.lend(p.broker, "one", "fx", time.Hour, "echo")
	last := first
	session, err := p.broker.AcceptSource(t.Context(), func(context.Context) (lease.File, error) {
		select {
		case last = <-files:
		default:
		}
		return last, nil
	}, "")
	require.NoError(t, err)
	seen, err := p.change(session, 0)
	require.NoError(t, err)
	require.NotZero(t, seen)

	ended := make(chan error, 1)
	before := seen
	go func() {
		var err error
		seen, err = p.change(session, before)
		ended <- err
	}()
	_, err = p.broker.Accept(f.lend(p.broker, "one", "gh", 3*time.Second, "echo"), session)
	require.NoError(t, err)
	require.NoError(t, <-ended, "it has come")
	next, err := p.change(session, seen)
	require.NoError(t, err, "it has expired")
	require.NotEqual(t, seen, next)

	c, err := Lent(t.Context(), p.path, session)
	require.NoError(t, err)
	require.Len(t, c.Commands, 1)
	seen, err = p.change(session, 0)
	require.NoError(t, err)
	files <- f.lend(p.broker, "one", "fx", time.Hour, "echo", "cat")
	_, e := p.try(session, "say", "x") // a call asks the source
	require.Zero(t, e.Returns(), e.Message)
	next, err = p.change(session, seen)
	require.NoError(t, err, "it was renewed")
	require.NotEqual(t, seen, next)
	c, err = Lent(t.Context(), p.path, session)
	require.NoError(t, err)
	require.Len(t, c.Commands, 2, "the catalogue of the older one is not believed")

	go func() {
		_, err := p.change(session, next)
		ended <- err
	}()
	require.NoError(t, p.broker.CloseSession(session))
	require.ErrorIs(t, <-ended, broker.ErrNoSession)
	_, err = Watch(t.Context(), p.path, session, 0)
	require.ErrorIs(t, err, broker.ErrNoSession)
	_, err = Watch(t.Context(), p.path+"x", session, 0)
	require.ErrorIs(t, err, ErrNotRunning)
}

// Who watches leaves room for the others, and the server's end waits for nobody.
func TestWatchersAreBounded(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute, "echo"), "")
	require.NoError(t, err)
	seen, err := p.change(session, 0)
	require.NoError(t, err)
	for range maxWatchers {
		p.server.watchers <- struct{}{}
	}
	_, err = Watch(t.Context(), p.path, session, seen)
	require.ErrorContains(t, err, errWatchers.Error())
	out, e := p.try(session, "say", "x")
	require.Equal(t, "x 0", out+" "+string(rune('0'+e.Returns())))
	for range maxWatchers {
		<-p.server.watchers
	}
	now, err := Watch(t.Context(), p.path, session, seen)
	require.NoError(t, err)
	require.Equal(t, seen, now, "nothing has changed for a while")
	ended := make(chan error, 1)
	go func() {
		_, err := Watch(t.Context(), p.path, session, seen)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(p.server.watchers) == 1 }, patience, time.Millisecond)
	began := time.Now()
	require.NoError(t, p.server.Close())
	<-ended
	require.Less(t, time.Since(began), watchTime)
}

// lend run and an agent's tool may say which gateway of several is meant.
func TestRunSaysItsGateway(t *testing.T) {
	one, two := newFake(t, "/ip4/127.0.0.1/tcp/0"), newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	session, err := p.broker.Accept(one.lend(p.broker, "one", "fx", time.Minute, "echo"), "")
	require.NoError(t, err)
	_, err = p.broker.Accept(two.lend(p.broker, "one", "fx", time.Minute, "echo"), session)
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	run := func(gateway string) int {
		e, err := Run(t.Context(), p.path, wire.Call{Session: session, Args: []string{"x"}}, broker.RunOptions{
			Connector: "fx", Command: "echo", Version: "1", Gateway: gateway, Wait: time.Second, Stdin: "no",
		}, [3]*os.File{null, null, null}, nil)
		require.NoError(t, err)
		return e.Returns()
	}
	require.Equal(t, 125, run(""), "which one?")
	require.Zero(t, one.started()+two.started())
	require.Zero(t, run(two.host.ID().String()))
	require.Equal(t, 1, two.started())
	require.Zero(t, one.started())
	require.Equal(t, 127, run("12D3KooWGRUq3kKUYMVfbFVUvjrAUjaDbeZUDzgqfSwGxmvP9Lcp"))
	require.Equal(t, 1, one.started()+two.started())
}
