package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

// adviceOf is what the table of codes advises about an error of a run.
func adviceOf(err error) string {
	var refused *client.RefusedError
	var ended *client.EndedError
	switch {
	case errors.As(err, &refused) && !mayHaveRun(err, refused):
		return refused.Code.Advice()
	case errors.As(err, &ended) && ended.Code != protocol.CodeOutcomeUnknown:
		return ended.Code.Advice()
	case errors.As(err, &ended):
		return ""
	}
	return adviceUnsent(err)
}

// adviceUnsent is about requests that did not reach a gateway, or that none answered.
func adviceUnsent(err error) string {
	var invalid *lease.Error
	switch {
	case errors.Is(err, client.ErrNotAdmitted):
		return "ask the owner to name this machine in the policy (lend id), or for an invitation to pair (lend peer invite)"
	case errors.Is(err, client.ErrNotGateway):
		return protocol.CodeUnsupported.Advice()
	case errors.Is(err, client.ErrNoAddress):
		return "ask the owner for the gateway's address, and give it with --address"
	case errors.Is(err, client.ErrUnreachable):
		return "look at the link, and ask the owner whether lend serve runs there, and at which address"
	case errors.Is(err, client.ErrVersions):
		return "lend run --version VERSION; lend lease show lists them"
	case !errors.As(err, &invalid):
		return ""
	}
	switch invalid.Reason {
	case lease.ReasonExpired:
		return protocol.CodeLeaseExpired.Advice()
	case lease.ReasonNotYet:
		return protocol.CodeLeaseNotYetValid.Advice()
	case lease.ReasonHolder, lease.ReasonLinkHolder:
		return "ask the owner for a lease that is made out to the ID that lend id prints"
	case lease.ReasonNoConnector, lease.ReasonNoVersion, lease.ReasonNoCommand:
		return "lend lease show lists what the lease grants; ask the owner for more"
	default:
		return "ask whoever issued the lease for a new one"
	}
}

// waitsLonger adds to the advice about a refusal for now what the command can do.
func waitsLonger(err error, command string) error {
	var refused *client.RefusedError
	if !errors.As(err, &refused) || mayHaveRun(err, refused) || hintOf(err) != "" || !refused.Retryable() {
		return err
	}
	switch refused.Code {
	case protocol.CodeBusy, protocol.CodeRateLimited, protocol.CodeShuttingDown, protocol.CodeRouteChanged:
		return &hinted{err, refused.Code.Advice() + "; " + command + " --wait waits longer"}
	default:
		return err
	}
}

const (
	progressAfter = 2 * time.Second
	progressEvery = 500 * time.Millisecond
)

// progress shows how many bytes have passed, on one line of a terminal. The command's
// first word on the same terminal ends it for good: nothing is ever drawn into an
// output. A nil one shows nothing.
type progress struct {
	to      io.Writer
	in, out atomic.Uint64
	began   time.Time

	mu    sync.Mutex // guards what follows, and writes
	width int        // of what is drawn now
	over  bool

	stop, stopped chan struct{}
}

// newProgress returns nil unless standard error is a terminal that wants it.
func (a *app) newProgress(quiet bool) *progress {
	if !a.wantsProgress(quiet) {
		return nil
	}
	return startProgress(a.err, progressAfter, progressEvery)
}

func (a *app) wantsProgress(quiet bool) bool {
	return !quiet && !a.json && isTerminal(a.err) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// showProgress is newProgress in the broker: who writes a caller's outputs also draws.
func showProgress(s broker.Streams) (broker.Streams, func()) {
	if !terminalOf(s.Stderr) {
		return s, func() {}
	}
	p := startProgress(s.Stderr, progressAfter, progressEvery)
	return broker.Streams{Stdin: p.input(s.Stdin), Stdout: p.output(s.Stdout), Stderr: p.output(s.Stderr)}, p.end
}

// terminalOf tells whether a file, or a caller's output in the broker, is a terminal.
func terminalOf(w io.Writer) bool {
	of, ok := w.(interface{ Terminal() bool })
	return isTerminal(w) || ok && of.Terminal()
}

func startProgress(to io.Writer, after, every time.Duration) *progress {
	p := &progress{to: to, began: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.run(after, every)
	return p
}

func (p *progress) run(after, every time.Duration) {
	defer close(p.stopped)
	for next := after; ; next = every {
		t := time.NewTimer(next)
		select {
		case <-p.stop:
			t.Stop()
			return
		case <-t.C:
			p.draw()
		}
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, out := p.in.Load(), p.out.Load()
	if p.over || in+out == 0 {
		return
	}
	text := fmt.Sprintf("lend: %s sent, %s received, %s", sizeText(in), sizeText(out), time.Since(p.began).Round(time.Second))
	_, _ = fmt.Fprintf(p.to, "\r%-*s", p.width, text)
	p.width = max(p.width, len(text))
}

// clear takes the line away; nothing is drawn any more.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		_, _ = fmt.Fprintf(p.to, "\r%*s\r", p.width, "")
	}
	p.width, p.over = 0, true
}

// end takes the line away and waits for who drew it.
func (p *progress) end() {
	if p == nil {
		return
	}
	close(p.stop)
	<-p.stopped
	p.clear()
}

// input counts what is read of r, if that is something that can be interrupted, and
// stays so.
func (p *progress) input(r io.Reader) io.Reader {
	f, ok := r.(interruptible)
	if p == nil || !ok {
		return r
	}
	return &counted{f, &p.in}
}

// interruptible is a file, or a caller's input in the broker.
type interruptible interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

type counted struct {
	interruptible
	n *atomic.Uint64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.interruptible.Read(b)
	c.n.Add(uint64(max(n, 0)))
	return n, err
}

// output counts what is written to w. If that is a terminal, the line goes first.
func (p *progress) output(w io.Writer) io.Writer {
	if p == nil {
		return w
	}
	return &drawn{w, p, terminalOf(w)}
}

type drawn struct {
	io.Writer
	p        *progress
	terminal bool
}

func (d *drawn) Write(b []byte) (int, error) {
	if d.terminal {
		d.p.clear()
	}
	n, err := d.Writer.Write(b)
	d.p.out.Add(uint64(max(n, 0)))
	return n, err
}
