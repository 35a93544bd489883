package lendtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/lendtest"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// tools is a Connector with one command of each kind.
func tools(ran *atomic.Int64) lendtest.Connector {
	return lendtest.Connector{Key: "tools", Commands: []lendtest.Command{
		{
			Name: "say",
			Declaration: argv.Declaration{Effect: argv.EffectRead, Summary: "say a word", Parameters: map[string]argv.ParameterDeclaration{
				"word": {Flag: "--word", Pattern: "[a-z]+"}, "status": {Flag: "--status", Type: argv.TypeInteger},
				"zone": {Env: "TOOLS_ZONE", Pattern: "[a-z]+"},
			}},
			Run: func(c *lendtest.Call) int {
				ran.Add(1)
				fmt.Fprintln(c.Stdout, strings.Join(c.Arguments, " "), c.Environment)
				fmt.Fprintln(c.Stderr, "said")
				status := 0
				for _, a := range c.Arguments {
					if v, ok := strings.CutPrefix(a, "--status="); ok {
						_, _ = fmt.Sscan(v, &status)
					}
				}
				return status
			},
		},
		{
			Name: "cat",
			Declaration: argv.Declaration{Parameters: map[string]argv.ParameterDeclaration{
				"bytes": {Stdin: &argv.Stdin{MaxBytes: 64 << 20}, FreeText: true},
			}},
			Run: func(c *lendtest.Call) int {
				_, _ = io.Copy(c.Stdout, c.Stdin)
				return 0
			},
		},
		{Name: "wait", Run: func(c *lendtest.Call) int {
			ran.Add(1)
			fmt.Fprintln(c.Stdout, "waiting")
			<-c.Context.Done()
			return 7
		}},
		{Name: "crash", Run: func(*lendtest.Call) int { panic("it crashed") }},
	}}
}

func run(t *testing.T, c *client.Client, args ...string) (string, error) {
	t.Helper()
	out, err := c.Command(t.Context(), "tools", args[0], args[1:]...).Output()
	return string(out), err
}

func TestRealAdmission(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g := lendtest.New(t, tools(&ran))
	out, err := run(t, g.Client, "say", "--word", "hi", "--zone=eu")
	require.NoError(t, err)
	require.Equal(t, "--word=hi [{TOOLS_ZONE eu}]\n", out, "arguments are canonical")
	_, err = run(t, g.Client, "say", "--status=3")
	require.Equal(t, 3, client.ExitStatus(err))
	_, err = run(t, g.Client, "crash")
	require.Equal(t, 139, client.ExitStatus(err))
	_, err = run(t, g.Client, "say", "--status=999")
	require.Equal(t, 139, client.ExitStatus(err), "no process has that status")

	var refused *client.RefusedError
	_, err = run(t, g.Client, "say", "--loud")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, protocol.CodeArgumentRejected, refused.Code)
	_, err = run(t, g.Client, "shout")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, protocol.CodeCommandUnknown, refused.Code)
	require.EqualValues(t, 3, ran.Load())

	all, err := g.Client.Catalog(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, "say a word", all[2].Summary)
}

func TestBytesGoThrough(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g := lendtest.New(t, tools(&ran))
	in := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	cmd := g.Client.Command(t.Context(), "tools", "cat")
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	require.NoError(t, err)
	require.True(t, bytes.Equal(in, out))
}

func TestCancel(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g := lendtest.New(t, tools(&ran))
	ctx, cancel := context.WithCancel(t.Context())
	cmd := g.Client.Command(ctx, "tools", "wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 100))
	require.NoError(t, err)
	cancel()
	_, _ = io.Copy(io.Discard, out)
	var ended *client.EndedError
	require.ErrorAs(t, cmd.Wait(), &ended)
	require.Equal(t, protocol.CodeCancelled, ended.Code)
	require.Equal(t, "SIGTERM", ended.Exit.Signal)
}

// What an owner does while something runs ends it.
func TestOwnerEndsWhatRuns(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		act  func(*testing.T, *lendtest.Gateway)
		code protocol.Code
	}{
		"revoke": {func(_ *testing.T, g *lendtest.Gateway) { g.Revoke() }, protocol.CodeLeaseRevoked},
		"reload": {func(t *testing.T, g *lendtest.Gateway) {
			t.Helper()
			require.NoError(t, g.Reload("policy: 1\nissuers:\n  owner: {id: ${ISSUER}, connectors: any}\npeers:\n  caller: ${CALLER}\n"))
		}, protocol.CodePolicyChanged},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			var ran atomic.Int64
			g := lendtest.New(t, tools(&ran))
			cmd := g.Client.Command(t.Context(), "tools", "wait")
			require.NoError(t, cmd.Start())
			c.act(t, g)
			var ended *client.EndedError
			require.ErrorAs(t, cmd.Wait(), &ended)
			require.Equal(t, c.code, ended.Code)
		})
	}
}

