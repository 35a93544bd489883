package install

import (
	"errors"
	"fmt"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/internal/filelock"
)

// heldRuntime is a hashed interpreter that stays on disk until it is let go.
type heldRuntime struct {
	exec string // absolute
	snap *artifact.Snapshot
	lock *filelock.Lock
}

// holdRuntime opens exactly the runtime that want names, verified. A runtime that
// this process has hashed before is compared by identity, not hashed again.
func (s *Store) holdRuntime(want depot.Runtime) (_ heldRuntime, err error) {
	sl := s.depot.Slot(depot.Runtimes, want.Name, want.Version)
	r, l, err := sl.Use()
	if errors.Is(err, ErrNotInstalled) {
		return heldRuntime{}, fmt.Errorf("%w: %s %s was removed", ErrNoRuntime, want.Name, want.Version)
	}
	if err != nil {
		return heldRuntime{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if r.Runtime == nil || *r.Runtime != want {
		return heldRuntime{}, fmt.Errorf("%w: %s %s was replaced: add the Connector again", ErrNoRuntime, want.Name, want.Version)
	}
	snap, err := s.hashedRuntime(sl.Tree(r, runtimeTree))
	if err != nil {
		return heldRuntime{}, tampered(want.Name, want.Version, err)
	}
	exec, _, ok := snap.File(want.Exec)
	if !ok || snap.Digest() != want.Digest {
		return heldRuntime{}, tampered(want.Name, want.Version, errors.New("the tree digest differs"))
	}
	return heldRuntime{exec, snap, l}, nil
}

// hashedRuntime returns the snapshot of a directory, hashed once per process.
// Directories are never used twice, so a snapshot of one that is gone only fails.
func (s *Store) hashedRuntime(dir string) (*artifact.Snapshot, error) {
	s.mu.Lock()
	snap := s.runtimes[dir]
	s.mu.Unlock()
	if snap != nil {
		return snap, snap.Verify()
	}
	snap, err := artifact.Open(dir, artifact.RuntimeLimits())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtimes[dir] = snap
	return snap, nil
}

// fullCheckRuntime hashes a runtime again, whatever was hashed before.
func (s *Store) fullCheckRuntime(sl depot.Slot, r depot.Receipt) error {
	snap, err := artifact.Open(sl.Tree(r, runtimeTree), artifact.RuntimeLimits())
	if err != nil {
		return tampered(r.Name, r.Version, err)
	}
	if r.Runtime == nil || snap.Digest() != r.Runtime.Digest {
		return tampered(r.Name, r.Version, errors.New("the tree digest differs"))
	}
	return nil
}

// tampered says that the bytes of something installed are not what they were. What
// cannot be read cannot be trusted either.
func tampered(name, version string, err error) error {
	return fmt.Errorf("%s %s: %w: %w", name, version, ErrTampered, err)
}
