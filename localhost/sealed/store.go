package sealed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
)

// Errors of this package. None of them holds a value or a key.
var (
	// ErrNotFound: there is no such value.
	ErrNotFound = errors.New("not found")
	// ErrExists: the store has a key source already.
	ErrExists = errors.New("already exists")
	// ErrNoSource: the owner has chosen no key source yet.
	ErrNoSource = errors.New("no key source is chosen")
	// ErrLocked: the key source is not available, or is not the one.
	ErrLocked = errors.New("secrets are locked")
	// ErrCorrupt: a file was changed, moved, or is of an unknown version.
	ErrCorrupt = errors.New("not what was sealed here")
	// ErrBlocked: a file or link is in the place of a directory of values; Put replaces it.
	ErrBlocked = errors.New("a file or link is in the place of a directory of secrets")
	// ErrInvalid: a name, a value or a source breaks the rules or a bound.
	ErrInvalid = errors.New("invalid")
)

// Store is one directory of sealed values.
type Store struct {
	dir          string // absolute
	ask          Ask
	keyring      keyringService
	cost         struct{ time, memory uint32 } // of a new passphrase
	turn         chan struct{}                 // one token: who unlocks, so that a start does not pay for each
	testOnlyStop func(step string) error       // nil, or what stops a rotation

	mu    sync.Mutex // guards cache
	cache *unlocked
}

// unlocked is key.json with its keys open; it is immutable.
type unlocked struct {
	document document
	raw      string // the file
	kek      []byte
	keys     map[string][]byte
}

func (k *unlocked) current() string { return k.document.Keys[len(k.document.Keys)-1].ID }

// Open makes dir, an absolute path whose parent exists, with mode 0700 unless it
// exists. A nil ask means that a passphrase cannot be had. Nothing is unlocked yet.
func Open(dir string, ask Ask) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("open sealed store: path is not absolute: %w", ErrInvalid)
	}
	s := &Store{dir: filepath.Clean(dir), ask: ask, keyring: systemKeyring{}, turn: make(chan struct{}, 1)}
	s.cost.time, s.cost.memory = passTime, passMemory
	for _, d := range []string{s.dir, s.values()} {
		if err := private.Dir(d); err != nil {
			return nil, fmt.Errorf("open sealed store: %w", err)
		}
	}
	return s, nil
}

func (s *Store) values() string { return filepath.Join(s.dir, "values") }

const sealedSuffix = ".sealed"

func (s *Store) path(p Place) string {
	return filepath.Join(s.values(), p.Connector.String(), p.Connection.String(), p.Name.String()+sealedSuffix)
}

// Create chooses the key source of a store that has none and no values; else ErrExists.
func (s *Store) Create(src Source) error {
	if err := src.check(); err != nil {
		return err
	}
	return s.locked("create key", func() error {
		if _, _, err := s.read(); !errors.Is(err, ErrNoSource) {
			return errors.Join(err, ErrExists)
		}
		w, kek, err := s.wrapping(src)
		if err != nil {
			return err
		}
		d := document{SchemaVersion: schemaVersion, Store: newID(), Source: src.Kind, Wrap: w}
		id := newID()
		if err := d.wrapKeys(kek, []string{id}, map[string][]byte{id: newKey()}); err != nil {
			return err
		}
		if err := s.write(d); err != nil {
			return err
		}
		return s.adopt(kek)
	})
}

// adopt unlocks the store with a wrapping key that was just made.
func (s *Store) adopt(kek []byte) error {
	d, raw, err := s.read()
	if err != nil {
		return err
	}
	keys, err := d.unwrapKeys(kek)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.cache = &unlocked{document: d, raw: string(raw), kek: kek, keys: keys}
	s.mu.Unlock()
	return nil
}

// Source returns the key source in use, without asking it for anything. It is
// ErrNoSource if the owner has chosen none, and ErrCorrupt if what says which it was is
// gone while there are values.
func (s *Store) Source() (Source, error) {
	d, _, err := s.read()
	if err != nil {
		return Source{}, err
	}
	return d.source(), nil
}

// Check tells whether the values can be had now: nil, ErrNoSource or ErrLocked.
func (s *Store) Check() error {
	_, err := s.unlock()
	return err
}

// Put stores a value of 1 to MaxValueBytes bytes. It is durable when Put returns.
func (s *Store) Put(p Place, value []byte) error {
	if err := p.check(); err != nil {
		return err
	}
	if len(value) == 0 || len(value) > MaxValueBytes {
		return fmt.Errorf("value: want 1 to %d bytes: %w", MaxValueBytes, ErrInvalid)
	}
	return s.locked("seal value", func() error {
		k, err := s.unlock()
		if err != nil {
			return err
		}
		return s.put(k, p, value)
	})
}

func (s *Store) put(k *unlocked, p Place, value []byte) error {
	data, err := k.seal(p, value)
	if err != nil {
		return err
	}
	path := s.path(p)
	for _, d := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path)} {
		if blocks(d) {
			if err := os.Remove(d); err != nil { // it holds no value of ours, wherever it leads
				return err
			}
		}
		if err := private.Dir(d); err != nil {
			return err
		}
		if err := atomicfile.SyncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, data)
}

