package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/mcp"
	"github.com/lendcli/lend/gateway/lendtest"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logTo is a logger that a test reads when all is over.
func logTo(w io.Writer) zerolog.Logger { return zerolog.New(zerolog.SyncWriter(w)) }

const patience = 30 * time.Second

// result is what a client reads of a structured result.
type result struct {
	Outcome, Ran, Signal, Code, Message, Advice, OperationID, Authority string
	ExitCode                                                            *int
	Retryable                                                           bool
	Stdout, Stderr                                                      struct {
		Text, Encoding string
		Bytes          int
		Truncated      bool
	}
}

// ran counts starts.
type ran struct {
	mu sync.Mutex
	n  map[string]int
}

func (r *ran) start(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = map[string]int{}
	}
	r.n[name]++
}

func (r *ran) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[name]
}

// connectors are what the tests lend. waiting gets a value from each call of wait when
// it runs, and ended one when it has ended.
func connectors(r *ran, waiting, ended chan struct{}) []lendtest.Connector {
	text := argv.ParameterDeclaration{Flag: "--repo", Aliases: []string{"-R"}, Required: true, Enum: []any{"a/b", "c/d"}, Description: "which repository"}
	limit := 100.0
	least := 1.0
	return []lendtest.Connector{{Key: "github", Commands: []lendtest.Command{
		{
			Name: "issue.list",
			Declaration: argv.Declaration{Summary: "list issues", Effect: argv.EffectRead, Parameters: map[string]argv.ParameterDeclaration{
				"repo": text, "limit": {Flag: "--limit", Type: argv.TypeInteger, Minimum: &least, Maximum: &limit},
				"web": {Flag: "--web", Type: argv.TypeBoolean}, "label": {Flag: "--label", Repeat: 3, Pattern: "[a-z]+"},
				"who": {Position: 1, FreeText: true},
			}},
			Run: func(c *lendtest.Call) int {
				r.start("issue.list")
				_, _ = fmt.Fprintln(c.Stdout, strings.Join(c.Arguments, " "))
				return 0
			},
		},
		{
			Name:        "fail",
			Declaration: argv.Declaration{Summary: "fail"},
			Run: func(c *lendtest.Call) int {
				r.start("fail")
				_, _ = io.WriteString(c.Stderr, "no\xff\n")
				return 7
			},
		},
		{
			Name:        "shout",
			Declaration: argv.Declaration{Parameters: map[string]argv.ParameterDeclaration{"text": {Stdin: &argv.Stdin{MaxBytes: 100}, Required: true}}},
			Run: func(c *lendtest.Call) int {
				r.start("shout")
				b, _ := io.ReadAll(c.Stdin)
				_, _ = io.WriteString(c.Stdout, strings.ToUpper(string(b)))
				return 0
			},
		},
		{
			Name:        "flood",
			Declaration: argv.Declaration{},
			Run: func(c *lendtest.Call) int {
				r.start("flood")
				_, _ = io.WriteString(c.Stdout, strings.Repeat("ä", 100_000))
				return 0
			},
		},
		{
			Name:        "wait",
			Declaration: argv.Declaration{},
			Run: func(c *lendtest.Call) int {
				r.start("wait")
				_, _ = io.WriteString(c.Stdout, "begun\n")
				waiting <- struct{}{}
				<-c.Context.Done()
				ended <- struct{}{}
				return 0
			},
		},
	}}}
}

// world is a gateway, a server for it, and what a test looks at.
type world struct {
	gateway        *lendtest.Gateway
	ran            *ran
	waiting, ended chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{ran: &ran{}, waiting: make(chan struct{}, 100), ended: make(chan struct{}, 100)}
	w.gateway = lendtest.New(t, connectors(w.ran, w.waiting, w.ended)...)
	return w
}

// clientLender is a lender with a lease, whose client is on the gateway's network.
func (w *world) lender(t *testing.T, change func(*lease.Lease)) mcp.Lender {
	t.Helper()
	f, err := w.gateway.Lease(change)
	require.NoError(t, err)
	return w.lenderOf(t, client.Static(f))
}

func (w *world) lenderOf(t *testing.T, source client.LeaseSource) mcp.Lender {
	t.Helper()
	c, err := w.gateway.NewCaller(client.Config{Leases: source})
	require.NoError(t, err)
	l, invocation, err := mcp.NewLease(t.Context(), c)
	require.NoError(t, err)
	require.NotEmpty(t, invocation.String())
	return l
}

