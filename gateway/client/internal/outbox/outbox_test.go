package outbox

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// event is one thing that a Box does with a link; the answer is its error.
type event struct {
	link   *fakeLink
	frame  protocol.Frame // nil: the write side is closed
	answer chan error
}

// fakeLink hands everything to the test and waits for its answer.
type fakeLink struct {
	events chan event
	once   sync.Once
	gone   chan struct{}

	mu     sync.Mutex // guards grease
	grease []int      // sizes
}

func newLink(events chan event) *fakeLink {
	return &fakeLink{events: events, gone: make(chan struct{})}
}

var errGone = errors.New("link is gone")

func (l *fakeLink) tell(f protocol.Frame) error {
	e := event{l, f, make(chan error, 1)}
	select {
	case l.events <- e:
		return <-e.answer
	case <-l.gone:
		return errGone
	}
}

func (l *fakeLink) WriteFrame(f protocol.Frame) error { return l.tell(f) }

func (l *fakeLink) WriteData(buf []byte, s protocol.Stream, offset uint64, n int) error {
	p := bytes.Clone(buf[protocol.DataHeaderMax : protocol.DataHeaderMax+n])
	return l.tell(&protocol.Data{Stream: s, Offset: offset, Payload: p})
}

func (l *fakeLink) WriteGrease(_ int, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grease = append(l.grease, len(payload))
	return nil
}

// greased returns the sizes of what has come since it was asked last.
func (l *fakeLink) greased() (sizes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sizes, l.grease = l.grease, nil
	return sizes
}

func (l *fakeLink) CloseWrite() error { return l.tell(nil) }

func (l *fakeLink) Reset() error {
	l.once.Do(func() { close(l.gone) })
	return nil
}

// gateway is the reference: what the other end has, over all links.
type gateway struct {
	got     []byte // input that arrived
	acked   uint64
	taken   uint64 // output that the caller has said it has
	ended   bool
	said    bool // on this link
	checked int
}

// take checks one frame against what came before.
func (g *gateway) take(t *rapid.T, f protocol.Frame) {
	switch f := f.(type) {
	case *protocol.Data:
		require.False(t, g.said, "input after its end")
		require.Equal(t, uint64(len(g.got)), f.Offset, "a gap, or bytes twice")
		g.got = append(g.got, f.Payload...)
	case *protocol.StdinEnd:
		require.False(t, g.said)
		require.Equal(t, uint64(len(g.got)), f.Total)
		g.ended, g.said = true, true
	case *protocol.Ack:
		require.GreaterOrEqual(t, f.Stdout, g.taken)
		g.taken = f.Stdout
	default:
		require.Fail(t, "unexpected frame", "%T", f)
	}
	g.checked++
}

// TestInputSurvivesItsLinks: whatever links are lost at whatever frame, the
// gateway gets every byte once and in order, and the end. spec: ATTACH-3, FLOW-3,
// STDIN-2
func TestInputSurvivesItsLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		input := bytes.Repeat([]byte("0123456789abcde"), rapid.IntRange(0, 180000).Draw(t, "size"))
		events := make(chan event)
		var wg sync.WaitGroup
		o := New(true)
		wg.Go(func() { require.NoError(t, o.Fill(bytes.NewReader(input))) })
		g := &gateway{}
		current := newLink(events)
		require.NoError(t, o.Use(current, 0))
		losses := rapid.IntRange(0, 4).Draw(t, "losses")
		for !g.ended || rapid.IntRange(0, 3).Draw(t, "more") == 0 && losses > 0 {
			if g.said { // all was said on this link: only a loss makes another event
				losses--
				current = relink(t, o, g, current)
				continue
			}
			e := <-events
			if losses > 0 && rapid.IntRange(0, 9).Draw(t, "lose") == 0 {
				losses--
				if rapid.Bool().Draw(t, "arrived") { // the frame did, its word of success did not
					g.take(t, e.frame)
				}
				e.answer <- errGone
				current = relink(t, o, g, current)
				continue
			}
			require.Same(t, current, e.link)
			g.take(t, e.frame)
			e.answer <- nil
			if rapid.Bool().Draw(t, "ack") || uint64(len(g.got))-g.acked > protocol.AckEvery {
				g.acked = uint64(len(g.got))
				require.NoError(t, o.Ack(g.acked))
			}
		}
		require.True(t, bytes.Equal(input, g.got))
		finish(t, o, current, events)
		wg.Wait()
	})
}

