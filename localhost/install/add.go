package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	header "github.com/lendcli/lend/localhost/binary"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/skill"
	"github.com/lendcli/lend/protocol/name"
)

// Source is a Connector to add.
type Source struct {
	Path    string // absolute path of a directory, .zip, .tar.gz or .tgz
	Replace bool   // allow replacing the same version with other content
}

// Add imports a Connector, installs what it needs, and makes it current for its
// version. It is one transaction: after an error the release that was there before
// is untouched. The same content again changes nothing, unless files were changed on
// disk: then it repairs them. Errors match ErrConflict, ErrNoRuntime, ErrNoRegistry;
// what is wrong with the source is an *artifact.RefusedError, a
// *manifest.InvalidError, a *manifest.UnsupportedError, a *skill.RefusedError or a
// *npm.LockError.
func (s *Store) Add(ctx context.Context, src Source, p Progress) (Release, error) {
	r, err := s.add(ctx, src, p)
	if err != nil {
		return Release{}, fmt.Errorf("add connector: %w", err)
	}
	return r, nil
}

func (s *Store) add(ctx context.Context, src Source, p Progress) (Release, error) {
	g, err := s.depot.Stage(ctx)
	if err != nil {
		return Release{}, err
	}
	defer g.Drop()
	m, snap, err := importArtifact(ctx, g, src.Path, p)
	if err != nil {
		return Release{}, err
	}
	rec, err := describe(m, snap)
	if err != nil {
		return Release{}, err
	}
	l, err := s.depot.Lock(ctx, depot.Connectors, m.Key.String())
	if err != nil {
		return Release{}, err
	}
	defer func() { _ = l.Close() }()
	sl := s.depot.Slot(depot.Connectors, rec.Name, rec.Version)
	old, err := sl.Read()
	switch {
	case errors.Is(err, ErrNotInstalled):
	case err != nil && !src.Replace:
		return Release{}, err
	case err == nil && old.ReleaseDigest != rec.ReleaseDigest && !src.Replace:
		return Release{}, fmt.Errorf("%s %s: %w: raise the version, or replace it", rec.Name, rec.Version, ErrConflict)
	case err == nil && old.ReleaseDigest == rec.ReleaseDigest:
		if err := s.fullCheck(sl, old); err == nil {
			return s.releaseFrom(sl, old)
		}
	}
	release, err := s.equip(ctx, g, m, snap, &rec, p)
	if err != nil {
		return Release{}, err
	}
	defer release()
	if err := sl.Publish(g, rec); err != nil {
		return Release{}, err
	}
	if rec, err = sl.Read(); err != nil {
		return Release{}, err
	}
	s.cfg.Log.Info().Str("connector", rec.Name).Str("version", rec.Version).Str("digest", rec.ReleaseDigest).Msg("connector-added")
	return s.releaseFrom(sl, rec)
}

// importArtifact brings the source into the staging directory and reads what it
// says about itself from there.
func importArtifact(ctx context.Context, g *depot.Staging, src string, p Progress) (manifest.Manifest, *artifact.Snapshot, error) {
	var m manifest.Manifest
	stage := p.at("import")
	err := artifact.Import(ctx, src, g.Path(artifactTree), artifact.Options{
		Limits:   artifact.ConnectorLimits(),
		Progress: func(done int64) { stage(done, 0) },
		Inspect: func(tree fs.FS) (executables []string, err error) {
			if m, err = readManifest(tree); err != nil {
				return nil, err
			}
			if m, err = m.For(interpreter.Target()); err != nil {
				return nil, err
			}
			if err := skill.Check(tree); err != nil {
				return nil, err
			}
			if m.CLI.Kind != manifest.KindNative {
				return nil, nil
			}
			return []string{m.CLI.Entrypoint}, checkNative(tree, m.CLI.Entrypoint)
		},
	})
	if err != nil {
		return m, nil, err
	}
	snap, err := artifact.Open(g.Path(artifactTree), artifact.ConnectorLimits())
	return m, snap, err
}

func readManifest(tree fs.FS) (manifest.Manifest, error) {
	f, err := tree.Open(manifest.FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return manifest.Manifest{}, &artifact.RefusedError{Reason: "there is no " + manifest.FileName + " at its root"}
	}
	if err != nil {
		return manifest.Manifest{}, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return manifest.Manifest{}, err
	}
	return manifest.Parse(b)
}

