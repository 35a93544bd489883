package broker

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/host/autonat.(*AutoNAT).background"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-flow-metrics.(*sweeper).run"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/transport/quicreuse.(*reuse).gc"),
	)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newBroker(t *testing.T, change ...func(*Config)) *Broker {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	c := Config{Key: key}
	for _, f := range change {
		f(&c)
	}
	b, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func entry(command, schema string) protocol.CatalogEntry {
	return protocol.CatalogEntry{
		Connector: must(name.ParseConnectorKey("gh")), Version: must(name.ParseVersion("1")),
		Command: must(name.ParseCommand(command)), InputSchema: json.RawMessage(schema),
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(Config{})
	require.Error(t, err)
	b := newBroker(t)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "again")
	_, err = b.Accept(lease.File{}, "")
	require.Error(t, err)
	require.ErrorIs(t, b.CloseSession("x"), ErrNoSession)
	e := b.Call(wire.Call{Session: "x"}, false, Streams{}).Do(t.Context())
	require.Equal(t, 125, e.Returns())
}

func TestAcceptChecksTheLease(t *testing.T) {
	b := newBroker(t)
	for what, source := range map[string]client.LeaseSource{
		"no-lease": client.Static(lease.File{}),
		"noise":    client.Static(lease.File{Chain: [][]byte{[]byte("x")}}),
		"none":     func(context.Context) (lease.File, error) { return lease.File{}, errors.New("none") },
	} {
		_, err := b.AcceptSource(t.Context(), source, "")
		require.Error(t, err, what)
	}
	require.Empty(t, b.Status().Sessions)
}

// silent is a Local whose command says that it ended.
type silent struct{ err error }

func (silent) Catalog(context.Context, name.ConnectorKey) ([]protocol.CatalogEntry, error) {
	return []protocol.CatalogEntry{entry("a", `{"x-lend-arguments":["a"]}`)}, nil
}

func (s silent) Run(context.Context, protocol.CatalogEntry, []string, Streams) error { return s.err }

// A success is told only with an end: that of the gateway, or of what runs here.
func TestSuccessNeedsAnEnd(t *testing.T) {
	for _, c := range []struct {
		err   error
		want  int
		ended bool
	}{{nil, 0, true}, {errors.New("x"), 125, false}, {&client.ExitError{Code: 3}, 3, false}} {
		b := newBroker(t, func(config *Config) {
			config.Local = silent{c.err}
			config.Shims = name.ParseConnectorKey
			config.Report = func(_ *client.Cmd, err error, _ time.Duration) wire.Exit {
				return wire.Exit{Status: byte(client.ExitStatus(err)), Ended: true} // whatever it says
			}
		})
		s := newSession(b.ctx, "text", scope{})
		b.mu.Lock()
		b.sessions[handleOf("text")] = s
		b.mu.Unlock()
		e := b.Call(wire.Call{Session: "text", Name: "gh", HasAuthority: true, Authority: "caller", Args: []string{"a"}}, false, Streams{}).Do(t.Context())
		require.Equal(t, c.want, e.Returns())
		require.Equal(t, c.ended, e.Ended)
		e = b.Call(wire.Call{Session: "text", Name: "gh", Args: []string{"a"}}, false, Streams{}).Do(t.Context())
		require.Equal(t, 127, e.Returns(), "no lease of it")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e = b.Call(wire.Call{Session: "text"}, true, Streams{}).Do(ctx)
		require.Equal(t, 125, e.Returns())
	}
}

// The bounds that lend-shim has are those of the protocol.
func TestBoundsAreTheProtocols(t *testing.T) {
	require.Equal(t, protocol.MaxArguments, wire.MaxArguments)
	require.Equal(t, protocol.MaxArgument, wire.MaxArgument)
	require.Equal(t, protocol.MaxArgumentBytes, wire.MaxArgumentBytes)
	require.Equal(t, lease.MaxFile, wire.MaxLease)
}

// TestASessionThatIsOverTakesNoLease: sessions end one after the other, each when what
// runs in it has ended. A lease that comes meanwhile belongs to a new session.
func TestASessionThatIsOverTakesNoLease(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	b := newBroker(t)
	held := func(invocation string, notAfter time.Time) *holding {
		c, err := client.New(client.Config{Host: b.host, Leases: client.Static(lease.File{})})
		require.NoError(t, err)
		h := &holding{broker: b, client: c}
		h.file.Lease = lease.Lease{Invocation: must(name.ParseInvocationID(invocation)), NotAfter: notAfter}
		return h
	}
	ids := []string{strings.Repeat("a", 32), strings.Repeat("b", 32)}
	old := map[string]string{}
	b.mu.Lock() // no sweep before both are there
	for _, id := range ids {
		h := held(id, past)
		s := newSession(b.ctx, id, scope{h.file.Lease.Issuer, h.file.Lease.Invocation})
		require.NoError(t, s.add(h))
		end, err := s.begin()
		require.NoError(t, err)
		defer end()
		b.sessions[handleOf(s.text)], b.scopes[s.scope], old[id] = s, s, s.text
	}
	b.mu.Unlock()
	require.Eventually(t, func() bool { return len(b.live()) == 0 }, 30*time.Second, time.Millisecond)
	for _, id := range ids {
		text, err := b.keep(held(id, time.Now().Add(time.Hour)), "")
		require.NoError(t, err)
		require.NotEqual(t, old[id], text)
	}
}

// TestStatusOfVeryManyLeases: what is listed fits into one answer, and the others are
// counted.
func TestStatusOfVeryManyLeases(t *testing.T) {
	b := newBroker(t)
	grants := make([]lease.Grant, lease.MaxGrants)
	for i := range grants {
		grants[i].Connector = must(name.ParseConnectorKey(fmt.Sprintf("%s%02d", strings.Repeat("c", name.MaxConnectorKey-2), i)))
	}
	const sessions = 4
	fill := func(leases, each int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := range sessions {
			invocation := must(name.ParseInvocationID(fmt.Sprintf("i-%d-%d", leases, i)))
			s := newSession(b.ctx, invocation.String(), scope{invocation: invocation})
			for j := range leases {
				c, err := client.New(client.Config{Host: b.host, Leases: client.Static(lease.File{})})
				require.NoError(t, err)
				h := &holding{broker: b, client: c}
				h.file.Chain = [][]byte{[]byte(fmt.Sprint(j))}
				h.file.Lease = lease.Lease{Invocation: invocation, NotAfter: time.Now().Add(time.Hour), Grants: grants[:each]}
				require.NoError(t, s.add(h))
			}
			b.sessions[handleOf(s.text)] = s
		}
	}
	listed := func(st *Status) (n int) {
		for _, s := range st.Sessions {
			n += len(s.Leases)
		}
		return n
	}
	fill(1, 1)
	st := b.Status()
	require.Equal(t, sessions, listed(st))
	require.Zero(t, st.More)
	data, err := json.Marshal(st)
	require.NoError(t, err)
	require.NotContains(t, string(data), "more")

	fill(maxHoldings, lease.MaxGrants) // those of i-64-… come after i-1-…
	st = b.Status()
	data, err = json.Marshal(st)
	require.NoError(t, err)
	require.Less(t, len(data), wire.MaxAnswer-1<<10, "it is one answer")
	require.Greater(t, len(data), maxStatus/2, "as many as fit")
	require.Positive(t, st.More)
	require.Equal(t, sessions+sessions*maxHoldings, listed(st)+st.More, "each is listed or counted")
	require.True(t, slices.IsSortedFunc(st.Sessions, func(x, y SessionShown) int { return strings.Compare(x.Invocation, y.Invocation) }))
	for _, s := range st.Sessions {
		require.NotEmpty(t, s.Leases, "none is listed for a count alone")
	}
}
