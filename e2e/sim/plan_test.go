package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// kind of a fault.
type kind int

const (
	cut       kind = iota // the connection closes
	reset                 // the stream is reset
	shortHole             // nothing gets through, both ways, for 2 s
	upHole                // nothing from the caller for 4 s
	downHole              // nothing from the gateway for 4 s
	lossy                 // 20 % are lost and as many reordered, for 5 s
	delay                 // 1.5 s of delay for 3 s
	longHole              // nothing for 45 s: longer than the idle timeout
	deadHole              // nothing for 150 s: longer than the grace
	closed                // the caller's client and host close
	vanished              // the caller's machine is gone
	restart               // the gateway closes, another opens on the same ledger
	crash                 // the gateway's machine dies; another starts on its disk
	kinds
)

var kindNames = [kinds]string{
	"cut", "reset", "short-hole", "up-hole", "down-hole", "lossy", "delay",
	"long-hole", "dead-hole", "closed", "vanished", "restart", "crash",
}

func (k kind) String() string { return kindNames[k] }

// heals tells that the run must succeed all the same.
func (k kind) heals() bool { return k <= delay }

// fault is one of a plan.
type fault struct {
	kind      kind
	direction int // up or down
	frame     int // counted over all run streams of the operation
	phase     int
}

func (f fault) String() string {
	return fmt.Sprintf("%s-%s%d%s", f.kind, [2]string{"up", "down"}[f.direction], f.frame, [phases]string{"before", "within", "after"}[f.phase])
}

// shape is what runs.
type shape struct {
	name  string
	size  int // of the input, and of the output
	step  int // of one read of the input; 0: it is in memory, and goes with the request
	pause int // of the child after each read, in ms
}

// Shapes: a short run whose input travels with the request, a dialogue, and one
// that is longer than the resend window.
var shapes = []shape{
	{name: "early", size: 3000, pause: 3},
	{name: "dialogue", size: 5000, step: 1000, pause: 20},
	{name: "long", size: 2500 << 10, pause: 1},
}

// plan is one case, by which it can be run again.
type plan struct {
	seed   uint64
	shape  shape
	code   int // that the child exits with
	grease bool
	faults []fault
}

func (p plan) String() string {
	parts := []string{p.shape.name, strconv.FormatUint(p.seed, 10), strconv.Itoa(p.code), strconv.FormatBool(p.grease)}
	for _, f := range p.faults {
		parts = append(parts, f.String())
	}
	return strings.Join(parts, ",")
}

// heals tells that nothing in p excuses a run that does not succeed.
func (p plan) heals() bool {
	for _, f := range p.faults {
		if !f.kind.heals() {
			return false
		}
	}
	return true
}

// parsePlan reads what String has written.
func parsePlan(text string) (p plan, err error) {
	parts := strings.Split(text, ",")
	if len(parts) < 4 {
		return p, fmt.Errorf("plan %q: too short", text)
	}
	for _, s := range shapes {
		if s.name == parts[0] {
			p.shape = s
		}
	}
	if p.seed, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return p, err
	}
	if p.code, err = strconv.Atoi(parts[2]); err != nil {
		return p, err
	}
	if p.grease, err = strconv.ParseBool(parts[3]); err != nil {
		return p, err
	}
	for _, part := range parts[4:] {
		f, err := parseFault(part)
		if err != nil {
			return p, err
		}
		p.faults = append(p.faults, f)
	}
	return p, nil
}

func parseFault(text string) (f fault, err error) {
	for k, name := range kindNames {
		for direction, way := range [2]string{"up", "down"} {
			for phase, where := range [phases]string{"before", "within", "after"} {
				rest, ok := strings.CutPrefix(text, name+"-"+way)
				number, ok2 := strings.CutSuffix(rest, where)
				if n, err := strconv.Atoi(number); ok && ok2 && err == nil {
					return fault{kind(k), direction, n, phase}, nil
				}
			}
		}
	}
	return f, fmt.Errorf("fault %q: not understood", text)
}

// drawn makes the plan of a seed: one to four faults, mostly of those that heal.
func drawn(seed uint64, frames map[string][2]int) plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := plan{seed: seed, shape: shapes[rng.IntN(len(shapes))], code: rng.IntN(3) * 7, grease: rng.IntN(2) == 0}
	for range 1 + rng.IntN(4) {
		f := fault{kind: kind(rng.IntN(int(kinds))), direction: rng.IntN(2), phase: rng.IntN(phases)}
		if rng.IntN(3) > 0 {
			f.kind = kind(rng.IntN(int(delay) + 1))
		}
		f.frame = rng.IntN(frames[p.shape.name][f.direction] + 4)
		p.faults = append(p.faults, f)
	}
	return p
}

const (
	shortFor = 2 * time.Second
	halfFor  = 4 * time.Second
	longFor  = 45 * time.Second
	deadFor  = 150 * time.Second
)
