package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const most = 1000

// connect connects to what has been written.
func connect(t testing.TB, in string) (*conn, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	c, err := (&Transport{Reader: io.NopCloser(strings.NewReader(in)), Writer: &out, MaxLine: most}).Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	mine, ok := c.(*conn)
	require.True(t, ok)
	return mine, &out
}

// all reads to the end: methods of requests, "=ID" of answers.
func all(t testing.TB, c *conn) (got []string) {
	t.Helper()
	for {
		m, err := c.Read(t.Context())
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			return got
		}
		switch m := m.(type) {
		case *jsonrpc.Request:
			got = append(got, m.Method)
		case *jsonrpc.Response:
			got = append(got, fmt.Sprint("=", m.ID.Raw()))
		}
	}
}

// said are the IDs and the codes of what was written.
func said(t testing.TB, out *bytes.Buffer) (lines []string) {
	t.Helper()
	for line := range strings.Lines(out.String()) {
		require.True(t, strings.HasSuffix(line, "\n"))
		var m struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Error   struct {
				Code    int
				Message string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		require.Equal(t, "2.0", m.Version)
		require.NotEmpty(t, m.Error.Message)
		lines = append(lines, fmt.Sprintf("%s %d", m.ID, m.Error.Code))
	}
	return lines
}

const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`

// A line that is no message is answered, and what follows it is read.
func TestLinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	long := `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("a", most) + `"}`
	for in, want := range map[string]string{
		`{`: "null -32700", `nonsense`: "null -32700", ping + ping: "null -32700", ping + " x": "null -32700", "{\"a\":\"\xff\"}": "null -32700", `{"a":1,}`: "null -32700",
		"\x00": "null -32700", "\ufeff" + ping: "null -32700", strings.Repeat("[", 900): "null -32700",
		`{}`: "null -32600", `null`: "null -32600", `7`: "null -32600", `"ping"`: "null -32600", `[]`: "null -32600", `[` + ping + `]`: "null -32600",
		`{"jsonrpc":"1.0","id":1,"method":"a"}`: "1 -32600", `{"id":"x","method":"a"}`: `"x" -32600`, `{"jsonrpc":"2.0","id":3,"method":5}`: "3 -32600",
		`{"jsonrpc":"2.0","id":null,"method":"a"}`: "null -32600", `{"jsonrpc":"2.0","id":1.5,"method":"a"}`: "null -32600", `{"jsonrpc":"2.0","id":true,"method":"a"}`: "null -32600",
		`{"jsonrpc":"2.0","id":{},"method":"a"}`: "null -32600", `{"jsonrpc":"2.0","id":9007199254740993,"method":"a"}`: "null -32600", `{"jsonrpc":"2.0","id":1e999,"method":"a"}`: "null -32600",
		`{"jsonrpc":"1.0","id":1,"result":{}}`: "null -32600", `{"jsonrpc":"2.0"}`: "null -32600",
		long: "null -32600", strings.Repeat("x", 10*readSize): "null -32600",
		ping + "\n" + ping: "null -32600", // the ID is in use
		strings.Repeat(`{"a":`, 150) + "1" + strings.Repeat("}", 150): "null -32600",
	} {
		for _, end := range []string{"\n", "\r\n"} {
			c, out := connect(t, in+end+`{"jsonrpc":"2.0","id":"good","method":"good"}`+end+end+"  "+end)
			got := all(t, c)
			require.Equal(t, "good", got[len(got)-1], "%.60q", in)
			require.Len(t, got, 1+strings.Count(in, "\n"), "%.60q", in)
			require.Equal(t, []string{want}, said(t, out), "%.60q", in)
		}
	}
}

