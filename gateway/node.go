package gateway

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/grant"
	"github.com/lendcli/lend/gateway/history"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/steady"
	"github.com/lendcli/lend/gateway/tally"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Node is a gateway that listens. Its methods are safe for concurrent use. The
// caller must Close it, before the Runtime and the Ledger that it uses.
type Node struct {
	cfg       Config
	self      name.PeerID
	host      host.Host
	policy    atomic.Pointer[policy.Policy]
	suspended atomic.Bool  // nothing new is decided, by any policy
	evictBy   atomic.Int64 // until when evict waits, in Unix nanoseconds
	verifier  *lease.Verifier
	revoking  revoking
	ledger    book
	contracts contracts
	resolve   func(route.Query) (route.Descriptor, error)
	port      startPort
	grants    grant.Cache
	door      *door.Door
	live      *live
	budget    *operation.Budget
	permits   *door.Permits
	refusals  tally.Refusals
	recent    history.Recent
	listening []multiaddr.Multiaddr // what is listened on, with the ports
	full      atomic.Bool           // the ledger has no room
	fullLog   zerolog.Logger        // says so, now and then
	deaf      bool                  // a listener has failed, and so has the ledger; the
	failed    bool                  // sweeper's alone

	work    sync.WaitGroup // handlers and the sweeper
	closing chan struct{}
	once    sync.Once

	reloading sync.Mutex // one change of the policy at a time

	mu     sync.Mutex // guards closed, and work.Add against work.Wait
	closed bool
}

// New builds a node that listens and serves. A Config that is not complete, an
// address that cannot be listened on: an error, and nothing is open.
func New(cfg Config) (*Node, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("build gateway: %w", err)
	}
	records := cfg.book()
	if high := records.High(); high.After(cfg.Now()) {
		cfg.Log.Warn().Time("ledger", high).Msg("the clock was set back; the time of the newest record holds until it is reached")
	}
	cfg.Now = steady.Over(cfg.Now, cfg.Elapsed, records.High()).Now
	n := &Node{
		cfg:       cfg,
		ledger:    records,
		contracts: contracts{cfg.Runtime},
		resolve:   cfg.Runtime.Resolve,
		port:      startPort{cfg.Runtime},
		live:      newLive(cfg.Cancels),
		budget:    operation.NewBudget(cfg.Memory),
		permits:   door.NewPermits(startsPerCore * runtime.NumCPU()),
		closing:   make(chan struct{}),
	}
	n.fullLog = cfg.Log.Sample(&zerolog.BurstSampler{Burst: 4, Period: time.Hour})
	n.policy.Store(cfg.Policy)
	n.door = door.New(cfg.Policy, n.disconnect)
	n.refusals.Write = records.Refuse
	h, err := n.door.Host(door.HostConfig{Key: cfg.Key, Announce: cfg.Announce, QUIC: cfg.QUIC})
	if err != nil {
		return nil, fmt.Errorf("build gateway: %w", err)
	}
	n.host = h
	n.self, _ = door.PeerName(h.ID()) // an Ed25519 key has a name
	n.verifier = &lease.Verifier{
		Gateway: n.self, Issuers: n.issuer, Revoked: cfg.Revocations, Now: cfg.Now, Skew: lease.DefaultSkew,
	}
	n.revoking.registry, _ = cfg.Revocations.(Registry)
	h.SetStreamHandler(protocol.RunID, n.handler(n.run))
	h.SetStreamHandler(protocol.ControlID, n.handler(n.control))
	h.SetStreamHandler(protocol.CatalogID, n.handler(n.catalog))
	if err := door.Listen(h, cfg.Listen); err != nil {
		_ = h.Close() // the first error is the one to tell
		return nil, fmt.Errorf("build gateway: %w", err)
	}
	n.listening = h.Network().ListenAddresses()
	n.work.Go(n.sweep)
	n.cfg.Log.Info().Str("peer", n.self.String()).Strs("addresses", texts(n.Addrs())).
		Str("policy", n.digestOfPolicy()).Msg("gateway started")
	n.Record(ledger.Event{Name: "gateway.started", Facts: map[string]string{"peer": n.self.String(), "policy": n.digestOfPolicy()}})
	n.noteLocked()
	return n, nil
}

