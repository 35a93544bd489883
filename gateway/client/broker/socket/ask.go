package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/gateway/internal/ownersocket"
	"github.com/lendcli/lend/protocol/name"
)

// Errors of Ask and Run.
var (
	// ErrNotRunning: no broker answers on the socket, or it hung up before it had read
	// the whole call. Nothing ran.
	ErrNotRunning = errors.New("no broker is running here")
	// ErrLost: the broker went away after a call was handed over; it may have run. Where
	// the system does not tell whether a call was read, as Linux does, it counts as read.
	ErrLost = errors.New("the broker went away: the outcome is unknown")
)

// What a Question asks for.
const (
	DoAccept = "accept" // a lease: Lease, and Session to join one
	DoClose  = "close"  // a session
	DoStatus = "status"
	// DoCatalog is what a session may run; Lent asks it.
	DoCatalog = "catalog"
	// DoWatch waits until that has changed; Watch asks it.
	DoWatch = "watch"
)

// Question is asked with Ask.
type Question struct {
	Do      string `json:"do"`
	Lease   string `json:"lease,omitempty"`
	Session string `json:"session,omitempty"`
	// After is how many commands of a catalogue are known already.
	After int `json:"after,omitempty"`
	// Seen is the Seen of the answer before.
	Seen uint64 `json:"seen,omitempty"`
}

// Answer is the broker's.
type Answer struct {
	Session string         `json:"session,omitempty"`
	Status  *broker.Status `json:"status,omitempty"`
	Error   string         `json:"error,omitempty"`
	// NoSession says that Error is broker.ErrNoSession.
	NoSession bool `json:"noSession,omitempty"`
	// Catalog is a part of what a session may run.
	Catalog *Page `json:"catalog,omitempty"`
	// Seen counts what has changed in a session.
	Seen uint64 `json:"seen,omitempty"`
}

const sessionSeparator = ":"

// JoinSession makes the one word that names a session and where its broker is, for
// LEND_SESSION.
func JoinSession(text, socket string) string { return text + sessionSeparator + socket }

// SplitSession takes it apart; false if it is none.
func SplitSession(s string) (text, socket string, ok bool) {
	text, socket, ok = strings.Cut(s, sessionSeparator)
	return text, socket, ok && text != "" && strings.HasPrefix(socket, "/")
}

// Ask asks the broker behind a socket: ErrNotRunning if there is none.
func Ask(ctx context.Context, socket string, q Question) (Answer, error) {
	payload, err := json.Marshal(q)
	if err != nil || len(payload) > wire.MaxPayload {
		return Answer{}, errors.Join(errors.New("ask the broker: the question is too long"), err)
	}
	c, err := connect(ctx, socket)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * requestTimeout))
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(append(wire.Header(wire.KindControl, len(payload)), payload...)); err != nil {
		return Answer{}, fmt.Errorf("ask the broker: %w", err)
	}
	data, err := readFrame(c, wire.KindAnswer)
	if err != nil {
		return Answer{}, fmt.Errorf("ask the broker: %w", err)
	}
	var a Answer
	if err := json.Unmarshal(data, &a); err != nil {
		return Answer{}, fmt.Errorf("ask the broker: %w", err)
	}
	if a.NoSession {
		return Answer{}, broker.ErrNoSession
	}
	if a.Error != "" {
		return Answer{}, fmt.Errorf("the broker answers: %s", name.Show(a.Error))
	}
	return a, nil
}

// Run hands a call of lend run to the broker, with the files that are its standard
// streams, and waits for its end. A value on cancels stops the command; each further
// one, sooner. The error is ErrNotRunning, or ErrLost, or that what said is too long;
// then nothing was sent.
func Run(ctx context.Context, socket string, said wire.Call, options broker.RunOptions, files [3]*os.File, cancels <-chan struct{}) (wire.Exit, error) {
	var err error
	if said.Options, err = json.Marshal(options); err != nil {
		return wire.Exit{}, fmt.Errorf("ask the broker: %w", err)
	}
	payload, err := said.Append(nil)
	if err != nil {
		return wire.Exit{}, fmt.Errorf("ask the broker: %w", err)
	}
	c, err := connect(ctx, socket)
	if err != nil {
		return wire.Exit{}, err
	}
	defer func() { _ = c.Close() }()
	switch err := writeFirst(c, wire.Header(wire.KindRun, len(payload)), files); {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return wire.Exit{}, unread(err)
	case err != nil:
		return wire.Exit{}, fmt.Errorf("ask the broker: %w", err)
	}
	if _, err := c.Write(payload); err != nil {
		return wire.Exit{}, unread(err) // it starts nothing before it has the whole call
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	cancelled := false // until ended
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-cancels:
				cancelled = true                                // it may be all that is never read
				_, _ = c.Write(wire.Header(wire.KindCancel, 0)) // its end shows when it is read
			}
		}
	}()
	data, err := readFrame(c, wire.KindExit)
	_ = c.SetWriteDeadline(time.Unix(1, 0)) // a cancel that the broker does not take is over
	close(done)
	<-ended
	switch {
	case runtime.GOOS == "linux" && errors.Is(err, syscall.ECONNRESET) && !cancelled:
		return wire.Exit{}, unread(err) // closed before all that was sent was read, or before it was accepted
	case err != nil:
		return wire.Exit{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	e, err := wire.ParseExit(data)
	if err != nil {
		return wire.Exit{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return e, nil
}

// unread is the end of a call that no broker has read whole.
func unread(err error) error {
	return fmt.Errorf("it hung up before it had read the call: %w: %w", ErrNotRunning, err)
}

// connect dials a socket that is ours, with a broker of the same user behind it.
func connect(ctx context.Context, socket string) (net.Conn, error) {
	if len(socket) > ownersocket.MaxPath {
		return nil, ErrNotRunning // none can listen there
	}
	err := ownersocket.Check(socketName, socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	who, err := ownersocket.PeerOf(c)
	if err == nil && who.User != os.Getuid() {
		err = fmt.Errorf("connect to the broker: it runs as user %d", who.User)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// readFrame reads one frame of a kind.
func readFrame(r io.Reader, want wire.Kind) ([]byte, error) {
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return readPayload(r, head, want)
}

func readPayload(r io.Reader, head []byte, want ...wire.Kind) ([]byte, error) {
	kind, n, err := wire.ParseHeader(head)
	if err != nil {
		return nil, err
	}
	for _, w := range want {
		if w == kind {
			payload := make([]byte, n)
			_, err := io.ReadFull(r, payload)
			return payload, err
		}
	}
	return nil, wire.ErrMalformed
}
