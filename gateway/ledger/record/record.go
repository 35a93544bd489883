package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a record, in bytes. spec: LEDGER-7.
const (
	MaxFrozen   = 768 << 10 // Start.Frozen
	MaxIdentity = 4 << 10   // Start.Identity
	MaxAudit    = 128 << 10 // Start.Audit
	MaxCause    = 64        // End.Cause, Refusal.Reason, Event.Name
	MaxDetail   = 1 << 10   // End.Detail, Refusal.Detail, each value of an Event
	MaxFacts    = 32        // facts of an Event
	MaxAbove    = 2         // Start.Above

	MaxRecord = 1 << 20 // an encoded record
)

// Key names one operation. All fields are set.
type Key struct {
	Issuer     name.PeerID // the root issuer
	Invocation name.InvocationID
	Holder     name.PeerID
	Operation  name.OperationID
}

// State is what the ledger knows about an operation.
type State uint8

// The states. Reserve returns any of them, Lookup neither StateConflict nor
// StateExhausted.
const (
	StateNone       State = iota // never heard of; from Reserve: it is yours now
	StatePending                 // reserved by another request that is not decided yet
	StateRunning                 // started, no end yet
	StateEnded                   // ended, with an End
	StateNotStarted              // recorded, but no process was started; with an End
	StateUnknown                 // the gateway died meanwhile; it never runs again
	StateConflict                // the same ID for another request
	StateExhausted               // the lease allows no further operation
	StateClosed                  // what was recorded of the invocation is gone; it starts nothing more
)

func (s State) String() string {
	names := [...]string{"none", "pending", "running", "ended", "not-started", "unknown", "conflict", "exhausted", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return "invalid"
}

// Start is the durable record that precedes a process. Reservation.Start fills
// in Key, Digest, Lease, Frozen and At.
type Start struct {
	Key
	At     time.Time
	Digest [32]byte // keyed digest of the request
	Lease  [16]byte // the lease that it was started under
	// Above are the links above Lease, root first, if it was passed on; else none.
	Above []Link
	// LeaseNotAfter bounds how long the record protects from something.
	LeaseNotAfter time.Time
	Connector     name.ConnectorKey
	Version       name.Version
	Command       name.Command
	// Frozen is set in the first Start of (issuer, invocation, holder).
	Frozen []byte
	// Identity is the pinned route's; Audit is more for the audit. Opaque.
	Identity, Audit []byte
}

// Link is a lease that was passed on, and by whom. The first one's issuer is that
// of the Key, and every other one's is the holder of the link before it.
type Link struct {
	Lease  [16]byte
	Holder name.PeerID
}

// End is the one end of an operation. State is StateEnded, StateNotStarted or
// StateUnknown.
type End struct {
	State State
	At    time.Time
	// Cause is the name of a reason code, "" for a child that ended by itself.
	Cause string
	// Status is the exit status, 0 to 255; Signal the signal, if one ended it.
	Status       int
	Signal       string
	Core, Forced bool
	// Totals of the bytes that the operation took and gave.
	Stdin, Stdout, Stderr uint64
	Duration              time.Duration
	// Detail is more for the owner: constant or quoted text.
	Detail string
}

// Refusal sums up refusals of one kind. Absent fields were not known, or differ.
type Refusal struct {
	At         time.Time // of the last one; 0 means now
	Since      time.Time // of the first one; 0 means At
	Count      uint64    // at least 1; 0 means 1
	Reason     string    // the name of a reason code
	Peer       name.PeerID
	Issuer     name.PeerID
	Invocation name.InvocationID
	Operation  name.OperationID
	Lease      [16]byte
	Connector  name.ConnectorKey
	Version    name.Version
	Command    name.Command
	Detail     string // the true reason for the owner: constant or quoted text
}

// Event is anything else that the owner should find in the audit: a boot, a
// reload, a revocation, a degraded mode. Facts are constant or quoted text.
type Event struct {
	At    time.Time // 0 means now
	Name  string
	Facts map[string]string
}

// Entry is one record as Walk gives it: exactly one of the pointers is set, or
// none for the record that begins a segment.
type Entry struct {
	Index   uint64
	At      time.Time
	Start   *Start
	End     *End
	Of      uint64 // with End: the Index of its Start
	Refusal *Refusal
	Event   *Event
}

var (
	errInvalidKey   = errors.New("the key of the operation is not complete")
	errInvalidStart = errors.New("connector, version, command and lease expiry are needed")
)

// Check wants all fields.
func (k Key) Check() error {
	if k.Issuer.IsZero() || k.Invocation.IsZero() || k.Holder.IsZero() || k.Operation.IsZero() {
		return errInvalidKey
	}
	return nil
}

// Check wants what Encode needs, within the bounds.
func (s *Start) Check() error {
	switch {
	case s.Connector.IsZero(), s.Version.IsZero(), s.Command.IsZero(), s.LeaseNotAfter.UnixMilli() <= 0:
		return errInvalidStart
	case len(s.Frozen) > MaxFrozen:
		return fmt.Errorf("frozen grant of more than %d bytes", MaxFrozen)
	case len(s.Identity) > MaxIdentity:
		return fmt.Errorf("identity of more than %d bytes", MaxIdentity)
	case len(s.Audit) > MaxAudit:
		return fmt.Errorf("audit detail of more than %d bytes", MaxAudit)
	case len(s.Above) > MaxAbove:
		return fmt.Errorf("more than %d links", MaxAbove)
	case slices.ContainsFunc(s.Above, func(o Link) bool { return o.Holder.IsZero() }):
		return errInvalidKey
	}
	return s.Key.Check()
}

// Check wants what Encode needs, within the bounds.
func (e *End) Check() error {
	switch {
	case e.State != StateEnded && e.State != StateNotStarted && e.State != StateUnknown:
		return fmt.Errorf("an operation does not end in state %s", e.State)
	case e.Status < 0 || e.Status > 255:
		return fmt.Errorf("exit status %d", e.Status)
	case e.Duration < 0:
		return errors.New("negative duration")
	case len(e.Signal) > MaxCause || len(e.Cause) > MaxCause:
		return fmt.Errorf("cause or signal of more than %d bytes", MaxCause)
	}
	return nil
}

// Clip makes text fit into size bytes: a record is never lost for its length.
func Clip(s string, size int) string {
	if len(s) > size {
		s = s[:size]
	}
	return strings.ToValidUTF8(s, "")
}

func validText(s string, size int) bool { return len(s) <= size && utf8.ValidString(s) }