// issuer is the policy's word of this moment, for the verifier.
func (n *Node) issuer(id name.PeerID) (lease.IssuerRule, bool) {
	r, ok := n.policy.Load().Issuer(id)
	return lease.IssuerRule{
		MaxLife: r.MaxLife, AnyConnector: r.AnyConnector, Connectors: r.Connectors, Until: r.Until,
		MaxDepth: r.MaxDepth, MayName: r.MayName,
	}, ok
}

// Run waits until ctx is done, then closes the node.
func (n *Node) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-n.closing:
	}
	return n.Close()
}

// Close refuses new work, ends what runs with SHUTTING_DOWN, lets callers have the
// end (or attach and get it), within 15 s in all, and returns after the last
// goroutine has ended. It is idempotent.
func (n *Node) Close() error {
	n.once.Do(func() {
		close(n.closing)
		empty := n.live.close()
		for _, e := range n.live.all() {
			e.op.Shutdown()
		}
		budget := time.NewTimer(shutdownBudget)
		defer budget.Stop()
		select {
		case <-empty:
		case <-budget.C:
			n.cfg.Log.Warn().Msg("gateway closes with operations left")
		}
		n.mu.Lock()
		n.closed = true
		n.mu.Unlock()
		n.door.Close()
		if err := n.host.Close(); err != nil {
			n.cfg.Log.Warn().Err(err).Msg("host not closed well")
		}
		for _, e := range n.live.all() {
			e.op.Drop()
		}
		<-empty
		n.work.Wait()
		n.refusals.Flush()
		n.Record(ledger.Event{Name: "gateway.stopped"})
		n.cfg.Log.Info().Msg("gateway stopped")
	})
	n.work.Wait()
	return nil
}

// ID is the gateway's peer ID.
func (n *Node) ID() name.PeerID { return n.self }

// Addrs are the addresses that peers may dial, each ending in /p2p/ and the ID.
func (n *Node) Addrs() []multiaddr.Multiaddr {
	out, err := peer.AddrInfoToP2pAddrs(&peer.AddrInfo{ID: n.host.ID(), Addrs: n.host.Addrs()})
	if err != nil {
		return nil
	}
	return out
}

// Record writes an event to the ledger, at e.At or, if that is zero, now. It returns
// when the event is written, but not yet durable, and waits for a disk that is slow:
// act first, record then. What the ledger refuses, or a closed one, is an error line of
// the log. Facts must be constant or quoted text, without a secret.
func (n *Node) Record(e ledger.Event) {
	if e.At.IsZero() {
		e.At = n.cfg.Now()
	}
	n.cfg.Observer.Event(e.Name)
	if err := n.ledger.Event(e); err != nil {
		n.cfg.Log.Error().Err(err).Str("event", e.Name).Msg("ledger: event not recorded")
	}
}

func (n *Node) digestOfPolicy() string {
	if p := n.policy.Load(); p != nil {
		return p.Digest()
	}
	return ""
}

func (n *Node) disconnect(id peer.ID) {
	if err := n.host.Network().ClosePeer(id); err != nil {
		n.cfg.Log.Debug().Err(err).Msg("peer not disconnected well")
	}
}

// sweep looks after what happens by the clock alone.
func (n *Node) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-n.closing:
			return
		case <-tick.C:
		}
		n.tend()
		if time.Since(last) >= tally.Every {
			n.refusals.Flush()
			last = time.Now()
		}
	}
}

// tend is one round of sweep. A panic costs the rest of it.
func (n *Node) tend() {
	defer func() {
		if recover() != nil {
			n.cfg.Log.Error().Msg("panic in a round of the gateway's own")
		}
	}()
	n.revoking.refresh()
	n.recheck(false)
	n.noteLocked() // last: the record waits for a slow disk
	n.evict()
	if n.budget.Full() { // others need what is kept for a reader who takes nothing
		if op := n.live.overdue(); op != nil {
			op.Drop()
		}
	}
	n.door.Prune()
	n.relisten()
	if n.cfg.Locked != nil || n.failed {
		return
	}
	if err := n.cfg.Ledger.Probe(); !n.noteFull(err) && err != nil { // it waits for a slow disk, too
		n.failed = true
		n.cfg.Log.Error().Err(err).Msg("the ledger has failed: nothing starts any more")
	}
}

