package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
)

// codeInputLost is the code of a result whose command was cancelled because its input
// could not be read here.
const codeInputLost = "INPUT_LOST"

// unreadOf is nil unless err says that the input could not be read here, of a request
// that was sent and whose end is known.
func unreadOf(err error) *client.InputError {
	var unread *client.InputError
	var ended *client.EndedError
	if !errors.As(err, &unread) || unread.End == nil || errors.As(err, &ended) && ended.Code == protocol.CodeOutcomeUnknown {
		return nil
	}
	return unread
}

// starve makes r that of a command that was cancelled for want of its input.
func (r *result) starve(e *client.InputError) {
	r.Origin, r.Ran, r.Code, r.Message = "caller", "no", codeInputLost, e.Error()
	r.EndCode = protocol.CodeCancelled.String()
	var ended *client.EndedError
	if !errors.As(e.End, &ended) {
		return
	}
	r.Ran, r.EndCode = "yes", ended.Code.String()
	if ended.Exit != nil {
		r.Signal, r.Status = ended.Exit.Signal, &ended.Exit.Status
	}
}

// watchedInput is an input that remembers why it could not be read, and cancels then
// what waits for it. One goroutine reads.
type watchedInput struct {
	io.Reader
	ctx    context.Context //nolint:containedctx // that of the one command that reads it
	cancel func()
	lost   atomic.Pointer[error]
}

// Read implements io.Reader.
func (w *watchedInput) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && w.ctx.Err() == nil {
		w.lost.CompareAndSwap(nil, &err)
		w.cancel()
	}
	return n, err
}

// unread is the error of a command that ended with err: if its input could not be read,
// that is why it was cancelled.
func (w *watchedInput) unread(err error) error {
	var ended *client.EndedError
	var refused *client.RefusedError
	why := w.lost.Load()
	if why == nil || !errors.As(err, &ended) && !errors.As(err, &refused) {
		return err
	}
	return &client.InputError{Err: *why, End: err}
}
