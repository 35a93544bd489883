package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
	"github.com/lendcli/lend/lease"
)

// inspectorPackage is the MCP inspector: the newest one whose command line runs on Node 20,
// though it asks for 22.
const inspectorPackage = "@modelcontextprotocol/inspector@1.0.3"

// toolResult is what the tests look at of a structured result.
type toolResult struct {
	Outcome, Ran, Code, Authority string
	ExitCode                      *int
	Stdout, Stderr                struct {
		Text, Encoding string
		Bytes          int
		Truncated      bool
	}
}

// heard is a client of the SDK with what it is told.
type heard struct {
	*sdk.ClientSession
	changed  chan struct{}
	progress chan float64
}

func connectMCP(t *testing.T, transport sdk.Transport) *heard {
	t.Helper()
	h := &heard{changed: make(chan struct{}, 100), progress: make(chan float64, 1000)}
	var err error
	h.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { h.changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { h.progress <- r.Params.Progress },
	}).Connect(t.Context(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func (h *heard) call(t *testing.T, tool, arguments string) (r toolResult) {
	t.Helper()
	res, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	require.NoError(t, err)
	data, err := json.Marshal(res.StructuredContent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &r))
	require.Equal(t, r.ExitCode == nil || *r.ExitCode != 0, res.IsError)
	return r
}

func (h *heard) has(t *testing.T, tool string) bool {
	t.Helper()
	for one, err := range h.Tools(t.Context(), nil) {
		require.NoError(t, err)
		if one.Name == tool {
			return true
		}
	}
	return false
}

// comes waits until the client is told, without asking, that the list has changed, and
// the tool is there then. What it is told first may be of the list that it began with.
func (h *heard) comes(t *testing.T, tool string) {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case <-h.changed:
			if h.has(t, tool) {
				return
			}
		case <-end:
			require.Fail(t, "nothing has changed")
		}
	}
}

// tryTools is what a client sees whatever is between: bytes, exit codes, input, refusals,
// a cancel and progress. The long ones only if full is set.
func (s *served) tryTools(t *testing.T, h *heard) {
	t.Helper()
	began := s.starts()
	r := h.call(t, "fx_print", `{"bytes":100000}`)
	require.Equal(t, 100_000, r.Stdout.Bytes)
	require.Len(t, r.Stdout.Text, 65536)
	require.True(t, r.Stdout.Truncated)
	require.True(t, strings.HasPrefix(r.Stdout.Text, "0123456789"))
	r = h.call(t, "fx_errprint", `{"bytes":5}`)
	require.Equal(t, "01234", r.Stderr.Text)
	r = h.call(t, "fx_exit", `{"status":7}`)
	require.Equal(t, 7, *r.ExitCode)
	r = h.call(t, "fx_die", `{"number":9}`)
	require.Equal(t, "signalled yes", r.Outcome+" "+r.Ran)
	input := strings.Repeat("ü\n", 30_000)
	object, err := json.Marshal(map[string]string{"bytes": input})
	require.NoError(t, err)
	r = h.call(t, "fx_cat", string(object))
	require.Equal(t, input[:65535], r.Stdout.Text)
	require.Equal(t, len(input), r.Stdout.Bytes)
	r = h.call(t, "fx_args", `{"word":"abc","count":3,"dry":true,"name":"me"}`)
	require.Contains(t, r.Stdout.Text, "--word")
	require.Equal(t, began+6, s.starts())

	for _, arguments := range []string{`{"word":"ABC"}`, `{"word":1}`, `{"count":11}`, `{"other":1}`, `{"word":"a","word":"b"}`, `[]`, `{"connectorAuthority":"caller"}`} {
		r = h.call(t, "fx_args", arguments)
		require.Equal(t, "refused no ARGUMENT_REJECTED", r.Outcome+" "+r.Ran+" "+r.Code, arguments)
	}
	_, err = h.CallTool(t.Context(), &sdk.CallToolParams{Name: "fx_nothing"})
	require.Error(t, err)
	require.Equal(t, began+6, s.starts())

	ctx, cancel := context.WithCancel(t.Context())
	p := &sdk.CallToolParams{Name: "fx_deaf"}
	p.SetProgressToken("p")
	over := make(chan error, 1)
	go func() {
		_, err := h.CallTool(ctx, p)
		over <- err
	}()
	select {
	case now := <-h.progress:
		require.InDelta(t, 5, now, 0) // what it says before it sleeps
	case <-time.After(patience):
		require.Fail(t, "no progress is told")
	}
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	s.nothingRuns(t)
}

