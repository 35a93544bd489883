package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

// The records, as package record has them.
type (
	// Key names one operation.
	Key = record.Key
	// Start is the durable record that precedes a process.
	Start = record.Start
	// End is the one end of an operation.
	End = record.End
	// Refusal sums up refusals of one kind.
	Refusal = record.Refusal
	// Event is anything else that the owner should find in the audit.
	Event = record.Event
	// Entry is one record as Walk gives it.
	Entry = record.Entry
	// State is what the ledger knows about an operation.
	State = record.State
)

// The states. Reserve returns any of them, Lookup neither StateConflict nor
// StateExhausted.
const (
	StateNone       = record.StateNone       // never heard of; from Reserve: it is yours now
	StatePending    = record.StatePending    // reserved by another request that is not decided yet
	StateRunning    = record.StateRunning    // started, no end yet
	StateEnded      = record.StateEnded      // ended, with an End
	StateNotStarted = record.StateNotStarted // recorded, but no process was started; with an End
	StateUnknown    = record.StateUnknown    // the gateway died meanwhile; it never runs again
	StateConflict   = record.StateConflict   // the same ID for another request
	StateExhausted  = record.StateExhausted  // the lease allows no further operation
	StateClosed     = record.StateClosed     // what was recorded of the invocation is gone; it starts nothing more
)

// Bounds of the opaque parts of a Start, in bytes.
const (
	MaxFrozen   = record.MaxFrozen
	MaxIdentity = record.MaxIdentity
	MaxAudit    = record.MaxAudit
)

// Errors of the ledger; others are of the operating system. A closed ledger says
// os.ErrClosed.
var (
	// ErrCorrupt: the files are not as they were written. The caller starts locked.
	ErrCorrupt = segment.ErrCorrupt
	// ErrLost: the directory belonged to a ledger whose records are gone. The
	// caller starts locked.
	ErrLost = folder.ErrLost
	// ErrLocked: another process has the ledger open.
	ErrLocked = folder.ErrLocked
	// ErrFull: the disk is full; nothing was recorded, and a later Start may work.
	ErrFull = errors.New("no room for the ledger")
	// ErrFailed: a write or sync failed; no Start works until Open.
	ErrFailed = errors.New("ledger has failed")
)

// Config is what Open needs.
type Config struct {
	// Dir holds the ledger and nothing else; it is made if it is not there. It is
	// 0700 and its files are 0600, or Open refuses.
	Dir string
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// KeepFor and KeepBytes bound what is kept: the oldest records go when they are
	// older, or when all are larger; 0 means no bound. What still protects from a
	// second run is kept whatever they say: the records of an invocation with a
	// running operation, and those whose last lease ended less than 25 h ago.
	KeepFor   time.Duration
	KeepBytes int64

	// tests put faults here, and make segments small
	openFile     func(dir string, first uint64, flag int) (folder.File, error)
	step         func(what, base string) error
	segmentBytes int64
}

// Ledger is an open ledger. It may be used from any goroutine; the caller must
// Close it.
type Ledger struct {
	cfg      Config
	dir      folder.Folder
	now      func() time.Time
	unlock   func() error
	keys     folder.Keys
	id       [16]byte
	birth    time.Time
	recovery Recovery

	log    *log // owned by the leader of the group commit
	files  files
	grants grants

	mu     sync.Mutex // guards all below
	views  views
	next   *group
	busy   bool // a leader is at work
	closed bool
	err    error // why nothing is written any more
	high   time.Time
	size   uint64 // records in the file
	// events that wait in next, in bytes, and the records dropped since the last one
	// that said so, with the refusals that they summed up.
	waiting int
	dropped dropped
	// events that a full disk holds up, oldest first, and their bytes
	held      []*entry
	heldBytes int
	full      bool // as the newest group found it
}

// Recovery says what Open had to do.
type Recovery struct {
	Created  bool
	TornTail int64 // bytes that were cut off, since nobody was told that they are durable
	Unknown  int   // operations that now are StateUnknown
	Rebuilt  int   // finished segments that had no snapshot, and were read
	Records  uint64
}

