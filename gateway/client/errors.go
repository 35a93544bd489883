package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/gateway/client/internal/input"
	"github.com/lendcli/lend/protocol"
)

// RefusedError says that nothing ran because of the request; Code says why.
type RefusedError = protocol.Refusal

// EndedError says that the command ran and was stopped, or that its outcome is
// unknown (then errors.Is(err, ErrOutcomeUnknown)).
type EndedError = protocol.Ended

// InputError says that the input could not be read here, so that the command was
// cancelled. It takes the place of every end but those by itself.
type InputError = input.Error

// ErrOutcomeUnknown says that the command may have run, and nobody says how it ended.
// Only the same operation ID may be tried again.
var ErrOutcomeUnknown = errors.New("outcome unknown")

// ErrNotGateway says that the peer that answered does not speak the protocol. Nothing ran.
var ErrNotGateway = dial.ErrNotGateway

// ErrUnreachable says that no link to the gateway came about, or that the gateway took
// none. It has read nothing; later it may be otherwise.
var ErrUnreachable = dial.ErrUnreachable

// ErrNotAdmitted says that the gateway turned this peer away before it read anything: its
// policy does not name the peer. It is an ErrUnreachable too.
var ErrNotAdmitted = dial.ErrNotAdmitted

// ErrNoAddress says that neither the lease nor Config has an address of the gateway.
// Nothing was sent.
var ErrNoAddress = dial.ErrNoAddress

// ErrVersions says that the lease has several versions of the Connector and Cmd.Version
// names none. Nothing was sent.
var ErrVersions = errors.New("the lease has several versions of the connector: choose one")

// ErrTakenOver says that another caller, with the same operation ID, has the operation
// now, and with it what this one lacks of the output. It is told of the end all the
// same, if the gateway knows it: EndedError.Exit.
var ErrTakenOver = errors.New("another caller has taken the operation over")

// ErrClosed says that the Client is closed.
var ErrClosed = errors.New("client is closed")

// ExitError says that the command ended by itself, with a status that is not 0
// or by a signal.
type ExitError struct {
	Code   int    // 0 to 255; 0 if a signal ended it
	Signal string // "SIGTERM", …; "" if none
	Core   bool   // it dumped core
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "the command was ended by " + e.Signal
	}
	return fmt.Sprintf("the command exited with status %d", e.Code)
}

// ExitStatus returns what lend run returns for an error of Run or Wait: the
// remote status, 128+n for signal n, else 75, 124, 125, 126, 127, 130 or 255, which is
// that of an *OutputError whatever the end was, and of an *InputError if anything ran.
func ExitStatus(err error) int {
	var exit *ExitError
	var refused *RefusedError
	var ended *EndedError
	var output *OutputError
	var unread *InputError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unread) && !unread.Ran():
		return exitNotSent
	case errors.As(err, &output), unread != nil:
		return protocol.CodeOutcomeUnknown.EndStatus()
	case errors.As(err, &exit) && exit.Signal != "":
		return 128 + signalNumber(exit.Signal)
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &ended):
		return ended.Code.EndStatus()
	case errors.As(err, &refused) && refused.Retryable():
		return protocol.CodeBusy.ExitStatus()
	case errors.As(err, &refused):
		return refused.Code.ExitStatus()
	case errors.Is(err, context.Canceled):
		return protocol.CodeCancelled.EndStatus()
	}
	return exitNotSent
}

const exitNotSent = 125

// signalNumber returns the number on Linux, which most shells show, 0 if the
// name is another.
func signalNumber(s string) int {
	for i, n := range [...]string{
		"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
		"SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
		"SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
	} {
		if s == n {
			return i + 1
		}
	}
	return 0
}

var errNoEnd = errors.New("the gateway ended the stream without an end of the operation")

func unknown(cause error) error {
	if errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) {
		cause = errNoEnd
	}
	return &EndedError{Code: protocol.CodeOutcomeUnknown, Cause: fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)}
}
