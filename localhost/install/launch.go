package install

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/skill"
)

// Launch is a release made ready to start any number of times. It holds the
// release's files on disk until Close. Its methods may be called from any
// goroutine; its fields must not be changed.
type Launch struct {
	// Path is the absolute path of the executable: the artifact's own, or the
	// verified interpreter.
	Path string
	// Prefix comes right after argv[0]: the script of an interpreter, else nothing.
	Prefix []string
	// Env is what the runtime needs in the child's environment, as NAME=VALUE.
	Env []string
	// ContractDir is the absolute path of the read-only artifact.
	ContractDir string

	executable    func() (artifact.Identity, bool) // at Path
	name, version string
	contract      *artifact.Snapshot // at ContractDir
	snaps         []*artifact.Snapshot
	attested      *attestation
	close         func() error
}

// Launch prepares r to run: it hashes every file of the release now, and of the
// interpreter unless this Store has, so call it once per route. The caller must
// Close the result. Errors match ErrNotInstalled (also if another release is there
// now), ErrTampered, ErrNoRuntime.
func (s *Store) Launch(r Release) (*Launch, error) {
	l, err := s.launch(r)
	if err != nil {
		return nil, fmt.Errorf("prepare connector: %w", err)
	}
	return l, nil
}

func (s *Store) launch(r Release) (_ *Launch, err error) {
	sl := s.depot.Slot(depot.Connectors, r.Manifest.Key.String(), r.Manifest.Version.String())
	rec, lock, err := sl.Use()
	if err != nil {
		return nil, err
	}
	locks := []*filelock.Lock{lock}
	closeAll := sync.OnceValue(func() (err error) {
		for _, l := range locks {
			err = errors.Join(err, l.Close())
		}
		return err
	})
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	if rec.Superseded {
		return nil, fmt.Errorf("%s %s: %w: another version has taken its place", rec.Name, rec.Version, ErrNotInstalled)
	}
	if rec.ReleaseDigest != r.Digest {
		return nil, fmt.Errorf("%s %s: %w: another release of this version is", rec.Name, rec.Version, ErrNotInstalled)
	}
	trees, err := s.openTrees(sl, rec)
	if err != nil {
		return nil, err
	}
	installed, err := s.releaseFrom(sl, rec) // the manifest, from the bytes that were just hashed
	if err != nil {
		return nil, err
	}
	attested, err := s.installedAttestation(sl, rec, installed)
	if err != nil {
		return nil, err
	}
	if err := attested.still(); err != nil {
		return nil, err
	}
	out := &Launch{
		name: rec.Name, version: rec.Version, ContractDir: trees[artifactTree].Dir(), contract: trees[artifactTree],
		attested: attested, close: closeAll,
	}
	for _, t := range trees {
		out.snaps = append(out.snaps, t)
	}
	if rec.Runtime != nil {
		rt, err := s.holdRuntime(*rec.Runtime)
		if err != nil {
			return nil, err
		}
		locks = append(locks, rt.lock)
		out.snaps = append(out.snaps, rt.snap)
		out.Path = rt.exec
		out.executable = func() (artifact.Identity, bool) { return rt.snap.Identity(rec.Runtime.Exec) }
		out.Env = interpreter.Env(*rec.Runtime, rt.snap.Dir())
	}
	return out, out.fill(installed.Manifest.CLI, rec, trees)
}

// fill sets what runs, from files of the hashed trees only.
func (l *Launch) fill(cli manifest.CLI, rec depot.Receipt, trees map[string]*artifact.Snapshot) error {
	tree, file := trees[artifactTree], cli.Entrypoint
	if cli.Kind == manifest.KindNPM {
		tree, file = trees[packageTree], rec.Script
	}
	if cli.Archive != nil {
		if err := checkProgram(cli, trees); err != nil {
			return tampered(rec.Name, rec.Version, err)
		}
		tree = trees[packageTree]
	}
	native := cli.Kind == manifest.KindNative || cli.Kind == manifest.KindNPM && rec.Native
	if tree == nil || native != (l.Path == "") {
		return tampered(rec.Name, rec.Version, errors.New("the receipt is not the manifest's"))
	}
	abs, _, ok := tree.File(file)
	if !ok {
		return tampered(rec.Name, rec.Version, errors.New("what it runs is not there"))
	}
	if native {
		l.Path = abs
		l.executable = func() (artifact.Identity, bool) { return tree.Identity(file) }
		return nil
	}
	l.Prefix = []string{abs}
	return nil
}

// Verify is to be called before every start: it compares the identity of every file
// of the release and its interpreter with what was hashed, hashes again what
// differs, and returns an error that matches ErrTampered if bytes, modes or names
// have changed. An unchanged tree costs one lstat per file. It also asks the owner's
// list of publishers as it is now: errors of signature.Trust.Check.
func (l *Launch) Verify() error {
	for _, s := range l.snaps {
		if err := s.Verify(); err != nil {
			return tampered(l.name, l.version, err)
		}
	}
	return l.attested.still()
}

// Executable returns what the file at Path was when the last Verify, or Launch, found
// it to be the one that was installed: to be compared once more with the file that is
// executed.
func (l *Launch) Executable() artifact.Identity {
	id, _ := l.executable() // fill has found it
	return id
}

// Skills reads the skills of the release, sorted by name, from the files that were
// hashed: what has changed since is ErrTampered.
func (l *Launch) Skills() ([]skill.Skill, error) {
	out, err := skill.Read(os.DirFS(l.ContractDir), func(p string) (string, bool) {
		_, sum, ok := l.contract.File(p)
		return sum, ok
	})
	if err = errors.Join(err, l.contract.Verify()); err != nil {
		return nil, tampered(l.name, l.version, err)
	}
	return out, nil
}

// Close lets go of the files. It is idempotent and returns the same error each time.
func (l *Launch) Close() error { return l.close() }
