package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
)

// The longest that a run may take by its own clock: the grace twice and the wait, with
// all that is in between. Beyond it the watchdog cancels.
const (
	budget   = 5 * time.Minute
	watchdog = 7 * time.Minute
)

// result is what one caller saw of an operation.
type result struct {
	op       string
	err      error // of Start or Wait
	accepted bool
	exit     *protocol.Exit
	out, bad *checker
	took     time.Duration
}

// run runs the plan's command under an operation ID; "" makes a new one, and only
// then may the input go with the request.
func (p plan) run(c *caller, op string, id int) (r result) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	cmd := c.Command(ctx, "fx", "echo", "--id="+strconv.Itoa(id), "--code="+strconv.Itoa(p.code), "--pause="+strconv.Itoa(p.shape.pause))
	input := bytes.NewReader(fill(make([]byte, p.shape.size), saltIn, 0))
	var stdin io.Reader = input
	if p.shape.step > 0 {
		stdin = &slowInput{input, p.shape.step}
	}
	r.out, r.bad = &checker{salt: saltIn}, &checker{salt: saltErr}
	cmd.OperationID, cmd.Stdin, cmd.Stdout, cmd.Stderr = op, stdin, r.out, r.bad
	r.err = cmd.Start()
	if r.op = cmd.OperationID; r.err == nil {
		r.accepted = true
		r.err = cmd.Wait()
		r.exit = cmd.Exit()
	}
	r.took = time.Since(began)
	return r
}

// complete tells that the run ended by itself with all of its bytes.
func (p plan) complete(r result) error {
	var exit *client.ExitError
	status := 0
	switch {
	case r.err == nil:
	case errors.As(r.err, &exit) && exit.Signal == "":
		status = exit.Code
	default:
		return fmt.Errorf("it did not end well: %w", r.err)
	}
	switch e := r.exit; {
	case e == nil:
		return errors.New("a status without an Exit")
	case e.Code != protocol.CodeOK || e.Status != status || status != p.code || e.Signal != "":
		return fmt.Errorf("status %d for %+v, and not %d", status, *e, p.code)
	case r.out.n != p.shape.size || r.bad.n != p.shape.size/8:
		return fmt.Errorf("%d and %d bytes of %d and %d", r.out.n, r.bad.n, p.shape.size, p.shape.size/8)
	case e.Stdin != uint64(p.shape.size) || e.Stdout != uint64(r.out.n) || e.Stderr != uint64(r.bad.n):
		return fmt.Errorf("totals of %+v", *e)
	}
	return nil
}

// honest is what holds for each result, whatever failed. starts is how often the
// operation was started until then.
func (p plan) honest(r result, starts int) error {
	for _, c := range []*checker{r.out, r.bad} {
		if c.bad != nil {
			return fmt.Errorf("the caller got a wrong byte: %w", c.bad)
		}
	}
	if starts > 1 {
		return fmt.Errorf("%d starts of one operation", starts)
	}
	if r.took > budget {
		return fmt.Errorf("it took %s", r.took)
	}
	var exit *client.ExitError
	var refused *client.RefusedError
	var ended *client.EndedError
	switch {
	case r.err == nil, errors.As(r.err, &exit) && exit.Signal == "":
		return p.complete(r)
	case errors.As(r.err, &exit):
		return fmt.Errorf("a signal that nobody has sent: %w", r.err)
	case errors.As(r.err, &ended):
		if r.exit == nil && !errors.Is(r.err, client.ErrOutcomeUnknown) {
			return fmt.Errorf("an end without an Exit: %w", r.err)
		}
	case errors.As(r.err, &refused):
		if starts > 0 {
			return fmt.Errorf("refused, but it ran: %w", r.err)
		}
	case starts > 0:
		return fmt.Errorf("it ran, but the error says that nothing was sent: %w", r.err)
	}
	return nil
}

// outcome is what a plan came to.
type outcome struct {
	seen  [2]int // messages
	fired int    // faults
	first result
	err   error // what should not be
}

// simulate runs one plan in a bubble, and closes everything whatever it came to.
func simulate(t *testing.T, p plan) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newSimnet(p.seed), "/ip4/"+gatewayIP+"/udp/8000/quic-v1")
		var c *caller
		s := newScript(p, func(f *fault, s *tapped) { w.inject(f, s, c) })
		c = w.caller(s, p.grease)
		op := ""
		if p.shape.step > 0 {
			op = "operation-000001"
		}
		o.first = p.run(c, op, 1)
		o.seen, o.fired = s.counts()
		o.err = p.honest(o.first, w.record.count(1))
		if o.err == nil && p.heals() {
			o.err = p.complete(o.first)
		}
		again, err := w.aftermath(p, s, o.first)
		o.err = cmp.Or(o.err, err)
		c.close()
		dir := w.finish()
		time.Sleep(time.Second) // for a Read of input that was under way; the bubble's clock
		o.err = cmp.Or(o.err, errors.Join(w.record.bad...), w.compare(dir, o.first, again))
	})
	if o.err != nil {
		o.err = fmt.Errorf("LEND_SIM_PLAN=%s: %w", p, o.err)
	}
	return o
}

