package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func entry(t *testing.T, schema string) protocol.CatalogEntry {
	t.Helper()
	e := protocol.CatalogEntry{Summary: "sum\x1b[2Jmary", Effect: "read", InputSchema: json.RawMessage(schema), Limits: protocol.Limits{Stdout: protocol.NoLimit}}
	var err error
	e.Connector, err = name.ParseConnectorKey("fx")
	require.NoError(t, err)
	e.Version, err = name.ParseVersion("1.0.0")
	require.NoError(t, err)
	e.Command, err = name.ParseCommand("do")
	require.NoError(t, err)
	return e
}

// A gateway cannot write to the caller's terminal through its catalogue.
func TestCatalogIsEscaped(t *testing.T) {
	const evil = `\u001b[31m\u202e\u0007\n`
	e := entry(t, `{"type":"object","description":"`+evil+`","properties":{
	  "a":{"type":"string","description":"`+evil+`","enum":["`+evil+`"],"pattern":"`+evil+`","x-lend-place":{"flag":"--a`+evil+`","aliases":["`+evil+`"]}},
	  "b":{"type":"`+evil+`","x-lend-place":{"position":1}},
	  "c":{"type":"array","items":{"type":"string"},"minItems":2,"maxItems":3,"x-lend-place":{"flag":"--c","separator":"`+evil+`"}}}}`)
	for _, detailed := range []bool{true, false} {
		var out bytes.Buffer
		a := newApp(nil, strings.NewReader(""), &out, io.Discard)
		require.NoError(t, a.showCatalog([]protocol.CatalogEntry{e}, detailed))
		for _, r := range out.String() {
			require.True(t, r == '\n' || r >= ' ' && r <= '~', "%q", out.String())
		}
		require.Contains(t, out.String(), `\x1b[2J`)
	}
	var out bytes.Buffer
	a := newApp(nil, strings.NewReader(""), &out, io.Discard)
	require.NoError(t, a.describe(entry(t, `false`)))
	require.Contains(t, out.String(), "cannot be read")
	require.Contains(t, out.String(), "any amount of output")
}

// A synopsis can be read: nothing that lend itself writes there is quoted.
func TestUsageOfAList(t *testing.T) {
	var out bytes.Buffer
	a := newApp(nil, strings.NewReader(""), &out, io.Discard)
	require.NoError(t, a.describe(entry(t, `{"type":"object","properties":{
	  "tag":{"type":"array","items":{"type":"string"},"x-lend-place":{"flag":"--tag"}}}}`)))
	require.Contains(t, out.String(), "fx do [--tag=TAG...]\n")
}

func TestNothingIsLent(t *testing.T) {
	var out, errs bytes.Buffer
	a := newApp(nil, strings.NewReader(""), &out, &errs)
	require.NoError(t, a.showCatalog(nil, false))
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), "ask the owner")
	a.json = true
	require.NoError(t, a.showCatalog(nil, false))
	require.JSONEq(t, `{"schemaVersion":1,"commands":[]}`, out.String())
}

func TestAdviceOfRefusals(t *testing.T) {
	refused := &client.RefusedError{Code: protocol.CodePolicyDenied}
	require.Equal(t, protocol.CodePolicyDenied.Advice(), hintOf(advised(refused)))
	require.Equal(t, protocol.CodeTimeout.Advice(), hintOf(advised(&client.EndedError{Code: protocol.CodeTimeout})))
	require.Empty(t, hintOf(advised(&client.EndedError{Code: protocol.CodeOutcomeUnknown})), "lend run says how to go on")
	require.Empty(t, hintOf(advised(io.EOF)))
	require.NoError(t, advised(nil))
	require.Equal(t, "do this", hintOf(advised(hintf("do this", "%w", refused))))
}

// screen is a terminal of one line, and what has passed over it.
type screen struct{ bytes.Buffer }

func (s *screen) line() string {
	text := s.String()
	return strings.TrimRight(text[strings.LastIndexByte(text, '\r')+1:], " ")
}

func TestProgress(t *testing.T) {
	var tty screen
	p := startProgress(&tty, time.Hour, time.Hour)
	p.draw()
	require.Empty(t, tty.String(), "nothing has passed")
	var file bytes.Buffer
	out := p.output(&file)
	_, err := out.Write(make([]byte, 3<<20))
	require.NoError(t, err)
	p.draw()
	require.Contains(t, tty.line(), "lend: 0 bytes sent, 3 MiB received")
	require.Equal(t, 3<<20, file.Len(), "the output is the command's alone")
	require.NotContains(t, tty.String(), "\x1b")
	p.end()
	require.Empty(t, tty.line(), "the line is gone")
	p.draw()
	require.Empty(t, tty.line())
}

// The command's first word on the terminal ends the line for good.
func TestProgressGivesWay(t *testing.T) {
	var tty screen
	p := startProgress(&tty, time.Hour, time.Hour)
	defer p.end()
	p.out.Add(5)
	p.draw()
	own := &drawn{&tty, p, true}
	_, err := own.Write([]byte("Password"))
	require.NoError(t, err)
	p.draw()
	require.Equal(t, "Password", tty.line())
}

func TestProgressCountsInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(file, []byte("hello"), 0o600))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	p := startProgress(io.Discard, time.Hour, time.Hour)
	defer p.end()
	b, err := io.ReadAll(p.input(f))
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	require.EqualValues(t, 5, p.in.Load())
	require.Nil(t, p.input(nil))
	var none *progress
	require.Equal(t, f, none.input(f))
	require.Equal(t, io.Discard, none.output(io.Discard))
	none.end()
}

func TestProgressIsForTerminals(t *testing.T) {
	device, err := os.OpenFile("/dev/zero", os.O_WRONLY, 0) // a character device
	require.NoError(t, err)
	defer device.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	a := newApp(nil, strings.NewReader(""), io.Discard, device)
	p := a.newProgress(false)
	require.NotNil(t, p)
	p.end()
	require.Nil(t, a.newProgress(true), "--quiet")
	t.Setenv("TERM", "dumb")
	require.Nil(t, a.newProgress(false))
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	require.Nil(t, a.newProgress(false))
	t.Setenv("NO_COLOR", "")
	a.json = true
	require.Nil(t, a.newProgress(false))
	require.Nil(t, newApp(nil, nil, io.Discard, &bytes.Buffer{}).newProgress(false), "a pipe")
	require.Nil(t, newApp(nil, nil, io.Discard, null).newProgress(false), "nobody")
}

// Every command has its page, and no line of one is a request that we did not write.
func TestManual(t *testing.T) {
	root := newApp(nil, strings.NewReader(""), io.Discard, io.Discard).root()
	dir := filepath.Join(t.TempDir(), "man")
	pages, err := writeManual(root, dir)
	require.NoError(t, err)
	n := 0
	walk(root, func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		n++
		b, err := os.ReadFile(filepath.Join(dir, manualName(c)+".1"))
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, ".") {
				require.Regexp(t, `^\.(TH|SH|TP|B|BR|nf|fi)\b`, line)
			}
			require.False(t, strings.HasPrefix(line, "'"), line)
		}
		require.Contains(t, string(b), ".SH NAME\n"+strings.ReplaceAll(manualName(c), "-", `\-`))
	})
	require.Len(t, pages, n)
	require.Equal(t, `\&.x \e \-`, roffText(`.x \ -`))
	require.Equal(t, `\&'x`, roffText(`'x`))
}
