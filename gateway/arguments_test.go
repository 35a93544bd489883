package gateway

import (
	"encoding/json"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/tally"
	"github.com/lendcli/lend/protocol"
)

// noted is what is recorded beside each start, oldest first.
func (w *world) noted() (out []audit.Noted) {
	w.t.Helper()
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.Start != nil {
			var n audit.Noted
			require.NoError(w.t, json.Unmarshal(e.Start.Audit, &n))
			out = append(out, n)
		}
		return nil
	}))
	return out
}

// Arguments are recorded where the deciding rule says so, and nowhere else.
func TestArgumentsAreRecordedWhereThePolicySaysSo(t *testing.T) {
	t.Parallel()
	for _, on := range transports() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, l := w.dial(w.agent, on), w.lease()
			d.run(w.start(l, "print", "--size=36")).finish()
			w.node.Reload(w.parse(basicPolicy + "    record_arguments: [print]\n"))
			d.run(w.start(l, "print", "--size", "37")).finish()
			d.run(w.start(l, "exit", "--code=3")).finish()
			w.node.Reload(w.parse(basicPolicy))
			d.run(w.start(l, "print", "--size=38")).finish()
			require.NoError(t, w.node.Close())
			var got [][]string
			for _, n := range w.noted() {
				require.Equal(t, "all", n.Rule)
				got = append(got, n.Arguments)
			}
			require.Equal(t, [][]string{nil, {"print", "--size=37"}, nil, nil}, got)
		})
	}
}

// What peers are told is what is counted.
func TestRefusedStreamsAddUp(t *testing.T) {
	t.Parallel()
	for _, on := range transports() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			const times = 300
			w := newWorld(t)
			d, l := w.dial(w.agent, on), w.lease()
			begun := time.Now()
			for range times {
				d.run(w.start(l, "print", "--size=canary")).wantRefused(protocol.CodeArgumentRejected)
			}
			require.NoError(t, w.node.Close())
			sum, records := uint64(0), 0
			require.NoError(t, w.ledger.Walk(func(e ledger.Entry) error {
				if e.Refusal != nil {
					require.Equal(t, protocol.CodeArgumentRejected.String(), e.Refusal.Reason)
					require.NotContains(t, e.Refusal.Detail, "canary")
					sum += e.Refusal.Count
					records++
				}
				return nil
			}))
			require.Equal(t, uint64(times), sum)
			require.LessOrEqual(t, records, 2*(2+int(time.Since(begun)/tally.Every)))
		})
	}
}

// A flood of refusals is few records, and their sum is exact.
func TestRefusalsAddUp(t *testing.T) {
	t.Parallel()
	const each, peers = 2500, 4
	w := newWorld(t)
	var all sync.WaitGroup
	done := make(chan struct{})
	for n := range peers {
		id := newIdentity(t).id
		all.Go(func() {
			for range each {
				w.node.refusals.Add(protocol.CodeDenied, ledger.Refusal{At: time.Now(), Reason: "DENIED", Peer: id})
			}
			if n == 0 {
				for range each {
					w.node.refusals.Add(protocol.CodeBusy, ledger.Refusal{At: time.Now(), Reason: "BUSY", Peer: id, Detail: "of one"})
				}
			}
		})
	}
	flushed := make(chan int)
	go func() {
		times := 0
		for {
			select {
			case <-done:
				flushed <- times
				return
			default:
				w.node.refusals.Flush()
				times++
				runtime.Gosched()
			}
		}
	}()
	all.Wait()
	close(done)
	times := <-flushed
	require.NoError(t, w.node.Close())
	sum, records := map[string]uint64{}, 0
	require.NoError(t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.Refusal != nil {
			sum[e.Refusal.Reason] += e.Refusal.Count
			records++
		}
		return nil
	}))
	require.Equal(t, map[string]uint64{"DENIED": each * peers, "BUSY": each}, sum)
	require.LessOrEqual(t, records, 2*(peers+1)*(times+1), "one with all facts, and one sum, of each kind and interval")
}