// nothingRuns waits until the gateway has ended everything.
func (s *served) nothingRuns(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, err := s.lend(s.vars["OWNER"], "ops", "list", "--json")
		return err == nil && !strings.Contains(out, `"running"`)
	}, patience, 50*time.Millisecond)
}

// The official SDK's client, the real program on its standard streams, and a real gateway
// over both transports.
func TestMCPStdio(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for transport, part := range transports() {
		cmd := s.command(s.vars["CALLER"], "mcp", "--lease", s.leaseFile(t, over(s.file, part)))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		h := connectMCP(t, &sdk.CommandTransport{Command: cmd, TerminateDuration: patience})
		s.tryTools(t, h)
		// the client leaves while something runs
		began := s.starts()
		go func() { _, _ = h.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "fx_sleep"}) }()
		require.Eventually(t, func() bool { return s.starts() > began }, patience, 20*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM), transport)
		require.NoError(t, h.Wait())
		s.nothingRuns(t)
		require.NotContains(t, stderr.String(), "panic", transport)
	}
}

// Standard output carries the protocol and nothing else, also if it never begins.
func TestMCPStdoutIsTheProtocols(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cmd := s.command(s.vars["CALLER"], "mcp", "--log", "debug", "--json", "--lease", s.leaseFile(t, s.file))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}
this is no message
`+strings.Repeat("nor is this ", 200_000)+`
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fx_exit","arguments":{"status":3.0}}}
`)
	require.NoError(t, err)
	messages := json.NewDecoder(out)
	codes := ""
	for id := 0; id != 2; {
		var m struct {
			Version string `json:"jsonrpc"`
			ID      int    `json:"id"`
			Error   *struct{ Code int }
			Result  struct {
				Structured toolResult `json:"structuredContent"`
			}
		}
		require.NoError(t, messages.Decode(&m))
		require.Equal(t, "2.0", m.Version)
		if id = m.ID; m.Error != nil {
			codes += strconv.Itoa(m.Error.Code)
		}
		if id == 2 {
			require.Equal(t, 3, *m.Result.Structured.ExitCode)
		}
	}
	require.Equal(t, "-32600-32700-32600", codes, "what is no message is answered, and ends nothing")
	require.NoError(t, in.Close())
	rest, err := io.ReadAll(io.MultiReader(messages.Buffered(), out))
	require.NoError(t, err)
	require.Empty(t, strings.TrimSpace(string(rest)))
	require.NoError(t, cmd.Wait())
	var stdout bytes.Buffer
	for _, args := range [][]string{{"mcp", "--json"}, {"mcp", "--json", "--lease", "absent"}, {"mcp", "--lease", "-"}} {
		cmd := s.command(s.vars["CALLER"], args...)
		stdout.Reset()
		cmd.Stdout = &stdout
		require.Error(t, cmd.Run())
		require.Empty(t, stdout.String())
	}
}

// withBearer says a bearer, and what else a test says.
type withBearer struct {
	bearer string
	change func(*http.Request)
}

func (w withBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.bearer)
	if w.change != nil {
		w.change(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP runs lend mcp --listen until the test ends.
func (s *served) overHTTP(t *testing.T, path string, env ...string) (url, bearer string, cmd *exec.Cmd, ended chan error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bearer")
	args := []string{"mcp", "--listen", "127.0.0.1:0", "--bearer-file", file, "--json"}
	if path != "" {
		args = append(args, "--lease", path)
	}
	cmd = s.command(s.vars["CALLER"], args...)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = s.log
	require.NoError(t, cmd.Start())
	var ready struct{ URL, Bearer, BearerFile, Invocation string }
	require.NoError(t, json.NewDecoder(out).Decode(&ready))
	ended = make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, out)
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Empty(t, ready.Bearer)
	require.Equal(t, path != "", ready.Invocation != "")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	bearer = strings.TrimSpace(string(text))
	require.Len(t, bearer, 52)
	for _, of := range []string{"cmdline", "environ"} {
		seen, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), of))
		require.True(t, err != nil || !bytes.Contains(seen, []byte(bearer)))
	}
	return ready.URL, bearer, cmd, ended
}

// Streamable HTTP: the same tools, for who has the bearer and says the endpoint's own
// host and origin; nothing for others.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, part := range transports() {
		url, bearer, cmd, ended := s.overHTTP(t, s.leaseFile(t, over(s.file, part)))
		h := connectMCP(t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withBearer{bearer, nil}}})
		s.tryTools(t, h)

		status := func(bearer string, change func(*http.Request)) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			res, err := withBearer{bearer, change}.RoundTrip(r)
			require.NoError(t, err)
			_ = res.Body.Close()
			return res.StatusCode
		}
		require.Equal(t, http.StatusUnauthorized, status("", nil))
		require.Equal(t, http.StatusUnauthorized, status(bearer+"x", nil))
		require.Equal(t, http.StatusUnauthorized, status(bearer, func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+bearer) }))
		require.Equal(t, http.StatusForbidden, status(bearer, func(r *http.Request) { r.Host = "evil.example" }))
		require.Equal(t, http.StatusForbidden, status(bearer, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }))
		require.Equal(t, http.StatusForbidden, status(bearer, func(r *http.Request) { r.Header.Set("Origin", "null") }))
		require.NotContains(t, []int{401, 403}, status(bearer, func(r *http.Request) { r.Header.Set("Origin", strings.TrimSuffix(url, "/mcp")) }))

		// a client that ends its session, or vanishes, leaves nothing behind
		began := s.starts()
		other := connectMCP(t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withBearer{bearer, nil}}})
		ctx, vanish := context.WithCancel(t.Context())
		go func() { _, _ = other.CallTool(context.WithoutCancel(ctx), &sdk.CallToolParams{Name: "fx_sleep"}) }()
		require.Eventually(t, func() bool { return s.starts() > began }, patience, 20*time.Millisecond)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
		require.NoError(t, err)
		r.Header.Set("Mcp-Session-Id", other.ID())
		res, err := withBearer{bearer, nil}.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusNoContent, res.StatusCode)
		vanish()
		s.nothingRuns(t)

		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.NoError(t, <-ended)
	}
}

// A caller whose connection breaks cannot hear the result: its call is cancelled.
func TestMCPClientVanishes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	url, bearer, cmd, ended := s.overHTTP(t, s.leaseFile(t, s.file))
	h := connectMCP(t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withBearer{bearer, nil}}})
	ctx, vanish := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"fx_sleep"}}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", h.ID())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := (withBearer{bearer, nil}).RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return s.starts() > 0 }, patience, 20*time.Millisecond)
	vanish()
	<-gone
	s.nothingRuns(t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, <-ended)
}

// When the last lease has ended, the bearer is of no use and the program ends by itself.
func TestMCPBearerEndsWithItsScope(t *testing.T) {
	t.Parallel()
	s := serve(t)
	f := s.issue("caller", "sleep", "exit")
	url, bearer, _, ended := s.overHTTP(t, s.leaseFile(t, f))
	h := connectMCP(t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withBearer{bearer, nil}}})
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = h.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "fx_sleep"})
	}()
	require.Eventually(t, func() bool { return s.starts() > 0 }, patience, 20*time.Millisecond)
	_, err := s.lend(s.vars["OWNER"], "lease", "revoke", s.leaseFile(t, f))
	require.NoError(t, err)
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "it goes on")
	}
	s.nothingRuns(t)
	<-over
}

// The broker's leases: what is accepted later is there too, and nothing is when the
// session is closed.
func TestMCPSession(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/world/policy.yaml")
	require.NoError(t, err)
	s := serveUnder(t, strings.Replace(string(text), "endless: {}}", "endless: {}, hidden: {}}", 1))
	s.file = s.issue("caller", strings.Fields(everything)...)
	home := s.vars["CALLER"]
	broker := s.command(home, "broker")
	broker.Stderr = s.log
	require.NoError(t, broker.Start())
	var stopped sync.WaitGroup
	stopped.Go(func() { _ = broker.Wait() })
	t.Cleanup(func() {
		_ = broker.Process.Signal(syscall.SIGINT)
		stopped.Wait()
	})
	require.Eventually(t, func() bool {
		_, err := s.lend(home, "broker", "status")
		return err == nil
	}, patience, 50*time.Millisecond)
	accept := func(f lease.File) string {
		out, err := s.lend(home, "lease", "accept", "--json", s.leaseFile(t, f))
		require.NoError(t, err)
		var a struct{ Session string }
		require.NoError(t, json.Unmarshal([]byte(out), &a))
		return a.Session
	}
	session := accept(over(s.file, "/tcp/"))
	cmd := s.command(home, "mcp", "--log", "debug")
	cmd.Env = append(cmd.Env, "LEND_SESSION="+session)
	h := connectMCP(t, &sdk.CommandTransport{Command: cmd, TerminateDuration: patience})
	require.False(t, h.has(t, "fx_hidden"))
	url, bearer, _, ended := s.overHTTP(t, "", "LEND_SESSION="+session)
	web := connectMCP(t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withBearer{bearer, nil}}})
	more, err := s.lend(s.vars["OWNER"], "lease", "issue", "--to", "caller", "--local-addresses", "--life", "1h", "--invocation", s.file.Lease.Invocation.String(), "--out", "-", "fx", "hidden")
	require.NoError(t, err)
	f, err := lease.ParseArmor([]byte(more), lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	require.Equal(t, session, accept(f), "the same session")
	h.comes(t, "fx_hidden") // before the first use, which freezes what the invocation may do
	web.comes(t, "fx_hidden")
	s.tryTools(t, h)
	closing := s.command(home, "broker", "close")
	closing.Env = append(closing.Env, "LEND_SESSION="+session)
	require.NoError(t, closing.Run())
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "the bearer outlives its session")
	}
	require.Eventually(t, func() bool { return !h.has(t, "fx_print") }, patience, 50*time.Millisecond)
	require.NoError(t, h.Close())
}

// A lease file that is replaced, and one that has ended, are noticed without being asked for.
func TestMCPLeaseFileIsWatched(t *testing.T) {
	t.Parallel()
	s := serve(t)
	more := s.file
	few, err := s.lend(s.vars["OWNER"], "lease", "issue", "--to", "caller", "--local-addresses", "--life", "1h", "--invocation", more.Lease.Invocation.String(), "--out", "-", "fx", "exit")
	require.NoError(t, err)
	f, err := lease.ParseArmor([]byte(few), lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	path := s.leaseFile(t, f)
	h := connectMCP(t, &sdk.CommandTransport{Command: s.command(s.vars["CALLER"], "mcp", "--lease", path), TerminateDuration: patience})
	require.False(t, h.has(t, "fx_print"))
	require.NoError(t, os.Rename(s.leaseFile(t, more), path))
	h.comes(t, "fx_print")
	require.NoError(t, h.Close())
}

// connectorAuthority on real machines: the caller's own Connector under the caller's own
// policy, or nothing.
func TestMCPCallersOwn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	home, own := s.vars["CALLER"], filepath.Join(s.dir, "own")
	for _, args := range [][]string{{"connector", "add", filepath.Join(s.dir, "fx")}, {"connector", "setting", "set", "fx", "FX_COUNT", own}} {
		_, err := s.lend(home, args...)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(home, "policy.yaml"), []byte(`policy: 1