func newServer(t *testing.T, c mcp.Config) *mcp.Server {
	t.Helper()
	s, err := mcp.New(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// connect connects the SDK's client to a server, over pipes.
func connect(t *testing.T, s *mcp.Server, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	session, _ := connectLeaving(t, s, o)
	return session
}

// connectLeaving also returns what ends the client as its death would.
func connectLeaving(t *testing.T, s *mcp.Server, o *sdk.ClientOptions) (session *sdk.ClientSession, leave func() error) {
	t.Helper()
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := s.Serve(context.WithoutCancel(t.Context()), theirIn, theirOut)
		_ = theirOut.Close()
		served <- err
	}()
	var err error
	session, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.IOTransport{Reader: ourIn, Writer: ourOut}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		require.NoError(t, <-served)
	})
	return session, ourOut.Close
}

func names(t *testing.T, c *sdk.ClientSession) (out []string) {
	t.Helper()
	for tool, err := range c.Tools(t.Context(), nil) {
		require.NoError(t, err)
		out = append(out, tool.Name)
	}
	return out
}

// callTool calls a tool and reads its result, which must fit the schema that it declares.
func callTool(t *testing.T, c *sdk.ClientSession, tool, arguments string) (result, *sdk.CallToolResult) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	require.NoError(t, err)
	return structured(t, res), res
}

func structured(t *testing.T, res *sdk.CallToolResult) (r result) {
	t.Helper()
	data, err := json.Marshal(res.StructuredContent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &r))
	return r
}

func texts(res *sdk.CallToolResult) string {
	var out []string
	for _, c := range res.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			out = append(out, c.Text)
		}
	}
	return strings.Join(out, "|")
}

// Each lent command is a tool with the catalogue's name, description and schema; its
// result is typed.
func TestToolsAreTheCatalogue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := connect(t, newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}}), nil)
	require.Equal(t, []string{"github_fail", "github_flood", "github_issue_list", "github_shout", "github_wait"}, names(t, c))
	entries, err := w.gateway.Client.Catalog(t.Context())
	require.NoError(t, err)
	for tool, err := range c.Tools(t.Context(), nil) {
		require.NoError(t, err)
		i := slices.IndexFunc(entries, func(e protocol.CatalogEntry) bool {
			return "github_"+strings.ReplaceAll(e.Command.String(), ".", "_") == tool.Name
		})
		require.GreaterOrEqual(t, i, 0)
		shown, err := json.Marshal(tool.InputSchema)
		require.NoError(t, err)
		require.JSONEq(t, string(entries[i].InputSchema), string(shown))
		require.NotNil(t, tool.OutputSchema)
		require.Equal(t, entries[i].Effect == "read", tool.Annotations.ReadOnlyHint)
		if entries[i].Summary != "" {
			require.Equal(t, entries[i].Summary, tool.Description)
		}
	}
	r, res := callTool(t, c, "github_issue_list", `{"repo":"a/b","limit":5,"label":["x","y"],"web":true,"who":"me"}`)
	require.False(t, res.IsError)
	require.Equal(t, "--label=x --label=y --limit=5 --repo=a/b --web me\n", r.Stdout.Text, "canonical")
	require.Equal(t, 0, *r.ExitCode)
	require.Equal(t, "exited yes OK owner", strings.Join([]string{r.Outcome, r.Ran, r.Code, r.Authority}, " "))
	require.NotEmpty(t, r.OperationID)
	r, res = callTool(t, c, "github_fail", `{}`)
	require.True(t, res.IsError)
	require.Equal(t, 7, *r.ExitCode)
	require.Equal(t, "base64 bm//Cg==", r.Stderr.Encoding+" "+r.Stderr.Text)
	require.Contains(t, texts(res), "no\uFFFD\n")
	require.Contains(t, texts(res), "exit code 7")
	r, _ = callTool(t, c, "github_shout", `{"text":"hello\n"}`)
	require.Equal(t, "HELLO\n", r.Stdout.Text)
}

