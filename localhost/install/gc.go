package install

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/manifest"
)

// Garbage is something that nothing needs.
type Garbage struct {
	Kind  string // "runtime", "orphan" or "cache"
	Name  string // "node 22.1.0"; else the path in the store
	Bytes int64  // of its files
}

// CollectRuntimes removes the interpreters that no release runs on, and returns them
// with the first error, which ends it; remove false only finds them. One that a
// process holds stays, and so do npm and the newest node while a release came from
// npm: they repair it. A release of which nobody can tell what it runs on keeps all: it
// is returned apart, as is an interpreter that cannot be read.
func (s *Store) CollectRuntimes(ctx context.Context, remove bool, p Progress) (out []Garbage, kept []*Damage, err error) {
	if _, kept, err = s.needs(); err != nil || len(kept) > 0 {
		return nil, kept, err
	}
	slots, kept, err := s.depot.Slots(depot.Runtimes)
	for _, sl := range slots {
		l, err := s.depot.LockTelling(ctx, depot.Runtimes, sl.Owner(), p)
		if err != nil {
			return out, kept, fmt.Errorf("collect runtimes: %w", err)
		}
		p.tell("check "+sl.Owner()+" "+sl.Version(), 0, 0)
		g, ok, err := sl.RetireUnused(remove, s.unused)
		if ok {
			out = append(out, Garbage{"runtime", sl.Owner() + " " + sl.Version(), g.Bytes})
		}
		if err != nil && !errors.Is(err, ErrNotInstalled) {
			kept = append(kept, sl.Damaged(err))
		}
		s.depot.DropIfEmpty(path.Join(depot.Runtimes, sl.Owner()))
		if err := l.Close(); err != nil {
			return out, kept, fmt.Errorf("collect runtimes: %w", err)
		}
	}
	return out, kept, err
}

// needs are the receipts of all releases that are on disk, superseded or not, and those
// that cannot be read.
func (s *Store) needs() (all []depot.Receipt, damaged []*Damage, err error) {
	slots, damaged, err := s.depot.Slots(depot.Connectors)
	for _, sl := range slots {
		switch rec, err := sl.Read(); {
		case err == nil:
			all = append(all, rec)
		case !errors.Is(err, ErrNotInstalled):
			damaged = append(damaged, sl.Damaged(err))
		}
	}
	return all, damaged, err
}

// unused tells whether no release that is installed now needs a runtime.
func (s *Store) unused(rt depot.Receipt) (bool, error) {
	all, damaged, err := s.needs()
	if err != nil || len(damaged) > 0 {
		return false, err // it became so meanwhile: nobody knows
	}
	fromNPM := false
	for _, rec := range all {
		if rec.Runtime != nil && rt.Runtime != nil && *rec.Runtime == *rt.Runtime {
			return false, nil
		}
		fromNPM = fromNPM || rec.PackageDigest != ""
	}
	if !fromNPM || rt.Name != interpreter.Node && rt.Name != interpreter.NPM {
		return true, nil
	}
	newest, err := s.chooseRuntime(manifest.Runtime{Profile: rt.Name})
	if err != nil {
		return false, err
	}
	return rt.Runtime != nil && newest != *rt.Runtime, nil
}

// Collect removes what dead processes left behind, files of releases that were
// replaced or removed and that no process holds any more, archives that no release is
// made of, and npm's cache unless npm runs; remove false only finds them. Opening the
// store removes the first two as well, unless Config.AsIs. What cannot be read is
// returned apart: it keeps its files and archives, and nobody else's.
func (s *Store) Collect(ctx context.Context, remove bool, p Progress) ([]Garbage, []*Damage, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("collect garbage: %w", err)
	}
	p.tell("look for what nothing needs", 0, 0)
	orphans, kept, err := s.depot.Collect(remove)
	var out []Garbage
	for _, g := range orphans {
		out = append(out, Garbage{"orphan", strings.TrimSuffix(g.Path, "/"), g.Bytes})
	}
	archives, archivesErr := s.collectArchives(ctx, remove)
	out = append(out, archives...)
	cache, ok, cacheErr := s.depot.DropCache(remove)
	if ok {
		out = append(out, Garbage{"cache", cache.Path, cache.Bytes})
	}
	if err = errors.Join(err, archivesErr, cacheErr); err != nil {
		return out, kept, fmt.Errorf("collect garbage: %w", err)
	}
	return out, kept, nil
}
