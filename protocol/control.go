package protocol

import (
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

// OperationState is where one operation stands.
type OperationState uint8

// The states of an operation.
const (
	// OperationNotStarted: nothing was started under this ID, and nothing will be.
	OperationNotStarted OperationState = 1
	// OperationRunning: it runs, or is about to, or is being stopped.
	OperationRunning OperationState = 2
	// OperationEnded: it has ended and its end is known.
	OperationEnded OperationState = 3
	// OperationOutcomeUnknown: it was started, and nobody knows how it ended.
	OperationOutcomeUnknown OperationState = 4
)

// String returns "not started", "running", "ended" or "outcome unknown".
func (s OperationState) String() string {
	switch s {
	case OperationNotStarted:
		return "not started"
	case OperationRunning:
		return "running"
	case OperationEnded:
		return "ended"
	case OperationOutcomeUnknown:
		return "outcome unknown"
	}
	return fmt.Sprintf("OperationState(%d)", uint8(s))
}

// OperationKey names an operation of the peer that sends it.
type OperationKey struct {
	Issuer     name.PeerID // of the root of the lease
	Invocation name.InvocationID
	Operation  name.OperationID
}

// CancelRequest asks to stop one operation. It is idempotent. spec: CONTROL-3
type CancelRequest struct {
	OperationKey
	// Lease is nil or a chain, root first. With a valid one an operation that has
	// not started yet is cancelled too: it never will.
	Lease [][]byte
	// Grace is the time between the polite stop and the kill; 0 leaves it to the
	// gateway, which may shorten it.
	Grace time.Duration
}

// CancelReply says what the operation was when the request arrived.
type CancelReply struct{ State OperationState }

// StatusRequest asks where one operation stands.
type StatusRequest struct{ OperationKey }

// StatusReply answers it. Exit is there if and only if State is OperationEnded.
type StatusReply struct {
	State OperationState
	Exit  *Exit
}

// RevokeRequest carries one signed revocation, at most MaxLease bytes.
type RevokeRequest struct{ Envelope []byte }

// RevokeReply says that the revocation is in force and kept, and how many
// operations it stopped.
type RevokeReply struct{ Stopped uint32 }

// ControlRequest is a *CancelRequest, *StatusRequest or *RevokeRequest.
type ControlRequest interface{ controlRequest() *lendv1.ControlRequest }

// ControlReply is a *CancelReply, *StatusReply, *RevokeReply or *Refused.
type ControlReply interface{ controlReply() *lendv1.ControlReply }

// WriteControlRequest sends q with one Write.
func WriteControlRequest(w io.Writer, q ControlRequest) error {
	if v := checkRequest(q); v != nil {
		return fmt.Errorf("encode request: %w", v)
	}
	return writeMessage(w, q.controlRequest(), MaxRequest)
}

// ReadControlRequest reads the one request of a control stream. Errors are those
// of Reader.Read; what follows on the stream is not read. spec: CONTROL-1
func ReadControlRequest(r io.Reader) (ControlRequest, error) {
	var m lendv1.ControlRequest
	if err := readMessage(r, &m, MaxRequest); err != nil {
		return nil, err
	}
	q, err := requestFromProto(&m)
	if err != nil {
		return nil, &ViolationError{Rule: "CONTROL-2", Msg: err.Error()}
	}
	if v := checkRequest(q); v != nil {
		return nil, v
	}
	return q, nil
}

// WriteControlReply sends p with one Write.
func WriteControlReply(w io.Writer, p ControlReply) error {
	if v := checkReply(p); v != nil {
		return fmt.Errorf("encode reply: %w", v)
	}
	return writeMessage(w, p.controlReply(), MaxFrame)
}

// ReadControlReply reads the one reply. A refusal is returned as *Refused, not as
// an error; other errors are those of Reader.Read.
func ReadControlReply(r io.Reader) (ControlReply, error) {
	var m lendv1.ControlReply
	if err := readMessage(r, &m, MaxFrame); err != nil {
		return nil, err
	}
	p, err := replyFromProto(&m)
	if err != nil {
		return nil, &ViolationError{Rule: "CONTROL-2", Msg: err.Error()}
	}
	if v := checkReply(p); v != nil {
		return nil, v
	}
	return p, nil
}

func checkRequest(q ControlRequest) *ViolationError {
	switch q := q.(type) {
	case *CancelRequest:
		if !inRange(q.Grace) {
			return violation("CONTROL-3", "a grace out of bounds")
		}
		if v := checkChain(q.Lease, 0); v != nil {
			return v
		}
		return q.check()
	case *StatusRequest:
		return q.check()
	case *RevokeRequest:
		if len(q.Envelope) == 0 || len(q.Envelope) > MaxLease {
			return violation("CONTROL-4", "a revocation that is empty or too long")
		}
		return nil
	}
	return violation("CONTROL-2", "no such request")
}

func (k OperationKey) check() *ViolationError {
	if k.Issuer.IsZero() || k.Invocation.IsZero() || k.Operation.IsZero() {
		return violation("CONTROL-2", "the operation is not named")
	}
	return nil
}

func checkReply(p ControlReply) *ViolationError {
	switch p := p.(type) {
	case *CancelReply:
		return checkOperationState(p.State)
	case *StatusReply:
		if (p.State == OperationEnded) != (p.Exit != nil) {
			return violation("CONTROL-5", "an end that does not fit the state")
		}
		if p.Exit != nil {
			return checkExit(p.Exit)
		}
		return checkOperationState(p.State)
	case *RevokeReply:
		return nil
	case *Refused:
		return checkRefused(p)
	}
	return violation("CONTROL-2", "no such reply")
}

func checkOperationState(s OperationState) *ViolationError {
	if s < OperationNotStarted || s > OperationOutcomeUnknown {
		return violation("CONTROL-5", "no such state")
	}
	return nil
}

func (q *CancelRequest) controlRequest() *lendv1.ControlRequest {
	return &lendv1.ControlRequest{Request: &lendv1.ControlRequest_Cancel{Cancel: &lendv1.CancelRequest{
		Issuer: q.Issuer.String(), Invocation: q.Invocation.String(), Operation: q.Operation.String(),
		Lease: q.Lease, GraceMs: uint64(q.Grace.Milliseconds()),
	}}}
}

func (q *StatusRequest) controlRequest() *lendv1.ControlRequest {
	return &lendv1.ControlRequest{Request: &lendv1.ControlRequest_Status{Status: &lendv1.StatusRequest{
		Issuer: q.Issuer.String(), Invocation: q.Invocation.String(), Operation: q.Operation.String(),
	}}}
}

func (q *RevokeRequest) controlRequest() *lendv1.ControlRequest {
	return &lendv1.ControlRequest{Request: &lendv1.ControlRequest_Revoke{
		Revoke: &lendv1.RevokeRequest{Envelope: q.Envelope},
	}}
}

func (p *CancelReply) controlReply() *lendv1.ControlReply {
	return &lendv1.ControlReply{Reply: &lendv1.ControlReply_Cancel{
		Cancel: &lendv1.CancelReply{State: lendv1.OperationState(p.State)},
	}}
}

func (p *StatusReply) controlReply() *lendv1.ControlReply {
	m := &lendv1.StatusReply{State: lendv1.OperationState(p.State)}
	if p.Exit != nil {
		m.Exit = exitToProto(p.Exit)
	}
	return &lendv1.ControlReply{Reply: &lendv1.ControlReply_Status{Status: m}}
}

func (p *RevokeReply) controlReply() *lendv1.ControlReply {
	return &lendv1.ControlReply{Reply: &lendv1.ControlReply_Revoke{
		Revoke: &lendv1.RevokeReply{Stopped: p.Stopped},
	}}
}

func (r *Refused) controlReply() *lendv1.ControlReply {
	return &lendv1.ControlReply{Reply: &lendv1.ControlReply_Refused{Refused: refusedToProto(r)}}
}

func requestFromProto(m *lendv1.ControlRequest) (ControlRequest, error) {
	switch m := m.GetRequest().(type) {
	case *lendv1.ControlRequest_Cancel:
		grace, err := duration(m.Cancel.GetGraceMs(), time.Millisecond)
		if err != nil {
			return nil, err
		}
		k, err := operationKey(m.Cancel)
		return &CancelRequest{OperationKey: k, Lease: m.Cancel.GetLease(), Grace: grace}, err
	case *lendv1.ControlRequest_Status:
		k, err := operationKey(m.Status)
		return &StatusRequest{OperationKey: k}, err
	case *lendv1.ControlRequest_Revoke:
		return &RevokeRequest{Envelope: m.Revoke.GetEnvelope()}, nil
	}
	return nil, errors.New("no request")
}

func operationKey(m keyed) (k OperationKey, err error) {
	k.Issuer, k.Invocation, k.Operation, err = parseKey(m)
	return k, err
}

func replyFromProto(m *lendv1.ControlReply) (ControlReply, error) {
	switch m := m.GetReply().(type) {
	case *lendv1.ControlReply_Cancel:
		return &CancelReply{State: stateFromProto(m.Cancel.GetState())}, nil
	case *lendv1.ControlReply_Status:
		p := &StatusReply{State: stateFromProto(m.Status.GetState())}
		var err error
		if e := m.Status.GetExit(); e != nil {
			p.Exit, err = exitFromProto(e)
		}
		return p, err
	case *lendv1.ControlReply_Revoke:
		return &RevokeReply{Stopped: m.Revoke.GetStopped()}, nil
	case *lendv1.ControlReply_Refused:
		return refusedFromProto(m.Refused)
	}
	return nil, errors.New("no reply")
}

func stateFromProto(s lendv1.OperationState) OperationState {
	if s < 0 || s > 255 {
		return 0
	}
	return OperationState(s)
}

func writeMessage(w io.Writer, m proto.Message, limit int) error {
	b, err := appendMessage(nil, m, limit)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// readMessage reads one length and message, byte by byte for the length, so that
// nothing that follows is taken.
func readMessage(r io.Reader, m proto.Message, limit int) error {
	b, err := readBlock(r, limit)
	if err != nil {
		return err
	}
	if v := unmarshal(b, m); v != nil {
		return v
	}
	return nil
}

func readBlock(r io.Reader, limit int) ([]byte, error) {
	var head [3]byte
	for i := range head {
		if _, err := io.ReadFull(r, head[i:i+1]); err != nil {
			if i > 0 && err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, streamError(err)
		}
		length, n, v := frameLength(head[:i+1], limit)
		switch {
		case v != nil:
			return nil, v
		case n > 0:
			b, err := readGrowing(r, length)
			return b, streamError(err)
		}
	}
	return nil, io.ErrNoProgress // not reached: three bytes are a length or a violation
}

// readGrowing reads n bytes into a buffer that grows only as they arrive.
func readGrowing(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, min(n, 4<<10))
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(2*cap(b), n)), b...)
		}
		m, err := io.ReadFull(r, b[len(b):cap(b)])
		b = b[:len(b)+m]
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

func streamError(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("read message: %w", err)
}
