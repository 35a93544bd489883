package client

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/lendcli/lend/protocol"
)

// OutputError says that an output could not be written here, so that a part of it is
// gone. It takes the place of every other end of the command, also of its success. An
// *EndedError in End is found by errors.As too; an *ExitError is not, since nobody may
// take the status for that of a command whose output was had.
type OutputError struct {
	// Output is "standard output" or "standard error": the first that failed.
	Output string
	// Err is what its writer said.
	Err error
	// End is what Wait returns without this: nil if the command has ended with status
	// 0, else *ExitError or *EndedError.
	End error
}

// NewOutputError returns the error for a write to the output s that failed with err, for
// the caller to set End; nil if the reader has only left (a closed pipe or connection):
// then the command decides, as a local one would.
func NewOutputError(s protocol.Stream, err error) *OutputError {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	if s == protocol.Stderr {
		return &OutputError{Output: "standard error", Err: err}
	}
	return &OutputError{Output: "standard output", Err: err}
}

// Error names the output, why it failed, and the end.
func (e *OutputError) Error() string {
	why := e.Err.Error()
	var number syscall.Errno
	if errors.As(e.Err, &number) {
		why = number.Error() // without the name of the file
	}
	return fmt.Sprintf("%s: %s; %s", e.Output, why, e.ended())
}

func (e *OutputError) ended() string {
	var exit *ExitError
	switch {
	case e.End == nil:
		return "the command has ended with status 0"
	case errors.As(e.End, &exit) && exit.Signal == "":
		return fmt.Sprintf("the command has ended with status %d", exit.Code)
	}
	return e.End.Error()
}

// Unwrap returns Err, and End if it is no *ExitError.
func (e *OutputError) Unwrap() []error {
	var exit *ExitError
	if e.End == nil || errors.As(e.End, &exit) {
		return []error{e.Err}
	}
	return []error{e.Err, e.End}
}

// write gives output to the caller; a short write is an error.
func (o *operation) write(d *protocol.Data, w io.Writer) error {
	n, err := w.Write(d.Payload)
	if err == nil && n < len(d.Payload) {
		err = io.ErrShortWrite
	}
	if err != nil && o.lost == nil {
		o.lost = NewOutputError(d.Stream, err)
	}
	return err
}

// unread is the result of an end after the input broke off here. A command that has ended
// by itself did not need the rest of it.
func (o *operation) unread(end error) error {
	var unread *InputError
	var exit *ExitError
	var lost *OutputError
	switch {
	case end == nil || !errors.As(o.cancelled(), &unread) || errors.As(end, &exit) || errors.As(end, &lost):
		return end
	case end == error(unread): //nolint:errorlint // this very one: nothing was sent
		return end
	}
	return &InputError{Err: unread.Err, End: end}
}

// conclude is the result, after all that came was taken: no end is a success, or a
// failure of the command, if an output failed here.
func (o *operation) conclude(end error) error {
	if o.lost == nil {
		return end
	}
	o.lost.End = end
	return o.lost
}
