package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// wantStates is written out independently of the table: what each state allows,
// by sender.
var wantStates = map[Role]map[State]string{
	Caller: {
		StateInit:    "start+>1 start>2 attach+>1 attach>2",
		StateInput:   "data>1 stdin-end>2 ack>1 output-closed>1 exit-ack>5",
		StateNoInput: "ack>2 output-closed>2 exit-ack>5",
	},
	Gateway: {
		StateInit:       "accepted>3 refused>5",
		StateOutput:     "data>3 ack>3 stdin-closed>4 exit>5",
		StateOutputOnly: "data>4 exit>5",
	},
}

// spec: STATE-1
func TestEveryTransition(t *testing.T) {
	for _, role := range []Role{Caller, Gateway} {
		for s := StateInit; s <= StateDone; s++ {
			var allowed []string
			for f := FrameType(0); f <= TypeExit+1; f++ {
				with, ok1 := Next(role, s, f, true)
				without, ok2 := Next(role, s, f, false)
				require.Equal(t, ok1, ok2)
				switch {
				case !ok1:
					require.Equal(t, StateDone, with)
				case with == without:
					allowed = append(allowed, fmt.Sprintf("%s>%d", f, with))
				default:
					allowed = append(allowed, fmt.Sprintf("%s+>%d", f, with), fmt.Sprintf("%s>%d", f, without))
				}
			}
			require.ElementsMatch(t, strings.Fields(wantStates[role][s]), allowed, "role %d state %d", role, s)
		}
	}
}

func TestTransitionsAreUniqueAndReachable(t *testing.T) {
	seen := map[string]bool{}
	reached := map[Role]map[State]bool{Caller: {StateInit: true}, Gateway: {StateInit: true}}
	for range transitions {
		for _, r := range transitions {
			if reached[r.sender][r.from] {
				reached[r.sender][r.to] = true
			}
		}
	}
	for _, r := range transitions {
		k := fmt.Sprintf("%d/%d/%d/%d", r.sender, r.from, r.frame, r.input)
		require.False(t, seen[k])
		seen[k] = true
		require.True(t, reached[r.sender][r.from])
		require.True(t, reached[r.sender][StateDone])
	}
}

// refWindow is the reference: how often did whole windows pass?
type refWindow struct{ sent, acked, base, limit uint64 }

// spec: FLOW-3, FLOW-4
func TestWindowAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint64Range(0, 1<<40).Draw(t, "from")
		w, ref := NewWindow(from), refWindow{from, from, from, MinWindow}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			require.Equal(t, ref.limit-(ref.sent-ref.acked), uint64(w.Room()))
			if rapid.Bool().Draw(t, "send") {
				n := rapid.IntRange(0, w.Room()).Draw(t, "n")
				w.Add(n)
				ref.sent += uint64(n)
				require.Panics(t, func() { w.Add(w.Room() + 1) })
				continue
			}
			ack := rapid.Uint64Range(ref.acked, ref.sent).Draw(t, "ack")
			require.NoError(t, w.Ack(ack))
			ref.acked = ack
			for ref.acked-ref.base >= ref.limit && ref.limit < MaxWindow {
				ref.base += ref.limit
				ref.limit *= 2
			}
			require.Error(t, w.Ack(ref.sent+1))
			if ack > 0 {
				require.Error(t, w.Ack(ack-1))
			}
		}
		require.Equal(t, ref.sent, w.Sent())
		require.Equal(t, ref.acked, w.Acked())
	})
}

// spec: FLOW-2
func TestAcknowledgementsNeverStopTheFirstWindow(t *testing.T) {
	require.LessOrEqual(t, 2*AckEvery, MinWindow)
	w, acks := NewWindow(0), 0
	for w.Sent() < 64<<20 {
		require.Positive(t, w.Room())
		w.Add(min(w.Room(), MaxData))
		if w.Sent()-w.Acked() >= AckEvery {
			require.NoError(t, w.Ack(w.Sent()))
			acks++
		}
	}
	require.Equal(t, MaxWindow, w.Room())
	require.Less(t, acks, 260)
}
