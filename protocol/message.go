package protocol

import (
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Frame is one message of a run stream. The concrete types are those of this
// file; a Reader returns pointers to them.
type Frame interface{ frameType() FrameType }

// Start asks to run one command. It is the first frame of a run stream.
type Start struct {
	Operation name.OperationID
	// Lease is the chain of signed envelopes, root first; 1 to 3 of them, 8 KiB each.
	Lease     [][]byte
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
	// Arguments are what the caller said after the command: at most 256, of at
	// most 131 071 bytes each and 256 KiB together.
	Arguments []string
	// Stdin tells whether the caller will send input.
	Stdin bool
}

// Attach asks to follow an operation that was started before. It is the first
// frame of a run stream.
type Attach struct {
	Issuer     name.PeerID // of the root of the lease
	Invocation name.InvocationID
	Operation  name.OperationID
	// Token is what Accepted gave; without it the caller gets output and end, and
	// may not send input. 16 bytes or none.
	Token []byte
	// Stdout and Stderr count the bytes that the caller has.
	Stdout, Stderr uint64
}

// Stream is one output of an operation.
type Stream uint8

// The outputs.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Data carries bytes of the input (caller to gateway; Stream is 0) or of an
// output. Offset counts the bytes of that stream before this frame. Payload is
// 1 to MaxData bytes; in a frame that was read it is valid until the next Read.
type Data struct {
	Stream  Stream
	Offset  uint64
	Payload []byte
}

// StdinEnd says that the input is complete, with its total.
type StdinEnd struct{ Total uint64 }

// StdinClosed tells the caller that the child takes no more input.
type StdinClosed struct{}

// Ack says how many bytes the sender has taken: of both outputs from the caller,
// of the input (in Stdin) from the gateway.
type Ack struct{ Stdin, Stdout, Stderr uint64 }

// OutputClosed tells the gateway that nobody reads one output any more.
type OutputClosed struct{ Stream Stream }

// Accepted answers Start or Attach.
type Accepted struct {
	// Attached is false if this frame's stream started the operation.
	Attached bool
	// Token allows input after a later Attach; 16 bytes.
	Token []byte
	// Stdin is where the input continues: what the gateway has got of it.
	Stdin uint64
	// Stdout and Stderr are where the outputs of this stream begin: greater than
	// what was asked for if that part is gone.
	Stdout, Stderr uint64
	Limits         Limits
}

// Limits are what holds for one operation. Zero means none of it; NoLimit means
// unlimited.
type Limits struct {
	Stdin, Stdout, Stderr uint64        // bytes
	Run                   time.Duration // 0: no limit
	Detached              time.Duration // grace after a lost link
}

// NoLimit is the byte limit that means unlimited.
const NoLimit = ^uint64(0)

// Refused answers Start or Attach: nothing ran because of it. It is the last
// frame of the stream.
type Refused struct {
	Code Code
	// Public is short, constant or quoted text for people; at most 1 KiB.
	Public string
	// RetryAfter is a hint; 0 means none.
	RetryAfter time.Duration
}

// Exit is the one end of an operation.
type Exit struct {
	// Code is OK if the child ended by itself, or the reason why it was stopped
	// or why nothing ran (CodeNotStarted).
	Code Code
	// Status is the child's exit status, 0 to 255; Signal its signal ("SIGTERM"),
	// if one ended it. Both are there for a stopped child too.
	Status int
	Signal string
	Core   bool
	// Forced says that outputs were cut off when the drain budget ended, since
	// something else held them.
	Forced bool
	// Totals of the bytes that the operation took and gave.
	Stdin, Stdout, Stderr uint64
	Duration              time.Duration
}

// ExitAck says that the caller has the end and all outputs.
type ExitAck struct{}

func (*Start) frameType() FrameType        { return TypeStart }
func (*Attach) frameType() FrameType       { return TypeAttach }
func (*Data) frameType() FrameType         { return TypeData }
func (*StdinEnd) frameType() FrameType     { return TypeStdinEnd }
func (*StdinClosed) frameType() FrameType  { return TypeStdinClosed }
func (*Ack) frameType() FrameType          { return TypeAck }
func (*OutputClosed) frameType() FrameType { return TypeOutputClosed }
func (*Accepted) frameType() FrameType     { return TypeAccepted }
func (*Refused) frameType() FrameType      { return TypeRefused }
func (*Exit) frameType() FrameType         { return TypeExit }
func (*ExitAck) frameType() FrameType      { return TypeExitAck }

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
	case !r.Code.CanRefuse():
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
