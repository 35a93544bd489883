package protocol

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func testStart() *Start {
	return &Start{
		Operation: must(name.ParseOperationID(testOperation)), Lease: [][]byte{[]byte("lease")},
		Connector: must(name.ParseConnectorKey("github")), Version: must(name.ParseVersion("2.40.1")),
		Command: must(name.ParseCommand("issue.list")), Stdin: true,
	}
}

func testKey() OperationKey {
	return OperationKey{
		Issuer: must(name.ParsePeerID(testPeer)), Invocation: must(name.ParseInvocationID("invocation-1")),
		Operation: must(name.ParseOperationID(testOperation)),
	}
}

func testAccepted() *Accepted {
	return &Accepted{Token: []byte(testToken), Limits: Limits{Stdout: NoLimit, Run: time.Minute, Detached: time.Second}}
}

func written(t *testing.T, frames ...Frame) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, f := range frames {
		require.NoError(t, w.WriteFrame(f))
	}
	return b.Bytes()
}

func readAll(r *Reader) (frames []Frame, err error) {
	for {
		f, err := r.Read()
		if err != nil {
			return frames, err
		}
		if d, ok := f.(*Data); ok {
			c := *d
			c.Payload = bytes.Clone(d.Payload)
			f = &c
		}
		frames = append(frames, f)
	}
}

func TestFramesComeBackWhole(t *testing.T) {
	s := testStart()
	s.Arguments = []string{"--repo", "a/b", "", "\xff\x00"}
	k := testKey()
	for dir, frames := range map[Role][]Frame{
		Gateway: {
			s,
			&Data{Payload: []byte("hello")},
			&Data{Offset: 5, Payload: rep(MaxData)},
			&StdinEnd{Total: MaxData + 5},
			&Ack{Stdout: 3, Stderr: 1 << 40},
			&OutputClosed{Stream: Stderr},
			&ExitAck{},
		},
		Caller: {
			testAccepted(),
			&Ack{Stdin: 9},
			&Data{Stream: Stdout, Payload: []byte("x")},
			&StdinClosed{},
			&Data{Stream: Stderr, Payload: []byte("y")},
			&Exit{
				Code: CodeTimeout, Signal: "SIGRTMIN+3", Core: true, Forced: true,
				Stdin: 1, Stdout: 2, Stderr: 1, Duration: 1500 * time.Microsecond,
			},
		},
	} {
		b := written(t, frames...)
		for _, in := range []io.Reader{bytes.NewReader(b), iotest.OneByteReader(bytes.NewReader(b)), iotest.DataErrReader(bytes.NewReader(b))} {
			got, err := readAll(NewReader(in, dir))
			require.Equal(t, io.EOF, err)
			require.Equal(t, frames, got)
		}
	}
	attach := &Attach{Issuer: k.Issuer, Invocation: k.Invocation, Operation: k.Operation, Stdout: 7}
	got, err := NewReader(bytes.NewReader(written(t, attach)), Gateway).Read()
	require.NoError(t, err)
	require.Equal(t, attach, got)
}

// spec: STDIN-1
func TestEndOfStreamIsNotEndOfInput(t *testing.T) {
	b := written(t, testStart(), &Data{Payload: []byte("hello")})
	for cut := range len(b) {
		r := NewReader(bytes.NewReader(b[:cut]), Gateway)
		_, err := readAll(r)
		if cut == 0 || cut == len(written(t, testStart())) {
			require.Equal(t, io.EOF, err)
		} else {
			require.Equal(t, io.ErrUnexpectedEOF, err)
		}
		require.NotEqual(t, StateNoInput, r.State())
	}
}

// spec: FRAME-6
func TestNothingIsReadAfterAViolation(t *testing.T) {
	b := append(written(t, testStart()), 0)
	b = append(b, written(t, &Data{Payload: []byte("x")})...)
	r := NewReader(bytes.NewReader(b), Gateway)
	_, err := r.Read()
	require.NoError(t, err)
	for range 3 {
		_, err = r.Read()
		var v *ViolationError
		require.ErrorAs(t, err, &v)
		require.Equal(t, "FRAME-1", v.Rule)
	}
}

func TestOtherErrorsCanBeReadPast(t *testing.T) {
	b := written(t, testStart(), &Data{Payload: []byte("x")})
	r := NewReader(io.MultiReader(
		bytes.NewReader(b[:10]), iotest.ErrReader(os.ErrDeadlineExceeded)), Gateway)
	_, err := r.Read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	r.r = bytes.NewReader(b[10:])
	frames, err := readAll(r)
	require.Equal(t, io.EOF, err)
	require.Len(t, frames, 2)
}

// spec: FRAME-2
func TestMemoryGrowsOnlyWithBytes(t *testing.T) {
	head := []byte{0x80, 0x80, 0x14} // 327 680
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		_, err := NewReader(bytes.NewReader(head), Gateway).Read()
		require.Equal(t, io.ErrUnexpectedEOF, err)
		_, err = ReadControlRequest(bytes.NewReader([]byte{0x80, 0x80, 0x02}))
		require.Equal(t, io.ErrUnexpectedEOF, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100*16<<10))
}

