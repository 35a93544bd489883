package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// opsCommand is the noun of operations.
func (a *app) opsCommand() *cobra.Command {
	c := &cobra.Command{Use: "ops", Short: "look at operations, and end or follow them"}
	c.AddCommand(a.operationCommands()...)
	c.AddCommand(a.acceptLossCommand())
	return c
}

// operationCommands are the subcommands of lend ops that need a gateway that runs,
// here or elsewhere.
func (a *app) operationCommands() []*cobra.Command {
	return []*cobra.Command{a.opsListCommand(), a.opsShowCommand(), a.opsCancelCommand(), a.opsAttachCommand(), a.opsStatusCommand(), a.opsStopCommand()}
}

const listed = 20 // operations that have ended, without --all

func (a *app) opsListCommand() *cobra.Command {
	var watch, all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "list what runs and what ended lately",
		Long: `List the operations of this machine's gateway, the newest first: what runs, and
the last 20 that have ended; with --all the last 10 000 of the record. --watch
goes on with each change until ^C: it draws the list anew on a terminal, and
prints one line for each change elsewhere; with --json, JSON lines.`,
		Example: "  lend ops list\n  lend ops list --all --json\n  lend ops list --watch",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.gatewayHere()
			if err != nil {
				return err
			}
			if watch {
				return a.watchOperations(cmd.Context(), c, all)
			}
			ops, err := c.Operations(cmd.Context(), all)
			if err != nil {
				return notRunning(err)
			}
			shown := newestFirst(ops.Operations, all)
			ops.More = ops.More || len(shown) < len(ops.Operations)
			ops.Operations = shown
			return a.show(ops, func() error { return a.printOperations(ops) })
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "go on with each change")
	c.Flags().BoolVar(&all, "all", false, "all that is recorded, not only the last 20 that have ended")
	return c
}

// whichFlags choose between operations of one ID.
type whichFlags struct{ peer, invocation string }

func (f *whichFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.peer, "peer", "", "the peer whose operation it is: a name of the policy or a peer ID")
	c.Flags().StringVar(&f.invocation, "invocation", "", "the invocation that it belongs to")
}

func (f *whichFlags) of(id string) admin.Which {
	return admin.Which{ID: id, Peer: f.peer, Invocation: f.invocation}
}

func (a *app) opsShowCommand() *cobra.Command {
	var f whichFlags
	c := &cobra.Command{
		Use:   "show ID",
		Short: "show one operation",
		Long: `Show one operation of this machine's gateway. The beginning of an ID is enough,
if no other operation's begins so. Arguments, input and output are never
recorded.`,
		Example: "  lend ops show op-7KQ2\n  lend ops show job-1234567890123456 --peer laptop --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := operationID(args[0], true); err != nil {
				return err
			}
			c, err := a.gatewayHere()
			if err != nil {
				return err
			}
			o, err := c.Operation(cmd.Context(), f.of(args[0]))
			if err != nil {
				return whichError(err)
			}
			return a.show(o, func() error { return a.table(operationRows(&o.Operation)) })
		},
	}
	f.add(c)
	return c
}