// Get returns a value: ErrNotFound, ErrNoSource, ErrLocked or ErrCorrupt if it
// cannot. The caller owns the bytes.
func (s *Store) Get(p Place) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var value []byte
	var err error
	// A Rotate between the two readings takes the key away; then the value is new too.
	for range 3 {
		value, err = s.get(p)
		if !errors.Is(err, errUnknownKey) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open value: %w", err)
	}
	return value, nil
}

func (s *Store) get(p Place) ([]byte, error) {
	if err := s.Reachable(p); err != nil {
		return nil, err
	}
	data, err := private.Read(s.path(p), maxSealed)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotFound
	case errors.Is(err, private.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return nil, err
	}
	k, err := s.unlock()
	if err != nil {
		return nil, err
	}
	return k.open(p, data)
}

// Has tells whether there is a value, without opening it.
func (s *Store) Has(p Place) (bool, error) {
	if err := p.check(); err != nil {
		return false, err
	}
	if err := s.Reachable(p); err != nil {
		return false, err
	}
	_, err := os.Lstat(s.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Reachable is ErrBlocked where something else than a directory is in the place of that
// of the Connector's values or, if p names one, of its connection's.
func (s *Store) Reachable(p Place) error {
	connector := filepath.Join(s.values(), p.Connector.String())
	for _, dir := range []string{connector, filepath.Join(connector, p.Connection.String())} {
		if blocks(dir) {
			return fmt.Errorf("%w: %s", ErrBlocked, dir)
		}
	}
	return nil
}

// blocks tells whether something else than a directory is there.
func blocks(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && !info.IsDir()
}

// Delete removes a value; ErrNotFound if there is none. No key is needed.
func (s *Store) Delete(p Place) error {
	if err := p.check(); err != nil {
		return err
	}
	return s.locked("delete value", func() error {
		if err := s.Reachable(p); err != nil {
			return err
		}
		err := os.Remove(s.path(p))
		if errors.Is(err, fs.ErrNotExist) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		return atomicfile.SyncDir(filepath.Dir(s.path(p)))
	})
}

// DeleteAll removes all values of the connection of p, or of its Connector if it names no
// connection. Its Name does not matter.
func (s *Store) DeleteAll(p Place) error {
	if p.Connector.IsZero() {
		return fmt.Errorf("place of values: %w", ErrInvalid)
	}
	return s.locked("delete values", func() error {
		connector := filepath.Join(s.values(), p.Connector.String())
		info, err := os.Lstat(connector)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !info.IsDir() { // a link, say, to the values of another one
			return errors.Join(os.Remove(connector), atomicfile.SyncDir(s.values()))
		}
		if err := os.RemoveAll(filepath.Join(connector, p.Connection.String())); err != nil { // it follows no link
			return err
		}
		if err := os.Remove(connector); err == nil || errors.Is(err, fs.ErrNotExist) { // nothing else was in it
			return atomicfile.SyncDir(s.values())
		}
		return atomicfile.SyncDir(connector)
	})
}

// Sweep removes what processes that were killed have left: files that are not written
// whole, and directories in which no value is. While another one writes, nothing.
func (s *Store) Sweep() error {
	lock, err := filelock.Try(filepath.Join(s.dir, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep sealed store: %w", err)
	}
	err = errors.Join(atomicfile.Sweep(s.dir), sweepValues(s.values(), 2), lock.Close())
	if err != nil {
		return fmt.Errorf("sweep sealed store: %w", err)
	}
	return nil
}

// sweepValues sweeps a directory with levels of directories in it: of Connectors, and of
// connections.
func sweepValues(dir string, levels int) error {
	if levels == 0 {
		return atomicfile.Sweep(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if sub := filepath.Join(dir, e.Name()); e.IsDir() {
			err = errors.Join(err, sweepValues(sub, levels-1))
			_ = os.Remove(sub) // if it is empty
		}
	}
	return err
}

// lockWait bounds how long another process of ours is waited for.
const lockWait = 30 * time.Second

// locked runs f while no other process or goroutine writes.
func (s *Store) locked(what string, f func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	lock, err := filelock.Exclusive(ctx, filepath.Join(s.dir, "lock"))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = lock.Close() }() // closing lets go
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// unlock returns the keys of key.json as it is now.
func (s *Store) unlock() (*unlocked, error) {
	d, raw, err := s.read()
	if err != nil {
		return nil, err
	}
	if k := s.cached(); k != nil && k.raw == string(raw) {
		return k, nil
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	k := s.cached()
	if k != nil && k.raw == string(raw) {
		return k, nil
	}
	next := &unlocked{document: d, raw: string(raw)}
	if k != nil && k.document.sameWrap(d) {
		next.kek = k.kek // the data keys changed, the source did not
	} else if next.kek, err = s.unwrap(d); err != nil {
		return nil, err
	}
	if next.keys, err = d.unwrapKeys(next.kek); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.cache = next
	s.mu.Unlock()
	return next, nil
}

func (s *Store) cached() *unlocked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache
}
