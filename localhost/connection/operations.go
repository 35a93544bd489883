package connection

import (
	"crypto/rand"
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

	// madeAhead is how many directories wait to be used: making one can take as
	// long as starting a process (0.8 ms was measured on a large ext4).
	madeAhead = 4
)

// Operations makes the private working directories of one live host. Several
// hosts may share a Root: each holds a file lock on its own part, and only parts
// whose lock is free are cleaned up. All methods are safe for concurrent use.
type Operations struct {
	root string // ROOT/operations
	part string // the name of this host's part
	lock *filelock.Lock
	left error // what the sweep could not remove

	ready chan string   // directories made ahead; see fill
	homes chan string   // the same, with the directories of home.In
	stop  chan struct{} // closed by Close
	done  chan struct{} // closed when fill has returned
	once  sync.Once
	err   error
}

// Operations removes the parts of hosts that are no longer alive, with the
// temporary files of all connections if no other host is, and makes the part of
// this one, under a name that no other host has or had. The caller must Close it.
func (r *Root) Operations(part string) (*Operations, error) {
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
	o := &Operations{
		root: root, part: part, lock: lock, left: left,
		ready: make(chan string, madeAhead), homes: make(chan string, madeAhead), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go o.fill()
	return o, nil
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

// Make returns the absolute path of an empty private directory that nobody else
// has or had.
func (o *Operations) Make() (string, error) {
	select {
	case dir := <-o.ready:
		return dir, nil
	default:
		return o.mkdir()
	}
}

// MakeHome is Make with the empty directories of home.In.
func (o *Operations) MakeHome() (string, error) {
	select {
	case dir := <-o.homes:
		return dir, nil
	default:
		return o.mkdirHome()
	}
}

func (o *Operations) mkdirHome() (string, error) {
	dir, err := o.mkdir()
	if err != nil {
		return "", err
	}
	if err := home.In(dir).Make(); err != nil {
		return "", fmt.Errorf("make operation directory: %w", err) // it goes with the host
	}
	return dir, nil
}

func (o *Operations) mkdir() (string, error) {
	dir := filepath.Join(o.root, o.part, rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make operation directory: %w", err)
	}
	return dir, nil
}

// fill makes directories ahead until Close. If it cannot, Make says why.
func (o *Operations) fill() {
	defer close(o.done)
	var plain, withHome string
	var err error
	for {
		if plain == "" {
			plain, err = o.mkdir()
		}
		if withHome == "" && err == nil {
			withHome, err = o.mkdirHome()
		}
		if err != nil {
			return
		}
		select {
		case o.ready <- plain:
			plain = ""
		case o.homes <- withHome:
			withHome = ""
		case <-o.stop:
			return
		}
	}
}

// Remove deletes a directory that Make made, with everything in it; links are
// removed, never followed.
func (o *Operations) Remove(dir string) error {
	parent, leaf := filepath.Join(o.root, o.part), filepath.Base(dir)
	if dir != filepath.Join(parent, leaf) || leaf == "." || leaf == ".." {
		return fmt.Errorf("remove operation directory: %w", ErrInvalid)
	}
	if err := removal.Tree(parent, leaf); err != nil {
		return fmt.Errorf("remove operation directory: %w", err)
	}
	return nil
}

// Close removes what is left of this host's part, and lets go of it. It is
// idempotent and returns the same error each time; nothing may run any more.
func (o *Operations) Close() error {
	o.once.Do(func() { o.err = o.close() })
	return o.err
}

func (o *Operations) close() error {
	close(o.stop)
	<-o.done
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
