package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/protocol/name"
)

// maxValues bounds what a store is listed for.
const maxValues = 1 << 16

// Rewrap puts the data keys under a new key of src, which may be the source in use.
// Values are not touched. The old source is needed. Stopped in the middle, the store
// has the old source or the new one.
func (s *Store) Rewrap(src Source) error {
	if err := src.check(); err != nil {
		return err
	}
	return s.locked("change key source", func() error {
		old, err := s.unlock()
		if err != nil {
			return err
		}
		if err := s.sweepKeyFiles(old.document); err != nil {
			return err
		}
		next := old.document
		next.Source = src.Kind
		var kek []byte
		if next.Wrap, kek, err = s.wrapping(src); err != nil {
			return err
		}
		if err := s.stop("made"); err != nil {
			return err
		}
		if err := next.wrapKeys(kek, old.document.order(), old.keys); err != nil {
			return err
		}
		// The source must give its key again before the old one goes.
		again, err := s.unwrapNew(next, kek)
		if err == nil && !bytes.Equal(again, kek) {
			err = ErrLocked
		}
		if err != nil {
			return fmt.Errorf("the new source does not give its key again: %w", err)
		}
		if err := s.write(next); err != nil {
			return err
		}
		if err := s.stop("written"); err != nil {
			return err
		}
		return errors.Join(s.adopt(kek), s.forget(old.document))
	})
}

// unwrapNew reads back what a source keeps; a passphrase is not asked for again.
func (s *Store) unwrapNew(d document, kek []byte) ([]byte, error) {
	if d.Source == Passphrase {
		return kek, nil
	}
	return s.unwrap(d)
}

// Rotate seals every value with a new data key and drops the old ones. If a value
// does not open, nothing is changed. Stopped in the middle, every value still opens,
// and the next Rotate goes on.
func (s *Store) Rotate() error {
	return s.locked("rotate data key", func() error {
		k, err := s.unlock()
		if err != nil {
			return err
		}
		all, err := s.all()
		if err != nil {
			return err
		}
		for _, p := range all {
			if _, err := s.get(p); err != nil {
				return fmt.Errorf("value %s of %s %s: %w", p.Name, p.Connector, p.Connection, err)
			}
		}
		if err := s.sweepKeyFiles(k.document); err != nil {
			return err
		}
		if len(k.keys) == 1 { // else an earlier one was stopped: go on with its key
			if k, err = s.addKey(k); err != nil {
				return err
			}
		}
		if err := s.stop("added"); err != nil {
			return err
		}
		for _, p := range all {
			if err := s.reseal(k, p); err != nil {
				return err
			}
			if err := s.stop("resealed"); err != nil {
				return err
			}
		}
		d := k.document
		d.Keys = d.Keys[len(d.Keys)-1:]
		if err := s.write(d); err != nil {
			return err
		}
		return s.stop("dropped")
	})
}

func (s *Store) addKey(k *unlocked) (*unlocked, error) {
	d, id := k.document, newID()
	keys := map[string][]byte{id: newKey()}
	for old, key := range k.keys {
		keys[old] = key
	}
	if err := d.wrapKeys(k.kek, append(d.order(), id), keys); err != nil {
		return nil, err
	}
	if err := s.write(d); err != nil {
		return nil, err
	}
	return s.unlock()
}

func (s *Store) reseal(k *unlocked, p Place) error {
	data, err := private.Read(s.path(p), maxSealed)
	if err != nil {
		return err
	}
	if id, _, err := keyOf(data); err == nil && id == k.current() {
		return nil
	}
	value, err := k.open(p, data)
	if err != nil {
		return err
	}
	return s.put(k, p, value)
}

// all lists the places that have a value, and removes what a write that was stopped
// left behind. The lock is held.
func (s *Store) all() ([]Place, error) {
	var places []Place
	err := filepath.WalkDir(s.values(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(s.values(), path)
		if err != nil {
			return err
		}
		parts := strings.Split(rel, string(filepath.Separator))
		leaf := parts[len(parts)-1]
		if strings.HasPrefix(leaf, ".new-") {
			return os.Remove(path) //nolint:gosec // the directory is the owner's alone; a link is removed, not followed
		}
		text, ok := strings.CutSuffix(leaf, sealedSuffix)
		if len(parts) != 3 || !ok {
			return fmt.Errorf("unknown file %s: %w", name.Quote(rel), ErrCorrupt)
		}
		p, err := parsePlace(parts[0], parts[1], text)
		if err != nil {
			return fmt.Errorf("unknown file %s: %w: %w", name.Quote(rel), ErrCorrupt, err)
		}
		if places = append(places, p); len(places) > maxValues {
			return fmt.Errorf("more than %d values: %w", maxValues, ErrInvalid)
		}
		return nil
	})
	return places, err
}

func parsePlace(connector, connection, label string) (p Place, err error) {
	if p.Connector, err = name.ParseConnectorKey(connector); err != nil {
		return Place{}, err
	}
	if p.Connection, err = name.ParseConnectionID(connection); err != nil {
		return Place{}, err
	}
	if p.Name, err = name.ParseLabel(label); err != nil {
		return Place{}, err
	}
	return p, nil
}

// sweepKeyFiles removes key files of a Rewrap that was stopped. Those in use, and
// nothing else than key files, stay. The store was unlocked, so d is the right one.
func (s *Store) sweepKeyFiles(d document) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, isKey := strings.CutPrefix(e.Name(), keyPrefix)
		id, hasSuffix := strings.CutSuffix(id, keySuffix)
		if !isKey || !hasSuffix || !idPattern.MatchString(id) || (d.Source == KeyFile && id == d.Wrap.ID) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) stop(step string) error {
	if s.testOnlyStop == nil {
		return nil
	}
	return s.testOnlyStop(step)
}
