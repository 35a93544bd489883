package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/install/admit"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/localhost/skill"
	"github.com/lendcli/lend/protocol/name"
)

// Source is a Connector to add.
type Source struct {
	Path    string // absolute path of a directory, .zip, .tar.gz or .tgz
	Replace bool   // allow replacing the same version with other content
	// Archive is the absolute path of the archive that the manifest names, for who has
	// it already; "" fetches it.
	Archive string
}

// Add imports a Connector, installs what it needs, and makes it current for its
// version. It is one transaction: after an error the release that was there before
// is untouched. The same content again changes nothing, unless files were changed on
// disk: then it repairs them. No route changes by it. Errors match ErrConflict,
// ErrNoRuntime, ErrNoRegistry, ErrNoArchive, and those of signature.Trust.Check;
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
	in, err := s.bring(ctx, src, p)
	if err != nil {
		return Release{}, err
	}
	defer in.Drop()
	l, err := s.depot.LockTelling(ctx, depot.Connectors, in.rec.Name, p)
	if err != nil {
		return Release{}, err
	}
	defer func() { _ = l.Close() }()
	placed, err := s.place(ctx, in, p)
	if err != nil {
		s.dropUnused(ctx, in.manifest.Key)
		return Release{}, err
	}
	s.keepArchive(ctx, placed.release)
	s.cfg.Log.Info().Str("connector", in.rec.Name).Str("version", in.rec.Version).Str("digest", in.rec.ReleaseDigest).Msg("connector-added")
	return placed.release, nil
}

// arrival is a source that has been brought into the staging directory, and what it
// says about itself. It must be dropped.
type arrival struct {
	*depot.Staging
	src      Source
	manifest manifest.Manifest
	snap     *artifact.Snapshot
	rec      depot.Receipt

	old  depot.Receipt // of the same content, where that is installed
	from string        // its package tree, if it is whole: nothing needs to be fetched
}

// installed notes the package tree of an arrival: of the same content it is the same.
func (in *arrival) installed(snap *artifact.Snapshot) error {
	if in.rec.PackageDigest = snap.Digest(); in.from != "" && snap.Digest() != in.old.PackageDigest {
		return tampered(in.rec.Name, in.rec.Version, errors.New("it was changed while it was copied"))
	}
	return nil
}

func (s *Store) bring(ctx context.Context, src Source, p Progress) (_ *arrival, err error) {
	g, err := s.depot.Stage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.Drop()
		}
	}()
	m, snap, sig, err := importArtifact(ctx, g, src.Path, p)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("imported")
	if src.Archive != "" && m.CLI.Archive == nil {
		return nil, errors.New("its manifest names no archive")
	}
	rec, err := describe(m, snap)
	if err != nil {
		return nil, err
	}
	in := &arrival{Staging: g, src: src, manifest: m, snap: snap, rec: rec}
	return in, s.takeSignature(in, sig)
}

// placed is a release that is current for its version. undo makes the version what it
// was before.
type placed struct {
	release Release
	undo    func() error
}

// place makes an arrival current for its version. The lock of the Connector is held.
func (s *Store) place(ctx context.Context, in *arrival, p Progress) (placed, error) {
	sl := s.depot.Slot(depot.Connectors, in.rec.Name, in.rec.Version)
	old, err := sl.Read()
	there := err == nil && !old.Superseded
	same := err == nil && old.ReleaseDigest == in.rec.ReleaseDigest
	switch {
	case errors.Is(err, ErrNotInstalled):
	case err != nil && !in.src.Replace && !broken(err):
		return placed{}, sl.Damaged(err)
	case there && !same && !in.src.Replace:
		return placed{}, fmt.Errorf("%s %s: %w: raise the version, or replace it", in.rec.Name, in.rec.Version, ErrConflict)
	case same && (in.rec.Signature == "" || in.rec.Signature == old.Signature) && s.fullCheck(sl, old) == nil:
		return s.again(sl, old)
	}
	if same {
		in.old = old
		if sl.Holds(old, packageTree, old.PackageDigest, artifact.ConnectorLimits()) {
			in.from = sl.Tree(old, packageTree)
		}
		if err := in.inherit(sl, old); err != nil {
			return placed{}, err
		}
	}
	release, err := s.equip(ctx, in, p)
	if err != nil {
		return placed{}, err
	}
	defer release()
	failpoint.Hit("equipped")
	if err := sl.Publish(in.Staging, in.rec); err != nil {
		return placed{}, err
	}
	undo := sl.Retire
	if there {
		undo = func() error { return nil } // what it was is gone or was broken
	}
	rec, err := sl.Read()
	if err != nil {
		return placed{}, errors.Join(err, undo())
	}
	r, err := s.releaseFrom(sl, rec)
	if err != nil {
		return placed{}, errors.Join(err, undo())
	}
	return placed{r, undo}, nil
}

