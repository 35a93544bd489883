package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/gateway/client/broker/wire"
)

const (
	// sessionWait is how long the broker waits where a gateway is busy.
	sessionWait = 10 * time.Second
	// watchAgain is when a broker is asked again to watch that could not.
	watchAgain = 2 * time.Second
)

// session is a lender that is a session of the broker: the broker has its leases.
type session struct {
	text, socket string

	mu   sync.Mutex // guards what follows
	last []Lent
}

// NewSession makes a lender of a session of the broker behind a socket (LEND_SESSION).
// The broker holds its leases; what is accepted into it later is lent as well.
func NewSession(text, socket string) Lender { return &session{text: text, socket: socket} }

// Lent implements Lender. What a gateway lends that does not answer is what it lent
// before.
func (s *session) Lent(ctx context.Context) ([]Lent, error) {
	said, err := socket.Lent(ctx, s.socket, s.text)
	switch {
	case errors.Is(err, broker.ErrNoSession), errors.Is(err, socket.ErrNotRunning):
		return nil, fmt.Errorf("%w: %w", ErrOver, err)
	case err != nil:
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Lent
	for _, l := range s.last {
		if slices.Contains(said.Silent, l.Gateway) {
			out = append(out, l)
		}
	}
	for _, l := range said.Commands {
		out = append(out, Lent{Gateway: l.Gateway, Entry: l.Entry, Until: l.Until})
	}
	s.last = out
	return slices.Clone(out), nil
}

// Watch implements Watcher: the broker says when the leases of the session change, and
// when it ends.
func (s *session) Watch(ctx context.Context, changed func()) error {
	for seen := uint64(0); ; {
		now, err := socket.Watch(ctx, s.socket, s.text, seen)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if err != nil || now != seen {
			changed() // if there is no session, or no broker, Lent says so
		}
		if errors.Is(err, broker.ErrNoSession) {
			return nil
		}
		pause := time.Duration(0)
		if err != nil {
			pause = watchAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
			seen = now // 0 after an error: something may have been missed
		}
	}
}

// Run implements Lender. The broker reads and writes pipes.
func (s *session) Run(ctx context.Context, r Run) Report {
	files, copied, err := pipes(&r)
	if err != nil {
		return reportOf(err, nil)
	}
	e := r.Lent.Entry
	o := broker.RunOptions{Connector: e.Connector.String(), Command: e.Command.String(), Version: e.Version.String(), Gateway: r.Lent.Gateway.String(), Wait: sessionWait, Stdin: "no"}
	if r.Stdin != nil {
		o.Stdin = "yes"
	}
	cancels, over := make(chan struct{}), make(chan struct{})
	var cancelling sync.WaitGroup
	cancelling.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		select {
		case cancels <- struct{}{}:
		case <-over:
		}
	})
	exit, err := socket.Run(context.WithoutCancel(ctx), s.socket, wire.Call{Session: s.text, Args: r.Args}, o, files, cancels)
	close(over)
	cancelling.Wait()
	for _, f := range files {
		_ = f.Close() // ours; the broker has closed its own
	}
	copied.Wait()
	switch {
	case errors.Is(err, socket.ErrLost):
		return reportTold(nil, 0, false)
	case err != nil:
		return reportOf(err, nil)
	}
	return reportTold(exit.Detail, int(exit.Status), exit.Ended)
}

// Close implements Lender: the session goes on.
func (s *session) Close() error { return nil }

// pipes makes the standard streams of a run: files are for the broker, and must be closed
// when it has ended; then copied waits for what is in them.
func pipes(r *Run) (files [3]*os.File, copied *sync.WaitGroup, err error) {
	copied = &sync.WaitGroup{}
	var made []io.Closer
	defer func() {
		if err != nil {
			for _, c := range made {
				_ = c.Close()
			}
		}
	}()
	var ours [3]*os.File
	for i, want := range [3]bool{r.Stdin != nil, true, true} {
		if !want {
			if files[i], err = os.Open(os.DevNull); err != nil {
				return files, copied, err
			}
			made = append(made, files[i])
			continue
		}
		in, out, err := os.Pipe()
		if err != nil {
			return files, copied, fmt.Errorf("make pipe: %w", err)
		}
		made = append(made, in, out)
		files[i], ours[i] = out, in
		if i == 0 {
			files[i], ours[i] = in, out
		}
	}
	for i, w := range [3]io.Writer{nil, r.Stdout, r.Stderr} {
		if w == nil {
			continue
		}
		copied.Go(func() {
			_, _ = io.Copy(w, ours[i]) // what is written is counted by the broker's report
			_ = ours[i].Close()
		})
	}
	if r.Stdin != nil {
		copied.Go(func() {
			_, _ = io.Copy(ours[0], r.Stdin) // a command that wants no more ends it
			_ = ours[0].Close()
		})
	}
	return files, copied, nil
}