// checkNative refuses a script in the place of an executable: the system would look
// up an interpreter that nobody verified.
func checkNative(tree fs.FS, p string) error {
	f, err := tree.Open(p)
	if err != nil {
		return &artifact.RefusedError{Path: p, Reason: "the manifest's entrypoint is not there"}
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, header.HeadSize)
	n, err := io.ReadFull(f, head)
	if n < 2 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return &artifact.RefusedError{Path: p, Reason: "it is no executable"}
	}
	if string(head[:2]) == "#!" {
		return &artifact.RefusedError{Path: p, Reason: "it is a script: say kind \"script\" and a runtime, so that its interpreter is verified"}
	}
	h, ok := header.Read(head[:n])
	if ok && !h.RunsOn(runtime.GOOS, runtime.GOARCH) && (runtime.GOARCH != "amd64" || !h.RunsOn(runtime.GOOS, "386")) {
		return &artifact.RefusedError{Path: p, Reason: fmt.Sprintf("it is an executable of another system (%s %s), and this is %s", h.Format, strings.Join(h.Archs, ", "), interpreter.Target())}
	}
	return nil
}

// describe checks the manifest against the tree and begins the receipt.
func describe(m manifest.Manifest, snap *artifact.Snapshot) (depot.Receipt, error) {
	rec := depot.Receipt{Name: m.Key.String(), Version: m.Version.String(), ArtifactDigest: snap.Digest()}
	var err error
	if rec.ReleaseDigest, err = manifest.ReleaseDigest(m, snap.Digest()); err != nil {
		return rec, err
	}
	if rec.ContractHash, err = manifest.ManagedCLIContractHash(m.CLI.Contract); err != nil {
		return rec, err
	}
	if err := checkVariables(m); err != nil {
		return rec, err
	}
	if m.CLI.Entrypoint == "" {
		return rec, nil
	}
	_, sum, ok := snap.File(m.CLI.Entrypoint)
	if !ok {
		return rec, &artifact.RefusedError{Path: m.CLI.Entrypoint, Reason: "the manifest's entrypoint is not there"}
	}
	if m.CLI.SHA256 != "" && m.CLI.SHA256 != sum {
		return rec, &artifact.RefusedError{Path: m.CLI.Entrypoint, Reason: "its SHA-256 is " + sum + ", the manifest says another"}
	}
	return rec, nil
}

// checkVariables refuses early what every start would refuse: a variable that a
// connection takes from nobody.
func checkVariables(m manifest.Manifest) error {
	for i, v := range m.CLI.Contract.Environment {
		if connection.Reserved(v) {
			return &manifest.InvalidError{Path: fmt.Sprintf("cli.environment[%d]", i), Msg: v + " is reserved"}
		}
	}
	for i, v := range m.Secrets {
		if connection.Reserved(v.Env) {
			return &manifest.InvalidError{Path: fmt.Sprintf("secrets[%d].env", i), Msg: v.Env + " is reserved"}
		}
	}
	for i, v := range m.Settings {
		if connection.Reserved(v.Env) {
			return &manifest.InvalidError{Path: fmt.Sprintf("settings[%d].env", i), Msg: v.Env + " is reserved"}
		}
	}
	return nil
}

