package intent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/localhost/internal/strictjson"
	"github.com/lendcli/lend/protocol/name"
)

// MaxVersions bounds the versions that one removal names.
const MaxVersions = 1024

const (
	schemaVersion = "1"
	intentFile    = ".intent.json"
	intentLock    = ".intent.lock"
	removalLock   = ".removal.lock"
	maxBytes      = 256 << 10

	// lockWait bounds how long another change of the same file is waited for.
	lockWait = 30 * time.Second
)

// Errors of this package.
var (
	// ErrInvalid: the file breaks the rules or a bound.
	ErrInvalid = errors.New("invalid intent")
	// ErrHeld: another live process removes the Connector.
	ErrHeld = filelock.ErrHeld
)

// Intent is what the owner wants of one Connector. The zero value wants all of it.
type Intent struct {
	SchemaVersion string `json:"schemaVersion"`
	// Disabled keeps every connection from having routes.
	Disabled bool `json:"disabled,omitempty"`
	// Removing is a removal that has begun and has not ended; nil: none.
	Removing *Removal `json:"removing,omitempty"`
}

// Removal says what is being taken away.
type Removal struct {
	// Versions are those that were installed when it began, 1024 at most.
	Versions []string `json:"versions,omitempty"`
	// Purge means the connections too, with their secrets.
	Purge bool `json:"purge,omitempty"`
}

// Wants tells whether a version may have routes, and start.
func (i Intent) Wants(v name.Version) bool { return !i.Disabled && !i.Removes(v) }

// Removes tells whether a version is being removed, or loses its connections.
func (i Intent) Removes(v name.Version) bool {
	return i.Removing != nil && (i.Removing.Purge || slices.Contains(i.Removing.Versions, v.String()))
}

// File is where the intent of one Connector is kept. It holds no state in memory and
// is safe for concurrent use, by several processes as well.
type File struct{ dir string }

// At is the file in the directory of a Connector's connections, an absolute path,
// which need not exist.
func At(dir string) File { return File{dir} }

// Read returns the intent; without a file, the usual one.
func (f File) Read() (Intent, error) {
	data, err := private.Read(filepath.Join(f.dir, intentFile), maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Intent{SchemaVersion: schemaVersion}, nil
	}
	if err != nil {
		return Intent{}, fmt.Errorf("read intent: %w", err)
	}
	var i Intent
	if err := strictjson.Decode(data, maxBytes, &i); err != nil {
		return Intent{}, fmt.Errorf("read intent: %w: %w", ErrInvalid, err)
	}
	if err := i.check(); err != nil {
		return Intent{}, fmt.Errorf("read intent: %w", err)
	}
	return i, nil
}

func (i Intent) check() error {
	if i.SchemaVersion != schemaVersion {
		return fmt.Errorf("schemaVersion %s is not %q: %w", name.Quote(i.SchemaVersion), schemaVersion, ErrInvalid)
	}
	if i.Removing == nil {
		return nil
	}
	if len(i.Removing.Versions) > MaxVersions {
		return fmt.Errorf("more than %d versions: %w", MaxVersions, ErrInvalid)
	}
	for _, v := range i.Removing.Versions {
		if _, err := name.ParseVersion(v); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// Update replaces the intent durably by what change makes of it; an error of change
// changes nothing. It makes the directory if there is none.
func (f File) Update(ctx context.Context, change func(*Intent) error) error {
	lock, err := f.wait(ctx)
	if err != nil {
		return fmt.Errorf("change intent: %w", err)
	}
	defer func() { _ = lock.Close() }() // closing lets go
	i, err := f.Read()
	if err != nil {
		return err
	}
	if err := change(&i); err != nil {
		return err
	}
	if err := i.check(); err != nil {
		return fmt.Errorf("change intent: %w", err)
	}
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return fmt.Errorf("change intent: %w", err)
	}
	return atomicfile.Write(filepath.Join(f.dir, intentFile), append(data, '\n'))
}

// Hold lets the caller alone remove the Connector until the lock is closed, or the
// process ends. It is ErrHeld at once while another one does.
func (f File) Hold() (*filelock.Lock, error) {
	lock, err := f.lock(removalLock, filelock.Try)
	if err != nil {
		return nil, fmt.Errorf("hold connector: %w", err)
	}
	return lock, nil
}

// wait waits for the lock of the file.
func (f File) wait(ctx context.Context) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return f.lock(intentLock, func(path string) (*filelock.Lock, error) { return filelock.Exclusive(ctx, path) })
}

// maxTries bounds how often the directory is made that somebody forgets meanwhile.
const maxTries = 64

func (f File) lock(file string, take func(path string) (*filelock.Lock, error)) (l *filelock.Lock, err error) {
	for range maxTries {
		if err := private.Dir(f.dir); err != nil {
			return nil, err
		}
		if l, err = take(filepath.Join(f.dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
	}
	return nil, err
}

// Forget takes away all that this package keeps of the Connector, so that the usual is
// wanted of it, and the directory if nothing else is in it. held is what Hold returned;
// it is let go.
func (f File) Forget(ctx context.Context, held *filelock.Lock) error {
	if err := f.forget(ctx, held); err != nil {
		return fmt.Errorf("forget intent: %w", err)
	}
	return nil
}

func (f File) forget(ctx context.Context, held *filelock.Lock) error {
	lock, err := f.wait(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // closing lets go
	if err := os.Remove(filepath.Join(f.dir, intentFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(atomicfile.Sweep(f.dir), atomicfile.SyncDir(f.dir)); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != intentLock && e.Name() != removalLock }) {
		return err
	}
	// Whoever makes one of them again from here on keeps the directory.
	if err := errors.Join(lock.Remove(), held.Remove()); err != nil {
		return err
	}
	if os.Remove(f.dir) != nil {
		return nil
	}
	return atomicfile.SyncDir(filepath.Dir(f.dir))
}

// Sweep removes what a process that was killed had not written whole.
func (f File) Sweep(ctx context.Context) error {
	if there, err := atomicfile.Halves(f.dir); err != nil || len(there) == 0 {
		return err
	}
	lock, err := f.wait(ctx)
	if err != nil {
		return fmt.Errorf("sweep intent: %w", err)
	}
	return errors.Join(atomicfile.Sweep(f.dir), lock.Close())
}
