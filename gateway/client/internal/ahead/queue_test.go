package ahead

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nobody has read the frames that tests make.
var nobody = protocol.NewReader(nil, protocol.Caller)

func data(offset int, payload []byte) *protocol.Data {
	return &protocol.Data{Stream: protocol.Stdout, Offset: uint64(offset), Payload: payload}
}

func TestAllIsTakenInOrder(t *testing.T) {
	var got []byte
	q := New(func(d *protocol.Data) { got = append(got, d.Payload...) })
	var want []byte
	shared := make([]byte, 100)
	for i := range 1000 {
		for k := range shared {
			shared[k] = byte(i + k)
		}
		part := shared[:1+i%100]
		want = append(want, part...)
		q.Put(nobody, data(len(want), part)) // which may be used again at once
	}
	q.Drain()
	require.True(t, bytes.Equal(want, got))
	q.Close()
	q.Put(nobody, data(0, shared))
	q.Drain()
	q.Cut(time.Second)
}

// Large frames are taken over with the reader's buffer, which reads into another one then.
func TestWhatWasReadStaysWhileMoreIsRead(t *testing.T) {
	var stream bytes.Buffer
	w := protocol.NewWriter(&stream)
	accepted := &protocol.Accepted{Token: make([]byte, protocol.TokenSize), Limits: protocol.Limits{Run: time.Hour}}
	require.NoError(t, w.WriteFrame(accepted))
	var want []byte
	for i := range 40 {
		part := bytes.Repeat([]byte{byte(i)}, 1+i*protocol.MaxData/40)
		require.NoError(t, w.WriteFrame(&protocol.Data{Stream: protocol.Stdout, Offset: uint64(len(want)), Payload: part}))
		want = append(want, part...)
	}
	r := protocol.NewReader(&stream, protocol.Caller)
	_, err := r.Read()
	require.NoError(t, err)
	var got []byte
	goOn, swapped := make(chan struct{}), 0
	q := New(func(d *protocol.Data) {
		<-goOn
		got = append(got, d.Payload...)
	})
	for {
		f, err := r.Read()
		if err != nil {
			require.Equal(t, io.EOF, err)
			break
		}
		q.Put(r, f.(*protocol.Data))
		q.mu.Lock()
		if n := len(q.frames); n > 0 && q.frames[n-1].buf != nil { // all but the first are there
			swapped++
		}
		q.mu.Unlock()
	}
	require.Greater(t, swapped, 10)
	close(goOn)
	q.Drain()
	q.Close()
	require.True(t, bytes.Equal(want, got))
}

// A reader that has stopped stops who puts when there is as much as a gateway sends
// without an acknowledgement, and no earlier.
func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		q := New(func(*protocol.Data) { <-goOn })
		var all sync.WaitGroup
		const size = protocol.MaxData
		put := 0
		all.Go(func() {
			for range 3 * Max / size {
				q.Put(nobody, data(0, make([]byte, size)))
				put += size
			}
		})
		synctest.Wait()
		require.LessOrEqual(t, put, Max)
		require.Greater(t, put, protocol.MaxWindow+1<<20)
		before := put
		goOn <- struct{}{}
		synctest.Wait()
		require.Equal(t, before+size, put)
		all.Go(q.Close)
		synctest.Wait()
		close(goOn)
		all.Wait()
	})
}

// After a lost link what a reader is slow to take does not count; what is being taken
// does.
func TestCutWaitsForWhatIsBeingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var all sync.WaitGroup
		taken := 0
		q := New(func(d *protocol.Data) {
			<-goOn
			taken += len(d.Payload)
		})
		for range 5 {
			q.Put(nobody, data(0, make([]byte, 10)))
		}
		done := false
		all.Go(func() {
			q.Cut(time.Second)
			done = true
		})
		synctest.Wait()
		goOn <- struct{}{} // a second one is begun
		time.Sleep(time.Hour)
		require.False(t, done)
		goOn <- struct{}{}
		synctest.Wait()
		require.True(t, done)
		require.Equal(t, 20, taken)
		require.Zero(t, q.bytes)
		q.Close()
		all.Wait()
	})
}

// Where nothing is put nobody takes; the first piece is taken however late it comes.
func TestNobodyTakesBeforeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		q := New(func(*protocol.Data) { t.Error("nothing was put") })
		q.Drain()
		q.Cut(time.Second)
		require.Equal(t, before, runtime.NumGoroutine())
		q.Close()

		taken := 0
		q = New(func(d *protocol.Data) { taken += len(d.Payload) })
		time.Sleep(time.Hour)
		require.Equal(t, before, runtime.NumGoroutine())
		for range 2 {
			q.Put(nobody, data(0, make([]byte, 10)))
		}
		q.Drain()
		require.Equal(t, 20, taken)
		synctest.Wait()
		require.Equal(t, before+1, runtime.NumGoroutine())
		q.Close()
		synctest.Wait()
		require.Equal(t, before, runtime.NumGoroutine())
	})
}

// Close waits for what is being taken, and nothing follows it.
func TestCloseWaitsForTheTaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, taken := make(chan struct{}), 0
		q := New(func(*protocol.Data) {
			<-goOn
			taken++
		})
		for range 3 {
			q.Put(nobody, data(0, []byte("x")))
		}
		synctest.Wait() // the first is being taken
		closed := false
		var all sync.WaitGroup
		all.Go(func() {
			q.Close()
			closed = true
		})
		time.Sleep(time.Hour)
		require.False(t, closed)
		close(goOn)
		all.Wait()
		require.Equal(t, 1, taken)
	})
}
