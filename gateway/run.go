package gateway

import (
	"crypto/subtle"
	"errors"
	"io"
	"os"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// call is one inbound stream and who opened it.
type call struct {
	network.Stream
	caller caller
	read   func() // to be called when the first frame was read; may be called again
	// admitted: its Start was, so that something may run because of it.
	admitted bool
}

// reset ends the stream. A code that only refuses tells the caller that nothing ran.
// spec: CODE-4
func (c *call) reset(code protocol.Code) {
	if c.admitted && !code.CanEnd() {
		code = protocol.CodeInternal
	}
	_ = c.ResetWithError(network.StreamErrorCode(protocol.ResetBase + uint32(code)))
}

// handler wraps what serves a stream in what holds for all of them: who it is, no
// relayed link, few streams without a request, a deadline for it, no panic.
func (n *Node) handler(serve func(*call) error) network.StreamHandler {
	return func(s network.Stream) {
		own, local := s.(*localStream)
		c := &call{Stream: s, caller: caller{id: s.Conn().RemotePeer(), local: local}}
		if local {
			c.caller.gone = own.gone
		}
		holder, ok := door.PeerName(c.caller.id)
		if !ok || !n.enter() {
			c.reset(protocol.CodeShuttingDown)
			return
		}
		defer n.work.Done()
		defer func() {
			if recover() != nil {
				c.reset(protocol.CodeInternal)
				n.panicked(holder)
			}
		}()
		c.caller.holder = holder
		if string(s.Protocol()) != pair.ID && !local && !n.door.Welcome(c.caller.id) {
			n.account(c, nil, &protocol.Refusal{Code: protocol.CodeDenied}, errGuest)
			c.reset(protocol.CodeDenied) // nothing is read. spec: CODE-4
			return
		}
		release, ok := n.door.Reading(c.caller.id)
		if !ok {
			c.answerUnread(n.refused(c, nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy}))
			_ = c.Close()
			return
		}
		defer release()
		c.read = release
		if r := n.door.Barred(c.caller.id); r != nil && !local {
			c.answerUnread(n.refused(c, nil, r))
			_ = c.linger() // who does not read it has lost nothing
			return
		}
		_ = s.SetDeadline(time.Now().Add(protocol.StartTimeout))
		if err := serve(c); err != nil {
			n.cfg.Log.Debug().Str("cause", name.Quote(err.Error())).Str("peer", holder.String()).Str("protocol", string(s.Protocol())).Msg("stream ended early")
		}
	}
}

// panicked keeps a trace of a panic that nothing nearer has turned into a refusal.
func (n *Node) panicked(holder name.PeerID) {
	defer func() { _ = recover() }() // the ledger may be what panics
	n.cfg.Log.Error().Str("peer", holder.String()).Msg("panic in a stream handler")
	n.refusals.Add(protocol.CodeInternal, ledger.Refusal{
		At: n.cfg.Now(), Reason: protocol.CodeInternal.String(), Peer: holder, Detail: "panic in a stream handler",
	})
}

// answerUnread answers a stream without reading it.
func (c *call) answerUnread(r *protocol.Refusal) {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	switch string(c.Protocol()) {
	case protocol.RunID:
		_ = protocol.NewWriter(c).WriteFrame(r.Frame())
	case protocol.ControlID:
		_ = protocol.WriteControlReply(c, r.Frame())
	case protocol.CatalogID:
		_ = protocol.WriteCatalogRefused(c, r.Frame())
	}
}

