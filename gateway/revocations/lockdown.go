package revocations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/protocol/name"
)

const (
	markHead = "lend lockdown 1"
	maxMark  = 4 << 10
)

// LockdownError says that the owner has stopped everything.
type LockdownError struct {
	// Since is zero, and Why empty, if the mark does not say.
	Since time.Time
	Why   string // the owner's words, printable
}

func (e *LockdownError) Error() string {
	s := "lockdown"
	if !e.Since.IsZero() {
		s += " since " + e.Since.Format(time.RFC3339)
	}
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// Lockdown returns the lockdown, nil if there is none.
func (s *Store) Lockdown() *LockdownError { return s.locked.Load() }

// Lock begins a lockdown: at once, and on disk when it returns without an error. One
// that is there stays as it is. why is printable ASCII, at most name.MaxQuoted bytes.
// spec: REVOKE-16.
func (s *Store) Lock(now time.Time, why string) error {
	if name.Show(why) != why {
		return fmt.Errorf("lockdown: want a reason of printable ASCII, at most %d bytes", name.MaxQuoted)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	l := s.locked.Load()
	if _, err := os.Lstat(s.mark); l != nil && err == nil {
		return nil
	}
	if l == nil { // else one that could not be written
		l = &LockdownError{Since: now.UTC().Truncate(time.Millisecond), Why: why}
		s.locked.Store(l)
	}
	text := fmt.Sprintf("%s\nsince %s\nwhy %s\n", markHead, l.Since.Format(time.RFC3339Nano), l.Why)
	if err := s.replace(s.mark, []byte(text)); err != nil {
		return fmt.Errorf("keep the lockdown: %w", err)
	}
	return nil
}

// Unlock ends a lockdown; it tells whether there was one.
func (s *Store) Unlock() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := os.Remove(s.mark)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return true, fmt.Errorf("end the lockdown: %w", err)
	}
	if d, err := os.Open(filepath.Dir(s.mark)); err == nil {
		_ = d.Sync() // a mark that comes back after a crash locks again: that is safe
		_ = d.Close()
	}
	return s.locked.Swap(nil) != nil || err == nil, nil
}

// look notices the mark of a lockdown. If it cannot be told whether there is one,
// there is; that it is gone ends none. spec: REVOKE-16.
func (s *Store) look() {
	if s.locked.Load() != nil {
		return
	}
	if _, err := os.Lstat(s.mark); !errors.Is(err, os.ErrNotExist) {
		s.locked.Store(readMark(s.mark))
	}
}

// readMark reads what a mark says: one that cannot be read says nothing, and counts all
// the same.
func readMark(file string) *LockdownError {
	l := new(LockdownError)
	b, _ := ownerfile.Read(file, ownerfile.Trusted, maxMark)
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "since":
			l.Since, _ = time.Parse(time.RFC3339Nano, value)
		case "why":
			l.Why = name.Show(value)
		}
	}
	return l
}
