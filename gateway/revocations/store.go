package revocations

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of what issuers may have kept, so that there is room for the owner.
// spec: REVOKE-15.
const (
	MaxOfIssuer  = 1000
	MaxOfHolder  = 64 // of one who passes leases on
	MaxOfIssuers = revocation.MaxEntries - 10_000
)

var (
	// ErrUnreadable says that the file is not there, not readable, or not what was
	// written: everything is revoked.
	ErrUnreadable = errors.New("the revocations are not readable, so everything is revoked")
	// ErrFull says that no more is kept; nothing was dropped.
	ErrFull = errors.New("no more revocations are kept: revoke more with one, such as all that was issued until now")
)

// Store is safe for concurrent use. Reading it takes no lock.
type Store struct {
	file, mark string
	replace    func(file string, data []byte) error // ownerfile.Replace

	set    atomic.Pointer[revocation.Set] // never nil; a zero Set denies everything
	locked atomic.Pointer[LockdownError]  // nil: no lockdown
	failed atomic.Pointer[string]         // why the set is not readable; nil if it is

	mu      sync.Mutex // serialises changes and guards what follows
	written [sha256.Size]byte
	seen    os.FileInfo     // of the file, when it was last known to hold written
	known   *revocation.Set // all that was accepted, also once it is not readable; nil if it never was
	behind  bool            // the set has more than the file
}

// Create makes the file of a gateway that has revoked nothing yet. An existing one
// is os.ErrExist and stays as it is.
func Create(file string) error { return create(file) }

func create(file string, entries ...revocation.Entry) error {
	_, b, err := made(entries...)
	if err != nil {
		return err
	}
	return ownerfile.Create(file, b)
}

// made is a set of entries, and how the file has it.
func made(entries ...revocation.Entry) (*revocation.Set, []byte, error) {
	set, err := revocation.New(entries...)
	if err != nil {
		return nil, nil, err
	}
	b, err := set.Marshal()
	return set, b, err
}

// Open reads the file, and looks for the mark of a lockdown. What cannot be read is
// no error of Open: the Store denies everything, and Locked says why.
func Open(file, mark string) *Store {
	s := &Store{file: file, mark: mark, replace: ownerfile.Replace}
	s.set.Store(new(revocation.Set))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	s.load()
	return s
}

// load takes what the file has, unless that is less than was accepted.
func (s *Store) load() {
	info, err := os.Lstat(s.file)
	if err != nil {
		s.fail(err)
		return
	}
	b, err := ownerfile.Read(s.file, ownerfile.Trusted, revocation.MaxBytes)
	if err != nil {
		s.fail(err)
		return
	}
	set, err := revocation.Parse(b)
	if err != nil {
		s.fail(err)
		return
	}
	if s.known != nil && slices.ContainsFunc(s.known.Entries(), func(e revocation.Entry) bool { return !set.Covers(e) }) {
		s.fail(errOlder)
		return
	}
	s.written, s.seen, s.known, s.behind = sha256.Sum256(b), info, set, false
	s.failed.Store(nil)
	s.set.Store(set)
}

// fail denies everything from now on. spec: REVOKE-14.
func (s *Store) fail(err error) {
	s.set.Store(new(revocation.Set))
	why := err.Error()
	s.failed.Store(&why)
}

// Revoked implements lease.RevocationChecker.
func (s *Store) Revoked(sub lease.Subject) bool {
	return s.locked.Load() != nil || s.set.Load().Revoked(sub)
}

// Locked says why everything is revoked: a *LockdownError, ErrUnreadable, or nil if
// it is not.
func (s *Store) Locked() error {
	if l := s.locked.Load(); l != nil {
		return l
	}
	return s.Unreadable()
}

// Unreadable is ErrUnreadable or nil, in a lockdown too.
func (s *Store) Unreadable() error {
	if why := s.failed.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrUnreadable, *why)
	}
	return nil
}

// Entries returns what is kept, oldest first; none if it is not readable.
func (s *Store) Entries() []revocation.Entry { return s.set.Load().Entries() }

// Refresh notices, at the cost of looking at two files, what another process has
// changed: the mark of a lockdown, and the file, which nobody may. It does not wait
// for a change that is under way.
func (s *Store) Refresh() {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.look()
	s.verify()
}

// verify denies everything unless the file is what was written.
func (s *Store) verify() {
	if s.failed.Load() != nil {
		return
	}
	info, err := os.Lstat(s.file)
	if err != nil {
		s.fail(err)
		return
	}
	if sameState(info, s.seen) {
		return
	}
	b, err := ownerfile.Read(s.file, ownerfile.Trusted, revocation.MaxBytes)
	switch {
	case err != nil:
		s.fail(err)
	case sha256.Sum256(b) != s.written:
		s.fail(errChanged)
	default:
		s.seen = info
	}
}

// sameState tells whether nothing has touched a file, and no other is in its place.
func sameState(a, b os.FileInfo) bool { return os.SameFile(a, b) && sameFacts(a, b) }

// sameFacts compares what a system tells of a file: its size and the time of its
// content can be put back, the time of its last change, where it is told, cannot.
func sameFacts(a, b os.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode() && changeTime(a) == changeTime(b)
}

var (
	errChanged = errors.New("another program has changed the file")
	errOlder   = errors.New("the file is an older one: it lacks what was revoked since")
)

