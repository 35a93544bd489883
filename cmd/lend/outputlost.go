package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
)

// codeOutputLost is the code of a result whose end is known and whose output is not all
// there.
const codeOutputLost = "OUTPUT_LOST"

// lostError says that a command has ended, and that a part of its output is gone.
type lostError struct {
	message string
	end     protocol.Exit
}

func (e *lostError) Error() string { return e.message }

// lostOf is nil unless err says that output is gone of a command whose end is known.
func lostOf(err error) *lostError {
	var output *client.OutputError
	var ended *client.EndedError
	isEnded := errors.As(err, &ended)
	unknown := isEnded && ended.Code == protocol.CodeOutcomeUnknown
	known := isEnded && ended.Exit != nil && ended.Exit.Code != protocol.CodeOutcomeUnknown
	switch {
	case errors.As(err, &output) && !unknown:
		return &lostError{output.Error(), endOf(output.End)}
	case output == nil && unknown && known && errors.Is(err, client.ErrTakenOver):
		return &lostError{"another caller has taken the operation over, and the rest of its output; " + howItEnded(*ended.Exit), *ended.Exit}
	case output == nil && unknown && known:
		return &lostError{"a part of its output is gone; " + howItEnded(*ended.Exit), *ended.Exit}
	}
	return nil
}

// endOf is the end that an error of the client stands for.
func endOf(err error) protocol.Exit {
	var exit *client.ExitError
	var ended *client.EndedError
	switch {
	case errors.As(err, &exit):
		return protocol.Exit{Status: exit.Code, Signal: exit.Signal}
	case errors.As(err, &ended) && ended.Exit != nil:
		return *ended.Exit
	case errors.As(err, &ended):
		return protocol.Exit{Code: ended.Code}
	}
	return protocol.Exit{}
}

func howItEnded(e protocol.Exit) string {
	switch {
	case e.Code != protocol.CodeOK:
		return (&client.EndedError{Code: e.Code, Exit: &e}).Error()
	case e.Signal != "":
		return "the command was ended by " + e.Signal
	}
	return fmt.Sprintf("the command has ended with status %d", e.Status)
}

// lose makes r that of a command that has ended, and of output that is gone.
func (r *result) lose(e *lostError) {
	r.Origin, r.Ran, r.Code, r.Message = "caller", "yes", codeOutputLost, e.Error()
	r.EndCode, r.Signal, r.Status = e.end.Code.String(), e.end.Signal, &e.end.Status
}

// watched is an output that remembers why it failed. One goroutine writes.
type watched struct {
	io.Writer
	stream protocol.Stream
	lost   *client.OutputError // nil: it has not, or its reader has only left
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil && w.lost == nil {
		w.lost = client.NewOutputError(w.stream, err)
	}
	return n, err
}

// askInstead advises, where an attach found no end, not to do the same again.
func (a *app) askInstead(ctx context.Context, f runFlags, err error) error {
	var ended *client.EndedError
	if ctx.Err() != nil || !errors.As(err, &ended) || ended.Code != protocol.CodeOutcomeUnknown || lostOf(err) != nil {
		return err
	}
	return &hinted{err, "lend ops status " + strings.TrimPrefix(a.goOn(f, f.op), "lend ops attach ")}
}
