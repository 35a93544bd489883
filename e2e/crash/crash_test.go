//go:build linux

package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
)

// plan is the random choices of one test; a failure shows its seed.
func plan(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LEND_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("LEND_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// storm is a world whose callers keep a history.
type storm struct {
	*world
	history
	calls []call
}

// run is one caller that asks for an operation once.
func (s *storm) run(c *client.Client, caller int, what call) answer {
	cmd := c.Command(s.t.Context(), "fx", "once", what.id, strconv.Itoa(what.status), strconv.Itoa(what.ms))
	cmd.OperationID = what.id
	from := s.now()
	out, err := cmd.Output()
	a := classify(what, string(out), err)
	if a == answerWrong {
		s.t.Errorf("%s: output %q, %v", what.id, out, err)
	}
	s.add(caller, what, from, a)
	return a
}

// program is a caller that is a process of its own.
func (s *storm) program(what call) (*exec.Cmd, *bytes.Buffer) {
	cmd := s.command(s.caller, "run", "--lease", s.armor, "--op", what.id, "--result", s.result(what), "fx", "once", what.id,
		strconv.Itoa(what.status), strconv.Itoa(what.ms))
	var out bytes.Buffer
	cmd.Stdout = &out
	require.NoError(s.t, cmd.Start())
	return cmd, &out
}

// next plans an operation.
func (s *storm) next(r *rand.Rand) call {
	c := call{
		id:     fmt.Sprintf("op-%05d-%08x", len(s.calls), r.Uint32()),
		status: []int{0, 0, 1, 7, 75, 125, 255}[r.IntN(7)],
		ms:     []int{0, 0, 10, 100, 300}[r.IntN(5)],
	}
	s.calls = append(s.calls, c)
	return c
}

func newStorm(t *testing.T, only ...string) *storm {
	t.Helper()
	return &storm{world: newWorld(t, only...)}
}

// Whatever is killed and whenever: no operation starts twice, no caller is told an
// end that was none, nothing is left behind, and the record agrees.
func TestKills(t *testing.T) {
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			kills(t, transport, pick(8, 150))
		})
	}
}

func kills(t *testing.T, transport string, rounds int) {
	t.Helper()
	s, r := newStorm(t, transport), plan(t)
	c := s.client()
	var slowest time.Duration
	killed := map[string]int{}
	for range rounds {
		var all sync.WaitGroup
		for caller := range 5 {
			what := s.next(r)
			all.Go(func() { s.run(c, caller, what) })
			if caller == 0 { // two ask for the same at the same time
				other := s.client()
				all.Go(func() { s.run(other, 10, what) })
			}
		}
		own := s.next(r)
		from := s.now()
		cmd, out := s.program(own)
		victim := []string{"gateway", "gateway", "gateway", "supervisor", "caller"}[r.IntN(5)]
		killed[victim]++
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond) // the moment is the test
		switch victim {
		case "gateway":
			s.gateway.kill()
			slowest = max(slowest, s.restart())
		case "supervisor":
			if pids := s.supervisors(); len(pids) > 0 {
				_ = syscall.Kill(pids[r.IntN(len(pids))], syscall.SIGKILL)
			}
		case "caller":
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		s.add(20, own, from, s.ofProgram(cmd, own, out.String()))
		all.Wait()
		s.nothingLeft(victim)
	}
	t.Logf("killed %v; up again within %v", killed, slowest)
	for _, what := range s.calls { // everybody asks again, in a world without faults
		s.run(c, 0, what)
	}
	s.verdict()
}

// restart starts the gateway again while what the old one left is still ending.
func (s *storm) restart() time.Duration {
	s.t.Helper()
	took := s.serve()
	require.Less(s.t, took, 2*time.Second, "the gateway is up again")
	return took
}

// nothingLeft: 2 s after the death of anything, no process is without a gateway.
func (s *storm) nothingLeft(victim string) {
	s.t.Helper()
	if !until(2*time.Second, func() bool { return len(s.orphans()) == 0 }) {
		for _, pid := range s.orphans() {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			s.t.Errorf("process %d outlived the %s: %q", pid, victim, line)
		}
	}
}

func (s *storm) result(what call) string { return filepath.Join(s.caller, what.id+".json") }

// ofProgram is the answer that a process gave: by its exit status alone, what is the
// command's own and what is lend run's cannot be told apart.
func (s *storm) ofProgram(cmd *exec.Cmd, what call, out string) answer {
	s.t.Helper()
	code := cmd.ProcessState.ExitCode()
	var r struct {
		Origin, Ran string
		Status      *int
	}
	b, err := os.ReadFile(s.result(what))
	if err == nil {
		require.NoError(s.t, json.Unmarshal(b, &r))
	}
	switch {
	case code < 0:
		return answerLost // killed, perhaps after it had written its result
	case code == 0 && (what.status != 0 || r.Origin != "command"), r.Origin == "command" && r.Status != nil && *r.Status != code:
		s.t.Errorf("%s: lend run exits %d with %q: %s", what.id, code, out, b)
		return answerWrong
	case r.Origin == "command" && r.Status != nil:
		return ownEnd(what, code, out)
	case r.Origin == "command", r.Ran == "yes":
		return answerStopped
	}
	return answerLost
}

