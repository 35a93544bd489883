package supervise

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessage(t *testing.T) {
	for _, m := range []Message{
		{Kind: Start, Value: 77, Seq: 1, Stdin: true},
		{Kind: Start, Stdin: true, Terminal: true},
		{Kind: Hello, Extra: ID()},
		{Kind: Exited, Value: 0xff00, Seq: 1 << 63, Extra: 12345, Last: true},
		{Kind: Failed, Value: 2, Directory: true},
		{Kind: Exited, Value: 9, Limited: true},
		{Kind: Empty, Seq: 9},
	} {
		b := m.Append(nil)
		require.Len(t, b, HeaderSize)
		got, payload, err := ParseMessage(b)
		require.NoError(t, err)
		require.Empty(t, payload)
		require.Equal(t, m, got)
	}
	good := Message{Kind: Kill}.Append(nil)
	for name, b := range map[string][]byte{
		"empty":              nil,
		"short":              good[:HeaderSize-1],
		"payload-on-a-kill":  append(bytes.Clone(good), 1),
		"unknown-kind":       Message{Kind: Empty + 1}.Append(nil),
		"no-kind":            Message{}.Append(nil),
		"unknown-flag":       append([]byte{byte(Kill), 0x20}, good[2:]...),
		"reserved-byte":      append([]byte{byte(Kill), 0, 1}, good[3:]...),
		"payload-over-bound": append(Message{Kind: Start}.Append(nil), make([]byte, MaxPayload+1)...),
	} {
		_, _, err := ParseMessage(b)
		require.Error(t, err, name)
	}
}

func TestRequest(t *testing.T) {
	for _, r := range []Request{
		{},
		{Path: "/bin/x", Dir: "/", Args: []string{"x"}},
		{Path: "/p", Dir: "/d", Args: []string{"", "a b", "\xff\n"}, Env: []string{"A=", "B=1"}},
		{Path: "/p", Cgroup: "/sys/fs/cgroup/x", Processes: 12, Memory: 1 << 40},
		{Path: "/p", Pin: Pin{Device: 1 << 63, Inode: 2, Size: 1 << 40, Modified: -1, Changed: 1 << 62}},
		{Path: strings.Repeat("p", 4096), Args: []string{strings.Repeat("a", 131_071)}},
	} {
		b := r.Append(nil)
		got, err := ParseRequest(b)
		require.NoError(t, err)
		require.Equal(t, r, got)
		_, err = ParseRequest(append(b, 0))
		require.Error(t, err)
		for cut := range min(len(b), 64) {
			_, err = ParseRequest(b[:cut])
			require.Error(t, err)
		}
	}
	_, err := ParseRequest([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	require.Error(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add(Message{Kind: Start, Value: 3, Stdin: true}.Append(nil))
	f.Add(Request{Path: "/p", Dir: "/d", Args: []string{"a"}, Env: []string{"A=1"}}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, payload, err := ParseMessage(b); err == nil {
			require.Equal(t, b, append(m.Append(nil), payload...))
		}
		if r, err := ParseRequest(b); err == nil {
			require.Equal(t, b, r.Append([]byte{}))
		} else {
			require.Zero(t, r)
		}
	})
}