// An answer says what was wrong, and nothing of what was said.
func TestAnswersSayWhy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"secret"`: "a message is an object", `{"id":1.5,"secret":1}`: "an id is", `{"method":"secret"}`: "no message of JSON-RPC 2.0", `secret`: "one JSON value",
		"[1]": "no batches", strings.Repeat("secret", most): "at most 1000 bytes",
	} {
		c, out := connect(t, in)
		require.Empty(t, all(t, c))
		require.Contains(t, out.String(), want)
		require.NotContains(t, out.String(), "secret")
	}
}

// What is a message is read as it is, also the last one without an end of its line.
func TestMessages(t *testing.T) {
	t.Parallel()
	exact := ping[:len(ping)-1] + `,"x":"` + strings.Repeat("a", most-len(ping)-len(`,"x":""`)) + `"}`
	require.Len(t, exact, most)
	for in, want := range map[string]string{
		ping: "ping", "  " + ping + "\t": "ping", exact: "ping", `{"jsonrpc":"2.0","method":"note"}`: "note", `{"jsonrpc":"2.0","id":"a","result":{}}`: "=a",
		`{"jsonrpc":"2.0","id":-9007199254740991,"method":"a"}`: "a", `{"jsonrpc":"2.0","id":2.0,"method":"a"}`: "a", `{"jsonrpc":"2.0","id":"","method":"a"}`: "a",
	} {
		for _, end := range []string{"", "\n", "\r\n", "\n\n\n"} {
			c, out := connect(t, in+end)
			require.Equal(t, []string{want}, all(t, c), "%.60q", in)
			require.Empty(t, out.String())
		}
	}
	c, out := connect(t, exact+"a")
	require.Empty(t, all(t, c))
	require.Equal(t, []string{"null -32600"}, said(t, out))
}

func respond(t *testing.T, c *conn, id any, result string, err error) {
	t.Helper()
	made, merr := jsonrpc.MakeID(id)
	require.NoError(t, merr)
	require.NoError(t, c.Write(t.Context(), &jsonrpc.Response{ID: made, Result: json.RawMessage(result), Error: err}))
}

const initialize = `{"jsonrpc":"2.0","id":"hello","method":"initialize"}` + "\n"

// Batches are there in the versions that have them: one array answers one array.
func TestBatches(t *testing.T) {
	t.Parallel()
	batch := `[{"jsonrpc":"2.0","id":1,"method":"a"},5,{"jsonrpc":"2.0","method":"note"},{"jsonrpc":"2.0","id":1,"method":"again"},{"jsonrpc":"2.0","id":"x","method":"b"}]` + "\n"
	for version, has := range map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": false, "2025-11-25": false, "": false} {
		c, out := connect(t, initialize+batch+`[3]`+"\n"+`[{"jsonrpc":"2.0","method":"note"}]`+"\n[]\n")
		m, err := c.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, "initialize", m.(*jsonrpc.Request).Method) //nolint:forcetypeassert // it fails the test
		respond(t, c, "hello", `{"protocolVersion":"`+version+`"}`, nil)
		out.Reset()
		if !has {
			require.Empty(t, all(t, c))
			require.Equal(t, []string{"null -32600", "null -32600", "null -32600", "null -32600"}, said(t, out))
			continue
		}
		require.Equal(t, []string{"a", "note", "b", "note"}, all(t, c))
		require.Regexp(t, `^\[\{[^\n]*-32600[^\n]*\}\]\n\{[^\n]*-32600[^\n]*\}\n$`, out.String(), "what asks for nothing is answered at once, and what is wrong with it")
		out.Reset()
		respond(t, c, "x", `{}`, nil)
		require.Empty(t, out.String(), "the batch is not whole")
		respond(t, c, 1.0, ``, errors.New("broken"))
		var answers []struct {
			ID    any
			Error struct{ Code int }
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &answers))
		require.Equal(t, "[{<nil> {-32600}} {<nil> {-32600}} {x {0}} {1 {-32603}}]", fmt.Sprint(answers))
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
	}
}

// An answer that cannot be written as JSON ends the connection, also in a batch.
func TestAnswersThatAreNoJSON(t *testing.T) {
	t.Parallel()
	c, out := connect(t, `[{"jsonrpc":"2.0","id":1,"method":"a"}]`+"\n"+ping)
	c.batches = true
	require.Len(t, all(t, c), 2)
	for _, id := range []float64{1, 7} {
		require.Error(t, c.Write(t.Context(), &jsonrpc.Response{ID: must(jsonrpc.MakeID(id)), Result: json.RawMessage("{")}))
	}
	require.Empty(t, out.String())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Every error has a code: too early before the client is greeted, else what it says or ours.
func TestErrorsHaveCodes(t *testing.T) {
	t.Parallel()
	c, out := connect(t, initialize)
	require.Len(t, all(t, c), 1)
	respond(t, c, 1.0, ``, errors.New("before"))
	respond(t, c, "hello", ``, errors.New("no"))
	respond(t, c, 2.0, ``, &jsonrpc.Error{Code: -32601, Message: "unknown"})
	respond(t, c, 2.0, ``, fmt.Errorf("so: %w", &jsonrpc.Error{Code: -32602, Message: "params"}))
	require.Equal(t, []string{"1 -32600", `"hello" -32600`, "2 -32601", "2 -32602"}, said(t, out))
	c, out = connect(t, initialize)
	require.Len(t, all(t, c), 1)
	respond(t, c, "hello", `{"protocolVersion":"2025-06-18"}`, nil)
	out.Reset()
	respond(t, c, 3.0, ``, errors.New("after"))
	require.Equal(t, []string{"3 -32603"}, said(t, out))
}

// There are only so many requests at once; each answer makes room.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range maxExpected + 2 {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"a"}`+"\n", i)
	}
	c, out := connect(t, in.String())
	require.Len(t, all(t, c), maxExpected)
	require.Equal(t, []string{"4096 -32600", "4097 -32600"}, said(t, out))
	respond(t, c, 0.0, `{}`, nil)
	require.Len(t, c.expected, maxExpected-1)
}

