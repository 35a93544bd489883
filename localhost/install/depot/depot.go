package depot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/rs/zerolog"
)

// Directories of a depot.
const (
	Connectors = "connectors" // connectors/KEY/VERSION/…
	Runtimes   = "runtimes"   // runtimes/NAME/VERSION/…
	Cache      = "cache"      // npm's own
	Downloads  = "downloads"  // archives that releases were made of, by Connector
	stagingDir = "staging"    // staging/RANDOM and staging/RANDOM.lock
	locksDir   = "locks"
)

// Depot is one directory of versions. Its methods may be called from any goroutine,
// and several processes may share the directory.
type Depot struct {
	dir  string
	log  zerolog.Logger
	root *os.Root
}

// Open opens the depot in dir, absolute, made with mode 0700 if absent, and takes
// away what dead processes left behind in it: unfinished work, and what was replaced
// or removed and no process holds any more. The caller must Close it.
func Open(dir string, log zerolog.Logger) (*Depot, error) {
	d, err := OpenAsIs(dir, log)
	if err == nil {
		d.sweep()
	}
	return d, err
}

// OpenAsIs is Open, but leaves behind what is there, for Collect to find.
func OpenAsIs(dir string, log zerolog.Logger) (*Depot, error) {
	if !filepath.IsAbs(dir) {
		return nil, errors.New("open depot: the directory must be absolute")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open depot: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open depot: %w", err)
	}
	if err := checkPrivate(root); err != nil {
		return nil, errors.Join(fmt.Errorf("open depot: %w", err), root.Close())
	}
	d := &Depot{dir: dir, log: log, root: root}
	for _, sub := range []string{Connectors, Runtimes, Cache, stagingDir, locksDir} {
		if err := root.Mkdir(sub, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(fmt.Errorf("open depot: %w", err), root.Close())
		}
	}
	return d, nil
}

// checkPrivate refuses a directory in which another user could swap ours.
func checkPrivate(root *os.Root) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write in the directory (mode %o): make it 0700", info.Mode().Perm())
	}
	return nil
}

// Close lets go of the directory. Locks stay held until they are closed.
func (d *Depot) Close() error { return d.root.Close() }

// Path is the absolute path of a slash-separated relative one.
func (d *Depot) Path(rel ...string) string {
	return filepath.Join(d.dir, filepath.FromSlash(path.Join(rel...)))
}

// List names the directories in one of ours, hidden ones left out.
func (d *Depot) List(rel string) []string {
	var out []string
	entries, err := fs.ReadDir(d.root.FS(), rel)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// DropIfEmpty removes a directory of ours if nothing is in it.
func (d *Depot) DropIfEmpty(rel string) {
	if info, err := d.root.Lstat(rel); err == nil && info.IsDir() {
		_ = d.root.Remove(rel)
	}
}

func (d *Depot) lockPath(kind, owner string) string {
	return d.Path(locksDir, kind+"-"+owner)
}

// Lock takes the lock of one Connector or runtime.
func (d *Depot) Lock(ctx context.Context, kind, owner string) (*filelock.Lock, error) {
	return filelock.Exclusive(ctx, d.lockPath(kind, owner))
}

// LockTelling is Lock that tells, as a stage of a longer call, if somebody else has the
// lock first: that may be for as long as an installation takes. tell may be nil.
func (d *Depot) LockTelling(ctx context.Context, kind, owner string, tell func(stage string, done, total int64)) (*filelock.Lock, error) {
	l, err := d.TryLock(kind, owner)
	if !errors.Is(err, filelock.ErrHeld) {
		return l, err
	}
	if tell != nil {
		tell("wait until another command has done with "+owner, 0, 0)
	}
	return d.Lock(ctx, kind, owner)
}

// TryLock is Lock without waiting: filelock.ErrHeld if somebody has it.
func (d *Depot) TryLock(kind, owner string) (*filelock.Lock, error) {
	return filelock.Try(d.lockPath(kind, owner))
}

// Unlock lets go of the lock of one Connector or runtime, and takes its file away if
// nothing of that is there.
func (d *Depot) Unlock(l *filelock.Lock, kind, owner string) error {
	if d.gone(kind, owner) && d.gone(Downloads, owner) {
		return l.Remove()
	}
	return l.Close()
}

func (d *Depot) gone(kind, owner string) bool {
	_, err := d.root.Lstat(path.Join(kind, owner))
	return errors.Is(err, fs.ErrNotExist)
}

// Staging is a private directory for one transaction.
type Staging struct {
	d    *Depot
	rel  string
	lock *filelock.Lock
}

// Stage makes one; the caller must Drop it. Its lock tells other processes that it is in use; the lock of
// all staging orders that against a sweep.
func (d *Depot) Stage(ctx context.Context) (*Staging, error) {
	all, err := filelock.Exclusive(ctx, d.lockPath(stagingDir, "all"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }()
	rel := path.Join(stagingDir, random())
	l, err := filelock.Try(d.Path(rel + ".lock"))
	if err != nil {
		return nil, err
	}
	if err := d.root.Mkdir(rel, 0o700); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	failpoint.Hit("staged")
	return &Staging{d, rel, l}, nil
}

// Path is an absolute path in the staging directory.
func (g *Staging) Path(rel ...string) string { return g.d.Path(append([]string{g.rel}, rel...)...) }

// Remove takes away something in the staging directory.
func (g *Staging) Remove(rel string) error { return artifact.Remove(g.d.root, path.Join(g.rel, rel)) }

// Drop removes what is left of it.
func (g *Staging) Drop() {
	err := artifact.Remove(g.d.root, g.rel)
	err = errors.Join(err, g.d.root.Remove(g.rel+".lock"), g.lock.Close())
	if err != nil {
		g.d.log.Warn().Err(err).Msg("store-drop-staging")
	}
}

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
