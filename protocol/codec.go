package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

// unmarshal decodes b into m and refuses what is not the canonical encoding of a
// known message: unknown fields at any depth, another order, longer varints,
// defaults that are spelt out. spec: FRAME-4
func unmarshal(b []byte, m proto.Message) *ViolationError {
	if err := proto.Unmarshal(b, m); err != nil {
		return violation("FRAME-4", "not a message")
	}
	if hasUnknown(m.ProtoReflect()) {
		return violation("FRAME-4", "an unknown field")
	}
	if !encodes(m, b) {
		return violation("FRAME-4", "not the canonical encoding")
	}
	return nil
}

// encodes tells whether b is the canonical encoding of m.
func encodes(m proto.Message, b []byte) bool {
	again, err := marshal(m)
	return err == nil && bytes.Equal(again, b)
}

// marshal returns the canonical encoding, which for the messages of lend is the
// deterministic one of this library (a test compares it with one by hand).
func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// appendMessage appends length and encoding.
func appendMessage(dst []byte, m proto.Message, limit int) ([]byte, error) {
	b, err := marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(b) > limit {
		return nil, fmt.Errorf("encode frame: %d bytes where %d are allowed", len(b), limit)
	}
	return append(protowire.AppendVarint(dst, uint64(len(b))), b...), nil
}

func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Message() != nil && !fd.IsList() {
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}

// parseFrame reads all frames but Data. Both results are nil for a frame that
// may be ignored. What it returns does not refer to body.
func parseFrame(body []byte) (Frame, *ViolationError) {
	if ignorable(body) {
		return nil, nil
	}
	if num, _, n := protowire.ConsumeTag(body); n > 0 && num > protowire.Number(TypeExit) {
		return nil, violation("GREASE-1", "an unknown frame that may not be ignored")
	}
	var m lendv1.RunFrame
	if v := unmarshal(body, &m); v != nil {
		return nil, v
	}
	f, err := fromProto(&m)
	if err != nil {
		return nil, asViolation("FRAME-5", err)
	}
	if v := check(f); v != nil {
		return nil, v
	}
	return f, nil
}

// appendFrame appends length and encoding of a valid frame.
func appendFrame(dst []byte, f Frame) ([]byte, error) {
	if v := check(f); v != nil {
		return nil, fmt.Errorf("encode frame: %w", v)
	}
	if d, ok := f.(*Data); ok {
		buf := make([]byte, DataHeaderMax+len(d.Payload))
		copy(buf[DataHeaderMax:], d.Payload)
		return append(dst, buf[PutDataHeader(buf, d.Stream, d.Offset, len(d.Payload)):]...), nil
	}
	limit := MaxFrame
	if t := f.frameType(); t == TypeStart || t == TypeAttach {
		limit = MaxStart
	}
	return appendMessage(dst, toProto(f), limit)
}

// asViolation keeps a violation, and makes one of any other error, whose text is
// constant or quoted.
func asViolation(rule string, err error) *ViolationError {
	var v *ViolationError
	if errors.As(err, &v) {
		return v
	}
	return violation(rule, err.Error())
}

func fromProto(m *lendv1.RunFrame) (Frame, error) {
	switch m := m.GetFrame().(type) {
	case *lendv1.RunFrame_Start:
		return startFromProto(m.Start)
	case *lendv1.RunFrame_Attach:
		return attachFromProto(m.Attach)
	case *lendv1.RunFrame_StdinEnd:
		return &StdinEnd{Total: m.StdinEnd.GetTotal()}, nil
	case *lendv1.RunFrame_Ack:
		return &Ack{Stdin: m.Ack.GetStdin(), Stdout: m.Ack.GetStdout(), Stderr: m.Ack.GetStderr()}, nil
	case *lendv1.RunFrame_OutputClosed:
		return &OutputClosed{Stream: Stream(min(m.OutputClosed.GetStream(), 255))}, nil
	case *lendv1.RunFrame_ExitAck:
		return &ExitAck{}, nil
	case *lendv1.RunFrame_Accepted:
		return acceptedFromProto(m.Accepted)
	case *lendv1.RunFrame_Refused:
		return refusedFromProto(m.Refused)
	case *lendv1.RunFrame_StdinClosed:
		return &StdinClosed{}, nil
	case *lendv1.RunFrame_Exit:
		return exitFromProto(m.Exit)
	}
	return nil, errors.New("no frame") // also a Data frame that is not one
}

func toProto(f Frame) *lendv1.RunFrame {
	switch f := f.(type) {
	case *Start:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_Start{Start: startToProto(f)}}
	case *Attach:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_Attach{Attach: &lendv1.Attach{
			Issuer: f.Issuer.String(), Invocation: f.Invocation.String(), Operation: f.Operation.String(),
			Token: f.Token, Stdout: f.Stdout, Stderr: f.Stderr,
		}}}
	case *StdinEnd:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_StdinEnd{StdinEnd: &lendv1.StdinEnd{Total: f.Total}}}
	case *Ack:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_Ack{
			Ack: &lendv1.Ack{Stdin: f.Stdin, Stdout: f.Stdout, Stderr: f.Stderr},
		}}
	case *OutputClosed:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_OutputClosed{
			OutputClosed: &lendv1.OutputClosed{Stream: uint32(f.Stream)},
		}}
	case *ExitAck:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_ExitAck{ExitAck: &lendv1.ExitAck{}}}
	case *Accepted:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_Accepted{Accepted: &lendv1.Accepted{
			Attached: f.Attached, Token: f.Token, Stdin: f.Stdin, Stdout: f.Stdout, Stderr: f.Stderr,
			Limits: limitsToProto(f.Limits),
		}}}
	case *Refused:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_Refused{Refused: refusedToProto(f)}}
	case *StdinClosed:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_StdinClosed{StdinClosed: &lendv1.StdinClosed{}}}
	case *Exit:
		return &lendv1.RunFrame{Frame: &lendv1.RunFrame_Exit{Exit: exitToProto(f)}}
	}
	return &lendv1.RunFrame{}
}

