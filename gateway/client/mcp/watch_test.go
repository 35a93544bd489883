package mcp_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/gateway/client/mcp"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// never is longer than any test: what is noticed within it was not found by asking.
const never = 10 * time.Minute

// What a lender notices by itself reaches clients without a poll; a lender that cannot be
// watched is asked all the same.
func TestLendersThatNotice(t *testing.T) {
	t.Parallel()
	one, two := &scripted{lent: []mcp.Lent{lends(t, oneGateway, "one 1.0.0 a", empty)}}, &scripted{lent: []mcp.Lent{lends(t, otherGateway, "two 1.0.0 a", empty)}}
	noticed, ended := make(chan struct{}), make(chan struct{})
	watching := mcp.Watched(one, func(ctx context.Context, changed func()) error {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-noticed:
				changed()
			}
		}
	})
	blind := mcp.Watched(two, func(context.Context, func()) error { return errors.New("no eyes") })
	log := &logged{}
	changed := make(chan struct{}, 10)
	s := newServer(t, mcp.Config{Every: never, Lenders: []mcp.Lender{watching, blind}, Log: zerolog.New(log)})
	c := connect(t, s, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
	require.Equal(t, []string{"one_a", "two_a"}, names(t, c))
	one.say([]mcp.Lent{lends(t, oneGateway, "one 1.0.0 b", empty)}, nil)
	noticed <- struct{}{}
	soon(t, changed)
	require.Equal(t, []string{"one_b", "two_a"}, names(t, c))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "no eyes") }, patience, time.Millisecond)
	one.say(nil, mcp.ErrOver)
	noticed <- struct{}{}
	soon(t, changed)
	soon(t, ended) // nobody watches what is over
	require.Equal(t, []string{"two_a"}, names(t, c))
	require.NoError(t, s.Close())
	require.Equal(t, 1, one.closed)
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A lender that does not answer keeps nobody else waiting.
func TestSlowLenders(t *testing.T) {
	t.Parallel()
	slow := &stuck{begun: make(chan struct{}), scripted: scripted{lent: []mcp.Lent{lends(t, oneGateway, "slow 1.0.0 a", empty)}}}
	quick, noticed := &scripted{lent: []mcp.Lent{lends(t, otherGateway, "quick 1.0.0 a", empty)}}, make(chan struct{})
	changed := make(chan struct{}, 10)
	s := newServer(t, mcp.Config{Every: never, Lenders: []mcp.Lender{
		mcp.Watched(slow, func(_ context.Context, changed func()) error {
			changed()
			return nil
		}),
		mcp.Watched(quick, func(ctx context.Context, changed func()) error {
			select {
			case <-noticed:
				changed()
			case <-ctx.Done():
			}
			return nil
		}),
	}})
	c := connect(t, s, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
	soon(t, slow.begun)
	quick.say([]mcp.Lent{lends(t, otherGateway, "quick 1.0.0 b", empty)}, nil)
	close(noticed)
	soon(t, changed)
	require.Equal(t, []string{"quick_b", "slow_a"}, names(t, c))
}

// stuck answers once, and then not before it is told to end.
type stuck struct {
	scripted
	asked int // by one goroutine after the other
	begun chan struct{}
}

func (s *stuck) Lent(ctx context.Context) ([]mcp.Lent, error) {
	if s.asked++; s.asked > 1 {
		close(s.begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.scripted.Lent(ctx)
}

// A session of the broker: leases that come and go, and its end, are there at once, and so
// are those of a second gateway, which are told apart.
func TestSessionIsWatched(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	b, err := broker.New(broker.Config{Key: key, Wait: -1})
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "b") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	path := filepath.Join(dir, "b")
	at, err := socket.Listen(t.Context(), path, b, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(at.Close(), b.Close(), os.RemoveAll(dir)))
	})
	file := func(gateway, connector string, life time.Duration) lease.File {
		return sealed(t, b.Holder(), gateway, connector, life)
	}
	session, err := b.Accept(file(oneGateway, "one", time.Hour), "")
	require.NoError(t, err)
	l := &counted{Lender: mcp.NewSession(session, path)}
	s := newServer(t, mcp.Config{Every: never, Lenders: []mcp.Lender{mcp.Watched(l, l.Watch)}})
	require.Eventually(t, func() bool { return l.count() >= 2 }, patience, time.Millisecond, "it is asked anew once it is watched")
	for change, do := range map[string]func() error{
		"another lease": func() error { _, err := b.Accept(file(otherGateway, "two", time.Hour), session); return err },
		"one that ends": func() error { _, err := b.Accept(file(otherGateway, "three", 2*time.Second), session); return err },
	} {
		before := l.count()
		require.NoError(t, do())
		require.Eventually(t, func() bool { return l.count() > before }, patience, time.Millisecond, change)
	}
	require.NoError(t, b.CloseSession(session))
	soon(t, s.Done())
}