// A lease that is issued after a revocation is good.
func TestLeases(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g := lendtest.New(t, tools(&ran))
	g.Revoke()
	_, err := run(t, g.Client, "say")
	var refused *client.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, protocol.CodeLeaseRevoked, refused.Code)
	again, err := g.NewCaller(client.Config{})
	require.NoError(t, err)
	_, err = run(t, again, "say")
	require.NoError(t, err)

	narrow, err := g.Lease(func(l *lease.Lease) {
		l.Grants = []lease.Grant{{Connector: l.Grants[0].Connector, Version: l.Grants[0].Version, Commands: []name.Command{must(name.ParseCommand("cat"))}}}
	})
	require.NoError(t, err)
	c, err := g.NewCaller(client.Config{Leases: client.Static(narrow)})
	require.NoError(t, err)
	_, err = run(t, c, "say")
	require.Equal(t, 127, client.ExitStatus(err))

	stale, err := g.Lease(func(l *lease.Lease) { l.IssuedAt, l.NotBefore, l.NotAfter = ago(2), ago(2), ago(1) })
	require.NoError(t, err)
	c, err = g.NewCaller(client.Config{Leases: client.Static(stale), SkipLeaseCheck: true})
	require.NoError(t, err)
	_, err = run(t, c, "say")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, protocol.CodeLeaseExpired, refused.Code)
	require.EqualValues(t, 1, ran.Load())
}

func ago(minutes int) time.Time { return time.Now().Add(-time.Duration(minutes) * time.Minute) }

// A link that is lost does not end the command: the client joins it again.
func TestCut(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g := lendtest.New(t, tools(&ran))
	cmd := g.Client.Command(t.Context(), "tools", "cat")
	var out bytes.Buffer
	cmd.Stdout = &out
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	g.Cut()
	_, err = in.Write([]byte("hello"))
	require.NoError(t, err)
	g.Mend()
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	require.Equal(t, "hello", out.String())
}

func TestPolicyOfTheTest(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g := lendtest.Config{Connectors: []lendtest.Connector{tools(&ran)}, Policy: `
policy: 1
issuers:
  owner: {id: "${ISSUER}", connectors: any}
peers:
  caller: "${CALLER}"
allow:
  - name: one word
    to: [caller]
    connector: tools
    version: "1.0.0"
    commands: {say: {word: {const: hi}}}
`}.New(t)
	_, err := run(t, g.Client, "say", "--word=hi")
	require.NoError(t, err)
	_, err = run(t, g.Client, "say", "--word=ho")
	require.Equal(t, 126, client.ExitStatus(err))
	_, err = run(t, g.Client, "cat")
	require.Equal(t, 127, client.ExitStatus(err))
}

type failing struct{ said string }

func (f *failing) Helper()                           {}
func (f *failing) Cleanup(func())                    {}
func (f *failing) Fatalf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	ok := func(*lendtest.Call) int { return 0 }
	for label, c := range map[string]lendtest.Config{
		"nothing":     {},
		"key":         {Connectors: []lendtest.Connector{{Key: "A b"}}},
		"version":     {Connectors: []lendtest.Connector{{Key: "a", Version: "latest"}}},
		"name":        {Connectors: []lendtest.Connector{{Key: "a", Commands: []lendtest.Command{{Name: "a b", Run: ok}}}}},
		"no-run":      {Connectors: []lendtest.Connector{{Key: "a", Commands: []lendtest.Command{{Name: "b"}}}}},
		"declaration": {Connectors: []lendtest.Connector{{Key: "a", Commands: []lendtest.Command{{Name: "b", Run: ok, Declaration: argv.Declaration{Parameters: map[string]argv.ParameterDeclaration{"p": {}}}}}}}},
		"policy":      {Connectors: []lendtest.Connector{{Key: "a", Commands: []lendtest.Command{{Name: "b", Run: ok}}}}, Policy: "policy: 9\n"},
		"no-grants":   {Runtime: &nothing{}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			_, err := lendtest.Open(c)
			require.Error(t, err)
			var f failing
			require.Nil(t, c.New(&f))
			require.NotEmpty(t, f.said)
		})
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	g, err := lendtest.Open(lendtest.Config{Connectors: []lendtest.Connector{tools(&ran)}})
	require.NoError(t, err)
	cmd := g.Client.Command(t.Context(), "tools", "wait")
	require.NoError(t, cmd.Start())
	require.NoError(t, g.Close())
	require.Error(t, cmd.Wait())
	require.NoError(t, g.Close())
	_, err = g.NewCaller(client.Config{})
	require.Error(t, err)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
