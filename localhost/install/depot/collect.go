package depot

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/protocol/name"
)

// Garbage is something in a depot that nothing needs.
type Garbage struct {
	Path  string // relative, with slashes
	Bytes int64  // of its files
}

// collector finds orphans: unfinished work of dead processes, and what was replaced
// or removed and no process holds any more. It never waits; what a live process has
// is left.
type collector struct {
	d      *Depot
	remove bool
	found  []Garbage
	kept   []*Damage
}

// Collect finds the orphans and removes them, or only finds them. What is damaged is left
// as it is, with all that it might need, and returned beside them; the rest goes on.
func (d *Depot) Collect(remove bool) ([]Garbage, []*Damage, error) {
	c := &collector{d: d, remove: remove}
	err := errors.Join(c.staging(), c.slots(), c.downloads())
	if remove {
		c.locks()
	}
	return c.found, c.kept, err
}

// sweep removes orphans. It never fails: what it cannot have now is left for the next
// time.
func (d *Depot) sweep() {
	_, kept, err := d.Collect(true)
	for _, k := range kept {
		err = errors.Join(err, k)
	}
	if err != nil {
		d.log.Warn().Str("problem", name.Show(strings.ReplaceAll(err.Error(), "\n", "; "))).Msg("store-sweep")
	}
}

// take is called for an orphan while its lock is held.
func (c *collector) take(rel string) error {
	g, err := c.d.weigh(rel)
	if err != nil {
		return err
	}
	c.found = append(c.found, g)
	if !c.remove {
		return nil
	}
	return artifact.Remove(c.d.root, rel)
}

func (c *collector) staging() error {
	all, err := filelock.Try(c.d.lockPath(stagingDir, "all"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	entries, err := fs.ReadDir(c.d.root.FS(), stagingDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, isLock := strings.CutSuffix(e.Name(), ".lock")
		rel := path.Join(stagingDir, base)
		if _, err := c.d.root.Lstat(rel); err == nil && isLock {
			continue // with its directory
		}
		l, err := filelock.Try(c.d.Path(rel + ".lock"))
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if !isLock {
			err = c.take(rel)
		}
		if c.remove && err == nil {
			err = c.d.root.Remove(rel + ".lock")
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) slots() (errs error) {
	for _, kind := range []string{Connectors, Runtimes} {
		owners, _, err := c.d.entries(kind)
		errs = errors.Join(errs, err)
		for _, owner := range owners {
			l, err := filelock.Try(c.d.lockPath(kind, owner))
			if err != nil {
				continue
			}
			slots, damaged := c.d.SlotsOf(kind, owner)
			c.kept = append(c.kept, damaged...)
			for _, sl := range slots {
				if err := c.slot(sl); err != nil {
					c.kept = append(c.kept, sl.Damaged(err))
				}
			}
			if c.remove {
				c.d.DropIfEmpty(path.Join(kind, owner))
			}
			_ = l.Close()
		}
	}
	return errs
}

// locks removes those of owners of which nothing is there. What cannot be had is left for
// the next time.
func (c *collector) locks() {
	entries, err := fs.ReadDir(c.d.root.FS(), locksDir)
	if err != nil {
		return
	}
	for _, e := range entries {
		kind, owner, ok := strings.Cut(e.Name(), "-")
		if !ok || kind != Connectors && kind != Runtimes || !c.d.gone(kind, owner) {
			continue
		}
		if l, err := c.d.TryLock(kind, owner); err == nil {
			_ = c.d.Unlock(l, kind, owner)
		}
	}
}

// downloads takes the archives of Connectors that are not there.
func (c *collector) downloads() (errs error) {
	for _, owner := range c.d.List(Downloads) {
		l, err := filelock.Try(c.d.lockPath(Connectors, owner))
		if err != nil {
			continue
		}
		if there, damaged := c.d.SlotsOf(Connectors, owner); len(there)+len(damaged) == 0 {
			errs = errors.Join(errs, c.take(path.Join(Downloads, owner)))
		}
		_ = l.Close()
	}
	return errs
}

// slot takes the directories that are not current and that nobody uses, and then the
// slot itself if nothing is left. The lock of the owner is held.
func (c *collector) slot(sl Slot) error {
	current, err := sl.Read()
	if err != nil && !errors.Is(err, ErrNotInstalled) {
		return err // do not touch what is not understood
	}
	dirs, _, err := sl.d.entries(sl.rel)
	if err != nil {
		return err
	}
	switch gone := current.Directory != "" && !slices.Contains(dirs, current.Directory); {
	case gone && current.Superseded && c.remove:
		return sl.Retire() // nothing starts from it any more
	case gone && !current.Superseded:
		return errGone // another one may be it, under another name
	case current.Superseded && !gone:
		if done, err := c.superseded(sl); done || err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if dir == current.Directory {
			continue
		}
		l, err := filelock.Try(sl.d.Path(sl.rel, dir, useFile))
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(c.take(path.Join(sl.rel, dir)), l.Close()); err != nil {
			return err
		}
	}
	if c.remove {
		c.halves(sl)
	}
	if current.Directory == "" && c.remove {
		sl.d.DropIfEmpty(sl.rel)
	}
	return nil
}

// halves removes receipts that a process which was killed had not written whole. The
// lock of the owner is held.
func (c *collector) halves(sl Slot) {
	entries, err := fs.ReadDir(c.d.root.FS(), sl.rel)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), atomicfile.Prefix) {
			_ = c.d.root.Remove(path.Join(sl.rel, e.Name()))
		}
	}
}

// superseded takes the whole slot, if what another version has replaced is used by
// nobody any more.
func (c *collector) superseded(sl Slot) (done bool, err error) {
	g, done, err := sl.RetireUnused(c.remove, func(r Receipt) (bool, error) { return r.Superseded, nil })
	if done {
		c.found = append(c.found, g)
	}
	return done, err
}

// weigh adds up the files below rel.
func (d *Depot) weigh(rel string) (Garbage, error) {
	g := Garbage{Path: rel}
	err := fs.WalkDir(d.root.FS(), rel, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			g.Bytes += info.Size()
		}
		return err
	})
	return g, err
}

const cacheUser = "npm"

// UseCache keeps the cache from being dropped until the lock is closed; others may
// use it too.
func (d *Depot) UseCache(ctx context.Context) (*filelock.Lock, error) {
	return filelock.Shared(ctx, d.lockPath(Cache, cacheUser))
}

// DropCache empties npm's cache, or only weighs it; ok is false if it is in use or
// there is nothing in it.
func (d *Depot) DropCache(remove bool) (g Garbage, ok bool, err error) {
	l, err := filelock.Try(d.lockPath(Cache, cacheUser))
	if errors.Is(err, filelock.ErrHeld) {
		return Garbage{}, false, nil
	}
	if err != nil {
		return Garbage{}, false, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if g, err = d.weigh(Cache); err != nil || g.Bytes == 0 {
		return Garbage{}, false, err
	}
	if !remove {
		return g, true, nil
	}
	err = errors.Join(artifact.Remove(d.root, Cache), d.root.Mkdir(Cache, 0o700))
	return g, err == nil, err
}
