//go:build linux

package socket

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/protocol/name"
)

// What a session may run is told whole, however long it is, and to its own handle only.
func TestLent(t *testing.T) {
	f := newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	var granted []string
	for i := range 20 {
		granted = append(granted, fmt.Sprintf("big%02d", i))
	}
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute, append(granted, "echo")...), "")
	require.NoError(t, err)
	longer := f.lend(p.broker, "one", "fx", time.Hour, "echo", "cat")
	_, err = p.broker.Accept(longer, "")
	require.NoError(t, err)
	_, err = p.broker.Accept(f.lend(p.broker, "two", "gh", time.Minute, "echo"), "")
	require.NoError(t, err)
	c, err := Lent(t.Context(), p.path, session)
	require.NoError(t, err)
	require.Empty(t, c.Silent)
	var got []string
	for _, l := range c.Commands {
		require.Equal(t, f.host.ID().String(), l.Gateway.String())
		require.Equal(t, "fx 1", l.Entry.Connector.String()+" "+l.Entry.Version.String())
		require.True(t, json.Valid(l.Entry.InputSchema))
		got = append(got, l.Entry.Command.String())
		if l.Entry.Command.String() == "echo" {
			require.WithinDuration(t, time.Now().Add(time.Hour), l.Until, time.Minute, "the longer lease counts")
		}
	}
	require.Equal(t, append(granted, "echo", "cat"), got)
	for _, bad := range []string{"", "x", session[:51], session + "A"} {
		_, err := Lent(t.Context(), p.path, bad)
		require.ErrorIs(t, err, broker.ErrNoSession, bad)
	}
	_, err = Lent(t.Context(), p.path+"x", session)
	require.ErrorIs(t, err, ErrNotRunning)
	require.NoError(t, p.broker.CloseSession(session))
	_, err = Lent(t.Context(), p.path, session)
	require.ErrorIs(t, err, broker.ErrNoSession)
}

// A gateway that does not answer is named; what the others lend is told.
func TestLentByOthers(t *testing.T) {
	f, gone := newFake(t, "/ip4/127.0.0.1/tcp/0"), newFake(t, "/ip4/127.0.0.1/tcp/0")
	p := newPlace(t)
	session, err := p.broker.Accept(f.lend(p.broker, "one", "fx", time.Minute, "echo"), "")
	require.NoError(t, err)
	_, err = p.broker.Accept(gone.lend(p.broker, "one", "gh", time.Minute, "echo"), session)
	require.NoError(t, err)
	require.NoError(t, gone.host.Close())
	c, err := Lent(t.Context(), p.path, session)
	require.NoError(t, err)
	require.Len(t, c.Commands, 1)
	require.Equal(t, []name.PeerID{must(name.ParsePeerID(gone.host.ID().String()))}, c.Silent)
}