// linger lets the other end read the last frame: closing alone does not deliver.
func (c *call) linger() error {
	if err := c.CloseWrite(); err != nil {
		c.reset(protocol.CodeInternal)
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, err := io.CopyN(io.Discard, c, 2*protocol.MaxStart)
	_ = c.Close()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// run serves a run stream.
func (n *Node) run(c *call) error {
	frames, w := protocol.NewReader(c, protocol.Gateway), protocol.NewWriter(c)
	answer := func(s *protocol.Start, err error) error {
		r := n.refused(c, s, err)
		_ = c.SetWriteDeadline(time.Now().Add(lingerTimeout))
		if err := w.WriteFrame(r.Frame()); err != nil {
			c.reset(r.Code)
			return err
		}
		return c.linger()
	}
	if c.Conn().Stat().Limited {
		return answer(nil, &protocol.Refusal{Code: protocol.CodeLimitedLink})
	}
	f, err := frames.Read()
	if err != nil {
		var violation *protocol.ViolationError
		if errors.As(err, &violation) {
			return answer(nil, err)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n.door.Deny(c.caller.id)
		}
		c.reset(protocol.CodeProtocolViolation)
		return err
	}
	c.read()
	_ = c.SetDeadline(time.Time{})
	session := operation.Session{Stream: c, Frames: frames, Writer: w, Reset: c.reset}
	switch f := f.(type) {
	case *protocol.Start:
		return n.serveStart(c, f, session, answer)
	case *protocol.Attach:
		return n.serveAttach(c, f, session, answer)
	}
	return answer(nil, &protocol.ViolationError{Rule: "STATE-1", Msg: "not a first frame"})
}

func (n *Node) serveStart(c *call, f *protocol.Start, s operation.Session, answer func(*protocol.Start, error) error) error {
	began := time.Now()
	out, err := n.admit(c.caller, f)
	switch {
	case err != nil:
		return answer(f, err)
	case out.end != nil:
		return operation.Replay(s, exitOf(out.end))
	}
	c.admitted = true
	if out.fresh {
		n.cfg.Observer.Admitted(time.Since(began))
		n.cfg.Log.Info().Str("peer", c.caller.holder.String()).Str("op", f.Operation.String()).
			Str("connector", f.Connector.String()).Str("version", f.Version.String()).
			Str("command", f.Command.String()).Msg("operation started")
	}
	s.Attached, s.Input = !out.fresh, true
	err = out.entry.op.Serve(s)
	if errors.Is(err, operation.ErrSettled) { // it ended meanwhile
		return n.replay(out.entry.key, s, func(err error) error { return answer(f, untold(err)) })
	}
	return err
}

// untold is why the end of what ran is not told: nobody may take it for a refusal of
// what did not run.
func untold(err error) error { return &protocol.Refusal{Code: protocol.CodeOutcomeUnknown, Cause: err} }

// serveAttach follows an operation of the holder's own: that takes its key, and no
// revocation, but no lease that is still valid.
func (n *Node) serveAttach(c *call, f *protocol.Attach, s operation.Session, answer func(*protocol.Start, error) error) error {
	refuse := func(err error) error { return answer(nil, err) }
	key := ledger.Key{Issuer: f.Issuer, Invocation: f.Invocation, Holder: c.caller.holder, Operation: f.Operation}
	e := n.live.get(key)
	if e == nil {
		return n.replay(key, s, refuse)
	}
	select {
	case <-e.decided:
	case <-time.After(startTimeout):
		return refuse(&stateError{ledger.StatePending})
	}
	if e.err != nil {
		return refuse(e.err)
	}
	if e.verified.Revoked(n.verifier.Revoked) {
		return refuse(n.whyRevoked())
	}
	n.door.Proved(c.caller.id) // it was admitted
	s.Attached, s.Stdout, s.Stderr = true, f.Stdout, f.Stderr
	if len(f.Token) > 0 {
		if subtle.ConstantTimeCompare(f.Token, e.token) != 1 {
			return refuse(&stateError{ledger.StateNone})
		}
		s.Input = true
	}
	err := e.op.Serve(s)
	switch {
	case errors.Is(err, operation.ErrSettled):
		return n.replay(key, s, refuse)
	case errors.Is(err, operation.ErrBusy):
		return refuse(&protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy, Cause: err})
	case errors.Is(err, operation.ErrBeyond):
		return refuse(&protocol.ViolationError{Rule: "ATTACH-3", Msg: "more output than there is"})
	}
	return err
}

// replay answers from the ledger: the recorded end, or why there is none.
func (n *Node) replay(k ledger.Key, s operation.Session, refuse func(error) error) error {
	o, err := n.lookup(k)
	if err != nil {
		return refuse(err)
	}
	if o.State == ledger.StateNone && n.live.early.Has(k) {
		return refuse(&protocol.Refusal{Code: protocol.CodeCancelled}) // before it started
	}
	var digest [32]byte
	if o.Start != nil {
		digest = o.Start.Digest
	}
	out, err := recorded(o, digest, nil)
	if err != nil {
		return refuse(err)
	}
	return operation.Replay(s, exitOf(out.end))
}

// errGuest is why a stream is refused that nobody has read.
var errGuest = errors.New("the policy does not name the peer: it is here for pairing alone")

// refused accounts for a refusal, which may cost the peer something, and returns it.
func (n *Node) refused(c *call, s *protocol.Start, err error) *protocol.Refusal {
	r := refuse(err)
	if (r.Code == protocol.CodeDenied || r.Code == protocol.CodeProtocolViolation) && !c.caller.local {
		n.door.Deny(c.caller.id)
	}
	n.account(c, s, r, err)
	return r
}

// account records and counts a refusal.
func (n *Node) account(c *call, s *protocol.Start, r *protocol.Refusal, err error) {
	record := ledger.Refusal{At: n.cfg.Now(), Reason: r.Code.String(), Peer: c.caller.holder, Detail: name.Quote(err.Error())}
	line := n.cfg.Log.Debug()
	if r.Code == protocol.CodeInternal || r.Code == protocol.CodeNotStarted || r.Code == protocol.CodeGatewayLocked && n.revoking.locked() == nil {
		line = n.cfg.Log.Error() // ours, not the peer's
	}
	line = line.Str("peer", c.caller.holder.String()).Str("code", r.Code.String()).Str("cause", name.Quote(err.Error()))
	if s != nil {
		record.Operation, record.Connector, record.Version, record.Command = s.Operation, s.Connector, s.Version, s.Command
		line = line.Str("op", s.Operation.String()).Str("connector", s.Connector.String()).Str("command", s.Command.String())
	}
	line.Msg("refused")
	n.refusals.Add(r.Code, record)
	n.cfg.Observer.Refused(r.Code)
}
