package stdio

import (
	"bytes"
	"io"
	"sync"
)

// Outlet is the way to a client, who is waited for until Leave is called: a Write of a
// pipe that nobody reads cannot be ended, so it is left alone. One goroutine writes.
type Outlet struct {
	to   io.Writer
	over chan struct{}
	once sync.Once
}

// NewOutlet makes an Outlet of what the client reads.
func NewOutlet(to io.Writer) *Outlet { return &Outlet{to: to, over: make(chan struct{})} }

// Write fails with io.ErrClosedPipe once the client is not waited for. A goroutine stays
// in the Write that it was in.
func (o *Outlet) Write(p []byte) (int, error) {
	select {
	case <-o.over:
		return 0, io.ErrClosedPipe
	default:
	}
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	data := bytes.Clone(p) // what stays in the Write reads it later
	go func() {
		n, err := o.to.Write(data)
		done <- written{n, err}
	}()
	select {
	case w := <-done:
		return w.n, w.err
	case <-o.over:
		return 0, io.ErrClosedPipe
	}
}

// Leave waits for the client no more. It may be called from any goroutine, and again.
func (o *Outlet) Leave() { o.once.Do(func() { close(o.over) }) }