// aftermath asks for the same operation again once all is well: the answer must
// agree with the first, or be the first.
func (w *world) aftermath(p plan, s *script, first result) (again result, err error) {
	s.mu.Lock()
	s.lives = false
	s.mu.Unlock()
	w.settle()
	if first.op == "" {
		return again, nil // it came to nothing before it had a name
	}
	c := w.caller(&script{}, false)
	defer c.close()
	again = p.run(c, first.op, 1)
	starts := w.record.count(1)
	if err := p.honest(again, starts); err != nil {
		return again, fmt.Errorf("asked again: %w", err)
	}
	switch {
	case first.accepted && starts != 1:
		return again, errors.New("accepted, but it never ran")
	case first.exit != nil && again.exit != nil && *first.exit != *again.exit:
		return again, fmt.Errorf("two ends: %+v and %+v", *first.exit, *again.exit)
	case first.exit != nil && again.exit == nil && !w.crashed:
		return again, fmt.Errorf("the end was forgotten: %w", again.err)
	case first.exit == nil && again.exit == nil && !w.crashed && starts > 0:
		return again, fmt.Errorf("no end: %w, and again: %w", first.err, again.err)
	}
	return again, nil
}

// compare holds the ledger against what happened.
func (w *world) compare(dir string, first, again result) error {
	all, err := readLedger(dir)
	if err != nil {
		return err
	}
	started, ends, ran := all.starts[first.op], all.ends[first.op], w.record.count(1)
	switch {
	case started > 1, len(ends) != started:
		return fmt.Errorf("the ledger has %d starts and %d ends", started, len(ends))
	case started < ran:
		return errors.New("it ran without a record")
	case started == 0:
		return nil
	}
	end := ends[0]
	switch end.State {
	case ledger.StateEnded:
		if ran != 1 {
			return errors.New("an end of what never ran")
		}
	case ledger.StateNotStarted:
		if ran != 0 {
			return errors.New("it ran, and is recorded as never started")
		}
	default:
		if !w.crashed {
			return errors.New("unknown without a crash")
		}
		return nil
	}
	for _, r := range []result{first, again} {
		if e := r.exit; e != nil && (e.Status != end.Status || e.Signal != end.Signal || e.Stdout != end.Stdout || e.Stdin != end.Stdin) {
			return fmt.Errorf("the caller was told %+v, the ledger %+v", *e, end)
		}
	}
	return nil
}

// inject makes f happen, at this instant of the bubble.
func (w *world) inject(f *fault, s *tapped, c *caller) {
	if w.isOver() {
		return
	}
	switch f.kind {
	case cut:
		conn := s.Conn()
		s.end()
		_ = conn.Close()
	case reset:
		s.end()
	case shortHole:
		w.net.hole(shortFor, up, down)
	case upHole:
		w.net.hole(halfFor, up)
	case downHole:
		w.net.hole(halfFor, down)
	case lossy:
		w.net.lossy(0.2, 5*time.Second)
	case delay:
		w.net.slow(1500*time.Millisecond, 3*time.Second)
	case longHole:
		w.net.hole(longFor, up, down)
	case deadHole:
		w.net.hole(deadFor, up, down)
	case closed:
		w.spawn(c.close)
	case vanished:
		w.net.detach(c.machine.ip)
		w.spawn(c.close)
	case restart:
		w.spawn(w.restart)
	case crash:
		w.crash()
	case kinds:
	}
}

func TestUndisturbed(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			p := plan{seed: 1, shape: s, code: 7}
			o := simulate(t, p)
			require.NoError(t, o.err)
			t.Logf("%d messages up, %d down, %s simulated, %s real", o.seen[up], o.seen[down], o.first.took, time.Since(began))
		})
	}
}

// TestPlan runs the one plan of LEND_SIM_PLAN.
func TestPlan(t *testing.T) {
	text := os.Getenv("LEND_SIM_PLAN")
	if text == "" {
		t.Skip("needs LEND_SIM_PLAN=…, as a failure has printed it")
	}
	p, err := parsePlan(text)
	require.NoError(t, err)
	o := simulate(t, p)
	t.Logf("%v messages, %d faults, %s simulated, %v", o.seen, o.fired, o.first.took, o.first.err)
	require.NoError(t, o.err)
}
