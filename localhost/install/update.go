package install

import (
	"context"
	"errors"
	"fmt"

	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/protocol/name"
)

// Errors of Update, for errors.Is.
var (
	// ErrOtherConnector: the source is of another Connector than the one to update.
	ErrOtherConnector = errors.New("the source is another Connector")
	// ErrSeveral: several versions are installed, and none was named.
	ErrSeveral = errors.New("several versions are installed")
)

// Replacement is a release that is to take the place of an installed one.
type Replacement struct {
	Source
	Key  name.ConnectorKey
	From name.Version // the version to replace; zero is the only other one
	// Switch makes the new release the one that is used: a running host publishes its
	// routes. It is called when everything is on disk and verified, and both releases
	// are current; its error takes the new one away again. Nil does nothing.
	Switch func(ctx context.Context, r Release) error
}

// Update installs a new version beside an installed one, tries whether it could start,
// has Switch make it the one that is used, and then marks the old one as superseded:
// nothing starts from it any more, and it goes when no process uses it. It is one
// transaction: after an error, and after a crash at any step before the mark, the old
// release is current as it was; a crash in between can leave both. from is the version
// that was replaced, zero if the new one was the only one already. Errors are those of
// Add, ErrNotInstalled, ErrOtherConnector, ErrSeveral, and those of Switch.
func (s *Store) Update(ctx context.Context, u Replacement, p Progress) (now Release, from name.Version, err error) {
	now, from, err = s.update(ctx, u, p)
	if err != nil {
		return Release{}, name.Version{}, fmt.Errorf("update connector %s: %w", u.Key, err)
	}
	return now, from, nil
}

func (s *Store) update(ctx context.Context, u Replacement, p Progress) (_ Release, from name.Version, err error) {
	in, err := s.bring(ctx, u.Source, p)
	if err != nil {
		return Release{}, name.Version{}, err
	}
	defer in.Drop()
	if in.manifest.Key != u.Key {
		return Release{}, name.Version{}, fmt.Errorf("%w: %s", ErrOtherConnector, in.rec.Name)
	}
	l, err := s.depot.LockTelling(ctx, depot.Connectors, in.rec.Name, p)
	if err != nil {
		return Release{}, name.Version{}, err
	}
	defer func() { _ = l.Close() }()
	defer func() {
		if err != nil {
			s.dropUnused(ctx, u.Key)
		}
	}()
	if from, err = s.replaced(u, in.manifest.Version); err != nil {
		return Release{}, name.Version{}, err
	}
	next, err := s.place(ctx, in, p)
	if err != nil {
		return Release{}, name.Version{}, err
	}
	if err := s.takeOver(ctx, u, next.release, from, p); err != nil {
		if undone := next.undo(); undone != nil {
			err = errors.Join(err, fmt.Errorf("take %s away again: %w", in.rec.Version, undone))
		}
		return Release{}, name.Version{}, err
	}
	s.keepArchive(ctx, next.release)
	s.cfg.Log.Info().Str("connector", in.rec.Name).Str("version", in.rec.Version).Str("digest", in.rec.ReleaseDigest).
		Str("from", from.String()).Msg("connector-updated")
	return next.release, from, nil
}

// replaced finds the version that gives way to next; zero if next is the only one.
func (s *Store) replaced(u Replacement, next name.Version) (name.Version, error) {
	var others []name.Version
	there := false
	versions, err := s.Versions(u.Key)
	if err != nil {
		return name.Version{}, err
	}
	for _, v := range versions {
		rec, err := s.depot.Slot(depot.Connectors, u.Key.String(), v.String()).Read()
		switch {
		case err == nil && rec.Superseded:
		case v == next:
			there = true // if it cannot be read, this repairs it
		case u.From.IsZero() || v == u.From:
			others = append(others, v)
		}
	}
	switch {
	case len(others) > 1:
		return name.Version{}, fmt.Errorf("%w: name the one to replace", ErrSeveral)
	case len(others) == 1:
		return others[0], nil
	case there && u.From.IsZero():
		return name.Version{}, nil
	}
	return name.Version{}, ErrNotInstalled
}

// takeOver makes next the release that is used instead of from. The lock of the
// Connector is held.
func (s *Store) takeOver(ctx context.Context, u Replacement, next Release, from name.Version, p Progress) error {
	p.tell("try "+next.Manifest.Key.String()+" "+next.Manifest.Version.String(), 0, 0)
	launch, err := s.Launch(next) // what a host does to publish it: every byte is hashed
	if err != nil {
		return err
	}
	defer func() { _ = launch.Close() }() // a lock of a file, only read
	failpoint.Hit("tried")
	if u.Switch != nil {
		if err := u.Switch(ctx, next); err != nil {
			return fmt.Errorf("make it current: %w", err)
		}
	}
	failpoint.Hit("switched")
	if from.IsZero() {
		return nil
	}
	sl := s.depot.Slot(depot.Connectors, u.Key.String(), from.String())
	if _, err := sl.Read(); err != nil && broken(err) { // nobody can tell what would drain
		return sl.Retire()
	}
	if err := sl.Supersede(true); err != nil {
		return fmt.Errorf("retire %s: %w", from, errors.Join(err, sl.Supersede(false)))
	}
	if err := sl.Sweep(); err != nil {
		s.cfg.Log.Warn().Str("problem", name.Show(err.Error())).Msg("store-sweep") // it goes next time
	}
	return nil
}

// Superseded tells whether a release is one that an update has replaced and that is
// still on disk: what runs of it may end by itself. What cannot be read is not.
func (s *Store) Superseded(key name.ConnectorKey, version name.Version, digest string) bool {
	if key.IsZero() || version.IsZero() {
		return false
	}
	rec, err := s.depot.Slot(depot.Connectors, key.String(), version.String()).Read()
	return err == nil && rec.Superseded && rec.ReleaseDigest == digest
}