// broken tells whether what was installed is lost, so that a source may take its place:
// the system has read its receipt, and it is none.
func broken(err error) bool {
	var errno syscall.Errno
	var whole *Damage
	return !errors.Is(err, depot.ErrFormat) && !errors.As(err, &errno) && !errors.As(err, &whole)
}

// again keeps what is there already, in the same content; if it was superseded, it no
// longer is.
func (s *Store) again(sl depot.Slot, old depot.Receipt) (placed, error) {
	r, err := s.releaseFrom(sl, old)
	if err != nil {
		return placed{}, err
	}
	if err := sl.Supersede(false); err != nil {
		return placed{}, err
	}
	return placed{r, func() error { return sl.Supersede(old.Superseded) }}, nil
}

// importArtifact brings the source into the staging directory and reads what it
// says about itself from there: its manifest for this system, and its signature file,
// which is no part of the tree.
func importArtifact(ctx context.Context, g *depot.Staging, src string, p Progress) (manifest.Manifest, *artifact.Snapshot, []byte, error) {
	var here manifest.Manifest
	_, snap, sig, err := importSource(ctx, g, src, p, func(tree fs.FS, m manifest.Manifest) (executables []string, err error) {
		if here, err = m.For(interpreter.Target()); err != nil {
			return nil, err
		}
		if err := skill.Check(tree); err != nil {
			return nil, err
		}
		if here.CLI.Kind != manifest.KindNative || here.CLI.Archive != nil {
			return nil, nil
		}
		return []string{here.CLI.Entrypoint}, admit.Native(tree, here.CLI.Entrypoint)
	})
	return here, snap, sig, err
}