// Open opens the ledger of a directory, or makes one in an empty directory. It
// takes the directory for itself: ErrLocked. It reads every record of the newest
// segment, and of those that have no snapshot: ErrCorrupt if one is not as it was
// written, or if the newest checkpoint covers more than there is; ErrLost if the
// records are gone. What may be pruned is. spec: LEDGER-12 to LEDGER-16.
func Open(c Config) (*Ledger, error) {
	l, err := open(c)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return l, nil
}

// Recovery returns what Open had to do.
func (l *Ledger) Recovery() Recovery { return l.recovery }

// ID names this ledger: random, made with it.
func (l *Ledger) ID() [16]byte { return l.id }

// Birth is when the ledger was made. A lease issued before it may have been used
// without a trace, so the gateway refuses it.
func (l *Ledger) Birth() time.Time { return l.birth }

// High is the greatest time of any record: a wall clock below it was set back.
func (l *Ledger) High() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high
}

// Size is the number of records, those that were pruned included.
func (l *Ledger) Size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// VerifierKey is the public key of the checkpoints, as package note of x/mod writes
// it. Kept elsewhere, it tells this ledger from one that was put in its place.
func (l *Ledger) VerifierKey() string { return l.keys.VerifierKey }

// Err returns why no Start works any more, nil while they do.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	return l.err
}

// Digest returns the keyed digest (HMAC-SHA-256) of the parts, each framed by its
// length. The key is the ledger's own, so that digests say nothing to others.
func (l *Ledger) Digest(parts ...[]byte) [32]byte { return l.keys.Digest(parts) }

// Claim asks for an operation.
type Claim struct {
	Key
	// Digest is the keyed digest of the whole request.
	Digest [32]byte
	// Lease and MaxOperations bound the operations under one lease of the issuer;
	// MaxOperations below 1 allows none.
	Lease         [16]byte
	MaxOperations int
	// Above are the links above Lease, root first, if it was passed on: the operation
	// counts against each of them, too.
	Above []Link
	// Frozen is the grant that the caller decided by: what Frozen returned, or the
	// proposal for the first use of the invocation. It is not empty.
	Frozen []byte
}

// Link is a lease that was passed on by Holder. The first one's issuer is that of
// the Key, every other one's is the holder of the link before it.
type Link struct {
	Lease         [16]byte
	Holder        name.PeerID
	MaxOperations int
}

// Outcome is the answer of Reserve and Lookup.
type Outcome struct {
	State State
	// Reservation is set with StateNone from Reserve.
	Reservation *Reservation
	// Settled is set with StatePending: it is closed once the other request is
	// decided; then ask again.
	Settled <-chan struct{}
	// Start and End are what was recorded: Start with StateRunning and the three
	// ends, End with those. StateClosed has neither.
	Start *Start
	End   *End
}

// Reserve takes the operation for the caller if it is new (StateNone), in memory
// until Reservation.Start. The same request again gets what is known of the
// operation, another one StateConflict. The checks and the taking are one step.
// spec: LEDGER-17 to LEDGER-20.
func (l *Ledger) Reserve(c Claim) (Outcome, error) {
	out, err := l.reserve(c)
	if err != nil {
		return Outcome{}, fmt.Errorf("reserve operation: %w", err)
	}
	return out, nil
}

// Lookup returns what is known of an operation, whatever the request was.
func (l *Ledger) Lookup(k Key) (Outcome, error) {
	out, err := l.lookup(k)
	if err != nil {
		return Outcome{}, fmt.Errorf("look up operation: %w", err)
	}
	return out, nil
}

// Operations counts the operations of one lease of an issuer: those recorded and
// those reserved, under the lease itself or under one that was passed on below it.
func (l *Ledger) Operations(issuer name.PeerID, lease [16]byte) int {
	h := l.leaseHash(issuer, lease)
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.views.operations[h])
}