func relink(t *rapid.T, o *Box, g *gateway, old *fakeLink) *fakeLink {
	o.Drop(old)
	_ = old.Reset()
	l := newLink(old.events)
	g.said = false
	require.NoError(t, o.Use(l, uint64(len(g.got))))
	return l
}

// finish expects ExitAck and the close, and nothing else.
func finish(t require.TestingT, o *Box, l *fakeLink, events chan event) {
	var done sync.WaitGroup
	done.Go(func() { o.Done(l) })
	defer done.Wait()
	var got []protocol.Frame
	for {
		e := <-events
		e.answer <- nil
		if e.frame == nil {
			break
		}
		got = append(got, e.frame)
	}
	require.IsType(t, &protocol.ExitAck{}, got[len(got)-1])
}

func next(t *testing.T, events chan event) protocol.Frame {
	t.Helper()
	e := <-events
	e.answer <- nil
	return e.frame
}

func TestWhatIsDueComesInItsOrder(t *testing.T) {
	events := make(chan event)
	o := New(true)
	o.Took(protocol.Stdout, protocol.AckEvery)
	o.Took(protocol.Stderr, 1)
	o.Close(protocol.Stderr)
	require.NoError(t, o.Fill(bytes.NewReader([]byte("abc"))))
	l := newLink(events)
	require.NoError(t, o.Use(l, 0))
	o.Took(protocol.Stdout, protocol.AckEvery)
	require.Equal(t, &protocol.OutputClosed{Stream: protocol.Stderr}, next(t, events))
	require.Equal(t, &protocol.Ack{Stdout: 2 * protocol.AckEvery, Stderr: 1}, next(t, events))
	require.Equal(t, &protocol.Data{Payload: []byte("abc")}, next(t, events))
	require.Equal(t, &protocol.StdinEnd{Total: 3}, next(t, events))
	taken, closed := o.Counts()
	require.Equal(t, [3]uint64{0, 2 * protocol.AckEvery, 1}, taken)
	require.Equal(t, [3]bool{false, false, true}, closed)
	finish(t, o, l, events)
}

func TestTheWindowStopsTheReader(t *testing.T) {
	o := New(true)
	in := bytes.NewReader(make([]byte, 4*protocol.MinWindow))
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, o.Fill(in)) })
	events := make(chan event)
	l := newLink(events)
	require.NoError(t, o.Use(l, 0))
	got := 0
	for got < protocol.MinWindow {
		got += len(next(t, events).(*protocol.Data).Payload)
	}
	require.Equal(t, protocol.MinWindow, got)
	require.Equal(t, 3*protocol.MinWindow, in.Len(), "no more was read than fits")
	o.StopInput() // the child takes no more
	o.Done(nil)
	wg.Wait()
}

func TestAcksThatCannotBe(t *testing.T) {
	var v *protocol.ViolationError
	o := New(false)
	require.NoError(t, o.Ack(0))
	require.ErrorAs(t, o.Ack(1), &v)
	o = New(true)
	require.NoError(t, o.Fill(bytes.NewReader(make([]byte, 10))))
	require.NoError(t, o.Ack(5))
	require.ErrorAs(t, o.Ack(4), &v)
	require.ErrorAs(t, o.Ack(11), &v)
	o.StopInput()
	require.NoError(t, o.Ack(99), "nobody cares any more")
}

func TestInputThatIsGoneCannotBeAskedFor(t *testing.T) {
	events := make(chan event)
	o := New(true)
	require.NoError(t, o.Fill(bytes.NewReader([]byte("abcdef"))))
	l := newLink(events)
	require.NoError(t, o.Use(l, 0))
	next(t, events)
	next(t, events)
	require.NoError(t, o.Ack(4))
	require.ErrorIs(t, o.Use(newLink(events), 3), errInputGone)
	require.NoError(t, o.Use(l, 4))
	require.Equal(t, &protocol.Data{Offset: 4, Payload: []byte("ef")}, next(t, events))
	require.Equal(t, &protocol.StdinEnd{Total: 6}, next(t, events))
	o.Done(nil)
}