issuers:
  me: {id: `+s.vars["CALLER_KEY"]+`, connectors: [fx]}
peers:
  self: `+s.vars["CALLER_ID"]+`
commands:
  fx:
    exit:
      effect: read
      arguments: [exit]
      parameters: {status: {position: 1, type: integer, minimum: 0, maximum: 9, required: true}}
allow:
  - {name: mine, to: [self], connector: fx, version: "1.0.0", commands: {exit: {}}}
`), 0o600))
	h := connectMCP(t, &sdk.CommandTransport{Command: s.command(home, "mcp", "--lease", s.leaseFile(t, s.file)), TerminateDuration: patience})
	for tool, err := range h.Tools(t.Context(), nil) {
		require.NoError(t, err)
		schema, err := json.Marshal(tool.InputSchema)
		require.NoError(t, err)
		require.Equal(t, tool.Name == "fx_exit", bytes.Contains(schema, []byte("connectorAuthority")), tool.Name)
	}
	r := h.call(t, "fx_exit", `{"status":4,"connectorAuthority":"caller"}`)
	require.Equal(t, "exited caller", r.Outcome+" "+r.Authority)
	require.Equal(t, 4, *r.ExitCode)
	require.Zero(t, s.starts())
	require.Equal(t, 1, lines(own))
	r = h.call(t, "fx_exit", `{"status":10,"connectorAuthority":"caller"}`)
	require.Equal(t, "refused no", r.Outcome+" "+r.Ran, "its own grammar")
	r = h.call(t, "fx_exit", `{"status":10,"connectorAuthority":"owner"}`)
	require.Equal(t, "exited owner", r.Outcome+" "+r.Authority)
	r = h.call(t, "fx_args", `{"connectorAuthority":"caller"}`)
	require.Equal(t, "refused no", r.Outcome+" "+r.Ran)
	_, err := s.lend(home, "connector", "remove", "fx")
	require.NoError(t, err)
	r = h.call(t, "fx_exit", `{"status":4,"connectorAuthority":"caller"}`)
	require.Equal(t, "refused no", r.Outcome+" "+r.Ran, "no fallback")
	require.Equal(t, 1, s.starts())
	require.Equal(t, 1, lines(own))
	require.NoError(t, h.Close())
}

// The command line of the MCP inspector lists and calls tools.
func TestMCPInspector(t *testing.T) {
	t.Parallel()
	if !fullRun() {
		t.Skip("needs LEND_TEST_FULL=1: the MCP inspector from a package registry")
	}
	rig.Need(t, "npm", "node")
	s := serve(t)
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", inspectorPackage).CombinedOutput()
	require.NoError(t, err, "%s", out)
	path := s.leaseFile(t, s.file)
	inspect := func(to []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", ".bin", "mcp-inspector"), append(append([]string{"--cli"}, to...), args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	stdio := []string{"-e", "LEND_DIR=" + s.vars["CALLER"], "-e", "LEND_LEASE_FILE=" + path, filepath.Join(s.bin, "lend"), "mcp"}
	url, bearer, cmd, ended := s.overHTTP(t, path)
	for _, to := range [][]string{stdio, {url, "--transport", "http", "--header", "Authorization: Bearer " + bearer}} {
		list := inspect(to, "--method", "tools/list")
		require.Contains(t, list, `"fx_print"`)
		require.Contains(t, list, `"outputSchema"`)
		called := inspect(to, "--method", "tools/call", "--tool-name", "fx_print", "--tool-arg", "bytes=5")
		require.Contains(t, called, `"text": "01234"`)
		require.Contains(t, called, `"exitCode": 0`)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, <-ended)
}

// A second signal ends the program at once, whatever it still waits for.
func TestMCPSecondSignal(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cmd := s.command(s.vars["CALLER"], "mcp", "--lease", s.leaseFile(t, s.file))
	cmd.Stderr = s.log
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fx_deaf","arguments":{}}}
`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.starts() == 1 }, patience, 20*time.Millisecond)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGTERM) // one that has ended is not found
		}
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGTERM, status.Signal(), "%s", cmd.ProcessState)
}

// A client that takes nothing of what it has asked for keeps the program from ending no
// longer than a moment.
func TestMCPStalledClient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cmd := s.command(s.vars["CALLER"], "mcp", "--max-output", "1000000", "--lease", s.leaseFile(t, s.file))
	cmd.Stderr = s.log
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // one that has ended is not found
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fx_print","arguments":{"bytes":900000}}}
`)
	require.NoError(t, err)
	_, err = io.ReadFull(out, make([]byte, 1000)) // the beginning: the rest is more than a pipe holds
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.starts() == 1 }, patience, 20*time.Millisecond)
	s.nothingRuns(t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() {
		state, err := cmd.Process.Wait()
		if err == nil && !state.Success() {
			err = errors.New(state.String())
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "it waits for its client")
	}
}