// equip brings what the release needs beyond its artifact: the interpreter's
// identity, and the packages of its lock. Until release is called, nothing takes that
// interpreter away: it is to be called when the receipt names it.
func (s *Store) equip(ctx context.Context, g *depot.Staging, m manifest.Manifest, snap *artifact.Snapshot, rec *depot.Receipt, p Progress) (release func(), err error) {
	if m.CLI.Runtime == nil {
		return func() {}, nil
	}
	rt, err := s.chooseRuntime(*m.CLI.Runtime)
	if err != nil {
		return nil, err
	}
	held, err := s.holdRuntime(rt)
	if err != nil {
		return nil, err
	}
	release = func() { _ = held.lock.Close() }
	rec.Runtime = &rt
	if m.CLI.Package == nil {
		return release, nil
	}
	if err := s.installPackage(ctx, g, m.CLI, snap, rec, p); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// installPackage runs npm ci for the lock in the artifact and keeps a snapshot of
// what it laid out.
func (s *Store) installPackage(ctx context.Context, g *depot.Staging, cli manifest.CLI, snap *artifact.Snapshot, rec *depot.Receipt, p Progress) error {
	pkg := *cli.Package
	data, lock, err := readLock(snap, pkg)
	if err != nil {
		return err
	}
	tool, release, err := s.tool(ctx, *rec.Runtime)
	if err != nil {
		return err
	}
	defer release()
	p.tell("install "+pkg.Name+"@"+pkg.Version, 0, 0)
	if err := os.Mkdir(g.Path(scratchDir), 0o700); err != nil {
		return err
	}
	if err := tool.CI(ctx, g.Path(scratchDir), data, pkg.Name, pkg.Version); err != nil {
		return err
	}
	ran := ""
	if pkg.Lifecycle != nil {
		p.tell("run "+pkg.Lifecycle.Event+" of "+pkg.Name, 0, 0)
		if err := tool.Lifecycle(ctx, g.Path(scratchDir), pkg); err != nil {
			return err
		}
		ran = pkg.Name
	}
	p.tell("verify packages", 0, 0)
	err = artifact.Import(ctx, g.Path(scratchDir, "project"), g.Path(packageTree), artifact.Options{
		Limits: artifact.ConnectorLimits(), Skip: npm.Leave,
		Inspect: func(tree fs.FS) ([]string, error) {
			if err := npm.CheckTree(tree, lock); err != nil {
				return nil, err
			}
			program, err := npm.FindProgram(tree, pkg)
			rec.Script, rec.Native = program.Path, program.Native
			if err != nil || !program.Native {
				return nil, err
			}
			return []string{program.Path}, nil
		},
	})
	if err != nil {
		return err
	}
	installed, err := artifact.Open(g.Path(packageTree), artifact.ConnectorLimits())
	if err != nil {
		return err
	}
	if _, sum, _ := installed.File(rec.Script); cli.SHA256 != "" && cli.SHA256 != sum {
		return &artifact.RefusedError{Path: rec.Script, Reason: "its SHA-256 is " + sum + ", the manifest says another"}
	}
	if rec.Native {
		rec.Runtime = nil // it installed the package, and does not run it
	}
	rec.PackageDigest, rec.HasScripts = installed.Digest(), lock.HasScripts(ran)
	return g.Remove(scratchDir)
}

const scratchDir = "scratch"

func readLock(snap *artifact.Snapshot, pkg manifest.Package) ([]byte, npm.Lock, error) {
	at, _, ok := snap.File(pkg.Lock)
	if !ok {
		return nil, npm.Lock{}, &artifact.RefusedError{Path: pkg.Lock, Reason: "the manifest's lock is not there"}
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return nil, npm.Lock{}, err
	}
	lock, err := npm.ParseLock(data, pkg.Name, pkg.Version)
	if err != nil {
		return nil, npm.Lock{}, err
	}
	if top, ok := lock.Package("node_modules/" + pkg.Name); !ok || top.Integrity.String() != pkg.Integrity {
		return nil, npm.Lock{}, &npm.LockError{Path: top.Path, Msg: "its integrity is not the manifest's"}
	}
	return data, lock, nil
}

// tool returns npm, run by the interpreter rt, both verified now. release lets go of
// them.
func (s *Store) tool(ctx context.Context, rt depot.Runtime) (npm.Tool, func(), error) {
	if s.cfg.Registry == "" {
		return npm.Tool{}, nil, ErrNoRegistry
	}
	node, err := s.holdRuntime(rt)
	if err != nil {
		return npm.Tool{}, nil, err
	}
	cliOf, err := s.chooseRuntime(manifest.Runtime{Profile: interpreter.NPM})
	if err != nil {
		return npm.Tool{}, nil, errors.Join(err, node.lock.Close())
	}
	cli, err := s.holdRuntime(cliOf)
	if err != nil {
		return npm.Tool{}, nil, errors.Join(err, node.lock.Close())
	}
	cache, err := s.depot.UseCache(ctx)
	if err != nil {
		return npm.Tool{}, nil, errors.Join(err, node.lock.Close(), cli.lock.Close())
	}
	release := func() { _, _, _ = node.lock.Close(), cli.lock.Close(), cache.Close() }
	return npm.Tool{Node: node.exec, CLI: cli.exec, Cache: s.depot.Path(depot.Cache), Registry: s.registry(), Runner: s.cfg.Runner}, release, nil
}

// Remove uninstalls one version, or all of key where version is zero. Files that a
// Launch holds go when it is closed and a store is opened again. Runtimes and what
// connections keep stay.
func (s *Store) Remove(ctx context.Context, key name.ConnectorKey, version name.Version) error {
	if key.IsZero() {
		return fmt.Errorf("remove connector: %w", ErrNotInstalled)
	}
	l, err := s.depot.Lock(ctx, depot.Connectors, key.String())
	if err != nil {
		return fmt.Errorf("remove connector %s: %w", key, err)
	}
	defer func() { _ = l.Close() }()
	versions := []string{version.String()}
	if version.IsZero() {
		versions = s.depot.List(depot.Connectors + "/" + key.String())
	}
	var errs error
	found := false
	for _, v := range versions {
		sl := s.depot.Slot(depot.Connectors, key.String(), v)
		if _, err := sl.Read(); errors.Is(err, ErrNotInstalled) {
			continue
		}
		found = true
		errs = errors.Join(errs, sl.Retire())
	}
	s.depot.DropIfEmpty(depot.Connectors + "/" + key.String())
	if !found {
		errs = ErrNotInstalled
	}
	if errs != nil {
		return fmt.Errorf("remove connector %s: %w", key, errs)
	}
	s.cfg.Log.Info().Str("connector", key.String()).Str("version", version.String()).Msg("connector-removed")
	return nil
}