func importSource(ctx context.Context, g *depot.Staging, src string, p Progress,
	inspect func(tree fs.FS, m manifest.Manifest) ([]string, error),
) (m manifest.Manifest, snap *artifact.Snapshot, sig []byte, err error) {
	if info, look := os.Stat(src); look == nil && info.IsDir() {
		if _, look = os.Lstat(filepath.Join(src, manifest.FileName)); errors.Is(look, fs.ErrNotExist) {
			return m, nil, nil, fmt.Errorf("import artifact: %w", admit.NoManifest()) // before all of a home is copied
		}
	}
	stage := p.at("import")
	err = artifact.Import(ctx, src, g.Path(artifactTree), artifact.Options{
		Limits:   artifact.ConnectorLimits(),
		Progress: func(done int64) { stage(done, 0) },
		Aside:    map[string]*[]byte{signature.FileName: &sig},
		Inspect: func(tree fs.FS) (executables []string, err error) {
			if m, err = admit.Manifest(tree); err != nil {
				return nil, err
			}
			return inspect(tree, m)
		},
	})
	if err != nil {
		return m, nil, nil, err
	}
	snap, err = artifact.Open(g.Path(artifactTree), artifact.ConnectorLimits())
	return m, snap, sig, err
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
	if err := admit.Variables(m); err != nil {
		return rec, err
	}
	if m.CLI.Entrypoint == "" || m.CLI.Archive != nil {
		return rec, nil // it is in what is installed, not in the artifact
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

// equip brings what the release needs beyond its artifact: the interpreter's
// identity, and the packages of its lock. Until release is called, nothing takes that
// interpreter away: it is to be called when the receipt names it.
func (s *Store) equip(ctx context.Context, in *arrival, p Progress) (release func(), err error) {
	if in.manifest.CLI.Archive != nil {
		return func() {}, s.unpackArchive(ctx, in, p)
	}
	if in.manifest.CLI.Runtime == nil {
		return func() {}, nil
	}
	rt, err := s.chooseRuntime(*in.manifest.CLI.Runtime)
	if err != nil {
		return nil, err
	}
	held, err := s.holdRuntime(rt)
	if err != nil {
		return nil, err
	}
	release = func() { _ = held.lock.Close() }
	in.rec.Runtime = &rt
	if in.manifest.CLI.Package == nil {
		return release, nil
	}
	if err := s.installPackage(ctx, in, p); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// installPackage runs npm ci for the lock in the artifact and keeps a snapshot of
// what it laid out.
func (s *Store) installPackage(ctx context.Context, in *arrival, p Progress) error {
	cli, rec, pkg := in.manifest.CLI, &in.rec, *in.manifest.CLI.Package
	data, lock, err := readLock(in.snap, pkg)
	if err != nil {
		return err
	}
	if in.old.Runtime != nil && *in.old.Runtime != *rec.Runtime {
		in.from = "" // a script of it may have made what only that interpreter runs
	}
	from, ran := in.from, ""
	if from == "" {
		from = in.Path(scratchDir, "project")
		if err := s.runNPM(ctx, in, data, p); err != nil {
			return err
		}
	}
	if pkg.Lifecycle != nil {
		ran = pkg.Name
	}
	p.tell("verify packages", 0, 0)
	err = artifact.Import(ctx, from, in.Path(packageTree), artifact.Options{
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
	installed, err := artifact.Open(in.Path(packageTree), artifact.ConnectorLimits())
	if err != nil {
		return err
	}
	if _, sum, _ := installed.File(rec.Script); cli.SHA256 != "" && cli.SHA256 != sum {
		return &artifact.RefusedError{Path: rec.Script, Reason: "its SHA-256 is " + sum + ", the manifest says another"}
	}
	if rec.Native {
		rec.Runtime = nil // it installed the package, and does not run it
	}
	rec.HasScripts = lock.HasScripts(ran)
	return errors.Join(in.installed(installed), in.Remove(scratchDir))
}

// runNPM has npm lay out the project of a lock in the scratch directory.
func (s *Store) runNPM(ctx context.Context, in *arrival, lock []byte, p Progress) error {
	pkg := *in.manifest.CLI.Package
	tool, release, err := s.tool(ctx, *in.rec.Runtime)
	if err != nil {
		return err
	}
	defer release()
	p.tell("install "+pkg.Name+"@"+pkg.Version, 0, 0)
	if err := os.Mkdir(in.Path(scratchDir), 0o700); err != nil {
		return err
	}
	if err := tool.CI(ctx, in.Path(scratchDir), lock, pkg.Name, pkg.Version); err != nil || pkg.Lifecycle == nil {
		return err
	}
	p.tell("run "+pkg.Lifecycle.Event+" of "+pkg.Name, 0, 0)
	return tool.Lifecycle(ctx, in.Path(scratchDir), pkg)
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
	lock, err := npm.LockOf(pkg, data)
	return data, lock, err
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
	defer func() { _ = s.depot.Unlock(l, depot.Connectors, key.String()) }()
	slots := []depot.Slot{s.depot.Slot(depot.Connectors, key.String(), version.String())}
	var found bool
	var errs error
	if version.IsZero() {
		var damaged []*Damage
		found, errs = s.depot.Unlink(depot.Connectors, key.String())
		slots, damaged = s.depot.SlotsOf(depot.Connectors, key.String())
		for _, d := range damaged {
			errs = errors.Join(errs, d)
		}
	}
	found = found || errs != nil
	for _, sl := range slots {
		if _, err := sl.Read(); errors.Is(err, ErrNotInstalled) {
			continue
		}
		found = true
		errs = errors.Join(errs, sl.Retire())
	}
	s.depot.DropIfEmpty(depot.Connectors + "/" + key.String())
	if left, err := s.Versions(key); err == nil && len(left) == 0 {
		errs = errors.Join(errs, s.dropArchives(key))
	}
	if !found {
		errs = ErrNotInstalled
	}
	if errs != nil {
		return fmt.Errorf("remove connector %s: %w", key, errs)
	}
	s.cfg.Log.Info().Str("connector", key.String()).Str("version", version.String()).Msg("connector-removed")
	return nil
}
