package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/native"
)

// A shim's help shows what is lent, and a gateway cannot write to the terminal by it.
func TestTellLent(t *testing.T) {
	schema := `{"type":"object","required":["to"],"properties":{
	  "to":{"type":"string","x-lend-place":{"flag":"--to"}},"dry":{"type":"boolean","x-lend-place":{"flag":"--dry"}}}}`
	evil := "\x1b]0;x\x07\u202e\n"
	lines := []native.Line{{Words: []string{"mail", "send"}, Entry: entry(t, schema)}, {Words: []string{"mail", evil}, Entry: entry(t, `{}`)}}
	var out bytes.Buffer
	tellLent(&out, "gh", lines)
	require.Contains(t, out.String(), "gh mail send --to=TO […]")
	for _, r := range strings.ReplaceAll(out.String(), "…", "") {
		require.True(t, r == '\n' || r >= ' ' && r <= '~', "%q", out.String())
	}
	out.Reset()
	tellLent(&out, "gh", []native.Line{lines[1]}) // sorted: the first is the other one
	require.Contains(t, out.String(), "Usage:\n  gh mail send")
	require.Contains(t, out.String(), "--to")

	many := make([]native.Line, maxHelpLines+5)
	for i := range many {
		many[i] = native.Line{Words: []string{fmt.Sprint(i)}, Entry: entry(t, `{}`)}
	}
	out.Reset()
	tellLent(&out, "gh", many)
	require.Contains(t, out.String(), "and 5 more")
	require.Equal(t, maxHelpLines+2, strings.Count(out.String(), "\n"))
}

// tube is a terminal of a caller's, as the broker has it.
type tube struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *tube) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *tube) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *tube) Terminal() bool { return true }

type noTerminal struct{ io.Writer }

func (noTerminal) Terminal() bool { return false }

// input is one that can be interrupted.
type input struct {
	io.Reader
	deadlines int
}

func (i *input) SetReadDeadline(time.Time) error { i.deadlines++; return nil }

// Bytes are counted on a terminal, on the way and without harm: the input can still be
// interrupted, and the command's first word on the terminal takes the line away.
func TestProgressOfStreams(t *testing.T) {
	s := &tube{}
	p := startProgress(s, time.Millisecond, time.Millisecond)
	in := p.input(&input{Reader: strings.NewReader("some words")})
	var out bytes.Buffer
	stdout, stderr := p.output(noTerminal{&out}), p.output(s)
	_, err := io.ReadAll(in)
	require.NoError(t, err)
	_, err = stdout.Write(make([]byte, 2048))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(s.text(), "lend: 10 bytes sent, 2 KiB received") }, 30*time.Second, time.Millisecond, s.text())
	require.NoError(t, in.(interruptible).SetReadDeadline(time.Unix(1, 0)))
	_, err = stderr.Write([]byte("warning\n"))
	require.NoError(t, err)
	p.end()
	require.True(t, strings.HasSuffix(s.text(), "\rwarning\n"), "%q", s.text())
	require.Equal(t, 2048, out.Len())
	require.Nil(t, p.input(nil))
}

// The broker draws on terminals alone.
func TestProgressInTheBroker(t *testing.T) {
	streams := broker.Streams{Stdin: &input{}, Stdout: io.Discard, Stderr: noTerminal{io.Discard}}
	same, end := showProgress(streams)
	end()
	require.Equal(t, streams, same)
	streams.Stderr = &tube{}
	other, end := showProgress(streams)
	require.IsType(t, &counted{}, other.Stdin)
	require.IsType(t, &drawn{}, other.Stdout)
	_, err := other.Stderr.Write([]byte("x"))
	require.NoError(t, err)
	end()
	require.Equal(t, "x", streams.Stderr.(*tube).text())
}
