package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
)

// figures count what plans came to.
type figures struct {
	plans, faults, complete, ended, unknown, refused, other int
	simulated                                               time.Duration
}

func (f *figures) add(p plan, o outcome) {
	f.plans++
	f.faults += o.fired
	f.simulated += o.first.took
	switch client.ExitStatus(o.first.err) {
	case p.code:
		f.complete++
	case 255:
		f.unknown++
	case 124, 130:
		f.ended++
	case 75, 126, 127:
		f.refused++
	default:
		f.other++
	}
}

func (f *figures) String() string {
	return fmt.Sprintf("%d plans, %d faults: %d complete, %d unknown, %d ended, %d refused, %d other; %s simulated",
		f.plans, f.faults, f.complete, f.unknown, f.ended, f.refused, f.other, f.simulated.Round(time.Second))
}

// number reads a number from the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

// patience is the real time that a test takes by default.
const patience = 4 * time.Second

func long() bool { return os.Getenv("LEND_TEST_LONG") == "1" }

// most is how many messages a run without faults has, by shape and direction.
func most(t *testing.T, s shape) [2]int {
	t.Helper()
	o := simulate(t, plan{seed: 1, shape: s, code: 7})
	require.NoError(t, o.err)
	for direction, n := range o.seen {
		require.Greater(t, n, 4, "messages in direction %d: what is not seen is not disturbed", direction)
	}
	return o.seen
}

// TestEveryFrame puts one fault at each message of a run, in both directions,
// before, within and after it. By default a plan in so many is run, another each
// time, for a few seconds; LEND_TEST_LONG=1 runs all.
func TestEveryFrame(t *testing.T) {
	t.Parallel()
	seed := uint64(number(t, "LEND_SIM_SEED", int(time.Now().UnixNano()%1e6)))
	for _, s := range shapes[:2] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var all figures
			began, frames := time.Now(), most(t, s)
			every, n := 17, 0
			if long() {
				every = 1
			}
			for k := range kinds {
				for direction := range 2 {
					for frame := range frames[direction] + 1 {
						for phase := range phases {
							if n++; (n+int(seed))%every != 0 || !long() && time.Since(began) > patience {
								continue
							}
							p := plan{seed: seed, shape: s, code: n % 3 * 7, faults: []fault{{k, direction, frame, phase}}}
							o := simulate(t, p)
							all.add(p, o)
							if o.err != nil {
								t.Error(o.err)
							}
						}
					}
				}
			}
			require.Greater(t, 2*all.faults, all.plans, "most plans disturb something")
			t.Logf("seed %d, %v messages: %s; %s", seed, frames, &all, time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestSeeds runs plans with several faults: as many as LEND_SIM_SEEDS says, from
// LEND_SIM_SEED on.
func TestSeeds(t *testing.T) {
	t.Parallel()
	many := 25
	if long() {
		many = 400
	}
	many = number(t, "LEND_SIM_SEEDS", many)
	first := number(t, "LEND_SIM_SEED", int(time.Now().UnixNano()%1e6))
	var all figures
	frames := map[string][2]int{}
	for _, s := range shapes {
		frames[s.name] = most(t, s)
	}
	began := time.Now()
	for seed := first; seed < first+many; seed++ {
		if os.Getenv("LEND_SIM_SEEDS") == "" && !long() && time.Since(began) > patience {
			break // a busy machine
		}
		p := drawn(uint64(seed), frames)
		o := simulate(t, p)
		all.add(p, o)
		if o.err != nil {
			t.Errorf("seed %d: %s", seed, o.err)
		}
	}
	require.Positive(t, all.faults)
	t.Logf("from seed %d on: %s; %s", first, &all, time.Since(began).Round(time.Millisecond))
}