func (a *app) opsCancelCommand() *cobra.Command {
	var f whichFlags
	var now bool
	c := &cobra.Command{
		Use:   "cancel ID",
		Short: "stop one operation, as the owner",
		Long: `Stop an operation that runs on this machine's gateway: it is asked to end, its
input is closed a second later, and after its grace (5 s) all of its processes
are killed. Its caller is told OWNER_STOPPED, and so is the record. It does not
wait for the end. One that has ended stays as it is.`,
		Example: "  lend ops cancel op-7KQ2\n  lend ops cancel op-7KQ2 --now",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := operationID(args[0], true); err != nil {
				return err
			}
			c, err := a.gatewayHere()
			if err != nil {
				return err
			}
			o, err := c.Cancel(cmd.Context(), f.of(args[0]), now)
			if err != nil {
				return whichError(err)
			}
			return a.show(o, func() error {
				if o.Cancelled {
					return a.say("stopping %s", o.Operation.ID)
				}
				return a.say("%s does not run: %s", o.Operation.ID, endText(&o.Operation))
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&now, "now", false, "kill it at once, without a grace")
	return c
}

func (a *app) gatewayHere() (*admin.Client, error) {
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(p.socket), nil
}

func notRunning(err error) error {
	if errors.Is(err, admin.ErrNotRunning) {
		return hintf("lend serve", "no gateway is running here")
	}
	return err
}

func whichError(err error) error {
	switch {
	case errors.Is(err, admin.ErrNoOperation):
		return &hinted{err: err, hint: "lend ops list --all"}
	case errors.Is(err, admin.ErrAmbiguous):
		return &hinted{err: err, hint: "give more of the ID, or --peer and --invocation"}
	}
	return notRunning(err)
}

// newestFirst turns the order round, and without all keeps what runs and a few more.
func newestFirst(ops []admin.Operation, all bool) []admin.Operation {
	out, ended := []admin.Operation{}, 0
	for i := len(ops) - 1; i >= 0; i-- {
		if !ops[i].Running() {
			if ended++; ended > listed && !all {
				continue
			}
		}
		out = append(out, ops[i])
	}
	return out
}

func (a *app) printOperations(ops admin.Operations) error {
	if len(ops.Operations) == 0 {
		return a.say("nothing has run yet\nlend lease issue --to PEER KEY COMMAND… makes a lease; its holder runs lend run --lease FILE KEY COMMAND")
	}
	rows := [][]string{{"ID", "STATE", "PEER", "CONNECTOR", "COMMAND", "STARTED", "TIME", "END", "OUT"}}
	for i := range ops.Operations {
		rows = append(rows, operationRow(&ops.Operations[i]))
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if ops.More {
		a.note("there are older ones: lend ops list --all")
	}
	return nil
}

func operationRow(o *admin.Operation) []string {
	started := "-"
	if !o.Started.IsZero() {
		started = o.Started.Local().Format("01-02 15:04:05")
	}
	return []string{
		o.ID, o.State, peerText(o), cmp.Or(o.Connector, "-"), cmp.Or(o.Command, "-"), started,
		tookText(o), endText(o), strconv.FormatUint(o.Stdout+o.Stderr, 10),
	}
}

func peerText(o *admin.Operation) string {
	if o.PeerName != "" {
		return o.PeerName
	}
	return o.Peer
}

func tookText(o *admin.Operation) string {
	switch {
	case o.Running():
		return time.Since(o.Started).Round(time.Second).String()
	case o.DurationMS > 0:
		return (time.Duration(o.DurationMS) * time.Millisecond).String()
	}
	return "-"
}

// endText is how it ended, in a word.
func endText(o *admin.Operation) string {
	switch {
	case o.State == admin.StateUnknown:
		return "the gateway died meanwhile"
	case o.Code != "" && o.Code != protocol.CodeOK.String():
		return o.Code
	case o.Signal != "":
		return o.Signal
	case o.Status != nil:
		return "status " + strconv.Itoa(*o.Status)
	case o.Running() && !o.Attached:
		return "no caller"
	}
	return "-"
}

func operationRows(o *admin.Operation) [][]string {
	rows := [][]string{
		{"operation", o.ID},
		{"state", o.State},
		{"peer", strings.TrimSpace(o.PeerName + " " + o.Peer)},
	}
	if o.Connector != "" {
		rows = append(rows, []string{"command", fmt.Sprintf("%s %s %s", o.Connector, o.Version, o.Command)})
	}
	rows = append(rows, []string{"invocation", o.Invocation}, []string{"lease", strings.TrimSpace(o.Lease + " of " + o.Issuer)})
	if !o.Started.IsZero() {
		rows = append(rows, []string{"started", o.Started.Local().Format(time.RFC3339)})
	}
	if o.Ended != nil {
		rows = append(rows, []string{"ended", o.Ended.Local().Format(time.RFC3339)})
	}
	rows = append(rows, []string{"time", tookText(o)}, []string{"end", endText(o)})
	if o.Forced {
		rows = append(rows, []string{"forced", "its outputs were cut off: something held them open"})
	}
	if o.Detail != "" {
		rows = append(rows, []string{"detail", o.Detail})
	}
	if o.Kept {
		rows = append(rows, []string{"caller", map[bool]string{true: "attached", false: "may attach"}[o.Attached]})
	}
	return append(rows, []string{"bytes", fmt.Sprintf("%d in, %d out, %d error", o.Stdin, o.Stdout, o.Stderr)})
}

// watchOperations follows the changes until ^C or the gateway's end.
func (a *app) watchOperations(ctx context.Context, c *admin.Client, all bool) error {
	draw := !a.json && isTerminal(a.out)
	var now []admin.Operation
	err := c.Watch(ctx, all, func(changed []admin.Operation) error {
		if !draw {
			return a.printChanges(changed)
		}
		for _, o := range changed {
			now = withOperation(now, o)
		}
		if _, err := fmt.Fprint(a.out, "\x1b[H\x1b[2J"); err != nil {
			return err
		}
		return a.printOperations(admin.Operations{Operations: newestFirst(now, all)})
	})
	switch {
	case err != nil && errors.Is(err, ctx.Err()):
		return nil
	case err == nil:
		a.problem("the gateway has ended", "lend serve")
		return &statusError{1} // stdout has JSON lines only
	}
	return notRunning(err)
}

func withOperation(ops []admin.Operation, o admin.Operation) []admin.Operation {
	for i, old := range ops {
		if old.ID == o.ID && old.Peer == o.Peer && old.Invocation == o.Invocation && old.Issuer == o.Issuer {
			ops[i] = o
			return ops
		}
	}
	return append(ops, o)
}

func (a *app) printChanges(changed []admin.Operation) error {
	lines := json.NewEncoder(a.out)
	lines.SetEscapeHTML(false)
	for i := range changed {
		var err error
		if a.json {
			err = lines.Encode(admin.OperationShown{SchemaVersion: admin.SchemaVersion, Operation: changed[i]})
		} else {
			err = a.say("%s", strings.Join(operationRow(&changed[i]), "  "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoNode = errors.New("the gateway admits nothing now, and has no operations")

// Operations implements admin.Backend.
func (s *serving) Operations(_ context.Context, all bool) (admin.Operations, error) {
	if s.node == nil {
		return admin.Operations{}, errNoNode
	}
	ops, more, err := s.node.Operations(all)
	if err != nil {
		return admin.Operations{}, err
	}
	out := admin.Operations{SchemaVersion: admin.SchemaVersion, Operations: make([]admin.Operation, len(ops)), More: more}
	for i := range ops {
		out.Operations[i] = operationShown(&ops[i])
	}
	if all {
		out.Operations = append(s.neverStarted(ops), out.Operations...)
	}
	return out, nil
}

// neverStarted are the operations that their callers cancelled before they started: no
// record has them.
func (s *serving) neverStarted(recorded []gateway.OperationStatus) (out []admin.Operation) {
	if s.cancels == nil {
		return nil
	}
	known := map[ledger.Key]bool{}
	for i := range recorded {
		known[recorded[i].Key] = true
	}
	for _, k := range s.cancels.Keys() {
		if known[k] {
			continue
		}
		o := admin.Operation{
			ID: k.Operation.String(), State: admin.StateNotStarted, Peer: k.Holder.String(), Issuer: k.Issuer.String(), Invocation: k.Invocation.String(),
			Code: protocol.CodeCancelled.String(), Detail: "its caller cancelled it before it started",
		}
		if p := s.side.policy.Load(); p != nil {
			if called := p.Content().NameOf(k.Holder); called != o.Peer {
				o.PeerName = called
			}
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b admin.Operation) int { return strings.Compare(a.ID+a.Peer, b.ID+b.Peer) })
	return out
}

func operationShown(o *gateway.OperationStatus) admin.Operation {
	out := admin.Operation{
		ID: o.Operation.String(), State: o.State.String(), Peer: o.Holder.String(), PeerName: o.Label.String(),
		Issuer: o.Issuer.String(), Invocation: o.Invocation.String(), Lease: hex.EncodeToString(o.Lease[:]),
		Connector: o.Connector.String(), Version: o.Version.String(), Command: o.Command.String(),
		Attached: o.Attached, Kept: o.Held, Started: o.Started, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
	}
	e := o.End
	if e == nil {
		return out
	}
	out.Ended, out.Code, out.Signal, out.Forced, out.Detail = &e.At, e.Cause, e.Signal, e.Forced, e.Detail
	out.DurationMS = e.Duration.Milliseconds()
	if e.State == ledger.StateEnded {
		if out.Code == "" {
			out.Code = protocol.CodeOK.String()
		}
		if e.Signal == "" {
			out.Status = &e.Status
		}
	}
	return out
}

// Cancel implements admin.Backend.
func (s *serving) Cancel(_ context.Context, o admin.Operation, now bool) (bool, error) {
	if s.node == nil {
		return false, errNoNode
	}
	var k ledger.Key
	var errs [4]error
	k.Issuer, errs[0] = name.ParsePeerID(o.Issuer)
	k.Invocation, errs[1] = name.ParseInvocationID(o.Invocation)
	k.Holder, errs[2] = name.ParsePeerID(o.Peer)
	k.Operation, errs[3] = name.ParseOperationID(o.ID)
	if err := errors.Join(errs[:]...); err != nil {
		return false, err
	}
	return s.node.Stop(k, now), nil
}
