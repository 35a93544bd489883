package connection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/removal"
	"github.com/lendcli/lend/protocol/name"
)

const (
	operationsDir = "operations"
	lockSuffix    = ".lock"
	gateFile      = "gate"
)

// Operations makes the private working directories of one live host. Several
// hosts may share a Root: each holds a file lock on its own part, and only parts
// whose lock is free are cleaned up. All methods are safe for concurrent use.
type Operations struct {
	root string // ROOT/operations
	part string // the name of this host's part
	lock *filelock.Lock
	left error // what the sweep could not remove

	rooms *home.Rooms

	once sync.Once
	err  error
}

// Operations removes the parts of hosts that are no longer alive, with the
// temporary files of all connections if no other host is, and makes the part of
// this one, under a name that no other host has or had. What cannot be removed later is
// told to problem, which may be nil. The caller must Close it.
func (r *Root) Operations(part string, problem func(error)) (*Operations, error) {
	if _, err := name.ParseLabel(part); err != nil {
		return nil, fmt.Errorf("open operations: %w", err)
	}
	root := filepath.Join(r.dir, operationsDir)
	if err := privateDir(root); err != nil {
		return nil, fmt.Errorf("open operations: %w", err)
	}
	// Between the making of a lock file and its locking, nobody may clean up.
	gate, err := lockFile(filepath.Join(root, gateFile))
	if err != nil {
		return nil, fmt.Errorf("open operations: %w", err)
	}
	defer func() { _ = gate.Close() }() // closing lets go
	left := r.sweep(root)
	lock, err := filelock.Try(filepath.Join(root, part+lockSuffix))
	if err != nil {
		return nil, fmt.Errorf("open operations: %w", err)
	}
	if err := os.Mkdir(filepath.Join(root, part), 0o700); err != nil {
		_ = lock.Close() // its file goes with the next sweep
		return nil, fmt.Errorf("open operations: %w", err)
	}
	return &Operations{
		root: root, part: part, lock: lock, left: left,
		rooms: home.NewRooms(filepath.Join(root, part), problem),
	}, nil
}

// Left returns why something of dead hosts could not be removed, or nil. It is
// tried again when the next host opens; for the owner's log.
func (o *Operations) Left() error { return o.left }

// sweep removes every part whose host is gone and, if none is left, the temporary
// files of all connections. The gate is held.
func (r *Root) sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("clean up operations: %w", err)
	}
	alone := true
	var errs []error
	for _, e := range entries {
		part, ok := strings.CutSuffix(e.Name(), lockSuffix)
		if !ok {
			continue
		}
		lock, err := filelock.Try(filepath.Join(root, e.Name()))
		if err != nil {
			alone = false
			if !errors.Is(err, filelock.ErrHeld) {
				errs = append(errs, err)
			}
			continue
		}
		// Let go first: an open file may not be removable, and the gate is held.
		if err = errors.Join(lock.Close(), removal.Tree(root, part)); err == nil {
			err = os.Remove(filepath.Join(root, e.Name()))
		}
		errs = append(errs, err)
	}
	if alone {
		errs = append(errs, r.sweepTemp())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up operations: %w", err)
	}
	return nil
}

// sweepTemp empties the temporary directories of all connections.
func (r *Root) sweepTemp() error {
	connectors, err := r.Connectors()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range connectors {
		all, err := r.List(key)
		if err != nil {
			continue // unsafe: Reconcile says so, and it must not stop the host
		}
		for _, c := range all {
			errs = append(errs, removal.Tree(c.dir, filepath.Base(c.Temp())), privateDir(c.Temp()))
		}
	}
	return errors.Join(errs...)
}

// Make returns the absolute path of an empty private directory that nobody else has,
// and in which nobody has left anything.
func (o *Operations) Make() (string, error) { return o.rooms.Plain() }

// Home returns directories for one operation, with a copy of c's home and state. It is
// home.ErrBusy while HoldHome is held; other errors are those of home.Copy.
func (o *Operations) Home(ctx context.Context, c *Connection) (home.Dirs, error) {
	return o.rooms.Home(ctx, c.Dirs(), c.shareHome)
}

// Remove takes back a directory that Make made, or that holds those of Home: it goes
// soon, with everything in it, unless nothing in it was touched. Links are removed, never
// followed.
func (o *Operations) Remove(dir string) error {
	err := o.rooms.Return(dir)
	if errors.Is(err, home.ErrUnknown) {
		return fmt.Errorf("remove operation directory: %w: %w", ErrInvalid, err)
	}
	return err
}

// InUse counts the directories that were handed out and are not taken back yet, or not
// looked at since.
func (o *Operations) InUse() int { return o.rooms.InUse() }

// Forget removes the copies of c's home that wait to be used.
func (o *Operations) Forget(c *Connection) { o.rooms.Forget(c.Dirs()) }

// Close removes what is left of this host's part, and lets go of it. It is
// idempotent and returns the same error each time; nothing may run any more.
func (o *Operations) Close() error {
	o.once.Do(func() { o.err = o.close() })
	return o.err
}

func (o *Operations) close() error {
	o.rooms.Close()
	defer func() { _ = o.lock.Close() }() // closing lets go
	gate, err := lockFile(filepath.Join(o.root, gateFile))
	if err != nil {
		return fmt.Errorf("close operations: %w", err)
	}
	defer func() { _ = gate.Close() }() // closing lets go
	if err := removal.Tree(o.root, o.part); err != nil {
		return fmt.Errorf("close operations: %w", err)
	}
	// Let go first: an open file may not be removable, and the gate is held.
	if err := errors.Join(o.lock.Close(), os.Remove(filepath.Join(o.root, o.part+lockSuffix))); err != nil {
		return fmt.Errorf("close operations: %w", err)
	}
	return nil
}
