package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/mcp/form"
	"github.com/lendcli/lend/gateway/client/mcp/kept"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// progressEvery is how often a client that asked for it is told how many bytes have
// passed.
const progressEvery = 500 * time.Millisecond

// call is one call that runs.
type call struct {
	server         *Server
	request        *sdk.CallToolRequest
	cancel         context.CancelCauseFunc
	passed         atomic.Uint64 // bytes
	stdout, stderr *kept.Beginning
}

// Causes of a cancel.
var (
	errLeft = errors.New("the client has left")
	errBusy = errors.New("too many calls at once")
	errGone = errors.New("this tool is not there any more")
)

// call is the handler of all tools.
func (s *Server) call(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	began := time.Now()
	c := &call{server: s, request: request}
	c.stdout, c.stderr = kept.New(s.config.MaxOutput, &c.passed), kept.New(s.config.MaxOutput, &c.passed)
	r := result{Authority: form.Owner}
	done, err := s.begin(&ctx, c)
	if err == nil {
		r.Report = c.run(ctx, &r.Authority)
		done()
	} else {
		r.Report = reportOf(err, nil)
	}
	r.Stdout, r.Stderr, r.Duration = c.stdout.Output(), c.stderr.Output(), since(began)
	return &sdk.CallToolResult{Content: r.content(c.stdout, c.stderr), StructuredContent: r, IsError: r.failed()}, nil
}

// begin lets a call in, whose context ends with its client's request, its client, and
// the Server.
func (s *Server) begin(ctx *context.Context, c *call) (done func(), err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithCancelCause(*ctx)
	c.cancel = cancel
	stops := []func() bool{context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })}
	s.mu.Lock()
	s.calls[c] = c.request.Session
	if e := c.request.Extra; e != nil && e.Header != nil {
		post, ok := s.posts[e.Header.Get(postHeader)]
		if !ok {
			cancel(errLeft)
		} else {
			stops = append(stops, context.AfterFunc(post, func() { cancel(errLeft) }))
		}
	}
	s.mu.Unlock()
	*ctx = within
	return func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		s.mu.Lock()
		delete(s.calls, c)
		s.mu.Unlock()
		leave()
	}, nil
}

// cancelCalls cancels what some clients have called.
func (s *Server) cancelCalls(whose func(*sdk.ServerSession) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, of := range s.calls {
		if whose(of) {
			c.cancel(errLeft)
		}
	}
}

// turn waits until the call may run.
func (s *Server) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.queue <- struct{}{}:
	default:
		return nil, &client.RefusedError{Code: protocol.CodeBusy, Cause: errBusy}
	}
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns; <-s.queue }, nil
	case <-ctx.Done():
		<-s.queue
		return nil, fmt.Errorf("start: %w", context.Cause(ctx))
	}
}

// run runs the call to its end.
func (c *call) run(ctx context.Context, authority *string) Report {
	s, p := c.server, c.request.Params
	s.mu.Lock()
	t := s.tools[p.Name]
	s.mu.Unlock()
	if t == nil {
		return reportOf(&client.RefusedError{Code: protocol.CodeCommandUnknown, Cause: errGone}, nil)
	}
	object, whose, err := form.TakeAuthority(p.Arguments)
	if err != nil {
		return rejected(err)
	}
	if whose != "" {
		*authority = whose
	}
	r := Run{Lent: t.lent, Stdout: c.stdout, Stderr: c.stderr}
	shown := t.form
	if *authority == form.Caller {
		if r.Lent.Entry, shown, err = s.own(ctx, t); err != nil {
			return rejected(err)
		}
	}
	args, input, err := shown.Arguments(object)
	if err != nil {
		return reportOf(err, nil)
	}
	r.Args = args
	if input != nil {
		r.Stdin = strings.NewReader(*input)
	}
	done, err := s.turn(ctx)
	if err != nil {
		return reportOf(err, nil)
	}
	defer done()
	defer c.tell(ctx)()
	var report Report
	if *authority == form.Caller {
		report = reportOf(s.config.Local.Run(ctx, r.Lent.Entry, args, broker.Streams{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr}), nil)
	} else {
		report = t.from.lender.Run(ctx, r)
	}
	s.log.Debug().Str("connector", r.Lent.Entry.Connector.String()).Str("command", r.Lent.Entry.Command.String()).Str("state", name.Quote(report.Outcome)).Msg("called")
	if (report.Ran == ranNo || report.Outcome == OutcomeStopped) && *authority == form.Owner {
		t.from.askSoon() // what is lent may have changed
	}
	return report
}

// rejected reports an argument that is not taken.
func rejected(err error) Report {
	r := reportOf(&client.RefusedError{Code: protocol.CodeArgumentRejected}, nil)
	r.Message, r.Advice = err.Error(), "the tool's input schema says what is taken"
	return r
}

// tell tells a client that asked for it how many bytes have passed, until done is
// called.
func (c *call) tell(ctx context.Context) (done func()) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for last := uint64(0); ; {
			select {
			case <-over:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if n := c.passed.Load(); n > last {
				last = n
				// a client that does not hear it has left, which the request's end shows
				_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(n), Message: fmt.Sprintf("%d bytes of output", n)})
			}
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}
