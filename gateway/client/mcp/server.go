package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/mcp/stdio"
)

// Config is what New needs. It must not be changed after New.
type Config struct {
	// Lenders are of one invocation. New takes them over, also if it fails. Needed.
	Lenders []Lender
	// Local runs the caller's own Connectors, for the authority "caller"; nil: there are
	// none.
	Local broker.Local
	// Version is the program's, for clients; "" means "devel".
	Version string
	// MaxOutput is how many bytes of each output a result shows: 0 means 64 KiB, at most
	// 4 MiB.
	MaxOutput int
	// AtOnce is how many calls run at once, 0 means 8; four times as many wait, more are
	// refused.
	AtOnce int
	// Every is how often the catalogues are asked for, whatever the lenders notice by
	// themselves (Watcher): 0 means 15 s.
	Every time.Duration
	// Log gets structured lines, with no argument and no output in them; the zero value
	// is silent.
	Log zerolog.Logger
}

// Bounds of a Server.
const (
	defaultOutput, mostOutput = 64 << 10, 4 << 20
	defaultAtOnce             = 8
	waitingFor                = 4 // calls that wait, for each that runs
	defaultEvery              = 15 * time.Second
	lookEvery                 = 250 * time.Millisecond // whether something has ended
	maxMessage                = 1 << 20                // bytes of one message of a client
	farewell                  = 2 * time.Second        // for a client to take what it is being told when all is over
)

// Errors of New and Serve.
var (
	errNoLenders = errors.New("new mcp server: no lenders")
	// ErrClosed says that the Server is closed, or its scope has ended.
	ErrClosed = errors.New("the mcp server is closed")
)

// Server is the scope of one invocation. Its methods are safe for concurrent use. The
// caller must Close it.
type Server struct {
	config Config
	log    zerolog.Logger
	server *sdk.Server
	http   http.Handler
	ctx    context.Context //nolint:containedctx // a Server is a lifetime
	end    context.CancelCauseFunc
	shut   chan struct{} // closed by Close
	turns  chan struct{}
	queue  chan struct{}
	held   []*held
	watch  sync.WaitGroup
	offers sync.Mutex // held while tools are made of what is lent; guards what is in held

	mu     sync.Mutex // guards what follows
	closed bool
	tools  map[string]*tool
	posts  map[string]context.Context   // requests over HTTP, by the ID that we gave them
	calls  map[*call]*sdk.ServerSession // what runs, with its client
	wg     sync.WaitGroup               // calls, and clients
}

// New makes a Server, and asks all lenders once what they lend, until ctx is done; one
// that does not answer is asked again later. If all are over, the error is ErrOver.
func New(ctx context.Context, config Config) (*Server, error) {
	s := &Server{config: config, log: config.Log, tools: map[string]*tool{}, posts: map[string]context.Context{}, calls: map[*call]*sdk.ServerSession{}, shut: make(chan struct{})}
	s.config.Lenders = slices.Clone(config.Lenders)
	for _, l := range s.config.Lenders {
		s.held = append(s.held, &held{lender: l, kick: make(chan struct{}, 1)})
	}
	if len(s.held) == 0 {
		return nil, errNoLenders
	}
	s.bound()
	s.turns, s.queue = make(chan struct{}, s.config.AtOnce), make(chan struct{}, (1+waitingFor)*s.config.AtOnce)
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.server = sdk.NewServer(&sdk.Implementation{Name: "lend", Title: "lent commands", Version: s.config.Version}, &sdk.ServerOptions{
		Instructions: "Each tool runs one command that was lent to this machine, on its owner's machine. " +
			"What is not among the tools cannot be run. A result says whether anything ran.",
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}},
	})
	s.http = s.overHTTP()
	if !s.askAll(ctx) {
		return nil, errors.Join(fmt.Errorf("new mcp server: %w", ErrOver), s.Close())
	}
	for _, h := range s.held {
		s.watch.Go(func() { s.follow(h) })
	}
	return s, nil
}

func (s *Server) bound() {
	c := &s.config
	if c.Version == "" {
		c.Version = "devel"
	}
	if c.MaxOutput <= 0 {
		c.MaxOutput = defaultOutput
	}
	c.MaxOutput = min(c.MaxOutput, mostOutput)
	if c.AtOnce <= 0 {
		c.AtOnce = defaultAtOnce
	}
	if c.Every <= 0 {
		c.Every = defaultEvery
	}
}

// Done is closed when the scope has ended: the last lender is over, or Close was called.
// What runs is cancelled then; clients of Serve see no tools until they leave.
func (s *Server) Done() <-chan struct{} { return s.ctx.Done() }

// Close ends the scope: what runs is cancelled, and its end awaited; clients are
// disconnected, lenders closed. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	done := s.closed
	s.closed = true
	s.mu.Unlock()
	if !done {
		close(s.shut)
	}
	s.end(ErrClosed)
	s.watch.Wait()
	s.wg.Wait()
	s.hangUp()
	if done {
		return nil
	}
	var err error
	for _, l := range s.config.Lenders {
		err = errors.Join(err, l.Close())
	}
	return err
}

// enter lets a call or a client in, until done.
func (s *Server) enter() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.wg.Add(1)
	return s.wg.Done, nil
}

// Serve serves one client, which writes to in and reads from out, until it leaves, ctx is
// done, or the Server is closed; what it has called is cancelled then and awaited. Nothing
// but messages of the protocol is written to out. It closes in, and not out. A client
// that does not read is waited for a moment. A goroutine stays in a Read of in, or a Write
// of out, that Close cannot interrupt.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	done, err := s.enter()
	if err != nil {
		return errors.Join(err, in.Close())
	}
	defer done()
	to := stdio.NewOutlet(out)
	session, err := s.server.Connect(context.WithoutCancel(ctx), &stdio.Transport{Reader: in, Writer: to, MaxLine: maxMessage}, nil)
	if err != nil {
		return fmt.Errorf("serve mcp: %w", err)
	}
	var closing sync.WaitGroup
	ours := false // owned by closing, then by Serve
	left := make(chan struct{})
	closing.Go(func() {
		select {
		case <-ctx.Done():
			ours = true
		case <-s.shut:
			ours = true
		case <-left:
		}
		s.cancelCalls(func(of *sdk.ServerSession) bool { return of == session })
		late := time.AfterFunc(farewell, to.Leave)
		defer late.Stop()
		_ = session.Close() // Wait says what there is
		<-left
	})
	err = session.Wait()
	close(left)
	closing.Wait()
	if err != nil && !ours && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("serve mcp: %w", err)
	}
	return nil
}