func startFromProto(m *lendv1.Start) (*Start, error) {
	if len(m.GetArguments()) > MaxArguments {
		return nil, violation("START-3", "too many arguments")
	}
	s := &Start{Lease: m.GetLease(), Stdin: m.GetStdin()}
	var err error
	if s.Operation, err = name.ParseOperationID(m.GetOperation()); err != nil {
		return nil, err
	}
	if s.Connector, err = name.ParseConnectorKey(m.GetConnector()); err != nil {
		return nil, err
	}
	if s.Version, err = name.ParseVersion(m.GetVersion()); err != nil {
		return nil, err
	}
	if s.Command, err = name.ParseCommand(m.GetCommand()); err != nil {
		return nil, err
	}
	if n := len(m.GetArguments()); n > 0 {
		s.Arguments = make([]string, n)
	}
	for i, a := range m.GetArguments() {
		s.Arguments[i] = string(a)
	}
	return s, nil
}

func startToProto(s *Start) *lendv1.Start {
	m := &lendv1.Start{
		Operation: s.Operation.String(), Lease: s.Lease, Connector: s.Connector.String(),
		Version: s.Version.String(), Command: s.Command.String(), Stdin: s.Stdin,
	}
	for _, a := range s.Arguments {
		m.Arguments = append(m.Arguments, []byte(a))
	}
	return m
}

func attachFromProto(m *lendv1.Attach) (*Attach, error) {
	a := &Attach{Token: orNil(m.GetToken()), Stdout: m.GetStdout(), Stderr: m.GetStderr()}
	var err error
	a.Issuer, a.Invocation, a.Operation, err = parseKey(m)
	return a, err
}

// keyed is a message that names one operation.
type keyed interface {
	GetIssuer() string
	GetInvocation() string
	GetOperation() string
}

func parseKey(m keyed) (p name.PeerID, i name.InvocationID, o name.OperationID, err error) {
	if p, err = name.ParsePeerID(m.GetIssuer()); err != nil {
		return p, i, o, err
	}
	if i, err = name.ParseInvocationID(m.GetInvocation()); err != nil {
		return p, i, o, err
	}
	o, err = name.ParseOperationID(m.GetOperation())
	return p, i, o, err
}

func acceptedFromProto(m *lendv1.Accepted) (*Accepted, error) {
	if m.GetLimits() == nil {
		return nil, errors.New("no limits")
	}
	l, err := limitsFromProto(m.GetLimits())
	return &Accepted{
		Attached: m.GetAttached(), Token: orNil(m.GetToken()), Stdin: m.GetStdin(),
		Stdout: m.GetStdout(), Stderr: m.GetStderr(), Limits: l,
	}, err
}

func limitsFromProto(m *lendv1.Limits) (l Limits, err error) {
	l = Limits{Stdin: m.GetStdin(), Stdout: m.GetStdout(), Stderr: m.GetStderr()}
	if l.Run, err = duration(m.GetRunMs(), time.Millisecond); err != nil {
		return Limits{}, err
	}
	l.Detached, err = duration(m.GetDetachedMs(), time.Millisecond)
	return l, err
}

func limitsToProto(l Limits) *lendv1.Limits {
	return &lendv1.Limits{
		Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr,
		RunMs: uint64(l.Run.Milliseconds()), DetachedMs: uint64(l.Detached.Milliseconds()),
	}
}

func refusedFromProto(m *lendv1.Refused) (*Refused, error) {
	c, err := code(m.GetCode())
	if err != nil {
		return nil, err
	}
	after, err := duration(m.GetRetryAfterMs(), time.Millisecond)
	return &Refused{Code: c, Public: m.GetPublic(), RetryAfter: after}, err
}

func refusedToProto(r *Refused) *lendv1.Refused {
	return &lendv1.Refused{
		Code: uint32(r.Code), Public: r.Public, RetryAfterMs: uint64(r.RetryAfter.Milliseconds()),
	}
}

func exitFromProto(m *lendv1.Exit) (*Exit, error) {
	c, err := code(m.GetCode())
	if err != nil {
		return nil, err
	}
	d, err := duration(m.GetDurationUs(), time.Microsecond)
	return &Exit{
		Code: c, Status: int(min(m.GetStatus(), 256)), Signal: m.GetSignal(), Core: m.GetCore(), Forced: m.GetForced(),
		Stdin: m.GetStdin(), Stdout: m.GetStdout(), Stderr: m.GetStderr(), Duration: d,
	}, err
}

func exitToProto(e *Exit) *lendv1.Exit {
	return &lendv1.Exit{
		Code: uint32(e.Code), Status: uint32(e.Status), Signal: e.Signal, Core: e.Core, Forced: e.Forced,
		Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr, DurationUs: uint64(e.Duration.Microseconds()),
	}
}

func code(v uint32) (Code, error) {
	if v > 0xffff {
		return 0, errors.New("code out of bounds")
	}
	return Code(v), nil
}

func duration(v uint64, unit time.Duration) (time.Duration, error) {
	if v > uint64(maxDuration/unit) {
		return 0, errors.New("duration out of bounds")
	}
	return time.Duration(v) * unit, nil
}

func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