// Frozen returns the grant that the first Start of (issuer, invocation, holder)
// recorded; false if there was none, or if it was pruned: then Reserve says
// StateClosed.
func (l *Ledger) Frozen(issuer name.PeerID, invocation name.InvocationID, holder name.PeerID) ([]byte, bool, error) {
	h := l.scopeHash(issuer, invocation, holder)
	l.mu.Lock()
	sc, ok := l.views.scopes[h]
	l.mu.Unlock()
	if !ok || sc.frozen < 0 {
		return nil, false, nil
	}
	grant, err := l.grantAt(sc.frozen)
	if errors.Is(err, errPruned) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read frozen grant: %w", err)
	}
	return grant, true, nil
}

// Reservation is one operation from Reserve to its end. Exactly one of Release
// and Start is its next step; after a Start that returned nil, End is the last.
type Reservation struct {
	l  *Ledger
	op *operation
	// frozen is the grant that holds, as of Reserve.
	frozen []byte
}

// Frozen is the grant that holds for the invocation. If it is not the one of the
// Claim, another first use came before: decide by this one, or Release. The
// caller must not change it.
func (r *Reservation) Frozen() []byte { return r.frozen }

// Release gives the operation back: its ID is free again. It does nothing after
// Start.
func (r *Reservation) Release() { r.l.release(r.op) }

// Start records the start and returns once that is durable, about 0.14 ms on a
// good disk; starts at the same moment share the wait. ctx is looked at before
// the record is handed over, not after. On an error nothing was started: the ID
// is free again after ErrFull; after ErrFailed the ledger takes no further starts
// and what Open finds decides. spec: LEDGER-18, LEDGER-21 to LEDGER-23.
func (r *Reservation) Start(ctx context.Context, s Start) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("record start: %w", err)
	}
	if err := r.l.start(r.op, s); err != nil {
		return fmt.Errorf("record start: %w", err)
	}
	return nil
}

// End records the end of an operation whose Start returned nil; the second call
// is refused. It is known to Reserve and Lookup at once, and survives the process
// when End returns; it is made durable by the next Start, Flush or Close. e.At may
// be zero, which means now.
func (r *Reservation) End(e End) error {
	if err := r.l.end(r.op, e); err != nil {
		return fmt.Errorf("record end: %w", err)
	}
	return nil
}

// Refuse records refusals, without waiting for the disk. What does not fit is
// dropped and counted in a later record.
func (l *Ledger) Refuse(r Refusal) error {
	return l.note(&entry{payload: r.Encode(l.now()), lost: dropped{records: 1, refusals: max(r.Count, 1)}})
}

// Event records an event, as Refuse does, but on a full disk 64 events, 64 KiB in
// all, go into the room of the reserve, and 256 more wait for room in memory.
func (l *Ledger) Event(e Event) error {
	return l.note(&entry{payload: e.Encode(l.now()), event: true, lost: dropped{records: 1}})
}

// Probe returns why no Start works: ErrFull since one found no room, or what Err says;
// nil while they do, as far as is known. After ErrFull each call looks for room, and
// writes what waits for it: call it twice a second or so. It waits for the disk then.
func (l *Ledger) Probe() error {
	err := l.works()
	if !errors.Is(err, ErrFull) {
		return err
	}
	if err := l.commit(nil, probed); err != nil {
		return err
	}
	return l.works()
}

func (l *Ledger) works() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return os.ErrClosed
	case l.err == nil && l.full:
		return ErrFull
	}
	return l.err
}

// Flush makes everything durable that was recorded before.
func (l *Ledger) Flush() error {
	if err := l.commit(nil, durable); err != nil {
		return fmt.Errorf("flush ledger: %w", err)
	}
	return nil
}

// Close makes everything durable, signs a checkpoint and lets the directory go.
// The caller has ended its operations: those that have no end get StateUnknown at
// the next Open. Further calls return nil.
func (l *Ledger) Close() error { return l.close() }
