package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/multiformats/go-multiaddr"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

type runFlags struct {
	lease, op, version, result string
	leaseFD                    int
	addresses                  []string
	timeout, wait              time.Duration
	stdin                      string
	quiet                      bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] KEY COMMAND [ARGUMENTS…]",
		Short: "run a lent command, as if it were here",
		Long: `Run one command that a lease grants, on the gateway that the lease names, with
standard input, output and error connected. All flags come before KEY; what
comes after COMMAND is for the command. The machine needs lend init, and the
lease must be for its lend id.

lend run --help KEY COMMAND, with a lease, tells what the command takes.

The lease is read from --lease FILE (- is standard input), --lease-fd N, the
file in $LEND_LEASE_FILE, or the text in $LEND_LEASE; without any, the broker's
session in $LEND_SESSION has it (lend lease accept). A broker that runs here is
used with a lease too, since it keeps the connection.

Exit status: that of the command, or 128+n for signal n; and of its own
   75  refused for now; nothing ran; try again later
  124  stopped by the gateway: time, output, expiry, revocation, shutdown
  125  nothing was sent: usage, configuration, no valid lease, no link
  126  refused; nothing ran
  127  no such connector, version or command in the lease; nothing ran
  130  cancelled by the caller
  255  outcome unknown, or the end is on record and its output is gone; or
       standard input could not be read, so that the command was cancelled
--result FILE says which it was, since a command may return these as well; with
--json the same object is the last line of standard error. FILE is new or a
regular file, which it replaces; anything else is refused before the run.

The same --op again, with the same arguments, runs nothing twice: it follows the
command that still runs, or tells how it ended.

The first ^C cancels the command, the second shortens its grace, the third
leaves. On a terminal, standard error shows how many bytes have passed once that
takes long, until the command writes there itself; not with --quiet, NO_COLOR or
TERM=dumb.`,
		Example: `  lend run --lease laptop-github.lease github issue.list --repo acme/site
  lend run --lease l.lease --op "$JOB_ID-comment-0001" \
    github issue.comment 7 < text
  lend run --lease l.lease --timeout 30s --result r.json github issue.list
  lend run --lease l.lease --help github issue.list`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if status := a.remote(cmd.Context(), f, args); status != 0 {
				return &statusError{status}
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.lease, "lease", "", "the lease file; - reads standard input")
	fl.IntVar(&f.leaseFD, "lease-fd", -1, "read the lease from this file descriptor")
	fl.StringVar(&f.op, "op", "", "the operation ID: 16 to 64 letters, digits, - and _ (default: a new one)")
	fl.StringVar(&f.version, "version", "", "the Connector's version, if the lease has several")
	fl.StringArrayVar(&f.addresses, "address", nil, "an address of the gateway beside those of the lease")
	fl.Var(moreThanNone(&f.timeout), "timeout", "cancel the command after this time (default: the gateway's limit)")
	fl.Var(atLeastNone(&f.wait, 10*time.Second), "wait", "how long to wait when the gateway is busy, or its link is lost; 0 does not")
	fl.StringVar(&f.result, "result", "", "write what happened to this file, as JSON")
	fl.StringVar(&f.stdin, "stdin", "auto", "send standard input: yes, no, or auto: if the command takes any")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "do not show how many bytes have passed")
	usual := c.HelpFunc()
	c.SetHelpFunc(func(c *cobra.Command, _ []string) { a.helpOfRun(c, &f, usual) })
	return c
}

// exitNotSent is the status of a run of which nothing was sent, and codeNotSent what
// its result has instead of a reason code.
const (
	exitNotSent = 125
	codeNotSent = "NOT_SENT"
)

// remote runs one command, tells how it ended and returns the exit status.
func (a *app) remote(ctx context.Context, f runFlags, args []string) int {
	started := time.Now()
	if err := replaceable("--result", f.result); err != nil {
		f.result = ""
		return a.tell(f, nil, err, started)
	}
	type request struct {
		op    string
		asked func() bool // it may have been sent
	}
	var last atomic.Pointer[request]
	s := a.catchInterrupts(ctx, func() int {
		if r := last.Load(); r != nil && r.asked() {
			return a.tell(f, &client.Cmd{OperationID: r.op}, leftBehind(), started)
		}
		return a.tell(f, nil, leftEarly(), started)
	})
	sending := func(op string, asked func() bool) { last.Store(&request{op, asked}) }
	if told := a.runThroughBroker(ctx, f, args, s, sending); told != nil {
		s.settle(told)
		return s.finish()
	}
	a.runRemote(ctx, f, args, s, sending, func(cmd *client.Cmd, err error) {
		s.settle(func() int { return a.tell(f, cmd, waitsLonger(err, "lend run"), started) })
	})
	return s.finish()
}

