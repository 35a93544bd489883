package protocol

import (
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
	// Stdin is how many bytes of input the gateway has already taken.
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
