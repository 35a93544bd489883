package mcp_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/mcp"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// A lease that cannot be had is no empty catalogue, and neither is a broker that is not
// what it should be; one that is not there is the end.
func TestWhatCannotBeAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f, err := w.gateway.Lease(nil)
	require.NoError(t, err)
	var away atomic.Bool
	l := w.lenderOf(t, func(context.Context) (lease.File, error) {
		if away.Load() {
			return lease.File{}, os.ErrPermission
		}
		return f, nil
	})
	lent, err := l.Lent(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, lent)
	away.Store(true)
	_, err = l.Lent(t.Context())
	require.ErrorIs(t, err, os.ErrPermission)
	require.NotErrorIs(t, err, mcp.ErrOver)
	require.NoError(t, l.Close())

	_, err = mcp.NewSession("x", filepath.Join(t.TempDir(), "absent")).Lent(t.Context())
	require.ErrorIs(t, err, mcp.ErrOver)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	_, err = mcp.NewSession("x", path).Lent(t.Context())
	require.Error(t, err)
}

// A broker that is not there is not asked all the time.
func TestWatchOfNoBroker(t *testing.T) {
	t.Parallel()
	l, ok := mcp.NewSession("x", filepath.Join(t.TempDir(), "absent")).(mcp.Watcher)
	require.True(t, ok)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	times := 0
	require.NoError(t, l.Watch(ctx, func() { times++ }))
	require.Equal(t, 1, times)
}

// What a client has called ends with its own session, and no other's; a request without a
// session ends nothing.
func TestSessionsEndAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}})
	e := newEndpoint(t)
	bearer, _, err := e.Open(s, s.Done())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{}, 3)
	one, two, three := e.connect(t, bearer, nil), e.connect(t, bearer, nil), connect(t, s, nil)
	for _, c := range []*sdk.ClientSession{one, two, three} {
		go func() {
			_, _ = c.CallTool(ctx, &sdk.CallToolParams{Name: "github_wait"})
			over <- struct{}{}
		}()
		soon(t, w.waiting)
	}
	end := func(session string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, e.URL()+mcp.Path, nil)
		require.NoError(t, err)
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		res, err := bearing{bearer, e.transport}.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	}
	end("")
	select {
	case <-w.ended:
		require.Fail(t, "nobody has ended")
	case <-time.After(300 * time.Millisecond):
	}
	end(one.ID())
	soon(t, w.ended)
	select {
	case <-w.ended:
		require.Fail(t, "another has not ended")
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	soon(t, w.ended)
	soon(t, w.ended)
	for range 3 {
		soon(t, over)
	}
}

// failing lists the caller's own Connectors once.
type failing struct {
	own
	asked atomic.Int32
}

func (f *failing) Catalog(ctx context.Context, key name.ConnectorKey) ([]protocol.CatalogEntry, error) {
	if f.asked.Add(1) > 1 {
		return nil, errors.New("the home is locked")
	}
	return f.own.Catalog(ctx, key)
}

// An own Connector that cannot be looked at now is not run, and neither is the lent one.
func TestCallersOwnThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entries, err := w.gateway.Client.Catalog(t.Context())
	require.NoError(t, err)
	c := connect(t, newServer(t, mcp.Config{Every: never, Lenders: []mcp.Lender{w.lender(t, nil)}, Local: &failing{own: own{entries: entries}}}), nil)
	r, _ := callTool(t, c, "github_fail", `{"connectorAuthority":"caller"}`)
	require.Equal(t, "refused no", r.Outcome+" "+r.Ran)
	require.Contains(t, r.Message, "the home is locked")
	require.Zero(t, w.ran.count("fail"))
}
