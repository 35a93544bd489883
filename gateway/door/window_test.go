package door

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/stretchr/testify/require"
)

// late is one direction of a line: what is written arrives a while later.
type late struct {
	net.Conn
	after time.Duration
	queue chan parcel
	once  sync.Once
	done  chan struct{}
}

type parcel struct {
	at time.Time
	b  []byte
}

// lateBy makes what c writes arrive later.
func lateBy(c net.Conn, after time.Duration) *late {
	l := &late{Conn: c, after: after, queue: make(chan parcel, 1<<16), done: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-l.queue:
				timer := time.NewTimer(time.Until(p.at))
				<-timer.C
				if _, err := c.Write(p.b); err != nil {
					return
				}
			case <-l.done:
				return
			}
		}
	}()
	return l
}

func (l *late) Write(b []byte) (int, error) {
	select {
	case l.queue <- parcel{time.Now().Add(l.after), append([]byte{}, b...)}:
		return len(b), nil
	case <-l.done:
		return 0, net.ErrClosed
	}
}

func (l *late) SetWriteDeadline(time.Time) error { return nil }

func (l *late) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Conn.Close()
}

// A long transfer ends, however often the window has doubled.
func TestWindowsThatGrowLetEverythingThrough(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	const trip = 40 * time.Millisecond
	reader, err := Muxer().NewConn(lateBy(a, trip/2), true, nil)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	writer, err := yamux.DefaultTransport.NewConn(lateBy(b, trip/2), false, nil)
	require.NoError(t, err)
	defer func() { _ = writer.Close() }()

	const size = 5 * muxerMaxWindow
	sent := make(chan error, 1)
	go func() {
		s, err := writer.OpenStream(context.Background())
		if err == nil {
			_ = s.SetDeadline(time.Now().Add(60 * time.Second))
			_, err = s.Write([]byte{1})
		}
		if err == nil { // by then the reader has measured its line
			_, err = io.ReadFull(s, make([]byte, 1))
		}
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{s}, io.LimitReader(endless{}, size), make([]byte, 65_507))
		}
		sent <- err
	}()
	s, err := reader.AcceptStream()
	require.NoError(t, err)
	_ = s.SetDeadline(time.Now().Add(60 * time.Second))
	_, err = io.ReadFull(s, make([]byte, 1))
	require.NoError(t, err)
	_, err = s.Write([]byte{1})
	require.NoError(t, err)
	n, err := io.CopyBuffer(io.Discard, io.LimitReader(struct{ io.Reader }{s}, size), make([]byte, 256<<10))
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.NoError(t, <-sent)
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// What a reader's doublings cost the sender stays below half of the greatest window.
func TestWindowsLeaveTheSenderHalf(t *testing.T) {
	t.Parallel()
	const frame = 64 << 10
	lost, w := 0, muxerInitialWindow
	for ; w < muxerMaxWindow; w *= 2 {
		lost += w/2 + frame
	}
	require.Equal(t, muxerMaxWindow, w, "doubled exactly")
	require.LessOrEqual(t, lost, muxerMaxWindow/2)
}
