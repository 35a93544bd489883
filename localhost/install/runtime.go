package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
	"golang.org/x/mod/semver"
)

// RuntimeSource is an interpreter to add: the managed "node" or "npm", or another
// by its executable.
type RuntimeSource struct {
	Name string // an identifier: "node", "npm", "python3"
	// Version is x.y.z. "" means the tried one of node and npm, and 0.0.0 of others.
	Version string
	// Integrity is that of the package of node or npm; it may be "" for the version
	// that was tried.
	Integrity string
	// File is the absolute path of that package's tarball; "" fetches it.
	File string
	// Exec is the absolute path of the executable to copy, for all but node and npm.
	Exec string
}

// Runtime is an installed interpreter.
type Runtime struct {
	Name, Version string
	Target        string // "linux-x64"
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
	if _, err := name.ParseCommand(src.Name); err != nil || manifest.CheckPath(src.Name) != nil {
		return Runtime{}, errors.New("want a name such as \"node\" or \"python3\"")
	}
	g, err := s.depot.Stage(ctx)
	if err != nil {
		return Runtime{}, err
	}
	defer g.Drop()
	var rt depot.Runtime
	if src.Name == nodeRuntime || src.Name == npmRuntime {
		rt, err = s.unpackManaged(ctx, g, src, p)
	} else {
		rt, err = s.copyExecutable(ctx, g, src, p)
	}
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
	l, err := s.depot.Lock(ctx, depot.Runtimes, src.Name)
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
	for _, n := range []string{nodeRuntime, npmRuntime} {
		if t, ok := managed(n, target()); ok {
			if r, err := s.depot.Slot(depot.Runtimes, n, t.version).Read(); err == nil && r.Runtime != nil {
				out = append(out, s.runtimeFrom(s.depot.Slot(depot.Runtimes, n, t.version), r))
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

// unpackManaged brings a managed runtime's package into the staging tree.
func (s *Store) unpackManaged(ctx context.Context, g *depot.Staging, src RuntimeSource, p Progress) (depot.Runtime, error) {
	if src.Exec != "" {
		return depot.Runtime{}, errors.New("node and npm come from their packages: an executable of this system is never used")
	}
	t, ok := managed(src.Name, target())
	if !ok {
		return depot.Runtime{}, fmt.Errorf("there is no managed runtime for %s", target())
	}
	if src.Version != "" && src.Version != t.version {
		t.version, t.integrity = src.Version, ""
	}
	if src.Integrity != "" {
		t.integrity = src.Integrity
	}
	if t.integrity == "" {
		return depot.Runtime{}, fmt.Errorf("give the integrity of %s@%s: only %s's tried version has a known one", t.pkg, t.version, src.Name)
	}
	want, err := npm.ParseIntegrity(t.integrity)
	if err != nil {
		return depot.Runtime{}, err
	}
	if err := manifest.CheckPackage(t.pkg, t.version); err != nil {
		return depot.Runtime{}, err
	}
	file, err := s.tarballOf(ctx, g, t, want, src.File, p)
	if err != nil {
		return depot.Runtime{}, err
	}
	stage := p.at("unpack " + src.Name)
	err = artifact.Import(ctx, file, g.Path(runtimeTree), artifact.Options{
		Limits: artifact.RuntimeLimits(), Strip: 1, Skip: t.skip,
		Inspect:  func(fs.FS) ([]string, error) { return []string{t.exec}, nil },
		Progress: func(done int64) { stage(done, 0) },
	})
	if err != nil {
		return depot.Runtime{}, err
	}
	return depot.Runtime{Name: src.Name, Version: t.version, Exec: t.exec, Target: target()}, g.Remove(tarballFile)
}

const tarballFile = "package.tgz"

// tarballOf returns a verified file in the staging directory: what is unpacked are
// the bytes that were hashed.
func (s *Store) tarballOf(ctx context.Context, g *depot.Staging, t tarball, want npm.Integrity, local string, p Progress) (string, error) {
	at := g.Path(tarballFile)
	f, err := os.OpenFile(at, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if local == "" {
		if s.cfg.Registry == "" {
			return "", ErrNoRegistry
		}
		return at, npm.Fetch(ctx, s.registry(), t.pkg, t.version, want, f, p.at("fetch "+t.pkg))
	}
	if !filepath.IsAbs(local) {
		return "", errors.New("the tarball's path must be absolute")
	}
	in, err := os.Open(local)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	return at, npm.CopyFile(in, want, f)
}

func (t tarball) skip(p string) bool {
	if t.keep == nil {
		return false
	}
	return !slices.ContainsFunc(t.keep, func(k string) bool { return k == p || strings.HasPrefix(k, p+"/") || strings.HasPrefix(p, k+"/") })
}

func (s *Store) registry() npm.Registry {
	return npm.Registry{Base: s.cfg.Registry, CAFile: s.cfg.CAFile, Proxy: s.cfg.Proxy}
}

func (s *Store) copyExecutable(ctx context.Context, g *depot.Staging, src RuntimeSource, p Progress) (depot.Runtime, error) {
	if src.Exec == "" || !filepath.IsAbs(src.Exec) || src.File != "" || src.Integrity != "" {
		return depot.Runtime{}, errors.New("give the absolute path of its executable: --exec PATH")
	}
	if src.Version == "" {
		src.Version = "0.0.0"
	}
	if !manifest.ExactVersion(src.Version) {
		return depot.Runtime{}, errors.New("want a version such as 3.11.2")
	}
	exec := "bin/" + src.Name
	stage := p.at("copy " + src.Name)
	err := artifact.ImportFile(ctx, src.Exec, g.Path(runtimeTree), exec, artifact.Options{
		Limits: artifact.RuntimeLimits(), Progress: func(done int64) { stage(done, 0) },
		Inspect: func(tree fs.FS) ([]string, error) { return nil, checkNative(tree, exec) },
	})
	return depot.Runtime{Name: src.Name, Version: src.Version, Exec: exec, Target: target()}, err
}

// Runtimes lists what is installed, by name and falling version.
func (s *Store) Runtimes() ([]Runtime, error) {
	var out []Runtime
	var errs error
	for _, n := range s.depot.List(depot.Runtimes) {
		for _, v := range s.depot.List(path.Join(depot.Runtimes, n)) {
			sl := s.depot.Slot(depot.Runtimes, n, v)
			r, err := sl.Read()
			switch {
			case errors.Is(err, ErrNotInstalled):
			case err != nil || r.Runtime == nil:
				errs = errors.Join(errs, fmt.Errorf("runtime %s %s: %w", n, v, errors.Join(err, ErrTampered)))
			default:
				out = append(out, s.runtimeFrom(sl, r))
			}
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
		Name: r.Name, Version: r.Version, Target: r.Runtime.Target, Digest: r.Runtime.Digest,
		Path: sl.Tree(r, runtimeTree, r.Runtime.Exec),
	}
}

// chooseRuntime finds the newest installed one that fits, and returns its receipt.
func (s *Store) chooseRuntime(want manifest.Runtime) (depot.Runtime, error) {
	all, err := s.Runtimes()
	for _, r := range all {
		if r.Name == want.Profile && want.Range.Accepts(r.Version) && r.Target == target() {
			rec, err := s.depot.Slot(depot.Runtimes, r.Name, r.Version).Read()
			if err != nil || rec.Runtime == nil {
				return depot.Runtime{}, errors.Join(ErrNoRuntime, err)
			}
			return *rec.Runtime, nil
		}
	}
	which := strings.TrimSpace(want.Profile + " " + want.Range.String())
	return depot.Runtime{}, errors.Join(fmt.Errorf("%w: %s is needed: lend runtime add %s", ErrNoRuntime, which, want.Profile), err)
}
