package pair

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

const (
	// ID is the protocol's name.
	ID = "/lend/pair/1.0.0"
	// MaxFrame bounds a frame, its length excluded, in bytes.
	MaxFrame = 512
)

// ErrViolation says that what came is not a frame of this protocol, or not the one that
// comes now. What is around it is constant.
var ErrViolation = errors.New("not the pairing protocol")

// Result is how an exchange ended; the zero value is none.
type Result uint8

// The results. With all but Paired and Unknown nothing has changed.
const (
	Paired     Result = iota + 1
	Refused           // by the owner
	Expired           // nobody decided in time
	NotInvited        // no such invitation, or no more
	Used              // somebody has used it already
	Violation         // a nonce that does not fit, or not a frame
	Withdrawn         // the owner's command ended before a decision
	Failed            // approved, but the policy could not be changed
	Unknown           // approved, and whether the policy was changed is not known
)

// Frame is one of Hello, Answer, Reveal and Outcome.
type Frame interface{ message() *lendv1.PairFrame }

// Hello is the caller's first word. Called is how it would like to be called, or zero.
type Hello struct {
	Commitment Commitment
	Proof      Proof
	Called     name.Label
}

// Answer is the owner's, to a Hello whose proof holds.
type Answer struct {
	Nonce Nonce
	Proof Proof
}

// Reveal opens the commitment.
type Reveal struct{ Nonce Nonce }

// Outcome is the owner's last word. Name goes with Paired alone.
type Outcome struct {
	Result Result
	Name   name.Label
}

func (h Hello) message() *lendv1.PairFrame {
	return &lendv1.PairFrame{Frame: &lendv1.PairFrame_Hello{Hello: &lendv1.PairHello{
		Commitment: h.Commitment[:], Proof: h.Proof[:], Name: h.Called.String(),
	}}}
}

func (a Answer) message() *lendv1.PairFrame {
	return &lendv1.PairFrame{Frame: &lendv1.PairFrame_Answer{Answer: &lendv1.PairAnswer{Nonce: a.Nonce[:], Proof: a.Proof[:]}}}
}

func (r Reveal) message() *lendv1.PairFrame {
	return &lendv1.PairFrame{Frame: &lendv1.PairFrame_Reveal{Reveal: &lendv1.PairReveal{Nonce: r.Nonce[:]}}}
}

func (o Outcome) message() *lendv1.PairFrame {
	return &lendv1.PairFrame{Frame: &lendv1.PairFrame_Outcome{Outcome: &lendv1.PairOutcome{
		Result: lendv1.PairResult(o.Result), Name: o.Name.String(),
	}}}
}

// Write sends one frame with one Write.
func Write(w io.Writer, f Frame) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.message())
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if _, err := w.Write(append(protowire.AppendVarint(nil, uint64(len(b))), b...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// Read reads one frame and takes nothing that follows. The error is ErrViolation for all
// that the protocol does not allow, else one of the stream; io.EOF before a frame,
// io.ErrUnexpectedEOF inside one. spec: PAIR-6
func Read(r io.Reader) (Frame, error) {
	n, err := readLength(r)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, inside(err)
	}
	return parse(b)
}

// readLength reads a varint of two bytes at most.
func readLength(r io.Reader) (int, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return 0, err
	}
	n := int(head[0])
	if n >= 0x80 {
		if _, err := io.ReadFull(r, head[1:]); err != nil {
			return 0, inside(err)
		}
		n = n&0x7f | int(head[1])<<7
	}
	if n > MaxFrame || n < 0x80 && head[0] >= 0x80 {
		return 0, fmt.Errorf("%w: a length that no frame has", ErrViolation)
	}
	return n, nil
}

func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parse accepts the canonical encoding alone: what is unknown, or of another size, is
// not there when it is written again.
func parse(b []byte) (Frame, error) {
	var m lendv1.PairFrame
	f := Frame(nil)
	if proto.Unmarshal(b, &m) == nil {
		f = frameOf(&m)
	}
	if f == nil {
		return nil, fmt.Errorf("%w: not a frame", ErrViolation)
	}
	again, _ := proto.MarshalOptions{Deterministic: true}.Marshal(f.message())
	if !bytes.Equal(again, b) {
		return nil, fmt.Errorf("%w: not the canonical encoding", ErrViolation)
	}
	return f, nil
}

// frameOf returns nil for what is no frame.
func frameOf(m *lendv1.PairFrame) Frame {
	switch m := m.GetFrame().(type) {
	case *lendv1.PairFrame_Hello:
		return Hello{block(m.Hello.GetCommitment()), block(m.Hello.GetProof()), labelOf(m.Hello.GetName())}
	case *lendv1.PairFrame_Answer:
		return Answer{block(m.Answer.GetNonce()), block(m.Answer.GetProof())}
	case *lendv1.PairFrame_Reveal:
		return Reveal{block(m.Reveal.GetNonce())}
	case *lendv1.PairFrame_Outcome:
		o := Outcome{Result(min(max(m.Outcome.GetResult(), 0), 255)), labelOf(m.Outcome.GetName())}
		if o.Result == 0 || o.Result > Unknown || o.Name.IsZero() == (o.Result == Paired) {
			return nil
		}
		return o
	}
	return nil
}

// block takes 32 bytes; others come out as another text.
func block(b []byte) (out [32]byte) {
	copy(out[:], b)
	return out
}

// labelOf is zero for what is no label.
func labelOf(s string) name.Label {
	l, _ := name.ParseLabel(s)
	return l
}