// tell tells programs and people how a run ended, and returns its exit status.
func (a *app) tell(f runFlags, cmd *client.Cmd, err error, started time.Time) int {
	r, people := a.report(f, cmd, err, started)
	a.tellBoth(r, people)
	return r.ExitStatus
}

// tellBoth tells people, and then programs if that was asked for: what they get is the
// last line of standard error, since stdout is the command's.
func (a *app) tellBoth(r result, people error) {
	if people != nil {
		a.problem(people.Error(), hintOf(people))
	}
	if a.json {
		_ = json.NewEncoder(a.err).Encode(r)
	}
}

// report writes the result of a run to its file, and returns it with what to tell people.
func (a *app) report(f runFlags, cmd *client.Cmd, err error, started time.Time) (result, error) {
	status := client.ExitStatus(err)
	r := resultOf(cmd, err, status, time.Since(started))
	if r.OperationID == "" {
		r.OperationID = f.op
	}
	if f.result != "" {
		if werr := writeResult(f.result, r); werr != nil {
			a.problem(werr.Error(), "")
		}
	}
	people := forPeople(err)
	if hint := hintOf(err); people != nil && hint != "" && hintOf(people) == "" {
		people = &hinted{people, hint}
	}
	if people == nil || hintOf(people) != "" || r.Ran != "unknown" || r.OperationID == "" {
		return r, advised(people)
	}
	return r, &hinted{people, a.goOn(f, r.OperationID) + " --tail"}
}

// goOn is the command that asks what became of an operation. It holds no lease, only
// the name of its file.
func (a *app) goOn(f runFlags, op string) string {
	words := "lend ops attach " + op
	if f.lease != "" && f.lease != "-" {
		words += " --lease " + quoteWord(f.lease)
	}
	if a.dir != "" {
		words += " --dir " + quoteWord(a.dir)
	}
	return words
}