// spec: START-6
func TestInputOfAnotherProcessIsPassed(t *testing.T) {
	events := make(chan event)
	o := New(true)
	l := newLink(events)
	require.NoError(t, o.Use(l, 4))
	require.NoError(t, o.Ack(2), "of the other process's bytes")
	require.NoError(t, o.Fill(iotest.OneByteReader(bytes.NewReader([]byte("abcdef")))))
	got := ""
	for {
		f := next(t, events)
		if d, ok := f.(*protocol.Data); ok {
			require.Equal(t, uint64(4+len(got)), d.Offset)
			got += string(d.Payload)
			continue
		}
		require.Equal(t, &protocol.StdinEnd{Total: 6}, f)
		break
	}
	require.Equal(t, "ef", got)
	require.NoError(t, o.Ack(6))
	o.Done(nil)
}

func TestHoles(t *testing.T) {
	o := New(false)
	o.Took(protocol.Stdout, 5)
	require.Equal(t, [3]bool{}, o.Skip(&protocol.Accepted{Stdout: 5}))
	require.Equal(t, [3]bool{protocol.Stderr: true}, o.Skip(&protocol.Accepted{Stdout: 5, Stderr: 1}))
	taken, _ := o.Counts()
	require.Equal(t, [3]uint64{0, 5, 1}, taken)
}

func TestReadErrors(t *testing.T) {
	broken := errors.New("broken")
	o := New(true)
	require.ErrorIs(t, o.Fill(iotest.ErrReader(broken)), broken)
	o.StopInput()
	require.NoError(t, o.Fill(iotest.ErrReader(broken)), "nobody reads")
	o = New(true)
	require.NoError(t, o.Fill(readFunc(func() (int, error) {
		o.StopInput()
		return 0, broken
	})), "it was interrupted")
}

type readFunc func() (int, error)

func (f readFunc) Read([]byte) (int, error) { return f() }

var _ io.Reader = readFunc(nil)

// TestSlowLineIsAcknowledged: bytes that trickle in are acknowledged by the second,
// many at once by their number.
func TestSlowLineIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, events := New(false), make(chan event)
		require.NoError(t, o.Use(newLink(events), 0))
		take := func(n int) []protocol.Frame {
			o.Took(protocol.Stdout, n)
			synctest.Wait()
			return drained(events)
		}
		require.Empty(t, take(100))
		<-time.After(ackAfter - 1)
		require.Empty(t, take(100))
		<-time.After(1)
		require.Equal(t, []protocol.Frame{&protocol.Ack{Stdout: 300}}, take(100))
		require.Empty(t, take(100), "the time begins anew")
		require.Equal(t, []protocol.Frame{&protocol.Ack{Stdout: 400 + protocol.AckEvery}}, take(protocol.AckEvery))
		<-time.After(ackAfter)
		require.Equal(t, []protocol.Frame{&protocol.Ack{Stdout: 401 + protocol.AckEvery}}, take(1))
		o.Done(nil)
	})
}

// A caller that is silent because its reader takes nothing shows that it is alive.
// spec: FLOW-6
func TestASilentCallerBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, events := New(false), make(chan event)
		l := newLink(events)
		time.Sleep(2 * BeatEvery) // there is no link yet
		require.NoError(t, o.Use(l, 0))
		o.Took(protocol.Stdout, 5)
		for range 3 { // again and again
			time.Sleep(BeatEvery - time.Millisecond)
			synctest.Wait()
			require.Empty(t, drained(events), "not yet")
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, []protocol.Frame{&protocol.Ack{Stdout: 5}}, drained(events))
			synctest.Wait()
			require.Empty(t, drained(events), "once")
			require.Equal(t, []int{padding}, l.greased())
		}
		time.Sleep(BeatEvery / 2)
		o.Close(protocol.Stderr)
		require.Equal(t, &protocol.OutputClosed{Stream: protocol.Stderr}, next(t, events))
		time.Sleep(BeatEvery - time.Millisecond)
		synctest.Wait()
		require.Empty(t, drained(events), "it was not silent")
		o.Drop(l)
		time.Sleep(2 * BeatEvery)
		synctest.Wait()
		require.Empty(t, drained(events), "nobody is there")
		l = newLink(events)
		require.NoError(t, o.Use(l, 0))
		o.Done(nil)
		time.Sleep(2 * BeatEvery)
		require.Empty(t, drained(events), "it is over")
		require.Empty(t, l.greased())
	})
}

