package protocol

import (
	"strings"
	"time"
)

// check tells whether a frame's own fields are within bounds. Both the Reader
// and the Writer ask it, so that what one sends the other takes.
func check(f Frame) *ViolationError {
	switch f := f.(type) {
	case *Start:
		return checkStart(f)
	case *Attach:
		if f.Issuer.IsZero() || f.Invocation.IsZero() || f.Operation.IsZero() {
			return violation("ATTACH-1", "the operation is not named")
		}
		return checkToken(f.Token)
	case *Data:
		if f.Stream > Stderr || len(f.Payload) == 0 || len(f.Payload) > MaxData ||
			f.Offset+uint64(len(f.Payload)) < f.Offset {
			return errDataSize
		}
	case *OutputClosed:
		if f.Stream != Stdout && f.Stream != Stderr {
			return violation("OUTPUT-1", "no such output")
		}
	case *Accepted:
		return checkAccepted(f)
	case *Refused:
		return checkRefused(f)
	case *Exit:
		return checkExit(f)
	case *StdinEnd, *Ack, *ExitAck, *StdinClosed:
	default:
		return violation("FRAME-5", "no such frame")
	}
	return nil
}

// checkSender tells whether a frame's content fits who sent it.
func checkSender(f Frame, sender Role) *ViolationError {
	switch f := f.(type) {
	case *Data:
		if (f.Stream == 0) != (sender == Caller) {
			return violation("DATA-4", "data of a stream that the other end sends")
		}
	case *Ack:
		if sender == Caller && f.Stdin != 0 || sender == Gateway && (f.Stdout != 0 || f.Stderr != 0) {
			return violation("FLOW-1", "an acknowledgement of what its sender has sent")
		}
	}
	return nil
}

// checkStart: spec: START-1 to START-3.
func checkStart(s *Start) *ViolationError {
	if s.Operation.IsZero() || s.Connector.IsZero() || s.Version.IsZero() || s.Command.IsZero() {
		return violation("START-1", "a name is missing")
	}
	if v := checkChain(s.Lease, 1); v != nil {
		return v
	}
	total := 0
	for _, a := range s.Arguments {
		if len(a) > MaxArgument {
			return violation("START-3", "an argument is too long")
		}
		total += len(a)
	}
	if len(s.Arguments) > MaxArguments || total > MaxArgumentBytes {
		return violation("START-3", "too many arguments")
	}
	return nil
}

// checkChain: spec: START-2.
func checkChain(chain [][]byte, least int) *ViolationError {
	if len(chain) < least || len(chain) > MaxChain {
		return violation("START-2", "no lease, or too long a chain")
	}
	for _, l := range chain {
		if len(l) == 0 || len(l) > MaxLease {
			return violation("START-2", "a lease that is empty or too long")
		}
	}
	return nil
}

func checkToken(token []byte) *ViolationError {
	if len(token) != 0 && len(token) != TokenSize {
		return violation("ATTACH-2", "a token of a wrong length")
	}
	return nil
}

func checkAccepted(a *Accepted) *ViolationError {
	if !a.Attached && (a.Stdin != 0 || a.Stdout != 0 || a.Stderr != 0) {
		return violation("ACCEPT-2", "a new operation that does not begin at 0")
	}
	if v := checkLimits(a.Limits); v != nil {
		return v
	}
	return checkToken(a.Token)
}

func checkLimits(l Limits) *ViolationError {
	if !inRange(l.Run) || !inRange(l.Detached) {
		return violation("ACCEPT-3", "a duration out of bounds")
	}
	return nil
}

// checkRefused: spec: REFUSE-1.
func checkRefused(r *Refused) *ViolationError {
	switch {
	case r.Code == CodeOK || !r.Code.CanRefuse():
		return violation("REFUSE-1", "a code that does not refuse")
	case !isPrintable(r.Public):
		return violation("REFUSE-2", "text that is too long or not printable ASCII")
	case !inRange(r.RetryAfter):
		return violation("REFUSE-1", "a duration out of bounds")
	}
	return nil
}

// checkExit: spec: END-1.
func checkExit(e *Exit) *ViolationError {
	switch {
	case !e.Code.CanEnd():
		return violation("END-1", "a code that does not end an operation")
	case e.Status < 0 || e.Status > 255:
		return violation("END-1", "an exit status out of bounds")
	case e.Signal == "" && e.Core, e.Signal != "" && (e.Status != 0 || !isSignal(e.Signal)):
		return violation("END-1", "a signal that cannot be")
	case !inRange(e.Duration):
		return violation("END-1", "a duration out of bounds")
	}
	return nil
}

// isSignal: "SIG", then 1 to 12 upper-case letters, digits, '+' and '-'.
func isSignal(s string) bool {
	rest, ok := strings.CutPrefix(s, "SIG")
	if !ok || rest == "" || len(rest) > 12 {
		return false
	}
	for _, c := range []byte(rest) {
		if !('A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '-') {
			return false
		}
	}
	return true
}

func inRange(d time.Duration) bool { return d >= 0 && d <= maxDuration }