// quoteWord makes s one word of a shell.
func quoteWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// runRemote is the run itself. It gives its end to settle as soon as that is known; the
// Cmd is nil if nothing could be sent.
func (a *app) runRemote(ctx context.Context, f runFlags, args []string, s *interrupts, sending func(op string, asked func() bool), settle func(*client.Cmd, error)) {
	stdin, err := a.inputFor(f)
	if err != nil {
		settle(nil, err)
		return
	}
	c, err := a.newClient(f)
	if err != nil {
		settle(nil, err)
		return
	}
	defer func() { _ = c.Close() }() // what is left of it is told by the error
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if f.timeout > 0 {
		var end context.CancelFunc
		runCtx, end = context.WithTimeout(runCtx, f.timeout)
		defer end()
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that has enough (head -1) must end the remote side, not this program
	var running atomic.Pointer[client.Cmd]
	hurryCtx, endHurry := context.WithCancel(context.WithoutCancel(ctx))
	var hurry sync.WaitGroup
	defer func() {
		s.do(nil)
		endHurry()
		hurry.Wait()
	}()
	s.do(func(n int) {
		if n == 1 {
			cancel()
		} else if cmd := running.Load(); cmd != nil {
			hurry.Go(func() {
				_, _ = cmd.Cancel(hurryCtx, time.Millisecond) // the first cancel is on its way
			})
		}
	})
	shown := a.newProgress(f.quiet)
	attempt := func(stdin io.Reader) (*client.Cmd, error) {
		cmd := c.Command(runCtx, args[0], args[1], args[2:]...)
		cmd.Version, cmd.OperationID = f.version, cmp.Or(f.op, "op-"+rand.Text())
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, shown.output(a.out), shown.output(a.err)
		if runCtx.Err() == nil {
			sending(cmd.OperationID, cmd.Asked)
		}
		if err := cmd.Start(); err != nil {
			return cmd, err
		}
		running.Store(cmd)
		return cmd, cmd.Wait()
	}
	cmd, err := attempt(shown.input(stdin))
	if stdin != nil && f.stdin == "auto" && isRefusal(err, protocol.CodeInputRejected) {
		cmd, err = attempt(nil) // nothing ran and nothing was read: a local command would leave its input alone
	}
	shown.end()
	settle(cmd, err)
}

func isRefusal(err error, code protocol.Code) bool {
	var refused *client.RefusedError
	return errors.As(err, &refused) && refused.Code == code && !mayHaveRun(err, refused)
}

// mayHaveRun tells whether a refusal is only the last thing that was heard of what may
// have run before.
func mayHaveRun(err error, refused *client.RefusedError) bool {
	return errors.Is(err, client.ErrOutcomeUnknown) && refused.Code != protocol.CodeOutcomeUnknown
}

// inputFor is what the command may read, nil for nothing.
func (a *app) inputFor(f runFlags) (io.Reader, error) {
	switch {
	case f.stdin != "auto" && f.stdin != "yes" && f.stdin != "no":
		return nil, usagef("--stdin auto", "--stdin: want yes, no or auto")
	case f.stdin == "yes" && f.lease == "-":
		return nil, usagef("--lease-fd 3 3< FILE", "standard input cannot be both the lease and the input")
	case f.stdin == "no" || f.lease == "-":
		return nil, nil
	case f.stdin == "yes":
		return a.in, nil
	default:
		return usefulStdin(a.in), nil
	}
}

// usefulStdin is nil where there is certainly nothing to read: then the command
// is started without input.
func usefulStdin(in io.Reader) io.Reader {
	f, ok := in.(*os.File)
	if !ok {
		return in
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil
	}
	return in
}

func (a *app) newClient(f runFlags) (*client.Client, error) {
	file, err := a.findLease(f)
	if err != nil {
		return nil, err
	}
	return a.newClientOf(f, file)
}

func (a *app) newClientOf(f runFlags, file lease.File) (*client.Client, error) {
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	key, err := loadIdentity(p)
	if err != nil {
		return nil, err
	}
	addresses, err := parseAddresses("--address", f.addresses)
	if err != nil {
		return nil, err
	}
	if len(file.Addresses) == 0 && len(addresses) == 0 {
		return nil, usagef("lend run --address /ip4/192.0.2.1/tcp/5363", "the lease holds no address of the gateway")
	}
	if f.wait <= 0 {
		f.wait = -1
	}
	return client.New(client.Config{
		Key: key, Leases: client.Static(file), Addresses: withoutPeer(addresses), Wait: f.wait,
	})
}

// withoutPeer takes the /p2p/ part away, which the lease has already.
func withoutPeer(in []multiaddr.Multiaddr) []multiaddr.Multiaddr {
	var out []multiaddr.Multiaddr
	for _, m := range in {
		if rest, last := multiaddr.SplitLast(m); last != nil && last.Protocol().Code == multiaddr.P_P2P {
			m = rest
		}
		out = append(out, m)
	}
	return out
}

// findLease reads the lease from the one place that was named.
func (a *app) findLease(f runFlags) (lease.File, error) {
	if f.lease != "" && f.leaseFD >= 0 {
		return lease.File{}, usagef("", "--lease and --lease-fd are two leases; give one")
	}
	switch {
	case f.lease != "":
		return a.readLease(f.lease)
	case f.leaseFD >= 0:
		if f.leaseFD > math.MaxInt32 {
			return lease.File{}, usagef("", "--lease-fd: no such file descriptor")
		}
		data, err := a.given.read(f.leaseFD, lease.MaxFile+1)
		if err != nil {
			return lease.File{}, usagef("", "--lease-fd: %w", err)
		}
		return parseLease(data)
	case os.Getenv("LEND_LEASE_FILE") != "":
		return a.readLease(os.Getenv("LEND_LEASE_FILE"))
	case os.Getenv("LEND_LEASE") != "":
		return parseLease([]byte(os.Getenv("LEND_LEASE")))
	default:
		return lease.File{}, usagef("lend run --lease FILE KEY COMMAND", "there is no lease: ask the owner for one, with the ID that lend id prints")
	}
}

// forPeople is what is said beside the exit status: nothing about a command that
// ended by itself.
func forPeople(err error) error {
	var exit *client.ExitError
	if err == nil || errors.As(err, &exit) {
		return nil
	}
	var refused *client.RefusedError
	var unread *client.InputError
	if errors.As(err, &unread) {
		return unread
	}
	if errors.As(err, &refused) && !mayHaveRun(err, refused) {
		return refused
	}
	if lost := lostOf(err); lost != nil {
		return lost
	}
	if errors.Is(err, client.ErrNotAdmitted) && !errors.Is(err, client.ErrOutcomeUnknown) {
		return client.ErrNotAdmitted // whatever was under way
	}
	return err
}

// result is the JSON of --result.
type result struct {
	SchemaVersion int    `json:"schemaVersion"`
	OperationID   string `json:"operationId"`
	// Origin is "command" if the exit status is the command's own, "gateway" or
	// "caller".
	Origin string `json:"origin"`
	// Ran is "yes", "no" or "unknown".
	Ran        string `json:"ran"`
	ExitStatus int    `json:"exitStatus"`
	// Code is one of docs/codes.md: OK if the command ended by itself, NOT_SENT if
	// nothing was sent; or OUTPUT_LOST: the command has ended, with EndCode, Status and
	// Signal, and a part of its output is gone; or INPUT_LOST: it was cancelled, since
	// its input could not be read here.
	Code      string `json:"code" doc:"a code of docs/codes.md; OK: the command ended by itself; NOT_SENT: nothing was sent; OUTPUT_LOST: it has ended, with endCode, and a part of its output is gone; INPUT_LOST: it was cancelled, since its input could not be read here"`
	EndCode   string `json:"endCode,omitempty"`
	Status    *int   `json:"status,omitempty"`
	Signal    string `json:"signal,omitempty"`
	Message   string `json:"message,omitempty"`
	Advice    string `json:"advice,omitempty"`
	Retryable bool   `json:"retryable"`
	Forced    bool   `json:"forced,omitempty"`
	Stdin     uint64 `json:"stdinBytes"`
	Stdout    uint64 `json:"stdoutBytes"`
	Stderr    uint64 `json:"stderrBytes"`
	Duration  int64  `json:"durationMs"`
}

func resultOf(cmd *client.Cmd, err error, status int, took time.Duration) result {
	r := result{
		SchemaVersion: jsonSchema, Origin: "command", Ran: "yes", ExitStatus: status,
		Code: protocol.CodeOK.String(), Duration: took.Milliseconds(),
	}
	if cmd == nil {
		cmd = &client.Cmd{}
	}
	r.OperationID = cmd.OperationID
	if e := cmd.Exit(); e != nil {
		r.Stdin, r.Stdout, r.Stderr, r.Forced = e.Stdin, e.Stdout, e.Stderr, e.Forced
		r.Code, r.Signal, r.Status = e.Code.String(), e.Signal, &e.Status
	}
	var exit *client.ExitError
	var refused *client.RefusedError
	var ended *client.EndedError
	lost, unread := lostOf(err), unreadOf(err)
	switch {
	case err == nil || errors.As(err, &exit):
	case lost != nil:
		r.lose(lost)
	case unread != nil:
		r.starve(unread)
	case errors.As(err, &refused) && (refused.Code == protocol.CodeOutcomeUnknown || !errors.As(err, &ended)): // else it refused to tell of what may have run
		r.Origin, r.Ran, r.Code = "gateway", "no", refused.Code.String()
		r.Message, r.Retryable = refused.Error(), refused.Retryable()
		if refused.Code == protocol.CodeOutcomeUnknown { // the gateway knows of a start and of no end
			r.Ran = "unknown"
		}
	case errors.As(err, &ended):
		r.Origin, r.Code, r.Message = "gateway", ended.Code.String(), err.Error()
		if ended.Code == protocol.CodeOutcomeUnknown {
			r.Origin, r.Ran = "caller", "unknown"
		}
	default:
		r.Origin, r.Ran, r.Code, r.Message = "caller", "no", codeNotSent, withoutUsers(err.Error())
		r.Retryable = errors.Is(err, client.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
	}
	r.Advice = adviceOf(err)
	if hint := hintOf(err); hint != "" && r.Advice != "" {
		r.Advice = hint
	}
	return r
}

func writeResult(path string, r result) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return replaceFile("--result", path, append(b, '\n'))
}