// broken fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error)  { return 0, b.err }
func (b broken) Write([]byte) (int, error) { return 0, b.err }
func (b broken) Close() error              { return nil }

// An input or an output that fails ends the connection with its error, and so does the
// end of the connection or of who reads it.
func TestEnds(t *testing.T) {
	t.Parallel()
	bad := errors.New("broken")
	c, err := (&Transport{Reader: broken{bad}, Writer: io.Discard, MaxLine: most}).Connect(t.Context())
	require.NoError(t, err)
	_, err = c.Read(t.Context())
	require.ErrorIs(t, err, bad)
	require.NoError(t, c.Close())
	require.Empty(t, c.SessionID())

	var out bytes.Buffer
	c, err = (&Transport{Reader: io.NopCloser(io.MultiReader(strings.NewReader(ping), broken{bad})), Writer: &out, MaxLine: most}).Connect(t.Context())
	require.NoError(t, err)
	_, err = c.Read(t.Context())
	require.ErrorIs(t, err, bad)
	require.Empty(t, out.String(), "what was cut off is no message, and no answer is")
	require.NoError(t, c.Close())

	for _, in := range []string{"x\n", "[]\n", strings.Repeat("x", most+1) + "\n", `{}` + "\n"} {
		c, err = (&Transport{Reader: io.NopCloser(strings.NewReader(in)), Writer: broken{bad}, MaxLine: most}).Connect(t.Context())
		require.NoError(t, err)
		_, err = c.Read(t.Context())
		require.ErrorIs(t, err, bad, in)
		require.NoError(t, c.Close())
	}
	in, feed := io.Pipe()
	c, err = (&Transport{Reader: in, Writer: io.Discard, MaxLine: most}).Connect(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err := c.Read(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the reader's end: %v", err)
		}
	})
	cancel()
	waiting.Wait()
	_, err = c.Read(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, c.Write(ctx, &jsonrpc.Request{Method: "a"}), context.Canceled)
	waiting.Go(func() {
		_, err := c.Read(context.WithoutCancel(ctx))
		if !errors.Is(err, io.EOF) {
			t.Errorf("the connection's end: %v", err)
		}
	})
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	waiting.Wait()
	_, err = io.WriteString(feed, "x")
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// A line never takes more memory than its bound allows.
func TestLongLinesAreNotKept(t *testing.T) { //nolint:paralleltest // it measures memory
	r := bufio.NewReaderSize(io.MultiReader(io.LimitReader(zeros{}, 64<<20), strings.NewReader("\n"+ping+"\n")), readSize)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readLine(r, most)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, errLong)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	data, err := readLine(r, most)
	require.NoError(t, err)
	require.JSONEq(t, ping, string(data))
	_, err = readLine(r, most)
	require.ErrorIs(t, err, io.EOF)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Whatever is written, each line is a message or has one answer, and the message after it
// is read.
func FuzzLines(f *testing.F) {
	f.Add(ping+"\n"+ping, false)
	f.Add(`[{"jsonrpc":"2.0","id":1,"method":"a"},{}]`, true)
	f.Add("{\n}\r\n[[[", true)
	f.Add(strings.Repeat("a", 2*most), false)
	f.Fuzz(func(t *testing.T, in string, batches bool) {
		c, out := connect(t, in+"\n"+`{"jsonrpc":"2.0","method":"the last one"}`+"\n")
		c.batches = batches
		got := all(t, c)
		require.NotEmpty(t, got)
		require.Equal(t, "the last one", got[len(got)-1])
		lines := 0
		for line := range strings.SplitSeq(in, "\n") {
			if strings.TrimSpace(line) != "" || len(strings.TrimSuffix(line, "\r")) > most {
				lines++
			}
		}
		answers := strings.Count(out.String(), "\n")
		if !batches {
			require.Equal(t, lines, len(got)-1+answers)
		}
		for line := range strings.Lines(out.String()) {
			require.True(t, json.Valid([]byte(line)))
			require.True(t, strings.HasPrefix(line, `{"jsonrpc":"2.0"`) || batches && strings.HasPrefix(line, `[{"jsonrpc":"2.0"`), line)
		}
	})
}