// Add keeps the owner's entries, together or not at all, and forgets those that now
// says are over; a zero now forgets none. It returns how many were not covered by
// others already. When it returns without an error they are on disk; with one, they
// may count until the next start. Errors: ErrUnreadable, ErrFull, those of writing.
// spec: REVOKE-13.
func (s *Store) Add(now time.Time, entries ...revocation.Entry) (added int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(now, entries...)
}

// Accept keeps what a signed envelope says, if a lets its signer say it. It returns
// who that is and what is kept, and whether that is new. Errors: *revocation.Error
// and those of Add.
func (s *Store) Accept(a *revocation.Authority, envelope []byte) (by name.PeerID, e revocation.Entry, added bool, err error) {
	e, statement, err := a.Accept(envelope)
	if err != nil {
		return by, e, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if statement.Issuer != a.Owner && !s.set.Load().Covers(e) && s.crowded(statement.Issuer, a.Lists(statement.Issuer)) {
		return statement.Issuer, e, false, ErrFull
	}
	n, err := s.add(a.Now(), e)
	return statement.Issuer, e, n > 0, err
}

// crowded tells whether a signer has as many entries as it may have.
func (s *Store) crowded(signer name.PeerID, listed bool) bool {
	all, own := s.set.Load().Count(signer)
	most := MaxOfHolder
	if listed {
		most = MaxOfIssuer
	}
	return own >= most || all >= MaxOfIssuers
}

func (s *Store) add(now time.Time, entries ...revocation.Entry) (added int, err error) {
	s.verify()
	if err := s.Unreadable(); err != nil {
		return 0, err
	}
	if !s.behind && !slices.ContainsFunc(entries, func(e revocation.Entry) bool { return !s.set.Load().Covers(e) }) {
		return 0, nil
	}
	kept := s.set.Load().Entries()
	for _, e := range entries {
		if slices.ContainsFunc(kept, func(r revocation.Entry) bool { return r.Covers(e) }) {
			continue
		}
		kept = append(slices.DeleteFunc(kept, e.Covers), e)
		added++
	}
	if !now.IsZero() {
		kept = slices.DeleteFunc(kept, func(r revocation.Entry) bool { return !r.Until.IsZero() && !now.Before(r.Until) })
	}
	if len(kept) > revocation.MaxEntries {
		return 0, ErrFull
	}
	next, b, err := made(kept...)
	if err != nil {
		return 0, err
	}
	return added, s.write(next, b)
}

// write replaces the set, then the file with its bytes. Where that fails, the set
// counts all the same: it only denies more.
func (s *Store) write(next *revocation.Set, b []byte) (err error) {
	s.set.Store(next)
	s.known = next
	if err := s.replace(s.file, b); err != nil {
		s.behind = true
		s.settle(sha256.Sum256(b))
		return fmt.Errorf("keep the revocation: %w", err)
	}
	s.written, s.behind = sha256.Sum256(b), false
	if s.seen, err = os.Lstat(s.file); err != nil {
		s.fail(err)
		return fmt.Errorf("keep the revocation: %w", err)
	}
	return nil
}

// settle finds out which of two contents a write that failed has left.
func (s *Store) settle(maybe [sha256.Size]byte) {
	b, err := ownerfile.Read(s.file, ownerfile.Trusted, revocation.MaxBytes)
	if err == nil && sha256.Sum256(b) == maybe {
		s.written = maybe
		if info, err := os.Lstat(s.file); err == nil {
			s.seen = info
		}
	}
}

// Restore looks again at a file that was not readable. If it is now, and has all that
// this Store ever accepted, it counts again, and restored is true.
func (s *Store) Restore() (restored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restore()
}

func (s *Store) restore() bool {
	if s.failed.Load() == nil {
		return false
	}
	s.load()
	return s.failed.Load() == nil
}

// Renew begins a new file in place of one that is not readable, which is kept under
// another name if it is there. Every lease that was issued before now, plus the skew
// of clocks, is revoked, besides what this Store has accepted. A file that is
// readable, such as one that was restored, is not touched, and counts again; begun is
// false then.
func (s *Store) Renew(now time.Time) (begun bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed.Load() == nil || s.restore() {
		return false, nil
	}
	all := revocation.Entry{IssuedBefore: now.Add(lease.DefaultSkew)}.Kept(now)
	before := s.known
	set, b, err := made(append(slices.DeleteFunc(before.Entries(), all.Covers), all)...)
	if err != nil {
		return false, err
	}
	aside := s.file + "." + now.UTC().Format("20060102T150405.000")
	if err := os.Rename(s.file, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("keep the old revocations: %w", err)
	}
	s.failed.Store(nil)
	if err := s.write(set, b); err != nil {
		s.fail(err)
		s.known = before
		return false, err
	}
	return true, nil
}

// Facts are an entry as records and people have it: "lease", "invocation", "holder",
// "issuer" and "issued-before", those that are set.
func Facts(e *revocation.Entry) map[string]string {
	out := map[string]string{}
	put := func(key string, set bool, value string) {
		if set {
			out[key] = value
		}
	}
	put("lease", !e.Lease.IsZero(), e.Lease.String())
	put("invocation", !e.Invocation.IsZero(), e.Invocation.String())
	put("holder", !e.Holder.IsZero(), e.Holder.String())
	put("issuer", !e.Issuer.IsZero(), e.Issuer.String())
	put("issued-before", !e.IssuedBefore.IsZero(), e.IssuedBefore.UTC().Format(time.RFC3339Nano))
	return out
}
