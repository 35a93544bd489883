package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// leaseFlags are those of a caller that starts nothing.
func leaseFlags(c *cobra.Command, f *runFlags) {
	fl := c.Flags()
	fl.StringVar(&f.lease, "lease", "", "a lease of the same invocation, which may have expired; - reads standard input")
	fl.IntVar(&f.leaseFD, "lease-fd", -1, "read the lease from this file descriptor")
	fl.StringArrayVar(&f.addresses, "address", nil, "an address of the gateway beside those of the lease")
}

func (a *app) opsAttachCommand() *cobra.Command {
	var f runFlags
	var tail bool
	c := &cobra.Command{
		Use:   "attach ID",
		Short: "follow an operation that this machine started elsewhere",
		Long: `Follow one of this machine's own operations on a peer's gateway: the output that
the gateway still has, and what comes, until the end. ID and lease are those of
the lend run that lost it; nothing is started. It sends no input. While another
process follows the operation it waits for it, as long as --wait says. ^C
leaves; the operation goes on.

Exit status: as lend run's. What was shown to another process may be gone: then
it is 255, the outcome is not all known, and what comes after the gap is
dropped, not shown. With --tail, output that is gone already is not missed: the
rest is shown, and the status is the command's.`,
		Example: `  lend ops attach op-7KQ2… --lease laptop-github.lease
  lend ops attach "$JOB_ID-comment-0001" --lease l.lease --tail --result r.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.op = args[0]
			started := time.Now()
			err := replaceable("--result", f.result)
			var run *client.Cmd
			if err != nil {
				f.result = ""
			} else {
				run, err = a.attach(cmd.Context(), f, tail)
			}
			if status := a.tell(f, run, err, started); status != 0 {
				return &statusError{status}
			}
			return nil
		},
	}
	leaseFlags(c, &f)
	c.Flags().BoolVar(&tail, "tail", false, "do not miss output that is gone already")
	c.Flags().Var(atLeastNone(&f.wait, 10*time.Second), "wait", "how long to wait for another process that follows it; 0 does not")
	c.Flags().StringVar(&f.result, "result", "", "write what happened to this file, as JSON")
	return c
}

func (a *app) attach(ctx context.Context, f runFlags, tail bool) (*client.Cmd, error) {
	if err := operationID(f.op, false); err != nil {
		return nil, err
	}
	c, err := a.newClient(f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // what is left of it is told by the error
	cmd := c.Attach(ctx, f.op)
	cmd.Tail, cmd.Stdout, cmd.Stderr = tail, a.out, a.err
	return cmd, a.attachError(ctx, f, a.askInstead(ctx, f, cmd.Run()))
}

// attachError says what an attach has to say otherwise than a run, which starts
// something.
func (a *app) attachError(ctx context.Context, f runFlags, err error) error {
	var refused *client.RefusedError
	var ended *client.EndedError
	var exit *client.ExitError
	var output *client.OutputError
	switch {
	case isRefusal(err, protocol.CodeBusy):
		return &hinted{err, "another process follows it, or the gateway is busy: try again later; lend ops attach --wait waits longer"}
	case err == nil || errors.As(err, &refused) || errors.As(err, &ended) || errors.As(err, &exit) || errors.As(err, &output) || ctx.Err() == nil:
		return err
	}
	return hintf(a.goOn(f, f.op), "%w", &waitingError{})
}

// waitingError says that an attach was left before it followed anything.
type waitingError struct{}

func (*waitingError) Error() string {
	return "left while waiting; nothing was followed, and the operation goes on"
}

// Unwrap makes it a cancel of the caller's.
func (*waitingError) Unwrap() error { return context.Canceled }

func (a *app) opsStatusCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "status ID",
		Short: "ask a gateway where an operation of this machine stands",
		Long: `Ask the gateway that a lease names where one of this machine's own operations
stands: running, ended (with its end), not started, or outcome unknown. Exit
status 0 if it answers, whatever the end was; 1 if not, or if it knows no such
operation.`,
		Example: "  lend ops status op-7KQ2… --lease laptop-github.lease --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.operationStatus(cmd.Context(), f, args[0])
			if err != nil {
				return err
			}
			return a.show(r, func() error { return a.say("%s", r.text()) })
		},
	}
	leaseFlags(c, &f)
	return c
}

// operationState is the JSON of lend ops status.
type operationState struct {
	SchemaVersion int    `json:"schemaVersion"`
	OperationID   string `json:"operationId"`
	State         string `json:"state"`
	Code          string `json:"code,omitempty"`
	Status        *int   `json:"status,omitempty"`
	Signal        string `json:"signal,omitempty"`
	Forced        bool   `json:"forced,omitempty"`
	Stdin         uint64 `json:"stdinBytes"`
	Stdout        uint64 `json:"stdoutBytes"`
	Stderr        uint64 `json:"stderrBytes"`
	DurationMS    int64  `json:"durationMs,omitempty"`
}

func (s *operationState) text() string {
	switch {
	case s.Code == "":
		return s.State
	case s.Code != protocol.CodeOK.String():
		return s.State + ": " + s.Code
	case s.Signal != "":
		return s.State + ": " + s.Signal
	default:
		return fmt.Sprintf("%s: status %d, %s out, %d error", s.State, *s.Status, bytesCount(s.Stdout), s.Stderr)
	}
}

func (a *app) operationStatus(ctx context.Context, f runFlags, id string) (*operationState, error) {
	c, key, err := a.operationElsewhere(f, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // what is left of it is told by the error
	reply, err := c.Status(ctx, key)
	if err != nil {
		return nil, err
	}
	s := &operationState{SchemaVersion: jsonSchema, OperationID: id, State: reply.State.String()}
	if e := reply.Exit; e != nil {
		s.Code, s.Signal, s.Forced, s.DurationMS = e.Code.String(), e.Signal, e.Forced, e.Duration.Milliseconds()
		s.Stdin, s.Stdout, s.Stderr = e.Stdin, e.Stdout, e.Stderr
		if e.Signal == "" {
			s.Status = &e.Status
		}
	}
	return s, nil
}

// operationElsewhere names an operation of this machine's on the gateway of a lease, and
// makes a client of that, which the caller must close.
func (a *app) operationElsewhere(f runFlags, id string) (c *client.Client, key protocol.OperationKey, err error) {
	if err = operationID(id, false); err != nil {
		return nil, key, err
	}
	if key.Operation, err = name.ParseOperationID(id); err != nil {
		return nil, key, &usageError{err: err}
	}
	file, err := a.findLease(f)
	if err != nil {
		return nil, key, err
	}
	opened, err := lease.Open(file.Chain)
	if err != nil {
		return nil, key, err
	}
	key.Issuer, key.Invocation = opened.Issuer, opened.Invocation
	c, err = a.newClientOf(f, file)
	return c, key, err
}

func (a *app) opsStopCommand() *cobra.Command {
	var f runFlags
	var now bool
	c := &cobra.Command{
		Use:   "stop ID",
		Short: "cancel an operation that this machine started elsewhere",
		Long: `Ask the gateway that a lease names to cancel one of this machine's own
operations, as ^C in its lend run does. It does not wait for the end, which lend
ops attach shows. One that has not started never will, if the lease is valid.
Exit status 0 if the gateway answers, whatever it was; 1 if not, or if it knows
no such operation.`,
		Example: "  lend ops stop op-7KQ2… --lease laptop-github.lease",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.stopElsewhere(cmd.Context(), f, args[0], now)
			if err != nil {
				return err
			}
			return a.show(r, func() error { return a.say("%s", r.text()) })
		},
	}
	leaseFlags(c, &f)
	c.Flags().BoolVar(&now, "now", false, "kill it at once, without a grace")
	return c
}

// stopped is the JSON of lend ops stop. State is what the operation was.
type stopped struct {
	SchemaVersion int    `json:"schemaVersion"`
	OperationID   string `json:"operationId"`
	State         string `json:"state"`
	Cancelled     bool   `json:"cancelled"`
}

func (s *stopped) text() string {
	switch {
	case s.State == protocol.OperationNotStarted.String():
		return s.OperationID + " had not started, and never will"
	case s.Cancelled:
		return "cancelling " + s.OperationID
	default:
		return s.OperationID + " does not run: " + s.State
	}
}

func (a *app) stopElsewhere(ctx context.Context, f runFlags, id string, now bool) (*stopped, error) {
	c, key, err := a.operationElsewhere(f, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // what is left of it is told by the error
	grace := time.Duration(0)
	if now {
		grace = time.Millisecond
	}
	state, err := c.Cancel(ctx, key, grace)
	if err != nil {
		return nil, err
	}
	return &stopped{
		SchemaVersion: jsonSchema, OperationID: id, State: state.String(),
		Cancelled: state == protocol.OperationRunning || state == protocol.OperationNotStarted,
	}, nil
}
