package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
// and can. It returns what tells of the end, or nil if nothing was sent, and lend run
// does it alone.
func (a *app) runThroughBroker(ctx context.Context, f runFlags, args []string, s *interrupts, sending func(op string, asked func() bool)) (tell func() int) {
	started := time.Now()
	failed := func(err error) func() int { return func() int { return a.tell(f, nil, err, started) } }
	files, ok := a.files()
	said, at, named := a.brokerCall(f, args[2:])
	if !ok && named {
		return failed(hintf("lend run --lease FILE", "a session needs files as standard streams"))
	}
	stdin, err := a.inputFor(f)
	if !ok || at == "" || err != nil {
		return nil
	}
	f.op = cmp.Or(f.op, "op-"+rand.Text())
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
	cancels := make(chan struct{}, 4) // two signals, and the timeout
	stop := func() {
		select {
		case cancels <- struct{}{}:
		default: // there are enough
		}
	}
	if f.timeout > 0 {
		defer time.AfterFunc(f.timeout, stop).Stop()
	}
	if s.came() {
		return failed(leftEarly())
	}
	s.do(func(int) { stop() })
	defer s.do(nil)
	sending(f.op, func() bool { return true }) // nobody knows
	e, err := socket.Run(context.WithoutCancel(ctx), at, said, o, files, cancels)
	switch {
	case errors.Is(err, socket.ErrNotRunning) && !named && s.came():
		return failed(leftEarly())
	case errors.Is(err, socket.ErrNotRunning) && !named:
		return nil
	case errors.Is(err, socket.ErrNotRunning):
		err = &hinted{err, "lend broker"}
	case errors.Is(err, socket.ErrLost):
		err = &client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, err)}
	}
	if err != nil {
		return failed(err)
	}
	return func() int {
		a.tellBoth(a.reportExit(f, e))
		return e.Returns()
	}
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

// reportExit is report for a run of the broker's.
func (a *app) reportExit(f runFlags, e wire.Exit) (r result, people error) {
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
	if e.Message == "" {
		return r, nil
	}
	if e.Hint == "" && r.Ran == "unknown" {
		e.Hint = a.goOn(f, r.OperationID) + " --tail"
	}
	return r, hintf(e.Hint, "%s", e.Message)
}
