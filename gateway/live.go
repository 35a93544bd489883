package gateway

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/early"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
)

// maxTails is how many operations of a peer may have ended without being
// acknowledged before another is started, or twice as many as may run at once.
const maxTails = 64

// entry is one operation from its reservation until nothing is kept for a caller
// any more. All but err is set before it is published, or guarded by its owner.
type entry struct {
	key      ledger.Key
	digest   [32]byte
	peer     peer.ID
	verified *lease.Verified
	chain    [][]byte       // that verified
	finish   bool           // the grant lets it run on when the lease expires
	request  policy.Request // to decide again, without Now
	limits   policy.Limits  // that op was made with
	token    []byte
	since    time.Time
	op       *operation.Operation

	listed      bool                // in live; set before it is decided
	reservation *ledger.Reservation // set by begin, before the operation runs

	// decided is closed when a process runs (err is nil) or none will.
	decided chan struct{}
	err     error // valid once decided is closed

	mu     sync.Mutex // guards frozen
	frozen []*policy.Surface
}

func (e *entry) setFrozen(s []*policy.Surface) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frozen = s
}

func (e *entry) surfaces() []*policy.Surface {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.frozen
}

// newEntry makes the entry of a Start that was decided.
func (n *Node) newEntry(k ledger.Key, digest [32]byte, c caller, v *lease.Verified, r policy.Request, d *decision, release func()) *entry {
	e := &entry{
		key: k, digest: digest, peer: c.id, verified: v, request: r, limits: d.Limits,
		token: make([]byte, protocol.TokenSize), since: r.Now,
		decided: make(chan struct{}), frozen: d.frozen,
	}
	_, _ = rand.Read(e.token) // it never fails: crypto/rand ends the program instead
	e.op = operation.New(operation.Config{
		Token:  e.token,
		Limits: wireLimits(d.Limits),
		Text:   d.Call.Stdin != nil && d.Call.Stdin.Text,
		Budget: n.budget,
		OnEnd: func(x protocol.Exit) {
			n.ended(e, x)
			release()
		},
		OnDone: func() {
			release()
			if e.listed {
				n.live.remove(k)
			}
		},
	})
	return e
}

// endOf is how the ledger has an Exit.
func endOf(x protocol.Exit, at time.Time) ledger.End {
	end := ledger.End{
		State: ledger.StateEnded, At: at, Status: x.Status, Signal: x.Signal, Core: x.Core, Forced: x.Forced,
		Stdin: x.Stdin, Stdout: x.Stdout, Stderr: x.Stderr, Duration: x.Duration,
	}
	if x.Code != protocol.CodeOK {
		end.Cause = x.Code.String()
	}
	return end
}

// ended records the end.
func (n *Node) ended(e *entry, x protocol.Exit) {
	failpoint.Hit("ending")
	end := endOf(x, n.cfg.Now())
	n.recent.Ended(recordOf(e, &end))
	if err := e.reservation.End(end); err != nil {
		n.cfg.Log.Error().Err(err).Str("op", e.key.Operation.String()).Msg("ledger: end not recorded")
	}
	failpoint.Hit("ended")
	n.cfg.Observer.Ended(x)
	n.cfg.Log.Info().Str("peer", e.key.Holder.String()).Str("op", e.key.Operation.String()).
		Str("connector", e.request.Connector.String()).Str("version", e.request.Version.String()).
		Str("command", e.request.Command.String()).Str("code", x.Code.String()).Int("status", x.Status).
		Str("signal", x.Signal).Dur("ms", x.Duration).Uint64("stdin", x.Stdin).Uint64("stdout", x.Stdout).
		Uint64("stderr", x.Stderr).Msg("operation ended")
}

// exitOf is the Exit that an end was recorded from.
func exitOf(end *ledger.End) protocol.Exit {
	return protocol.Exit{
		Code: codeNamed(end.Cause), Status: end.Status, Signal: end.Signal, Core: end.Core, Forced: end.Forced,
		Stdin: end.Stdin, Stdout: end.Stdout, Stderr: end.Stderr, Duration: end.Duration,
	}
}

// wireLimits are the policy's limits of one operation as the caller is told.
func wireLimits(l policy.Limits) protocol.Limits {
	bytes := func(n int64) uint64 {
		if n == policy.Unlimited {
			return protocol.NoLimit
		}
		return uint64(max(0, n))
	}
	return protocol.Limits{
		Stdin: bytes(l.Stdin), Stdout: bytes(l.Stdout), Stderr: bytes(l.Stderr), Run: l.Run,
		Detached: max(0, l.Detached), // policy.Kill is less
	}
}

// running tells whether e has no end yet.
func (e *entry) running() bool {
	_, ended := e.op.Ended()
	return !ended
}

// live holds the operations of this process. Methods are safe for concurrent use.
type live struct {
	mu      sync.Mutex // guards all that follows
	entries map[ledger.Key]*entry
	early   *early.Cancels // of operations that were not started
	closed  bool
	empty   chan struct{} // closed when closed and without entries
}

func newLive(c *early.Cancels) *live {
	if c == nil {
		c = early.Memory()
	}
	return &live{entries: map[ledger.Key]*entry{}, early: c, empty: make(chan struct{})}
}

func (l *live) get(k ledger.Key) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[k]
}

// add publishes e, unless there is one of the same key, which is returned. The
// error is a *protocol.Refusal. tails is how many ends the peer may leave
// unacknowledged, whose bytes are kept.
func (l *live) add(e *entry, tails int) (*entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.entries[e.key]; old != nil {
		return old, nil
	}
	if l.closed {
		return nil, &protocol.Refusal{Code: protocol.CodeShuttingDown}
	}
	if l.early.Has(e.key) {
		return nil, &protocol.Refusal{Code: protocol.CodeCancelled}
	}
	links := e.verified.Links
	atOnce, ended := make([]int, len(links)), 0
	for _, o := range l.entries {
		switch running := o.running(); {
		case !running && o.peer == e.peer:
			ended++
		case running:
			for i := range links { // what was passed on counts for whoever did it
				if hasLink(o.verified, &links[i]) {
					atOnce[i]++
				}
			}
		}
	}
	for i := range links {
		if atOnce[i] >= links[i].MaxConcurrent {
			return nil, &protocol.Refusal{Code: protocol.CodeLeaseAtOnce, RetryAfter: door.RetryBusy}
		}
	}
	if ended >= tails {
		return nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy}
	}
	l.entries[e.key] = e
	return e, nil
}

func hasLink(v *lease.Verified, link *lease.Lease) bool {
	return slices.ContainsFunc(v.Links, func(o lease.Lease) bool { return o.ID == link.ID && o.Issuer == link.Issuer })
}

func (l *live) remove(k ledger.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, k)
	if l.closed && len(l.entries) == 0 {
		close(l.empty)
	}
}

func (l *live) all() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*entry, 0, len(l.entries))
	for _, e := range l.entries {
		out = append(out, e)
	}
	return out
}

// overdue returns the operation that ended first of those that are kept for a reader
// who takes nothing, nil if there is none.
func (l *live) overdue() (oldest *operation.Operation) {
	var first time.Time
	for _, e := range l.all() {
		if at, overdue := e.op.Overdue(); overdue && (oldest == nil || at.Before(first)) {
			oldest, first = e.op, at
		}
	}
	return oldest
}

// close takes no more entries. The channel is closed when there are none left.
func (l *live) close() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		if len(l.entries) == 0 {
			close(l.empty)
		}
	}
	return l.empty
}
