package tally

import (
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Every is how often Flush should be called, Most how many kinds are counted at once;
// those beyond it are counted together.
const (
	Every = 10 * time.Second
	Most  = 1024
)

type kind struct {
	peer name.PeerID
	code protocol.Code
}

// Refusals counts what was refused. The zero value with Write is ready. Methods are
// safe for concurrent use.
type Refusals struct {
	// Write records one; it must be set. Its error is not looked at: the log has the
	// refusal too, and a ledger counts what it drops.
	Write func(ledger.Refusal) error

	mu    sync.Mutex // guards kinds
	kinds map[kind]*ledger.Refusal
}

// Add counts r; the first of its kind since the last Flush is written at once, with
// all facts.
func (s *Refusals) Add(code protocol.Code, r ledger.Refusal) {
	k := kind{r.Peer, code}
	s.mu.Lock()
	if s.kinds == nil {
		s.kinds = map[kind]*ledger.Refusal{}
	}
	if len(s.kinds) >= Most && s.kinds[k] == nil {
		k.peer = name.PeerID{} // the others, together
	}
	if sum := s.kinds[k]; sum != nil {
		sum.Count++
		sum.At = r.At
		if sum.Since.IsZero() {
			sum.Since = r.At
		}
		s.mu.Unlock()
		return
	}
	s.kinds[k] = &ledger.Refusal{Reason: r.Reason, Peer: k.peer}
	s.mu.Unlock()
	_ = s.Write(r)
}

// Flush writes the sums.
func (s *Refusals) Flush() {
	s.mu.Lock()
	sums := s.kinds
	s.kinds = nil
	s.mu.Unlock()
	for _, r := range sums {
		if r.Count > 0 {
			_ = s.Write(*r)
		}
	}
}