// What the grammar does not take is refused with a reason, and runs nowhere.
func TestRefusedArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := connect(t, newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}}), nil)
	for label, a := range map[string]struct{ tool, arguments, want string }{
		"unknown-field":   {"github_issue_list", `{"repo":"a/b","extra":1}`, `"extra": object: unknown key`},
		"wrong-type":      {"github_issue_list", `{"repo":"a/b","limit":"5"}`, "parameter limit: object: want a integer"},
		"null":            {"github_issue_list", `{"repo":"a/b","limit":null}`, "parameter limit: object"},
		"not-listed":      {"github_issue_list", `{"repo":"x/y"}`, `want one of "a/b", "c/d"`},
		"missing":         {"github_issue_list", `{}`, "parameter repo: missing: want --repo"},
		"option-like":     {"github_issue_list", `{"repo":"a/b","who":"--web"}`, "parameter who: option-like"},
		"file":            {"github_issue_list", `{"repo":"a/b","who":"@/etc/passwd"}`, "parameter who: file-reference"},
		"control":         {"github_issue_list", `{"repo":"a/b","who":"a\u001b[2J"}`, "parameter who: control-character"},
		"twice":           {"github_issue_list", `{"repo":"a/b","repo":"c/d"}`, "object"},
		"exponent":        {"github_issue_list", `{"repo":"a/b","limit":1e1}`, "limit"},
		"many":            {"github_issue_list", `{"repo":"a/b","label":["a","b","c","d"]}`, "parameter label: item-count"},
		"no-object":       {"github_issue_list", `[]`, "want an object"},
		"input-missing":   {"github_shout", `{}`, "parameter text: missing"},
		"input-too-long":  {"github_shout", `{"text":"` + strings.Repeat("a", 101) + `"}`, "want at most 100 bytes"},
		"no-input":        {"github_fail", `{"text":"a"}`, "unknown key"},
		"authority":       {"github_fail", `{"connectorAuthority":"root"}`, `want "owner" or "caller"`},
		"authority-empty": {"github_fail", `{"connectorAuthority":""}`, `want "owner" or "caller"`},
		"authority-type":  {"github_fail", `{"connectorAuthority":["caller"]}`, `want "owner" or "caller"`},
		"authority-twice": {"github_fail", `{"connectorAuthority":"owner","connectorAuthority":"caller"}`, "once"},
		"no-own":          {"github_fail", `{"connectorAuthority":"caller"}`, "nothing is run in its place"},
		"beside-it-twice": {"github_issue_list", `{"connectorAuthority":"owner","repo":"a/b","repo":"a/b"}`, "object"},
	} {
		r, res := callTool(t, c, a.tool, a.arguments)
		require.True(t, res.IsError, label)
		require.Equal(t, "refused no ARGUMENT_REJECTED", r.Outcome+" "+r.Ran+" "+r.Code, label)
		require.Contains(t, r.Message, a.want, label)
		require.Contains(t, texts(res), "nothing ran", label)
		require.Nil(t, r.ExitCode, label)
	}
	require.Zero(t, w.ran.count("issue.list")+w.ran.count("shout")+w.ran.count("fail"))
	_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "shell", Arguments: json.RawMessage(`{"command":"id"}`)})
	require.ErrorContains(t, err, "unknown tool")
	r, _ := callTool(t, c, "github_fail", `{"connectorAuthority":"owner"}`)
	require.Equal(t, "exited", r.Outcome, "the owner's is what it is anyway")
}

// Long output is cut at a character, counted and named; the command runs on.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := connect(t, newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}, MaxOutput: 1001}), nil)
	r, res := callTool(t, c, "github_flood", `{}`)
	require.False(t, res.IsError)
	require.Equal(t, strings.Repeat("ä", 500), r.Stdout.Text)
	require.Equal(t, 200_000, r.Stdout.Bytes)
	require.True(t, r.Stdout.Truncated)
	require.Equal(t, "utf-8", r.Stdout.Encoding)
	require.Contains(t, texts(res), "standard output is cut: the first 1001 of 200000 bytes are shown")
}

// A cancelled call, and a client that leaves, end the command on the gateway.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}})
	c := connect(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "github_wait"})
		failed <- err
	}()
	soon(t, w.waiting)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	soon(t, w.ended)

	gone, leave := connectLeaving(t, s, nil)
	go func() {
		_, _ = gone.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "github_wait"})
	}()
	soon(t, w.waiting)
	require.NoError(t, leave())
	soon(t, w.ended)
}

func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.Fail(t, "it did not happen")
	}
	return v
}

// Progress is told in bytes to who asks for it.
func TestProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	told := make(chan *sdk.ProgressNotificationParams, 10)
	c := connect(t, newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}}), &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		p := &sdk.CallToolParams{Name: "github_wait"}
		p.SetProgressToken("mine")
		_, _ = c.CallTool(ctx, p)
	}()
	p := soon(t, told)
	require.Equal(t, "mine", p.ProgressToken)
	require.InDelta(t, 6, p.Progress, 0)
	cancel()
	<-over
	soon(t, w.ended)
}

// The scope's end cancels what runs, and takes the tools away; clients are told.
func TestScopeEnds(t *testing.T) {
	t.Parallel()
	for label, end := range map[string]func(*world){
		"revoked": func(w *world) { w.gateway.Revoke() },
		"expired": nil,
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			changed := make(chan struct{}, 10)
			life := time.Hour
			if end == nil {
				life = 3 * time.Second
			}
			s := newServer(t, mcp.Config{Every: 100 * time.Millisecond, Lenders: []mcp.Lender{w.lender(t, func(l *lease.Lease) { l.NotAfter = l.IssuedAt.Add(life) })}})
			c := connect(t, s, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
			require.Len(t, names(t, c), 5)
			ended := make(chan *sdk.CallToolResult, 1)
			go func() {
				res, _ := c.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "github_wait"})
				ended <- res
			}()
			soon(t, w.waiting)
			if end != nil {
				end(w)
			}
			r := structured(t, soon(t, ended))
			require.Contains(t, []string{"stopped", "cancelled"}, r.Outcome)
			soon(t, w.ended)
			soon(t, changed)
			soon(t, s.Done())
			require.Empty(t, names(t, c))
			_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "github_fail"})
			require.ErrorContains(t, err, "unknown tool")
		})
	}
}

