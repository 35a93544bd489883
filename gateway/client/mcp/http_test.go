package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/mcp"
	"github.com/lendcli/lend/gateway/client/mcp/loopback"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// endpoint is an endpoint with the means to ask it.
type endpoint struct {
	*loopback.Endpoint
	transport *http.Transport
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e, err := loopback.Listen(t.Context(), "127.0.0.1:0", zerolog.Nop())
	require.NoError(t, err)
	n := &endpoint{e, &http.Transport{}}
	t.Cleanup(func() {
		n.transport.CloseIdleConnections()
		require.NoError(t, e.Close())
	})
	return n
}

// bearing says a bearer with each request.
type bearing struct {
	bearer string
	under  http.RoundTripper
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.bearer)
	return b.under.RoundTrip(r)
}

func (e *endpoint) connect(t *testing.T, bearer string, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: e.URL() + mcp.Path, HTTPClient: &http.Client{Transport: bearing{bearer, e.transport}},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// post sends one message as it is, in a client's session, over a connection of its own:
// one that a client has used may be cut by now.
func (e *endpoint) post(t *testing.T, bearer, session, path, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	res, err := bearing{bearer, &http.Transport{DisableKeepAlives: true}}.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// Two scopes behind one endpoint: the bearer of one reaches neither tools nor clients of
// the other, and each ends alone.
func TestScopesDoNotMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	only := func(command string) mcp.Lender {
		return w.lender(t, func(l *lease.Lease) {
			g := l.Grants[0]
			g.Commands = nil
			if n, err := name.ParseCommand(command); err == nil {
				g.Commands = []name.Command{n}
			}
			l.Grants = []lease.Grant{g}
			if i, err := name.ParseInvocationID("of-" + command); err == nil {
				l.Invocation = i
			}
		})
	}
	one, two := newServer(t, mcp.Config{Lenders: []mcp.Lender{only("fail")}}), newServer(t, mcp.Config{Lenders: []mcp.Lender{only("wait")}})
	e := newEndpoint(t)
	first, _, err := e.Open(one, one.Done())
	require.NoError(t, err)
	second, revoke, err := e.Open(two, two.Done())
	require.NoError(t, err)
	c, d := e.connect(t, first, nil), e.connect(t, second, nil)
	require.Equal(t, []string{"github_fail"}, names(t, c))
	require.Equal(t, []string{"github_wait"}, names(t, d))
	require.Equal(t, http.StatusNotFound, e.post(t, first, d.ID(), mcp.Path, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`))
	require.Equal(t, http.StatusNotFound, e.post(t, first, "", "/other", initialize))
	require.Equal(t, http.StatusRequestEntityTooLarge, e.post(t, first, "", mcp.Path, `{"x":"`+strings.Repeat("a", 1<<20)+`"}`))
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = d.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "github_wait"})
	}()
	soon(t, w.waiting)
	revoke()
	soon(t, w.ended)
	<-over
	require.Equal(t, http.StatusUnauthorized, e.post(t, second, d.ID(), mcp.Path, initialize))
	r, _ := callTool(t, c, "github_fail", `{}`)
	require.Equal(t, "exited", r.Outcome, "%+v", r)
	require.Equal(t, 7, *r.ExitCode)
	require.NoError(t, one.Close())
	require.Eventually(t, func() bool { return e.post(t, first, "", mcp.Path, initialize) == http.StatusUnauthorized }, patience, 10*time.Millisecond)
}

// Clients over HTTP are told of changes and of progress, and are not too many.
func TestHTTPClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := &switched{}
	l.set(t, w, "wait")
	s := newServer(t, mcp.Config{Every: 50 * time.Millisecond, Lenders: []mcp.Lender{w.lenderOf(t, l.source)}})
	e := newEndpoint(t)
	bearer, _, err := e.Open(s, s.Done())
	require.NoError(t, err)
	changed, told := make(chan struct{}, 10), make(chan float64, 10)
	c := e.connect(t, bearer, &sdk.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params.Progress },
	})
	require.Equal(t, []string{"github_wait"}, names(t, c))
	l.set(t, w, "wait", "fail") // the lease was renewed, and has more
	soon(t, changed)
	require.Equal(t, []string{"github_fail", "github_wait"}, names(t, c))

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		p := &sdk.CallToolParams{Name: "github_wait"}
		p.SetProgressToken(7)
		_, _ = c.CallTool(ctx, p)
	})
	require.InDelta(t, 6, soon(t, told), 0)
	cancel()
	wg.Wait()
	soon(t, w.ended)

	got := map[int]int{}
	for range 40 {
		got[e.post(t, bearer, "", mcp.Path, initialize)]++
	}
	require.Equal(t, map[int]int{http.StatusOK: 31, http.StatusBadRequest: 9}, got, fmt.Sprint(got))
	require.Equal(t, []string{"github_fail", "github_wait"}, names(t, c), "those that are there stay")
}

// switched is a lease source whose lease is replaced.
type switched struct {
	mu sync.Mutex
	f  lease.File
}

func (s *switched) set(t *testing.T, w *world, commands ...string) {
	t.Helper()
	f, err := w.gateway.Lease(func(l *lease.Lease) {
		g := l.Grants[0]
		g.Commands = nil
		for _, c := range commands {
			if n, err := name.ParseCommand(c); err == nil {
				g.Commands = append(g.Commands, n)
			}
		}
		l.Grants = []lease.Grant{g}
	})
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.f = f
}

func (s *switched) source(context.Context) (lease.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f, nil
}

// A source that turns to another invocation has ended this one: nothing runs under it.
func TestLeaseOfAnotherInvocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := &switched{}
	l.set(t, w, "fail")
	lender := w.lenderOf(t, l.source)
	f, err := w.gateway.Lease(func(l *lease.Lease) {
		if i, err := name.ParseInvocationID("another"); err == nil {
			l.Invocation = i
		}
	})
	require.NoError(t, err)
	lent, err := lender.Lent(t.Context())
	require.NoError(t, err)
	l.mu.Lock()
	l.f = f
	l.mu.Unlock()
	_, err = lender.Lent(t.Context())
	require.ErrorIs(t, err, mcp.ErrOver)
	r := lender.Run(t.Context(), mcp.Run{Lent: lent[0]})
	require.Equal(t, "not-sent no", r.Outcome+" "+r.Ran)
	require.Zero(t, w.ran.count("fail"))
	_, _, err = mcp.NewLease(t.Context(), must(w.gateway.NewCaller(client.Config{Leases: func(context.Context) (lease.File, error) { return f, context.Canceled }})))
	require.ErrorIs(t, err, context.Canceled)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
