package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/gateway/internal/ownersocket"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of the socket.
const (
	// maxConnections is how many callers are served at once; the next ones wait.
	maxConnections = 256
	requestTimeout = 5 * time.Second // for the first frame, and for the answer to be taken
	// maxRefusalLines bounds the log lines about refused connections in a minute.
	maxRefusalLines = 10
)

// socketName is what errors call it.
const socketName = "broker's socket"

// ErrInUse says that another broker answers on the socket.
var ErrInUse = errors.New("another broker is running here")

// Server serves a Broker on one socket.
type Server struct {
	broker   *broker.Broker
	path     string
	listener net.Listener
	log      zerolog.Logger
	ctx      context.Context //nolint:containedctx // a Server is a lifetime
	end      context.CancelFunc
	slots    chan struct{}
	watchers chan struct{}
	wg       sync.WaitGroup
	close    sync.Once
	err      error
}

// Listen makes the socket at path, of mode 0600 in a directory that must be the user's
// own with mode 0700, and serves b on it until Close. Only the same user and root may
// connect. A socket that nobody answers on is replaced; else the error is ErrInUse.
func Listen(ctx context.Context, path string, b *broker.Broker, log zerolog.Logger) (*Server, error) {
	listener, err := ownersocket.Listen(ctx, socketName, path)
	if errors.Is(err, ownersocket.ErrInUse) {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, err
	}
	s := &Server{broker: b, path: path, listener: listener, slots: make(chan struct{}, maxConnections), watchers: make(chan struct{}, maxWatchers)}
	s.log = log.Sample(&zerolog.BurstSampler{Burst: maxRefusalLines, Period: time.Minute})
	s.ctx, s.end = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// Close cancels what runs, waits for it, and removes the socket. It is idempotent.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.err = s.listener.Close()
		s.end()
		s.wg.Wait()
	})
	return s.err
}

func (s *Server) accept() {
	for {
		select {
		case s.slots <- struct{}{}: // who connects meanwhile waits in the system's queue
		case <-s.ctx.Done():
			return
		}
		c, err := s.listener.Accept()
		if err != nil {
			<-s.slots
			if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
				return
			}
			s.log.Error().Str("problem", name.Show(err.Error())).Msg("broker cannot accept")
			if !pause(s.ctx, time.Second) { // no descriptors, perhaps
				return
			}
			continue
		}
		s.wg.Go(func() {
			defer func() { <-s.slots }()
			if err := s.serve(c); err != nil {
				s.log.Warn().Str("problem", name.Show(err.Error())).Msg("broker connection refused")
			}
		})
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// serve answers one caller. The error is for the log, and holds nothing that the caller
// said.
func (s *Server) serve(c net.Conn) error {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(s.ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	who, err := ownersocket.PeerOf(c)
	if err != nil {
		return err
	}
	if who.User != 0 && who.User != os.Getuid() {
		return fmt.Errorf("user %d is not the broker's", who.User)
	}
	_ = c.SetReadDeadline(time.Now().Add(requestTimeout)) // sockets have deadlines
	if s.ctx.Err() != nil {
		return nil
	}
	kind, payload, streams, err := readFirst(c)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil // it only looked
		}
		return fmt.Errorf("read request: %w", err)
	}
	switch kind {
	case wire.KindControl:
		return s.control(c, payload)
	case wire.KindCall, wire.KindRun:
		said, err := wire.ParseCall(payload)
		if err != nil {
			return errors.Join(err, streams.close())
		}
		return s.call(c, s.broker.Call(said, kind == wire.KindRun, streams.streams()), streams)
	default:
		return errors.Join(wire.ErrMalformed, streams.close())
	}
}

// call runs one call, and listens for its cancel and for the end of its caller.
func (s *Server) call(c net.Conn, call *broker.Call, streams *descriptors) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	_ = c.SetReadDeadline(time.Time{})
	var listening sync.WaitGroup
	ended := make(chan struct{})
	listening.Go(func() {
		for n := 0; ; n++ {
			head := make([]byte, wire.HeaderSize)
			_, err := io.ReadFull(c, head)
			kind, _, bad := wire.ParseHeader(head)
			select {
			case <-ended: // or it was woken because all is over
				return
			default:
			}
			cancel()
			if err != nil || bad != nil || kind != wire.KindCancel {
				streams.stop() // nobody is there any more
				return
			}
			if n > 0 {
				call.Hurry()
			}
		}
	})
	exit := call.Do(ctx)
	close(ended)
	_ = c.SetReadDeadline(time.Unix(1, 0))
	listening.Wait()
	err := streams.close() // before the answer: the caller may be waited for by who reads its outputs
	payload := exit.Append(nil)
	_ = c.SetWriteDeadline(time.Now().Add(requestTimeout))
	_, werr := c.Write(append(wire.Header(wire.KindExit, len(payload)), payload...))
	if werr != nil && ctx.Err() != nil {
		werr = nil // it has left
	}
	return errors.Join(err, werr)
}

// control answers a question.
func (s *Server) control(c net.Conn, payload []byte) error {
	var q Question
	answer := Answer{}
	if err := json.Unmarshal(payload, &q); err != nil {
		return wire.ErrMalformed
	}
	var err error
	switch q.Do {
	case DoAccept:
		answer, err = s.acceptLease(q)
	case DoClose:
		err = s.broker.CloseSession(q.Session)
	case DoStatus:
		answer.Status = s.broker.Status()
	case DoCatalog:
		answer.Catalog, err = s.page(q)
	case DoWatch:
		answer.Seen, err = s.watch(q)
	default:
		err = errors.New("the broker does not know this question")
	}
	if err != nil {
		answer = Answer{Error: err.Error(), NoSession: errors.Is(err, broker.ErrNoSession)}
	}
	data, err := json.Marshal(answer)
	if err != nil || len(data) > wire.MaxAnswer {
		return errors.Join(errors.New("answer question"), err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(requestTimeout))
	_, err = c.Write(append(wire.Header(wire.KindAnswer, len(data)), data...))
	return err
}

func (s *Server) acceptLease(q Question) (Answer, error) {
	f, err := lease.ParseArmor([]byte(q.Lease), lease.AddressRule{AllowLocal: true})
	if err != nil {
		return Answer{}, err
	}
	text, err := s.broker.Accept(f, q.Session)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Session: text}, nil
}
