package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/name"
)

// The generators make any frame that is valid by itself.

func genKey(t *rapid.T) OperationKey {
	k, err := name.PeerIDFromKey(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
	require.NoError(t, err)
	return OperationKey{
		Issuer:     k,
		Invocation: must(name.ParseInvocationID(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:/-]{0,40}`).Draw(t, "invocation"))),
		Operation:  genOperation(t),
	}
}

func genOperation(t *rapid.T) name.OperationID {
	return must(name.ParseOperationID(rapid.StringMatching(`[A-Za-z0-9_-]{16,64}`).Draw(t, "operation")))
}

func genChain(t *rapid.T, least int) [][]byte {
	chain := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 100), least, MaxChain).Draw(t, "lease")
	if len(chain) == 0 {
		return nil
	}
	return chain
}

func genDuration(t *rapid.T, unit time.Duration) time.Duration {
	return unit * time.Duration(rapid.Int64Range(0, int64(maxDuration/unit)).Draw(t, "duration"))
}

func genBytes(t *rapid.T) uint64 {
	return rapid.OneOf(rapid.Just(uint64(0)), rapid.Just(NoLimit), rapid.Uint64()).Draw(t, "bytes")
}

func genToken(t *rapid.T) []byte {
	if rapid.Bool().Draw(t, "token?") {
		return rapid.SliceOfN(rapid.Byte(), TokenSize, TokenSize).Draw(t, "token")
	}
	return nil
}

func genStart(t *rapid.T) *Start {
	s := &Start{
		Operation: genOperation(t), Lease: genChain(t, 1), Stdin: rapid.Bool().Draw(t, "stdin"),
		Connector: must(name.ParseConnectorKey(rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?`).Draw(t, "connector"))),
		Version:   must(name.ParseVersion(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._+-]{0,20}`).Draw(t, "version"))),
		Command:   must(name.ParseCommand(rapid.StringMatching(`[a-z][a-z0-9._-]{0,20}`).Draw(t, "command"))),
	}
	for _, a := range rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 0, 8).Draw(t, "arguments") {
		s.Arguments = append(s.Arguments, string(a))
	}
	return s
}

func genLimits(t *rapid.T) Limits {
	return Limits{
		Stdin: genBytes(t), Stdout: genBytes(t), Stderr: genBytes(t),
		Run: genDuration(t, time.Millisecond), Detached: genDuration(t, time.Millisecond),
	}
}

func genCode(t *rapid.T, fits func(Code) bool) Code {
	return Code(rapid.Uint16().Filter(func(n uint16) bool { return fits(Code(n)) }).Draw(t, "code"))
}

func genRefused(t *rapid.T) *Refused {
	return &Refused{
		Code: genCode(t, Code.CanRefuse), Public: rapid.StringMatching(`[ -~]{0,200}`).Draw(t, "public"),
		RetryAfter: genDuration(t, time.Millisecond),
	}
}

func genExit(t *rapid.T) *Exit {
	e := &Exit{
		Code: genCode(t, Code.CanEnd), Forced: rapid.Bool().Draw(t, "forced"), Duration: genDuration(t, time.Microsecond),
		Stdin: genBytes(t), Stdout: NoLimit, Stderr: NoLimit,
	}
	if rapid.Bool().Draw(t, "signal?") {
		e.Signal = rapid.StringMatching(`SIG[A-Z0-9+-]{1,12}`).Draw(t, "signal")
		e.Core = rapid.Bool().Draw(t, "core")
	} else {
		e.Status = rapid.IntRange(0, 255).Draw(t, "status")
	}
	return e
}

// session makes frames of one direction that are in order and add up.
type session struct {
	sender Role
	state  State
	tally  tally
	frames []Frame
}

func (s *session) step(t *rapid.T) {
	var legal []FrameType
	for f := TypeStart; f <= TypeExit; f++ {
		if _, ok := Next(s.sender, s.state, f, true); ok {
			legal = append(legal, f)
		}
	}
	f := s.make(t, rapid.SampledFrom(legal).Draw(t, "frame"))
	next, ok := Next(s.sender, s.state, f.frameType(), allowsInput(f))
	require.True(t, ok)
	require.Nil(t, s.tally.take(f))
	s.state = next
	s.frames = append(s.frames, f)
}

func (s *session) make(t *rapid.T, f FrameType) Frame {
	switch f {
	case TypeStart:
		return genStart(t)
	case TypeAttach:
		k := genKey(t)
		return &Attach{Issuer: k.Issuer, Invocation: k.Invocation, Operation: k.Operation, Token: genToken(t), Stdout: genBytes(t) >> 1}
	case TypeAccepted:
		a := &Accepted{Attached: rapid.Bool().Draw(t, "attached"), Token: genToken(t), Limits: genLimits(t)}
		if a.Attached {
			a.Stdin, a.Stdout, a.Stderr = genBytes(t), genBytes(t)>>1, genBytes(t)>>1
		}
		return a
	case TypeRefused:
		return genRefused(t)
	case TypeData:
		d := &Data{Payload: rapid.SliceOfN(rapid.Byte(), 1, 3000).Draw(t, "payload")}
		if s.sender == Gateway {
			d.Stream = rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
		}
		d.Offset = s.tally.count[d.Stream]
		return d
	case TypeStdinEnd:
		return &StdinEnd{Total: s.tally.count[0]}
	case TypeAck:
		a := s.tally.acked
		if s.sender == Gateway {
			a.Stdin += rapid.Uint64Range(0, 1<<20).Draw(t, "ack")
		} else {
			a.Stdout += rapid.Uint64Range(0, 1<<20).Draw(t, "ack")
		}
		return &a
	case TypeOutputClosed:
		return &OutputClosed{Stream: rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")}
	case TypeStdinClosed:
		return &StdinClosed{}
	case TypeExit:
		return genExit(t)
	case TypeExitAck:
	}
	return &ExitAck{}
}

// pieces reads in chunks of sizes that rapid chose.
type pieces struct {
	r     io.Reader
	sizes []int
	i     int
}

func (p *pieces) Read(b []byte) (int, error) {
	n := p.sizes[p.i%len(p.sizes)]
	p.i++
	return p.r.Read(b[:min(n, len(b))])
}

// TestLegalSessions: whatever is in order and adds up is read as it was written,
// in whatever pieces it comes; one more frame that the table does not allow is
// refused. spec: STATE-1, FRAME-4, DATA-3
func TestLegalSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &session{sender: rapid.SampledFrom([]Role{Caller, Gateway}).Draw(t, "sender")}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if s.state == StateDone {
				break
			}
			s.step(t)
		}
		var b bytes.Buffer
		w := NewWriter(&b)
		for i, f := range s.frames {
			if i > 0 && rapid.Bool().Draw(t, "grease") {
				require.NoError(t, w.WriteGrease(i, []byte("grease")))
			}
			require.NoError(t, w.WriteFrame(f))
		}
		whole := b.Len()
		illegal := illegalFrame(s)
		require.NoError(t, w.WriteFrame(illegal))
		wire := b.Bytes()

		sizes := rapid.SliceOfN(rapid.IntRange(1, 700), 1, 5).Draw(t, "pieces")
		r := NewReader(&pieces{r: bytes.NewReader(wire[:whole]), sizes: sizes}, s.sender.other())
		got, err := readAll(r)
		require.Equal(t, io.EOF, err)
		require.Equal(t, s.frames, got)
		require.Equal(t, s.state, r.State())
		require.Equal(t, s.tally.count[Stdout], r.Offset(Stdout))

		got, err = readAll(NewReader(bytes.NewReader(wire), s.sender.other()))
		require.Len(t, got, len(s.frames))
		var v *ViolationError
		require.ErrorAs(t, err, &v)
		require.Equal(t, "STATE-1", v.Rule)
	})
}

// illegalFrame is one that the sender may not send now, whatever it holds.
func illegalFrame(s *session) Frame {
	if s.sender == Caller {
		if s.state == StateInit {
			return &Ack{}
		}
		return testStart()
	}
	if s.state == StateInit {
		return &StdinClosed{}
	}
	return testAccepted()
}

// TestControlMessagesComeBack also covers the catalogue.
func TestControlMessagesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := rapid.SampledFrom([]ControlRequest{
			&CancelRequest{OperationKey: genKey(t), Lease: genChain(t, 0), Grace: genDuration(t, time.Millisecond)},
			&StatusRequest{OperationKey: genKey(t)},
			&RevokeRequest{Envelope: rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "envelope")},
		}).Draw(t, "request")
		var b bytes.Buffer
		require.NoError(t, WriteControlRequest(&b, q))
		gotRequest, err := ReadControlRequest(&b)
		require.NoError(t, err)
		require.Equal(t, q, gotRequest)
		require.Zero(t, b.Len())

		p := rapid.SampledFrom([]ControlReply{
			&CancelReply{State: OperationState(rapid.IntRange(1, 4).Draw(t, "state"))},
			&StatusReply{State: OperationEnded, Exit: genExit(t)},
			&RevokeReply{Stopped: rapid.Uint32().Draw(t, "stopped")},
			genRefused(t),
		}).Draw(t, "reply")
		require.NoError(t, WriteControlReply(&b, p))
		gotReply, err := ReadControlReply(&b)
		require.NoError(t, err)
		require.Equal(t, p, gotReply)

		entry := entryOf("a")
		entry.Limits, entry.Stdin = genLimits(t), rapid.Bool().Draw(t, "stdin")
		entry.InputSchema, err = json.Marshal(rapid.MapOf(rapid.StringN(0, 5, 20), rapid.Int()).Draw(t, "schema"))
		require.NoError(t, err)
		require.NoError(t, WriteCatalog(&b, []CatalogEntry{entry}))
		entries, err := ReadCatalog(&b)
		require.NoError(t, err)
		require.Equal(t, []CatalogEntry{entry}, entries)
	})
}

// TestOneBitMakesAnotherStream: a frame with one bit changed is refused, or is
// another frame that encodes to just these bytes. spec: FRAME-4
func TestOneBitMakesAnotherStream(t *testing.T) {
	for n, v := range loadVectors(t) {
		if v.expect != "ok" || v.kind != "run" || len(v.body) > 1000 {
			continue
		}
		t.Run(n, func(t *testing.T) {
			_, original, err := decodeAll(v)
			require.NoError(t, err)
			for bit := range 8 * len(v.body) {
				c := v
				c.body = bytes.Clone(v.body)
				c.body[bit/8] ^= 1 << (bit % 8)
				_, again, err := decodeAll(c)
				if err == nil && withoutSkipped(c) {
					require.NotEqual(t, original, again, "bit %d", bit)
					require.Equal(t, c.body, again, "bit %d", bit)
				}
			}
		})
	}
}

// withoutSkipped tells whether a stream holds known frames only.
func withoutSkipped(v vector) bool { return bytes.Equal(withoutIgnorable(v), v.body) }

// TestExampleOfThePage: the bytes that docs/protocol.md shows.
func TestExampleOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "of standard output at offset 300: `")
	require.True(t, ok)
	shown, _, _ := strings.Cut(rest, "`")
	want, err := hex.DecodeString(strings.ReplaceAll(shown, " ", ""))
	require.NoError(t, err)
	require.Equal(t, want, written(t, &Data{Stream: Stdout, Offset: 300, Payload: []byte("hello")}))
}

// TestStateTableOfThePage compares the rows of docs/protocol.md with the table.
func TestStateTableOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "| sender | state | frame | next |\n")
	require.True(t, ok)
	states := map[string]State{
		"init": StateInit, "input": StateInput, "no-input": StateNoInput, "output": StateOutput,
		"output-only": StateOutputOnly, "done": StateDone,
	}
	names := map[string]FrameType{
		"Start with stdin": TypeStart, "Start without stdin": TypeStart, "Attach with token": TypeAttach,
		"Attach without token": TypeAttach, "Data": TypeData, "StdinEnd": TypeStdinEnd, "Ack": TypeAck,
		"OutputClosed": TypeOutputClosed, "ExitAck": TypeExitAck, "Accepted": TypeAccepted, "Refused": TypeRefused,
		"StdinClosed": TypeStdinClosed, "Exit": TypeExit,
	}
	rows := 0
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if strings.HasPrefix(line, "|---") {
			continue
		}
		if len(cells) != 4 {
			break
		}
		sender := map[string]Role{"caller": Caller, "gateway": Gateway}[cells[0]]
		for _, from := range strings.Split(cells[1], ", ") {
			for _, frame := range strings.Split(cells[2], ", ") {
				require.Contains(t, names, frame)
				input := !strings.Contains(frame, "without")
				to, ok := Next(sender, states[from], names[frame], input)
				require.True(t, ok, line)
				require.Equal(t, states[cells[3]], to, line)
				rows++
			}
		}
	}
	require.Len(t, transitions, rows)
}