// A catalogue that changes is noticed; leases of several lenders are joined.
func TestListChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	changed := make(chan struct{}, 10)
	only := func(commands ...string) func(*lease.Lease) {
		return func(l *lease.Lease) {
			g := l.Grants[0]
			g.Commands = nil
			for _, c := range commands {
				n, err := name.ParseCommand(c)
				if err == nil {
					g.Commands = append(g.Commands, n)
				}
			}
			l.Grants = []lease.Grant{g}
		}
	}
	s := newServer(t, mcp.Config{Every: 100 * time.Millisecond, Lenders: []mcp.Lender{w.lender(t, only("fail", "shout")), w.lender(t, only("fail", "flood"))}})
	c := connect(t, s, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
	require.Equal(t, []string{"github_fail", "github_flood", "github_shout"}, names(t, c))
	require.NoError(t, w.gateway.Reload(`policy: 1
issuers:
  owner: {id: ${ISSUER}, connectors: any, max_life: 1h}
peers:
  caller: ${CALLER}
allow:
  - {name: less, to: [caller], connector: github, version: "1.0.0", commands: {flood: {}}}
`))
	soon(t, changed) // by the first of the lenders that is asked
	for !slices.Equal([]string{"github_flood"}, names(t, c)) {
		soon(t, changed)
	}
}

// More calls than may run wait; more than may wait are refused.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := connect(t, newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}, AtOnce: 1}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	busy := make(chan result, 10)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "github_wait"}); err == nil {
				busy <- structured(t, res)
			}
		})
	}
	r := soon(t, busy)
	require.Equal(t, "refused no BUSY", r.Outcome+" "+r.Ran+" "+r.Code)
	require.True(t, r.Retryable)
	soon(t, w.waiting)
	require.Equal(t, 1, w.ran.count("wait"))
	cancel()
	wg.Wait()
}

// own runs a command of the caller's own.
type own struct {
	entries []protocol.CatalogEntry
	mu      sync.Mutex
	args    [][]string
}

func (o *own) Catalog(_ context.Context, key name.ConnectorKey) (out []protocol.CatalogEntry, err error) {
	for _, e := range o.entries {
		if e.Connector == key {
			out = append(out, e)
		}
	}
	return out, nil
}

func (o *own) Run(_ context.Context, _ protocol.CatalogEntry, args []string, s broker.Streams) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.args = append(o.args, args)
	_, err := io.WriteString(s.Stdout, "here\n")
	return err
}

// The caller's own Connector is a choice where there is one, and only there.
func TestCallersOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entries, err := w.gateway.Client.Catalog(t.Context())
	require.NoError(t, err)
	o := &own{entries: slices.DeleteFunc(entries, func(e protocol.CatalogEntry) bool { return e.Command.String() != "issue.list" })}
	c := connect(t, newServer(t, mcp.Config{Lenders: []mcp.Lender{w.lender(t, nil)}, Local: o}), nil)
	for tool, err := range c.Tools(t.Context(), nil) {
		require.NoError(t, err)
		shown, err := json.Marshal(tool.InputSchema)
		require.NoError(t, err)
		require.Equal(t, tool.Name == "github_issue_list", strings.Contains(string(shown), "connectorAuthority"), tool.Name)
	}
	r, _ := callTool(t, c, "github_issue_list", `{"repo":"a/b","connectorAuthority":"caller","limit":3}`)
	require.Equal(t, "here\n", r.Stdout.Text)
	require.Equal(t, "exited caller", r.Outcome+" "+r.Authority)
	require.Equal(t, [][]string{{"--limit=3", "--repo=a/b"}}, o.args)
	require.Zero(t, w.ran.count("issue.list"))
	r, _ = callTool(t, c, "github_issue_list", `{"repo":"a/b","connectorAuthority":"owner"}`)
	require.Equal(t, "--repo=a/b\n", r.Stdout.Text)
	require.Len(t, o.args, 1)
	r, _ = callTool(t, c, "github_issue_list", `{"repo":"a/b","connectorAuthority":"caller","who":"-x"}`)
	require.Equal(t, "refused", r.Outcome, "the same grammar")
	r, _ = callTool(t, c, "github_fail", `{"connectorAuthority":"caller"}`)
	require.Equal(t, "refused no", r.Outcome+" "+r.Ran)
	require.Zero(t, w.ran.count("fail"), "no fallback")
}
