package protocol

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const transcriptDir = "testdata/transcripts"

// said is one line of a transcript: who sends which frame.
type said struct {
	sender Role
	frame  Frame
}

func caller(f Frame) said { return said{Caller, f} }

func gateway(f Frame) said { return said{Gateway, f} }

// transcripts are whole sessions: the ladders of docs/protocol.md §9.
func transcripts() map[string][]said {
	start, quiet := testStart(), testStart()
	start.Arguments = []string{"--repo", "a/b"}
	quiet.Stdin = false
	k := testKey()
	attach := &Attach{
		Issuer: k.Issuer, Invocation: k.Invocation, Operation: k.Operation, Token: []byte(testToken), Stdout: 4,
	}
	joined := testAccepted()
	joined.Attached, joined.Stdin, joined.Stdout = true, 5, 4
	return map[string][]said{
		"normal": {
			caller(start), caller(&Data{Payload: []byte("hello")}), gateway(testAccepted()),
			caller(&StdinEnd{Total: 5}), gateway(&Data{Stream: Stdout, Payload: []byte("hel")}), gateway(&Ack{Stdin: 5}),
			gateway(&Data{Stream: Stderr, Payload: []byte("warning\n")}), gateway(&Data{Stream: Stdout, Offset: 3, Payload: []byte("lo")}),
			caller(&Ack{Stdout: 5, Stderr: 8}),
			gateway(&Exit{Stdin: 5, Stdout: 5, Stderr: 8, Duration: 1500 * time.Microsecond}), caller(&ExitAck{}),
		},
		"refused": {
			caller(quiet), gateway((&Refusal{Code: CodeBusy, RetryAfter: 250 * time.Millisecond}).Frame()),
		},
		"cancelled": {
			caller(quiet), gateway(testAccepted()), gateway(&Data{Stream: Stdout, Payload: []byte("partial")}),
			gateway(&Exit{Code: CodeCancelled, Signal: "SIGTERM", Stdout: 7, Duration: time.Second}), caller(&ExitAck{}),
		},
		"closed-ends": {
			caller(start), gateway(testAccepted()), gateway(&StdinClosed{}), caller(&Data{Payload: []byte("on the way")}),
			gateway(&Data{Stream: Stdout, Payload: []byte("1\n2\n")}), caller(&OutputClosed{Stream: Stdout}),
			gateway(&Exit{Signal: "SIGPIPE", Stdout: 4}), caller(&ExitAck{}),
		},
		"attached": {
			caller(attach), gateway(joined), caller(&StdinEnd{Total: 5}),
			gateway(&Data{Stream: Stdout, Offset: 4, Payload: []byte("rest")}), gateway(&Exit{Stdin: 5, Stdout: 8}), caller(&ExitAck{}),
		},
		"expired": {
			caller(quiet), gateway(testAccepted()), gateway(&Exit{Code: CodeLeaseExpired, Signal: "SIGKILL"}), caller(&ExitAck{}),
		},
	}
}

func formatTranscript(t *testing.T, lines []said) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, s := range lines {
		who := map[Role]string{Caller: "caller", Gateway: "gateway"}[s.sender]
		fmt.Fprintf(&b, "%s %s %x\n", who, s.frame.frameType(), written(t, s.frame))
	}
	return b.Bytes()
}

func TestTranscriptsAreFresh(t *testing.T) {
	want := transcripts()
	if *update {
		require.NoError(t, os.MkdirAll(transcriptDir, 0o755))
		for n, lines := range want {
			require.NoError(t, os.WriteFile(filepath.Join(transcriptDir, n+".txt"), formatTranscript(t, lines), 0o644))
		}
	}
	files, err := filepath.Glob(filepath.Join(transcriptDir, "*.txt"))
	require.NoError(t, err)
	require.Len(t, files, len(want))
	for n, lines := range want {
		b, err := os.ReadFile(filepath.Join(transcriptDir, n+".txt"))
		require.NoError(t, err)
		require.Equal(t, string(formatTranscript(t, lines)), string(b), "run go test ./protocol -update")
	}
}

// TestTranscripts replays each session to both ends at once: every frame is taken
// by the end that it is for, when it comes, and both directions are complete.
// spec: END-1, END-2, STATE-1
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(transcriptDir, "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			var wire [3]bytes.Buffer
			ends := [3]*Reader{Caller: NewReader(&wire[Gateway], Caller), Gateway: NewReader(&wire[Caller], Gateway)}
			lines := bufio.NewScanner(bytes.NewReader(b))
			for lines.Scan() {
				words := strings.Fields(lines.Text())
				require.Len(t, words, 3)
				sender := map[string]Role{"caller": Caller, "gateway": Gateway}[words[0]]
				require.NotZero(t, sender)
				body, err := hex.DecodeString(words[2])
				require.NoError(t, err)
				wire[sender].Write(body)
				receiver := ends[sender.other()]
				f, err := receiver.Read()
				require.NoError(t, err)
				require.Equal(t, words[1], f.frameType().String())
				if a, ok := f.(*Accepted); ok && a.Attached {
					ends[Gateway].Resume(a.Stdin)
				}
			}
			require.Equal(t, StateDone, ends[Caller].State(), "the gateway has said all")
			for _, r := range ends[Caller:] {
				_, err := r.Read()
				require.Equal(t, io.EOF, err)
			}
		})
	}
}
