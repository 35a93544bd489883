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

// Window is a sender's account of one direction of an operation: what was sent,
// what the other end has acknowledged, and how much may be on the way. It holds
// no bytes. The zero value is of no use; it belongs to one goroutine or is
// guarded by its owner. spec: FLOW-3
type Window struct {
	sent, acked uint64
	limit       uint64
	grown       uint64 // acked when limit was last doubled
}

// NewWindow returns a window of MinWindow for a direction that continues at
// offset: all before it has been acknowledged.
func NewWindow(offset uint64) *Window {
	return &Window{sent: offset, acked: offset, limit: MinWindow, grown: offset}
}

// Sent and Acked count bytes from the beginning of the direction.
func (w *Window) Sent() uint64 { return w.sent }

// Acked returns how many bytes the other end has acknowledged.
func (w *Window) Acked() uint64 { return w.acked }

// Room returns how many bytes may be sent before the next acknowledgement.
func (w *Window) Room() int { return int(w.limit - (w.sent - w.acked)) }

// Add counts n bytes that were sent, at most Room.
func (w *Window) Add(n int) {
	if n < 0 || n > w.Room() {
		panic("protocol: sent beyond the window")
	}
	w.sent += uint64(n)
}

// Ack takes the other end's count. The window doubles, up to MaxWindow, whenever
// as much as one window has been acknowledged. A count that goes back, or beyond
// what was sent, is a *ViolationError. spec: FLOW-4
func (w *Window) Ack(count uint64) error {
	if count < w.acked || count > w.sent {
		return violation("FLOW-4", "acknowledged bytes that were not sent, or fewer than before")
	}
	w.acked = count
	for w.limit < MaxWindow && w.acked-w.grown >= w.limit {
		w.grown += w.limit
		w.limit *= 2
	}
	return nil
}

// tally is a receiver's account of what one sender has said. It refuses counts
// that do not add up. spec: DATA-3
type tally struct {
	count [3]uint64 // next offset of stream 0, 1 and 2
	acked Ack       // the sender's last acknowledgement
}

// take counts f, which is in order and well formed.
func (t *tally) take(f Frame) *ViolationError {
	switch f := f.(type) {
	case *Attach:
		t.acked = Ack{Stdout: f.Stdout, Stderr: f.Stderr}
	case *Accepted:
		t.count[Stdout], t.count[Stderr] = f.Stdout, f.Stderr
	case *Data:
		if f.Offset != t.count[f.Stream] {
			return violation("DATA-3", "data at a wrong offset")
		}
		t.count[f.Stream] += uint64(len(f.Payload))
	case *StdinEnd:
		if f.Total != t.count[0] {
			return violation("STDIN-2", "the input's total is not what was sent")
		}
	case *Ack:
		if f.Stdin < t.acked.Stdin || f.Stdout < t.acked.Stdout || f.Stderr < t.acked.Stderr {
			return violation("FLOW-4", "acknowledged fewer bytes than before")
		}
		t.acked = *f
	case *Exit:
		if f.Stdout < t.count[Stdout] || f.Stderr < t.count[Stderr] {
			return violation("END-2", "the totals are less than what was sent")
		}
	}
	return nil
}

// String returns the name in lower case ("stdin-end").
func (t FrameType) String() string {
	names := [...]string{
		"unknown", "start", "attach", "data", "stdin-end", "ack", "output-closed", "exit-ack", "accepted", "refused",
		"stdin-closed", "exit",
	}
	if int(t) >= len(names) {
		t = 0
	}
	return names[t]
}
