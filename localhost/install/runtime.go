package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
	"golang.org/x/mod/semver"
)

// RuntimeSource is an interpreter to add; see interpreter.Source.
type RuntimeSource = interpreter.Source

// Runtime is an installed interpreter.
type Runtime struct {
	Name, Version string
	Target        string // "linux-x64"
	ABI           string // "node22-linux-x64"
	Digest        string // of its tree, 64 lower-case hexadecimal digits
	Path          string // absolute path of what runs; Launch verifies it
}

// AddRuntime installs an interpreter. What is there already in the same content is
// left alone. A version that is there with another content is replaced: releases
// that ran on it must be added again.
func (s *Store) AddRuntime(ctx context.Context, src RuntimeSource, p Progress) (Runtime, error) {
	r, err := s.addRuntime(ctx, src, p)
	if err != nil {
		return Runtime{}, fmt.Errorf("add runtime %s: %w", name.Quote(src.Name), err)
	}
	return r, nil
}

func (s *Store) addRuntime(ctx context.Context, src RuntimeSource, p Progress) (Runtime, error) {
	g, err := s.depot.Stage(ctx)
	if err != nil {
		return Runtime{}, err
	}
	defer g.Drop()
	rt, err := src.Lay(ctx, interpreter.Place{Dir: g.Path(), Tree: g.Path(runtimeTree), Registry: s.registry(), Progress: p.at})
	if err != nil {
		return Runtime{}, err
	}
	p.tell("verify "+src.Name, 0, 0)
	snap, err := artifact.Open(g.Path(runtimeTree), artifact.RuntimeLimits())
	if err != nil {
		return Runtime{}, err
	}
	if _, _, ok := snap.File(rt.Exec); !ok {
		return Runtime{}, fmt.Errorf("it holds no %s", rt.Exec)
	}
	rt.Digest = snap.Digest()
	if err := s.ask(ctx, g, rt, snap); err != nil {
		return Runtime{}, err
	}
	l, err := s.depot.LockTelling(ctx, depot.Runtimes, src.Name, p)
	if err != nil {
		return Runtime{}, err
	}
	defer func() { _ = l.Close() }()
	sl := s.depot.Slot(depot.Runtimes, rt.Name, rt.Version)
	old, err := sl.Read()
	if err == nil && old.Runtime != nil && *old.Runtime == rt && s.fullCheckRuntime(sl, old) == nil {
		return s.runtimeFrom(sl, old), nil
	}
	if err := sl.Publish(g, depot.Receipt{Name: rt.Name, Version: rt.Version, Runtime: &rt}); err != nil {
		return Runtime{}, err
	}
	r, err := sl.Read()
	if err != nil {
		return Runtime{}, err
	}
	s.cfg.Log.Info().Str("runtime", rt.Name).Str("version", rt.Version).Msg("runtime-added")
	return s.runtimeFrom(sl, r), nil
}

// AddNode installs the managed node and npm, each unless it is there.
func (s *Store) AddNode(ctx context.Context, p Progress) ([]Runtime, error) {
	var out []Runtime
	for _, n := range []string{interpreter.Node, interpreter.NPM} {
		if _, version, _, ok := interpreter.Tried(n); ok {
			if r, err := s.depot.Slot(depot.Runtimes, n, version).Read(); err == nil && r.Runtime != nil {
				out = append(out, s.runtimeFrom(s.depot.Slot(depot.Runtimes, n, version), r))
				continue
			}
		}
		r, err := s.AddRuntime(ctx, RuntimeSource{Name: n}, p)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// ask has an interpreter that brought its library confirm what it is. It changes
// nothing of what was hashed.
func (s *Store) ask(ctx context.Context, g *depot.Staging, rt depot.Runtime, snap *artifact.Snapshot) error {
	if err := os.Mkdir(g.Path(scratchDir), 0o700); err != nil {
		return err
	}
	if err := interpreter.Ask(ctx, s.cfg.Runner, rt, snap.Dir(), g.Path(scratchDir)); err != nil {
		return err
	}
	return errors.Join(snap.Verify(), g.Remove(scratchDir))
}

func (s *Store) registry() npm.Registry {
	return npm.Registry{Base: s.cfg.Registry, CAFile: s.cfg.CAFile, Proxy: s.cfg.Proxy}
}

// Runtimes lists what is installed, by name and falling version.
func (s *Store) Runtimes() ([]Runtime, error) {
	var out []Runtime
	slots, damaged, errs := s.depot.Slots(depot.Runtimes)
	for _, d := range damaged {
		errs = errors.Join(errs, d)
	}
	for _, sl := range slots {
		r, err := sl.Read()
		switch {
		case errors.Is(err, ErrNotInstalled):
		case err != nil || r.Runtime == nil:
			errs = errors.Join(errs, sl.Damaged(errors.Join(err, ErrTampered)))
		default:
			out = append(out, s.runtimeFrom(sl, r))
		}
	}
	slices.SortStableFunc(out, func(a, b Runtime) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return semver.Compare("v"+b.Version, "v"+a.Version)
	})
	return out, errs
}

func (s *Store) runtimeFrom(sl depot.Slot, r depot.Receipt) Runtime {
	return Runtime{
		Name: r.Name, Version: r.Version, Target: r.Runtime.Target, ABI: interpreter.ABI(*r.Runtime), Digest: r.Runtime.Digest,
		Path: sl.Tree(r, runtimeTree, r.Runtime.Exec),
	}
}

// chooseRuntime finds the newest installed one that fits, and returns its receipt.
func (s *Store) chooseRuntime(want manifest.Runtime) (depot.Runtime, error) {
	all, err := s.Runtimes()
	for _, r := range all {
		if r.Name == want.Profile && want.Range.Accepts(r.Version) && r.Target == interpreter.Target() && (want.ABI == "" || want.ABI == r.ABI) {
			rec, err := s.depot.Slot(depot.Runtimes, r.Name, r.Version).Read()
			if err != nil || rec.Runtime == nil {
				return depot.Runtime{}, errors.Join(ErrNoRuntime, err)
			}
			return *rec.Runtime, nil
		}
	}
	which := strings.Join(strings.Fields(want.Profile+" "+want.Range.String()+" "+want.ABI), " ")
	return depot.Runtime{}, errors.Join(fmt.Errorf("%w: %s is needed: lend runtime add %s", ErrNoRuntime, which, want.Profile), err)
}