// relisten brings back listeners that have given up. It says once that some cannot be
// brought back now, and that they are.
func (n *Node) relisten() {
	again, err := door.Relisten(n.host, n.listening)
	if len(again) > 0 {
		n.cfg.Log.Warn().Strs("addresses", texts(again)).Msg("a listener had failed; listening again")
	}
	switch {
	case err != nil && !n.deaf && !n.isClosing():
		n.deaf = true
		n.cfg.Log.Error().Err(err).Msg("a listener has failed; trying to listen again")
		n.Record(ledger.Event{Name: "degraded", Facts: map[string]string{"what": "a listener"}})
	case err == nil && n.deaf:
		n.deaf = false
		n.Record(ledger.Event{Name: "recovered", Facts: map[string]string{"what": "a listener"}})
	}
}

func (n *Node) isClosing() bool {
	select {
	case <-n.closing:
		return true
	default:
		return false
	}
}

// enter counts a handler; false means that the node is closing.
func (n *Node) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.work.Add(1)
	return true
}

// Status is a snapshot of a node.
type Status struct {
	ID        name.PeerID
	Addresses []multiaddr.Multiaddr
	// PolicyDigest is empty without a policy.
	PolicyDigest string
	Limits       policy.Limits
	// Transport are the bounds of the transport, Starts how many starts may happen
	// at the same moment, and Penalties the peers that are refused for a while.
	Transport door.Transport
	Starts    int
	Penalties []door.Penalized
	// LedgerErr says why nothing is admitted any more; nil while it is.
	LedgerErr error
	// LedgerFull tells that nothing is admitted until its disk has room again.
	LedgerFull bool
	// Memory is how many bytes of input and output are kept.
	Memory     int64
	Links      door.Links
	Peers      []PeerStatus
	Operations []OperationStatus
}

// PeerStatus is one connected peer.
type PeerStatus struct {
	ID         name.PeerID
	Label      name.Label // the policy's name for it; zero for a stranger
	Address    multiaddr.Multiaddr
	Operations int
}

// OperationStatus is one operation: one that runs, one whose end was not
// acknowledged, or what is recorded.
type OperationStatus struct {
	ledger.Key
	Label     name.Label // the policy's name for the holder; zero for a stranger
	Lease     [16]byte
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
	State     ledger.State
	Started   time.Time
	Ended     bool
	// Attached tells that a caller follows it now; Held that the gateway keeps
	// something for one: it can be attached to.
	Attached, Held        bool
	Stdin, Stdout, Stderr uint64
	// End is nil if there is none yet.
	End *ledger.End
}

// Status returns a snapshot.
func (n *Node) Status() Status {
	p := n.policy.Load()
	s := Status{
		ID: n.self, Addresses: n.Addrs(), PolicyDigest: n.digestOfPolicy(), Limits: door.LimitsOf(p),
		Transport: n.door.Transport(), Starts: startsPerCore * runtime.NumCPU(), Penalties: n.door.Penalties(),
		LedgerErr: n.ledger.Err(), LedgerFull: n.full.Load(), Memory: n.budget.Used(), Links: n.door.Links(n.host),
	}
	count := map[peer.ID]int{}
	for _, e := range n.live.all() {
		count[e.peer]++
	}
	labels := n.labels()
	s.Operations = n.running(labels)
	for _, id := range n.host.Network().Peers() {
		if c := n.host.Network().ConnsToPeer(id); len(c) > 0 {
			who, _ := door.PeerName(id)
			s.Peers = append(s.Peers, PeerStatus{ID: who, Label: labels[who], Address: c[0].RemoteMultiaddr(), Operations: count[id]})
		}
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	return s
}

func texts(addrs []multiaddr.Multiaddr) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return out
}
