//go:build linux

package crash

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
)

// What a caller learnt of one operation.
type answer int

const (
	answerExit       answer = iota // its own end, as it must be
	answerWrong                    // an end that it cannot have
	answerStopped                  // the gateway stopped it: it ran at most once
	answerNotStarted               // nothing ran and nothing ever will
	answerNothing                  // refused or not sent: as if it had not been asked
	answerUnknown                  // the gateway says that nobody knows
	answerLost                     // no answer came
)

// call is the input of one step: the operation, the only status that it can have, and
// how long it runs, in milliseconds.
type call struct {
	id         string
	status, ms int
}

// classify turns what a client returned into an answer.
func classify(c call, output string, err error) answer {
	var exit *client.ExitError
	var refused *client.RefusedError
	var ended *client.EndedError
	switch {
	case err == nil:
		return ownEnd(c, 0, output)
	case errors.As(err, &exit):
		if exit.Signal != "" {
			return answerStopped // its supervisor was killed
		}
		return ownEnd(c, exit.Code, output)
	case errors.As(err, &refused) && refused.Code == protocol.CodeOutcomeUnknown:
		return answerUnknown
	case errors.As(err, &ended) && ended.Exit != nil && ended.Code == protocol.CodeOutcomeUnknown && ended.Exit.Code == protocol.CodeOK:
		if ended.Exit.Signal == "" && ended.Exit.Status != c.status {
			return answerWrong
		}
		return answerStopped // it has ended; a part of the output is gone
	case errors.As(err, &ended) && ended.Code == protocol.CodeOutcomeUnknown:
		return answerLost
	case errors.As(err, &ended):
		return answerStopped
	case errors.As(err, &refused) && (refused.Code == protocol.CodeNotStarted):
		return answerNotStarted
	}
	return answerNothing
}

func ownEnd(c call, status int, output string) answer {
	if status != c.status || output != c.id+"\n" {
		return answerWrong
	}
	return answerExit
}

// The states of an operation, as its holder may think of it.
const (
	never = iota
	hasEnded
	nobodyKnows
	neverWill
)

// model: an operation gets one end, once, and keeps it. Who got no answer may have
// brought any of them about, then or later.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			by := map[string]int{}
			for _, o := range history {
				id := o.Input.(call).id
				at, ok := by[id]
				if !ok {
					at = len(parts)
					by[id], parts = at, append(parts, nil)
				}
				parts[at] = append(parts[at], o)
			}
			return parts
		},
		Init: func() []any { return []any{never} },
		Step: func(state, _, output any) []any { return step(state.(int), output.(answer)) },
	}
	return m.ToModel()
}

func step(state int, a answer) []any {
	becomes := func(end int) []any {
		if state == never || state == end {
			return []any{end}
		}
		return nil
	}
	switch a {
	case answerExit, answerStopped:
		return becomes(hasEnded)
	case answerNotStarted:
		return becomes(neverWill)
	case answerUnknown:
		return becomes(nobodyKnows)
	case answerNothing:
		return []any{state}
	case answerLost:
		if state == never {
			return []any{never, hasEnded, nobodyKnows, neverWill}
		}
		return []any{state}
	case answerWrong:
	}
	return nil
}

// history is what all callers saw. Its zero value is ready.
type history struct {
	mu    sync.Mutex
	began time.Time
	steps []porcupine.Operation
}

func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		h.began = time.Now()
	}
	return int64(time.Since(h.began))
}

func (h *history) add(caller int, c call, from int64, a answer) {
	to := h.now()
	if a == answerLost {
		to = math.MaxInt64 // what was sent may arrive later
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, porcupine.Operation{ClientId: caller, Input: c, Call: from, Output: a, Return: to})
}

func (h *history) count(a answer) (n int) {
	for _, s := range h.steps {
		if s.Output == a {
			n++
		}
	}
	return n
}
