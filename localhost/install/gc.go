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
// npm: they repair it. A release that cannot be read keeps all.
func (s *Store) CollectRuntimes(ctx context.Context, remove bool, p Progress) ([]Garbage, error) {
	var out []Garbage
	for _, n := range s.depot.List(depot.Runtimes) {
		l, err := s.depot.Lock(ctx, depot.Runtimes, n)
		if err != nil {
			return out, fmt.Errorf("collect runtimes: %w", err)
		}
		for _, v := range s.depot.List(path.Join(depot.Runtimes, n)) {
			p.tell("check "+n+" "+v, 0, 0)
			g, ok, e := s.depot.Slot(depot.Runtimes, n, v).RetireUnused(remove, s.unused)
			if ok {
				out = append(out, Garbage{"runtime", n + " " + v, g.Bytes})
			}
			if e != nil && !errors.Is(e, ErrNotInstalled) {
				err = errors.Join(err, fmt.Errorf("%s %s: %w", n, v, e))
			}
		}
		s.depot.DropIfEmpty(path.Join(depot.Runtimes, n))
		if err = errors.Join(err, l.Close()); err != nil {
			return out, fmt.Errorf("collect runtimes: %w", err)
		}
	}
	return out, nil
}

// unused tells whether no release that is installed now needs a runtime.
func (s *Store) unused(rt depot.Receipt) (bool, error) {
	fromNPM := false
	for _, key := range s.depot.List(depot.Connectors) {
		for _, version := range s.depot.List(path.Join(depot.Connectors, key)) {
			rec, err := s.depot.Slot(depot.Connectors, key, version).Read()
			switch {
			case errors.Is(err, ErrNotInstalled):
			case err != nil:
				return false, fmt.Errorf("connector %s %s: %w", key, version, err)
			case rec.Runtime != nil && rt.Runtime != nil && *rec.Runtime == *rt.Runtime:
				return false, nil
			default:
				fromNPM = fromNPM || rec.PackageDigest != ""
			}
		}
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
// store removes the first two as well, unless Config.AsIs.
func (s *Store) Collect(ctx context.Context, remove bool, p Progress) ([]Garbage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("collect garbage: %w", err)
	}
	p.tell("look for what nothing needs", 0, 0)
	orphans, err := s.depot.Collect(remove)
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
		return out, fmt.Errorf("collect garbage: %w", err)
	}
	return out, nil
}
