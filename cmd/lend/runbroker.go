package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

// runThroughBroker has the broker of this machine run the command, if one runs here
// and can: it returns false if nothing was sent, and lend run does it alone.
func (a *app) runThroughBroker(ctx context.Context, f runFlags, args []string) (int, error, bool) {
	started := time.Now()
	files, ok := a.files()
	said, at, named := a.brokerCall(f, args[2:])
	if !ok && named {
		return exitNotSent, hintf("lend run --lease FILE", "a session needs files as standard streams"), true
	}
	stdin, err := a.inputFor(f)
	if !ok || at == "" || err != nil {
		return 0, nil, false
	}
	if f.op == "" {
		f.op = "op-" + rand.Text()
	}
	o := broker.RunOptions{
		Connector: args[0], Command: args[1], Version: f.version, OperationID: f.op, Addresses: f.addresses, Wait: f.wait, Stdin: f.stdin,
	}
	if o.Wait <= 0 {
		o.Wait = -1
	}
	if stdin == nil {
		o.Stdin = "no"
	}
	o.Progress = a.wantsProgress(f.quiet)
	cancels := make(chan struct{}, 4)
	stop := a.cancelOn(ctx, cancels, func() string { return a.goOn(f, f.op) }, f.timeout)
	defer stop()
	e, err := socket.Run(context.WithoutCancel(ctx), at, said, o, files, cancels)
	switch {
	case errors.Is(err, socket.ErrNotRunning) && !named:
		return 0, nil, false
	case errors.Is(err, socket.ErrNotRunning):
		err = &hinted{err, "lend broker"}
	case errors.Is(err, socket.ErrLost):
		err = &client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, err)}
	}
	if err != nil {
		status, people := a.report(f, nil, err, started)
		return status, people, true
	}
	return e.Returns(), a.reportExit(f, e), true
}

// files are the standard streams, if they can be handed over.
func (a *app) files() (out [3]*os.File, ok bool) {
	for i, s := range []any{a.in, a.out, a.err} {
		if out[i], ok = s.(*os.File); !ok {
			return out, false
		}
	}
	return out, true
}

// brokerCall finds the lease or the session, and the socket; "" if there is none. Named
// says that only the broker has the lease.
func (a *app) brokerCall(f runFlags, args []string) (said wire.Call, at string, named bool) {
	said.Args = args
	file := f.lease
	if file == "" {
		file = os.Getenv("LEND_LEASE_FILE")
	}
	text := []byte(os.Getenv("LEND_LEASE"))
	switch {
	case f.leaseFD >= 0 || file == "-":
		return said, "", false // it can be read once
	case file == "" && len(text) == 0:
		said.Session, at, named = socket.SplitSession(os.Getenv(sessionVariable))
		return said, at, named
	}
	p, err := a.paths()
	if err != nil {
		return said, "", false
	}
	if _, err := os.Lstat(p.broker()); err != nil {
		return said, "", false
	}
	if file != "" {
		if text, err = ownerfile.Read(file, ownerfile.Private, lease.MaxFile); err != nil {
			return said, "", false // lend run says it
		}
	}
	if _, err := parseLease(text); err != nil {
		return said, "", false
	}
	said.Lease = text
	return said, p.broker(), false
}

// cancelOn makes ^C, TERM and HUP, and the end of a timeout, a cancel; the third signal
// leaves.
func (a *app) cancelOn(ctx context.Context, cancels chan<- struct{}, goOn func() string, timeout time.Duration) (stop func()) {
	in, done, ended := make(chan os.Signal, 4), make(chan struct{}), make(chan struct{})
	signal.Notify(in, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	interrupted := ctx.Err() != nil // ^C came before that
	a.stopSignals()
	var over <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		over = t.C
	}
	go func() {
		defer close(ended)
		for n := 0; ; {
			if interrupted {
				interrupted = false
				n++
			} else {
				select {
				case <-done:
					return
				case <-in:
					n++
				case <-over:
				}
			}
			if n > 2 {
				a.problem("left before the end; the outcome is unknown", goOn())
				os.Exit(protocol.CodeOutcomeUnknown.EndStatus())
			}
			select {
			case cancels <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(in)
		close(done)
		<-ended
	}
}

// reportExit tells programs how a run ended, as report does, and returns what to tell
// people.
func (a *app) reportExit(f runFlags, e wire.Exit) error {
	var r result
	if err := json.Unmarshal(e.Detail, &r); err != nil {
		r = result{SchemaVersion: jsonSchema, Origin: "caller", Ran: "unknown", ExitStatus: e.Returns(), Code: protocol.CodeOutcomeUnknown.String(), Message: e.Message}
	}
	if r.OperationID == "" {
		r.OperationID = f.op
	}
	if f.result != "" {
		if err := writeResult(f.result, r); err != nil {
			a.problem(err.Error(), "")
		}
	}
	if a.json {
		_ = json.NewEncoder(a.err).Encode(r) // stdout is the command's
	}
	if e.Message == "" {
		return nil
	}
	if e.Hint == "" && r.Ran == "unknown" {
		e.Hint = a.goOn(f, r.OperationID)
	}
	return hintf(e.Hint, "%s", e.Message)
}