func TestLargeStartIsNotKept(t *testing.T) {
	s := testStart()
	s.Arguments = []string{strings.Repeat("a", MaxArgument), strings.Repeat("b", MaxArgument)}
	r := NewReader(bytes.NewReader(written(t, s, &StdinEnd{})), Gateway)
	got, err := r.Read()
	require.NoError(t, err)
	require.Empty(t, r.buf)
	_, err = r.Read()
	require.NoError(t, err)
	require.Equal(t, s, got)
}

// spec: ATTACH-3
func TestInputContinuesWhereTheGatewaySays(t *testing.T) {
	k := testKey()
	attach := &Attach{Issuer: k.Issuer, Invocation: k.Invocation, Operation: k.Operation, Token: []byte(testToken)}
	b := written(t, attach, &Data{Offset: 300, Payload: []byte("x")}, &StdinEnd{Total: 301})
	r := NewReader(bytes.NewReader(b), Gateway)
	_, err := r.Read()
	require.NoError(t, err)
	r.Resume(300)
	_, err = r.Read()
	require.NoError(t, err)
	require.Equal(t, uint64(301), r.Offset(0))
	_, err = r.Read()
	require.NoError(t, err)

	r = NewReader(bytes.NewReader(b), Gateway)
	_, err = r.Read()
	require.NoError(t, err)
	_, err = r.Read()
	require.ErrorContains(t, err, "DATA-3")
}

// onceWriter counts Writes.
type onceWriter struct {
	bytes.Buffer
	writes int
}

func (w *onceWriter) Write(b []byte) (int, error) {
	w.writes++
	return w.Buffer.Write(b)
}

// spec: DATA-1, FRAME-1
func TestEachFrameIsOneWrite(t *testing.T) {
	var w onceWriter
	out := NewWriter(&w)
	buf := make([]byte, DataHeaderMax+MaxData)
	require.NoError(t, out.WriteFrame(testStart()))
	require.NoError(t, out.WriteData(buf, 0, 0, MaxData))
	require.NoError(t, out.WriteGrease(7, []byte("ignored")))
	require.NoError(t, out.WriteData(buf, 0, MaxData, 1))
	require.Equal(t, 4, w.writes)
	frames, err := readAll(NewReader(&w, Gateway))
	require.Equal(t, io.EOF, err)
	require.Len(t, frames, 3)
}

func TestDataHeaderIsTheEncodersOwn(t *testing.T) {
	buf := make([]byte, DataHeaderMax+MaxData)
	for _, n := range []int{1, 2, 100, 127, 128, 16000, 16383, 16384, MaxData} {
		for _, offset := range []uint64{0, 1, 127, 128, 1 << 31, 1<<63 - 1, 1<<64 - 1 - uint64(n)} {
			for s := range Stderr + 1 {
				start := PutDataHeader(buf, s, offset, n)
				require.Equal(t, data(int(s), offset, string(buf[DataHeaderMax:DataHeaderMax+n])), buf[start:DataHeaderMax+n])
				require.LessOrEqual(t, DataHeaderMax-start+n+12, 65519)
			}
		}
	}
	require.Panics(t, func() { PutDataHeader(buf, 0, 0, 0) })
	require.Panics(t, func() { PutDataHeader(buf, 0, 0, MaxData+1) })
	require.Panics(t, func() { PutDataHeader(buf[:DataHeaderMax], 0, 0, 1) })
}

// loop gives the same bytes again and again.
type loop struct {
	b []byte
	i int
}

func (l *loop) Read(p []byte) (int, error) {
	if l.i == len(l.b) {
		l.i = 0
	}
	n := copy(p, l.b[l.i:])
	l.i += n
	return n, nil
}

func TestDataPathAllocatesNothing(t *testing.T) {
	buf := make([]byte, DataHeaderMax+MaxData)
	w := NewWriter(io.Discard)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := w.WriteData(buf, Stdout, 1<<40, MaxData); err != nil {
			panic(err)
		}
	}))

	r := NewReader(&loop{b: data(1, 300, string(rep(MaxData)))}, Caller)
	r.state = StateOutput
	read := func() {
		r.tally.count[Stdout] = 300
		if _, err := r.Read(); err != nil {
			panic(err)
		}
	}
	read()
	require.Zero(t, testing.AllocsPerRun(100, read))
}

func TestWriterIsSafeForSeveral(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	require.NoError(t, w.WriteFrame(testStart()))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := errors.Join(w.WriteFrame(&Ack{}), w.WriteGrease(1, nil)); err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
	r := NewReader(&b, Gateway)
	for range 201 {
		_, err := r.Read()
		r.ignored = 0
		require.NoError(t, err)
	}
}