// sealed is a lease that nobody honours: its gateway is not there.
func sealed(t *testing.T, holder name.PeerID, gateway, connector string, life time.Duration) lease.File {
	t.Helper()
	issuer, _, err := crypto.GenerateEd25519Key(rand.Reader)
	require.NoError(t, err)
	g := lease.Grant{Connector: must(name.ParseConnectorKey(connector)), Version: must(name.ParseVersion("1")), Commands: []name.Command{must(name.ParseCommand("a"))}}
	now := time.Now().Truncate(time.Millisecond)
	data, err := lease.Seal(lease.Lease{
		ID: lease.NewID(), Issuer: must(name.PeerIDFromKey(must(issuer.GetPublic().Raw()))), Holder: holder,
		Gateway: must(name.ParsePeerID(gateway)), Invocation: must(name.ParseInvocationID("one")), Authority: lease.AuthorityOwner,
		Grants: []lease.Grant{g}, IssuedAt: now, NotBefore: now, NotAfter: now.Add(life), MaxOperations: 10, MaxConcurrent: 1,
	}, issuer)
	require.NoError(t, err)
	return lease.File{Chain: [][]byte{data}, Addresses: []string{"/ip4/127.0.0.1/tcp/1/p2p/" + gateway}}
}

// counted counts how often it is asked.
type counted struct {
	mcp.Lender
	mu sync.Mutex
	n  int
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counted) Lent(ctx context.Context) ([]mcp.Lent, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Lender.Lent(ctx)
}

func (c *counted) Watch(ctx context.Context, changed func()) error {
	return c.Lender.(mcp.Watcher).Watch(ctx, changed) //nolint:forcetypeassert // it fails the test
}

// Lines that are no messages end nothing: they are answered with an error, and the client
// goes on, whatever it said before it was greeted.
func TestStdioGoesOn(t *testing.T) {
	t.Parallel()
	s := newServer(t, mcp.Config{Lenders: []mcp.Lender{&scripted{lent: []mcp.Lent{lends(t, oneGateway, "x 1.0.0 a", empty)}}}})
	in, feed := io.Pipe()
	take, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.WithoutCancel(t.Context()), in, out) }()
	answers := bufio.NewScanner(take)
	ask := func(line, want string) {
		t.Helper()
		_, err := io.WriteString(feed, line+"\n")
		require.NoError(t, err)
		require.True(t, answers.Scan())
		var got struct {
			ID    json.RawMessage
			Error struct{ Code int }
		}
		require.NoError(t, json.Unmarshal(answers.Bytes(), &got))
		require.Equal(t, want, strings.TrimSpace(string(got.ID)+" "+string(must(json.Marshal(got.Error.Code)))), "%.80q", line)
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "1 -32600") // too early
	ask(`{`, "null -32700")
	ask(initialize, "1 0")
	_, err := io.WriteString(feed, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	require.NoError(t, err)
	ask(`what?`, "null -32700")
	ask(`[`+initialize+`]`, "null -32600")
	ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"`+strings.Repeat("a", 2<<20)+`"}}`, "null -32600")
	ask(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, "3 0")
	ask(`{"jsonrpc":"2.0","id":4,"method":"no/such"}`, "4 -32601")
	require.NoError(t, feed.Close())
	require.NoError(t, <-served)
}
