package protocol

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
)

// Guards by themselves, where others often stand before or behind them.

// TestReaderStaysBroken: after one violation nothing that follows is read.
func TestReaderStaysBroken(t *testing.T) {
	t.Parallel()
	var good bytes.Buffer
	require.NoError(t, NewWriter(&good).WriteFrame(&Refused{Code: CodeBusy}))
	r := NewReader(io.MultiReader(bytes.NewReader([]byte{1, 0xff}), &good), Caller)
	_, first := r.Read()
	var v *ViolationError
	require.ErrorAs(t, first, &v)
	for range 3 {
		f, again := r.Read()
		require.Nil(t, f)
		require.Equal(t, first, again)
	}
}

func TestTotalsNeverGoBack(t *testing.T) {
	t.Parallel()
	at := Ack{Stdin: 5, Stdout: 6, Stderr: 7}
	for title, c := range map[string]struct {
		next Ack
		ok   bool
	}{
		"same":   {at, true},
		"more":   {Ack{Stdin: 6, Stdout: 7, Stderr: 8}, true},
		"stdin":  {Ack{Stdin: 4, Stdout: 6, Stderr: 7}, false},
		"stdout": {Ack{Stdin: 5, Stdout: 5, Stderr: 7}, false},
		"stderr": {Ack{Stdin: 5, Stdout: 6, Stderr: 6}, false},
	} {
		sums := tally{acked: at}
		v := sums.take(&c.next)
		require.Equal(t, c.ok, v == nil, title)
	}
	for title, c := range map[string]struct {
		exit Exit
		ok   bool
	}{
		"same":   {Exit{Stdout: 6, Stderr: 7}, true},
		"more":   {Exit{Stdout: 9, Stderr: 9}, true}, // lost with the link
		"stdout": {Exit{Stdout: 5, Stderr: 7}, false},
		"stderr": {Exit{Stdout: 6, Stderr: 6}, false},
	} {
		var sums tally
		sums.count[Stdout], sums.count[Stderr] = 6, 7
		require.Equal(t, c.ok, sums.take(&c.exit) == nil, title)
	}
}

// TestIgnorableFrames have a number of the range, and bytes that fill them.
func TestIgnorableFrames(t *testing.T) {
	t.Parallel()
	tag := func(n int, kind protowire.Type) []byte { return protowire.AppendTag(nil, protowire.Number(n), kind) }
	require.True(t, ignorable(append(tag(firstIgnorable, protowire.BytesType), 0)))
	require.True(t, ignorable(append(tag(lastIgnorable, protowire.BytesType), 1, 'x')))
	for title, body := range map[string][]byte{
		"nothing":      {},
		"no-tag":       {0x80},
		"below":        append(tag(firstIgnorable-1, protowire.BytesType), 0),
		"above":        append(tag(lastIgnorable+1, protowire.BytesType), 0),
		"a-number":     append(tag(firstIgnorable, protowire.VarintType), 0),
		"no-length":    tag(firstIgnorable, protowire.BytesType),
		"half-length":  append(tag(firstIgnorable, protowire.BytesType), 0x80),
		"short":        append(tag(firstIgnorable, protowire.BytesType), 2, 'x'),
		"more-than-it": append(tag(firstIgnorable, protowire.BytesType), 0, 'x'),
	} {
		require.False(t, ignorable(body), title)
	}
}

func TestFieldsOfMessagesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := exitFromProto(&lendv1.Exit{Code: 1 << 16})
	require.Error(t, err)
	_, err = refusedFromProto(&lendv1.Refused{Code: 1 << 16})
	require.Error(t, err)

	key := func() *lendv1.Attach {
		return &lendv1.Attach{
			Issuer: "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4", Invocation: "task-1", Operation: "operation-00000001",
		}
	}
	_, _, _, err = parseKey(key())
	require.NoError(t, err)
	for title, change := range map[string]func(*lendv1.Attach){
		"issuer":     func(a *lendv1.Attach) { a.Issuer = "nobody" },
		"invocation": func(a *lendv1.Attach) { a.Invocation = "" },
		"operation":  func(a *lendv1.Attach) { a.Operation = "" },
	} {
		a := key()
		change(a)
		_, _, _, err := parseKey(a)
		require.Error(t, err, title)
	}

	start := &lendv1.Start{
		Operation: "operation-00000001", Connector: "fx", Version: "1.0.0", Command: "print", Arguments: make([][]byte, MaxArguments),
	}
	_, err = startFromProto(start)
	require.NoError(t, err)
	start.Arguments = append(start.Arguments, nil)
	_, err = startFromProto(start)
	var v *ViolationError
	require.ErrorAs(t, err, &v)
	require.Equal(t, "START-3", v.Rule)
}

// TestWhatIsNoMessageIsSaid, and what cannot be written is not nothing.
func TestWhatIsNoMessageIsSaid(t *testing.T) {
	t.Parallel()
	require.Equal(t, violation("FRAME-4", "not a message"), unmarshal([]byte{0xff}, new(lendv1.RunFrame)))
	require.Nil(t, unmarshal(nil, new(lendv1.RunFrame)))
	m := &lendv1.Start{Version: "\xff"}
	partly, err := marshal(m)
	require.Error(t, err)
	require.False(t, encodes(m, partly))
	m.Version = "1"
	whole, err := marshal(m)
	require.NoError(t, err)
	require.True(t, encodes(m, whole))
	require.False(t, encodes(m, whole[1:]))
}

// TestUnknownFramesAreShort: one that is longer than others may be is refused, in
// both states and from both ends.
func TestUnknownFramesAreShort(t *testing.T) {
	t.Parallel()
	unknown := func(length int) []byte {
		b := protowire.AppendTag(nil, firstIgnorable, protowire.BytesType)
		return protowire.AppendBytes(b, make([]byte, length))
	}
	for from, state := range map[Role]State{Caller: StateInput, Gateway: StateOutput} {
		r := Reader{sender: from, state: state}
		_, v := r.parse(unknown(MaxFrame))
		require.Equal(t, violation("FRAME-3", "a frame that is too long"), v)
		f, v := r.parse(unknown(MaxFrame - 5))
		require.Nil(t, v)
		require.Nil(t, f)
	}
	first := unknown(MaxFrame)
	_, err := NewReader(bytes.NewReader(append(protowire.AppendVarint(nil, uint64(len(first))), first...)), Caller).Read()
	require.Equal(t, violation("FRAME-2", "a frame that is too long"), err)
}
