package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// past is what must be true of a ledger with segments, whatever is done to it.
type past struct {
	ops    map[int]State        // what the caller was told
	held   map[int]*Reservation // running in this process
	until  map[int]time.Time    // of an invocation: end of its last lease
	maybe  map[int]time.Time    // of an operation whose Start failed, and may be recorded
	closed map[int]bool         // invocations that were seen closed
}

const perInvocation = 3

// may tells whether an operation may be in a state.
func (p *past) may(op int, got State, now time.Time) bool {
	inv := op / perInvocation
	if got == StateClosed {
		until, used := p.until[inv]
		for n := range p.maybe {
			used = used || n/perInvocation == inv
		}
		for n := range p.held {
			used = used && n/perInvocation != inv
		}
		if !p.closed[inv] && used && now.Sub(until) > afterLease {
			p.closed[inv] = true
		}
		return p.closed[inv]
	}
	told, known := p.ops[op]
	switch {
	case !known:
		return got == StateNone && !p.closed[inv]
	case told == StatePending && got == StateUnknown: // nothing ran, but it is recorded
		p.ops[op], p.until[inv] = StateUnknown, later(p.until[inv], p.maybe[op])
		return true
	case told == StatePending:
		return got == StateNone
	default:
		return got == told
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// restart is the end of the process.
func (p *past) restart() {
	for op := range p.held {
		if p.ops[op] == StateRunning {
			p.ops[op] = StateUnknown
		}
	}
	p.held = map[int]*Reservation{}
}

// Segments, pruning, snapshots that vanish, and a process that is killed at any
// change of the directory. spec: LEDGER-28, LEDGER-30, LEDGER-31, LEDGER-32
func TestModelOfSegments(t *testing.T) {
	t.Parallel()
	top, runs, closed := t.TempDir(), 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		c, w := &clock{at: testTime}, &world{}
		cfg := Config{Dir: filepath.Join(top, strconv.Itoa(runs)), Now: c.now, KeepBytes: 1, segmentBytes: 1200}
		p := &past{ops: map[int]State{}, held: map[int]*Reservation{}, until: map[int]time.Time{}, maybe: map[int]time.Time{}, closed: map[int]bool{}}
		var l *Ledger
		open := func() {
			w = &world{at: rapid.IntRange(0, 60).Draw(rt, "end")}
			var err error
			if l, err = Open(w.in(cfg)); err == nil {
				return
			}
			if !errors.Is(err, errEnd) { // the cause of a failed cut is told as text
				require.ErrorIs(rt, err, ErrFailed)
			}
			w = &world{}
			l, err = Open(w.in(cfg))
			require.NoError(rt, err)
		}
		kill := func() {
			p.restart()
			l.crash(t)
			open()
		}
		check := func() {
			for op := range 4 * perInvocation {
				out, err := l.Reserve(of(t, op/perInvocation, op))
				if err != nil {
					require.ErrorIs(rt, err, ErrFailed)
					continue
				}
				if out.Reservation != nil {
					out.Reservation.Release()
				}
				require.True(rt, p.may(op, out.State, c.now()), "operation %d is %v, and was %v", op, out.State, p.ops[op])
			}
		}
		start := func(op int) {
			out, err := l.Reserve(of(t, op/perInvocation, op))
			if err != nil || out.State != StateNone {
				return
			}
			s := testStart()
			s.LeaseNotAfter = c.now().Add(time.Hour)
			if err := out.Reservation.Start(t.Context(), s); err == nil {
				p.ops[op], p.held[op] = StateRunning, out.Reservation
			} else if errors.Is(err, ErrFailed) {
				p.ops[op], p.maybe[op] = StatePending, s.LeaseNotAfter
				return
			} else {
				require.ErrorIs(rt, err, ErrFull)
				return
			}
			p.until[op/perInvocation] = s.LeaseNotAfter
		}
		end := func(op int) {
			r := p.held[op]
			if r == nil {
				return
			}
			delete(p.held, op)
			err := r.End(End{State: StateEnded})
			p.ops[op] = StateEnded
			if err != nil { // it is known as long as the process lives
				check()
				p.ops[op] = StateUnknown
				kill()
			}
		}
		open()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			op := rapid.IntRange(0, 4*perInvocation-1).Draw(rt, "op")
			switch rapid.SampledFrom([]string{"run", "run", "start", "end", "later", "note", "reopen", "kill", "forget"}).Draw(rt, "action") {
			case "run":
				start(op)
				end(op)
			case "start":
				start(op)
			case "end":
				end(op)
			case "later":
				c.add(time.Duration(rapid.SampledFrom([]int{1, 10, 27}).Draw(rt, "hours")) * time.Hour)
			case "note":
				_ = l.Event(Event{Name: "note", Facts: map[string]string{"text": strings.Repeat("x", 900)}})
			case "reopen":
				_ = l.Close()
				p.restart()
				open()
			case "kill":
				kill()
			case "forget":
				for _, f := range glob(t, cfg.Dir, "*.index") {
					require.NoError(rt, os.Remove(f))
				}
			}
			if l.Err() != nil {
				check()
				kill()
			}
			check()
		}
		l.crash(t)
		l, err := Open(cfg)
		require.NoError(rt, err)
		p.restart()
		check()
		require.NoError(rt, l.Close())
		_, err = Verify(cfg.Dir)
		require.NoError(rt, err)
		closed += len(p.closed)
	})
	t.Logf("%d runs, %d invocations seen closed", runs, closed)
}
