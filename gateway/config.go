package gateway

import (
	"crypto/ed25519"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/early"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/steady"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Config is what New needs. It must not be changed after New.
type Config struct {
	// Key is the gateway's identity: an Ed25519 private key of 64 bytes.
	Key ed25519.PrivateKey
	// Listen are the addresses to listen on: ip4 or ip6, with tcp or quic-v1. All
	// of them must work. None means that nothing can connect.
	Listen []multiaddr.Multiaddr
	// Announce replaces the addresses that peers are told; none means those that
	// are listened on.
	Announce []multiaddr.Multiaddr
	// QUIC are options of the UDP sockets, for a network that is simulated. Who
	// gives any closes the ConnManager, after the Node; none means the machine's
	// network.
	QUIC []quicreuse.Option
	// Policy is the owner's. nil denies everything. Reload swaps it.
	Policy *policy.Policy
	// Runtime starts what was admitted. It outlives the Node.
	Runtime Runtime
	// Ledger records it. It outlives the Node, which does not close it.
	Ledger *ledger.Ledger
	// Locked, if it is set, says why there is no Ledger. The gateway listens, and
	// shows its status, but refuses all work with GATEWAY_LOCKED.
	Locked error
	// Cancels remembers cancels that came before their start; nil means until the Node is
	// closed.
	Cancels *early.Cancels
	// Revocations is asked at each admission and, while work runs, twice a
	// second. nil means that everything is revoked. One that is a Registry takes
	// those that peers send.
	Revocations lease.RevocationChecker
	// Owner is the owner's key, which signs revocations of anything; zero: no key
	// does.
	Owner name.PeerID
	// Memory bounds the bytes of output and input that all operations keep
	// together; 0 means 256 MiB.
	Memory int64
	// Observer is told what happens, for metrics; nil means nobody is.
	Observer Observer
	// Log gets structured lines; the zero value is silent.
	Log zerolog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Elapsed is how much time has gone by on the machine since some moment, suspends
	// included; nil means the machine's. What has expired by it or by Now has expired.
	Elapsed func() time.Duration
}

// Observer counts what happens. Its methods are called by many goroutines, on the way
// of requests: they do not block, and do not panic. What they get is from closed sets,
// never from a peer.
type Observer interface {
	// Admitted: a process runs, so long after its Start was read.
	Admitted(took time.Duration)
	// Recorded: the record of a start became durable, in that time.
	Recorded(took time.Duration)
	Refused(code protocol.Code)
	Ended(exit protocol.Exit)
	// Event: something was given to Record, under a name that is a constant.
	Event(name string)
}

type nobody struct{}

func (nobody) Admitted(time.Duration) {}
func (nobody) Recorded(time.Duration) {}
func (nobody) Refused(protocol.Code)  {}
func (nobody) Ended(protocol.Exit)    {}
func (nobody) Event(string)           {}

// Defaults and times of the node.
const (
	defaultMemory  = 256 << 20
	sweepEvery     = 500 * time.Millisecond
	shutdownBudget = 15 * time.Second
	evictBudget    = 10 * time.Second // for ends to be told before a peer is cut off
	startTimeout   = 30 * time.Second // of one process start
	permitTimeout  = 10 * time.Second // in the queue for it
	lingerTimeout  = 5 * time.Second  // for a refused caller to read why
	startsPerCore  = 4
)

var (
	errNoKey     = errors.New("no identity key")
	errNoRuntime = errors.New("no runtime")
	errNoLedger  = errors.New("no ledger")
)

func (c *Config) complete() error {
	switch {
	case len(c.Key) != ed25519.PrivateKeySize:
		return errNoKey
	case c.Runtime == nil:
		return errNoRuntime
	case c.Ledger == nil && c.Locked == nil:
		return errNoLedger
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Elapsed == nil {
		c.Elapsed = steady.Stopwatch()
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	return nil
}

// book returns the records that there are.
func (c *Config) book() book {
	if c.Locked != nil {
		return locked{c.Locked}
	}
	return c.Ledger
}