func TestWriterRefusesWhatAReaderWould(t *testing.T) {
	many, long := testStart(), testStart()
	many.Arguments = make([]string, MaxArguments+1)
	long.Arguments = []string{strings.Repeat("a", MaxArgument+1)}
	noLease, noName := testStart(), testStart()
	noLease.Lease = nil
	noName.Command = name.Command{}
	for _, f := range []Frame{
		many, long, noLease, noName,
		&Attach{},
		&Data{},
		&Data{Payload: rep(MaxData + 1)},
		&Data{Stream: 3, Payload: rep(1)},
		&OutputClosed{},
		&Accepted{Token: rep(3)},
		&Accepted{Stdout: 1},
		&Accepted{Limits: Limits{Run: -1}},
		&Refused{},
		&Refused{Code: CodeTimeout},
		&Refused{Code: CodeBusy, Public: "\n"},
		&Refused{Code: CodeBusy, RetryAfter: -1},
		&Exit{Status: 256},
		&Exit{Status: -1},
		&Exit{Code: CodeBusy},
		&Exit{Signal: "KILL"},
		&Exit{Duration: -1},
	} {
		var b bytes.Buffer
		require.Error(t, NewWriter(&b).WriteFrame(f), "%T %+v", f, f)
		require.Zero(t, b.Len())
	}
	require.Error(t, NewWriter(io.Discard).WriteGrease(0, rep(1025)))
	require.Error(t, WriteControlRequest(io.Discard, &StatusRequest{}))
	require.Error(t, WriteControlReply(io.Discard, &StatusReply{State: OperationEnded}))
	require.Error(t, WriteCatalogRequest(io.Discard, &CatalogRequest{}))
	require.Error(t, WriteCatalog(io.Discard, []CatalogEntry{{}}))
	require.Error(t, WriteCatalog(io.Discard, make([]CatalogEntry, MaxCatalogEntries+1)))
	require.Error(t, WriteCatalogRefused(io.Discard, &Refused{}))
}

// spec: GREASE-3
func TestGreaseIsIgnoredAnywhereElse(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	require.NoError(t, w.WriteGrease(-1, rep(1024)))
	require.NoError(t, w.WriteFrame(testAccepted()))
	require.NoError(t, w.WriteGrease(0, nil))
	require.NoError(t, w.WriteFrame(&Exit{}))
	frames, err := readAll(NewReader(&b, Caller))
	require.Equal(t, io.EOF, err)
	require.Len(t, frames, 2)
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteErrorsAreWrapped(t *testing.T) {
	require.ErrorIs(t, NewWriter(brokenPipe{}).WriteFrame(&Ack{}), os.ErrClosed)
	require.ErrorIs(t, WriteControlReply(brokenPipe{}, &RevokeReply{}), os.ErrClosed)
	require.ErrorIs(t, WriteCatalog(brokenPipe{}, nil), os.ErrClosed)
}

// What was swapped away stays as it is whatever is read next.
func TestSwapGivesThePayloadAway(t *testing.T) {
	large, next := string(rep(MaxData)), strings.Repeat("n", MaxData)
	stream := append(data(1, 0, "small"), data(1, 5, large)...)
	stream = append(append(stream, data(1, 5+MaxData, next)...), data(1, 5+2*MaxData, "end")...)
	r := NewReader(&loop{b: stream}, Caller)
	r.state = StateOutput
	spare := make([]byte, DataHeaderMax+MaxData)
	read := func() *Data {
		f, err := r.Read()
		require.NoError(t, err)
		return f.(*Data)
	}
	_, _, ok := r.Swap(spare)
	require.False(t, ok, "nothing was read")
	read()
	_, _, ok = r.Swap(spare)
	require.False(t, ok, "the buffer is small, or holds more")
	read()
	_, _, ok = r.Swap(spare[1:])
	require.False(t, ok, "another size")
	buf, at, ok := r.Swap(spare)
	require.True(t, ok)
	_, _, ok = r.Swap(make([]byte, len(spare)))
	require.False(t, ok, "it is gone")
	require.Equal(t, next, string(read().Payload))
	require.Same(t, &spare[0], &r.buf[0])
	require.Equal(t, large, string(buf[at:at+MaxData]))
	require.Equal(t, "end", string(read().Payload))
}

// What was read beyond a frame is not given away with it.
func TestSwapKeepsWhatFollows(t *testing.T) {
	r := NewReader(bytes.NewReader(append(append(data(1, 0, string(rep(MaxData))), data(1, MaxData, "small")...), data(1, MaxData+5, "end")...)), Caller)
	r.state = StateOutput
	for range 2 {
		_, err := r.Read()
		require.NoError(t, err)
	}
	require.Less(t, r.head, r.tail, "the last frame is there already")
	_, _, ok := r.Swap(make([]byte, len(r.buf)))
	require.False(t, ok)
	f, err := r.Read()
	require.NoError(t, err)
	require.Equal(t, "end", string(f.(*Data).Payload))
}

func TestSwapIsForDataOnly(t *testing.T) {
	r := NewReader(bytes.NewReader(written(t, testAccepted(), &Data{Stream: Stdout, Payload: rep(MaxData)}, &Ack{})), Caller)
	for range 3 {
		_, err := r.Read()
		require.NoError(t, err)
	}
	_, _, ok := r.Swap(make([]byte, len(r.buf)))
	require.False(t, ok)
}
