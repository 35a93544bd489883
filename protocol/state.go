package protocol

// FrameType names one kind of frame. The numbers are those of the RunFrame on
// the wire.
type FrameType uint8

// The frame types. A frame that is not known has none.
const (
	TypeStart        FrameType = 1
	TypeAttach       FrameType = 2
	TypeData         FrameType = 3
	TypeStdinEnd     FrameType = 4
	TypeAck          FrameType = 5
	TypeOutputClosed FrameType = 6
	TypeExitAck      FrameType = 7
	TypeAccepted     FrameType = 8
	TypeRefused      FrameType = 9
	TypeStdinClosed  FrameType = 10
	TypeExit         FrameType = 11
)

// Role is one end of a run stream.
type Role uint8

// The roles.
const (
	// Caller opens the stream and sends Start or Attach.
	Caller Role = 1
	// Gateway answers.
	Gateway Role = 2
)

// State is how far one role has come in what it sends on one stream.
type State uint8

// The states of a sender. Each role begins in StateInit.
const (
	// StateInit: nothing was sent.
	StateInit State = iota
	// StateInput: the caller may send input.
	StateInput
	// StateNoInput: the caller has no input, or has ended it.
	StateNoInput
	// StateOutput: the gateway has accepted.
	StateOutput
	// StateOutputOnly: the gateway has said that the child takes no more input.
	StateOutputOnly
	// StateDone: the sender has sent its last frame.
	StateDone
)

// transition is one row of the table. input limits a row to first frames with
// (or without) input, since these lead to different states.
type transition struct {
	sender Role
	from   State
	frame  FrameType
	input  inputCase
	to     State
}

type inputCase uint8

const (
	anyInput inputCase = iota
	withInput
	withoutInput
)

// transitions is all that may be sent. spec: STATE-1
//
//nolint:gochecknoglobals // immutable table
var transitions = []transition{
	{Caller, StateInit, TypeStart, withInput, StateInput},
	{Caller, StateInit, TypeStart, withoutInput, StateNoInput},
	{Caller, StateInit, TypeAttach, withInput, StateInput},
	{Caller, StateInit, TypeAttach, withoutInput, StateNoInput},

	{Caller, StateInput, TypeData, anyInput, StateInput},
	{Caller, StateInput, TypeStdinEnd, anyInput, StateNoInput},
	{Caller, StateInput, TypeAck, anyInput, StateInput},
	{Caller, StateInput, TypeOutputClosed, anyInput, StateInput},
	{Caller, StateInput, TypeExitAck, anyInput, StateDone},

	{Caller, StateNoInput, TypeAck, anyInput, StateNoInput},
	{Caller, StateNoInput, TypeOutputClosed, anyInput, StateNoInput},
	{Caller, StateNoInput, TypeExitAck, anyInput, StateDone},

	{Gateway, StateInit, TypeAccepted, anyInput, StateOutput},
	{Gateway, StateInit, TypeRefused, anyInput, StateDone},

	{Gateway, StateOutput, TypeData, anyInput, StateOutput},
	{Gateway, StateOutput, TypeAck, anyInput, StateOutput},
	{Gateway, StateOutput, TypeStdinClosed, anyInput, StateOutputOnly},
	{Gateway, StateOutput, TypeExit, anyInput, StateDone},

	{Gateway, StateOutputOnly, TypeData, anyInput, StateOutputOnly},
	{Gateway, StateOutputOnly, TypeExit, anyInput, StateDone},
}

// Next returns the state of sender after it has sent a frame of type t in state
// s; false means a violation. input tells, for Start and Attach, whether the
// frame allows input to follow; it does not matter for others. It is a pure
// function. spec: STATE-1
func Next(sender Role, s State, t FrameType, input bool) (State, bool) {
	for _, r := range transitions {
		if r.sender == sender && r.from == s && r.frame == t &&
			(r.input == anyInput || (r.input == withInput) == input) {
			return r.to, true
		}
	}
	return StateDone, false
}

// allowsInput tells whether input may follow a first frame: a Start that says so,
// an Attach with a token.
func allowsInput(f Frame) bool {
	switch f := f.(type) {
	case *Start:
		return f.Stdin
	case *Attach:
		return len(f.Token) == TokenSize
	}
	return false
}

func (r Role) other() Role { return Caller + Gateway - r }
