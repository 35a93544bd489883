package input

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/lendcli/lend/protocol"
)

// Error says that the input could not be read here, so that the command was cancelled: it
// had not got all of it, and nobody may take that for the end of the input. Of a command
// that has ended by itself all the same nothing is said: it did not need the rest.
type Error struct {
	// Err is what its reader said.
	Err error
	// End is what Wait or Start returns without this: *protocol.Ended or
	// *protocol.Refusal; nil if nothing was sent.
	End error
}

// Error says why it failed, and how the command ended.
func (e *Error) Error() string {
	why := e.Err.Error()
	var number syscall.Errno
	if errors.As(e.Err, &number) {
		why = "read: " + number.Error() // without the name of the file
	}
	why = "standard input: " + why
	var ended *protocol.Ended
	switch {
	case e.End == nil:
		return why
	case errors.As(e.End, &ended) && ended.Code == protocol.CodeCancelled:
		return why + "; the command was cancelled"
	case !e.Ran():
		return why + "; nothing ran"
	}
	return fmt.Sprintf("%s; %s", why, e.End)
}

// Unwrap returns Err, and End if there is one.
func (e *Error) Unwrap() []error {
	if e.End == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.End}
}

// Ran tells whether the command may have run.
func (e *Error) Ran() bool {
	var ended *protocol.Ended
	return errors.As(e.End, &ended)
}