// Before the answer a link gets nothing but what the gateway ignores, and what has become
// due meanwhile when it is in use.
func TestALinkThatHasNotAnsweredIsKnockedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, events := New(true), make(chan event)
		l := newLink(events)
		o.Await(l)
		o.Close(protocol.Stdout)
		require.NoError(t, o.Fill(bytes.NewReader([]byte("abc"))))
		for range 2 {
			time.Sleep(BeatEvery - time.Millisecond)
			synctest.Wait()
			require.Empty(t, l.greased(), "not yet")
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, []int{padding}, l.greased())
		}
		require.Empty(t, drained(events))
		o.Drop(l)
		time.Sleep(BeatEvery)
		l = newLink(events)
		o.Await(l)
		time.Sleep(BeatEvery - time.Millisecond)
		synctest.Wait()
		require.Empty(t, l.greased(), "the silence begins anew")
		require.NoError(t, o.Use(l, 0))
		require.Equal(t, &protocol.OutputClosed{Stream: protocol.Stdout}, next(t, events))
		require.Equal(t, &protocol.Data{Payload: []byte("abc")}, next(t, events))
		require.Equal(t, &protocol.StdinEnd{Total: 3}, next(t, events))
		o.Done(nil)
	})
}

// An operation that has nothing to say before its end has no goroutine for it.
func TestNothingToSayNeedsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		o, events := New(false), make(chan event)
		l := newLink(events)
		o.Await(l)
		require.NoError(t, o.Use(l, 0))
		require.NoError(t, o.Ack(0))
		o.Took(protocol.Stdout, protocol.AckEvery-1)
		o.StopInput()
		synctest.Wait()
		require.Equal(t, before, runtime.NumGoroutine())
		o.Took(protocol.Stdout, 1)
		synctest.Wait()
		require.Equal(t, before+1, runtime.NumGoroutine())
		require.Equal(t, &protocol.Ack{Stdout: protocol.AckEvery}, next(t, events))
		finish(t, o, l, events)
		synctest.Wait()
		require.Equal(t, before, runtime.NumGoroutine())
	})
}

// Whoever is done waits for what is being written, and nothing follows the last word.
func TestDoneWaitsForTheWriter(t *testing.T) {
	for _, last := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o, events := New(false), make(chan event)
			l := newLink(events)
			require.NoError(t, o.Use(l, 0))
			o.Close(protocol.Stdout)
			e := <-events
			over := false
			var all sync.WaitGroup
			all.Go(func() {
				if last {
					o.Done(l)
				} else {
					o.Done(nil)
				}
				over = true
			})
			time.Sleep(10 * BeatEvery)
			synctest.Wait()
			require.False(t, over, "it is still being written")
			e.answer <- nil
			if last {
				require.Equal(t, &protocol.ExitAck{}, next(t, events))
				require.Nil(t, next(t, events), "the write side is closed")
			}
			all.Wait()
			o.Close(protocol.Stderr)
			o.Took(protocol.Stdout, protocol.AckEvery)
			time.Sleep(10 * BeatEvery)
			synctest.Wait()
			require.Empty(t, drained(events))
			require.Empty(t, l.greased())
		})
	}
}

func drained(events chan event) (out []protocol.Frame) {
	select {
	case e := <-events:
		e.answer <- nil
		return []protocol.Frame{e.frame}
	default:
		return nil
	}
}