// verdict compares the history, the fixture's file and the ledger.
func (s *storm) verdict() {
	t := s.t
	t.Helper()
	s.gateway.end(t)
	t.Logf("%d calls: %d ends, %d stopped, %d not started, %d nothing, %d unknown, %d lost", len(s.steps), s.count(answerExit),
		s.count(answerStopped), s.count(answerNotStarted), s.count(answerNothing), s.count(answerUnknown), s.count(answerLost))
	for _, one := range model().Partition(s.steps) {
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(model(), one, time.Minute), "the history has an order: %v", one)
	}
	dir := filepath.Join(s.owner, "ledger")
	report, err := ledger.Verify(dir)
	require.NoError(t, err)
	require.Zero(t, report.Running, "each start has an end")
	ends := s.recorded(dir)
	starts := s.starts()
	for _, what := range s.calls {
		end, started := ends[what.id]
		n := starts[what.id]
		require.LessOrEqual(t, n, 1, "%s ran twice", what.id)
		require.False(t, n > 0 && !started, "%s ran without a record", what.id)
		require.False(t, n > 0 && end.State == ledger.StateNotStarted, "%s ran, and the record says that nothing did", what.id)
		if end.State == ledger.StateEnded && end.Cause == "" && end.Signal == "" {
			require.Equal(t, 1, n, what.id)
			require.Equal(t, what.status, end.Status, what.id)
		}
	}
	for _, step := range s.steps {
		if step.Output == answerExit {
			require.Equal(t, ledger.StateEnded, ends[step.Input.(call).id].State, "an end that was told is recorded: %v", step)
		}
	}
}

// recorded are the ends of the ledger; it fails on a second start or end.
func (s *storm) recorded(dir string) map[string]ledger.End {
	s.t.Helper()
	ids, ends := map[uint64]string{}, map[string]ledger.End{}
	require.NoError(s.t, ledger.Walk(dir, func(en ledger.Entry) error {
		switch {
		case en.Start != nil:
			id := en.Start.Operation.String()
			if _, again := ends[id]; again {
				s.t.Errorf("%s is recorded twice", id)
			}
			ids[en.Index], ends[id] = id, ledger.End{}
		case en.End != nil:
			if ends[ids[en.Of]].State != ledger.StateNone {
				s.t.Errorf("%s has two ends", ids[en.Of])
			}
			ends[ids[en.Of]] = *en.End
		}
		return nil
	}))
	return ends
}

// At each point of an operation's life the gateway dies, and afterwards everybody is
// told the same.
func TestFailpoints(t *testing.T) {
	s, r := newStorm(t), plan(t)
	for i, tt := range []struct {
		point  string
		starts []int
		told   []answer // to the caller that lost its gateway
		after  answer   // to who asks again later; answerStopped: an end without its output
	}{
		{"reserved", []int{1}, []answer{answerExit}, answerStopped},         // it asks again, and then it runs
		{"start-written", []int{0}, []answer{answerUnknown}, answerUnknown}, // the file has it, as the machine lives on
		{"start-synced", []int{0}, []answer{answerUnknown}, answerUnknown},
		{"recorded", []int{0}, []answer{answerUnknown}, answerUnknown},
		{"started", []int{0, 1}, []answer{answerUnknown}, answerUnknown}, // it may be gone before it can say so
		{"ending", []int{1}, []answer{answerUnknown, answerLost}, answerUnknown},
		{"end-written", []int{1}, []answer{answerExit, answerStopped}, answerStopped},
		{"ended", []int{1}, []answer{answerExit, answerStopped}, answerStopped},
		{"told", []int{1}, []answer{answerExit, answerStopped}, answerStopped},
		{"acknowledged", []int{1}, []answer{answerExit}, answerStopped},
	} {
		transports := []string{"tcp", "quic"}
		if !long() {
			transports = transports[i%2:][:1]
		}
		for _, transport := range transports {
			t.Run(tt.point+"-"+transport, func(t *testing.T) {
				s.gateway.end(t)
				s.only = transport
				c := s.client()
				s.serve("LEND_FAILPOINT=" + tt.point)
				what := s.next(r)
				first := make(chan answer, 1)
				go func() { first <- s.run(c, 1, what) }()
				select {
				case <-s.gateway.ended:
				case <-time.After(patience):
					t.Fatal("the gateway did not come to the point")
				}
				died := time.Now()
				s.serve()
				told := <-first
				t.Logf("told after %s", time.Since(died).Round(time.Millisecond))
				s.nothingLeft("gateway")
				require.Contains(t, tt.told, told)
				require.Equal(t, tt.after, s.run(c, 2, what))
				require.Contains(t, tt.starts, s.starts()[what.id])
			})
		}
	}
	s.verdict()
}

// A caller whose gateway is killed while its command says nothing is told soon after
// another is up, on both transports: it need not wait for a keep-alive.
func TestASilentDeathIsNoticed(t *testing.T) {
	s := newStorm(t)
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			s.gateway.end(t)
			s.only = transport
			s.serve()
			c := s.client()
			var slowest time.Duration
			for i := range pick(2, 10) {
				what := call{id: fmt.Sprintf("silent-%s-%09d", transport, i), ms: 600000}
				s.calls = append(s.calls, what)
				told := make(chan answer, 1)
				go func() { told <- s.run(c, 1, what) }()
				require.True(t, until(patience, func() bool { return s.starts()[what.id] == 1 }))
				s.gateway.kill()
				s.restart()
				up := time.Now()
				require.Contains(t, []answer{answerUnknown, answerLost}, <-told)
				slowest = max(slowest, time.Since(up))
				s.nothingLeft("gateway")
			}
			t.Logf("told at the latest %s after the next gateway was up", slowest.Round(time.Millisecond))
			require.Less(t, slowest, 8*time.Second)
		})
	}
	s.verdict()
}
