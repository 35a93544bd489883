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
	"syscall"
	"time"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/localhost/internal/removal"
	"github.com/lendcli/lend/localhost/internal/strictjson"
	"github.com/lendcli/lend/protocol/name"
)

// MaxVersions bounds the versions that one removal names.
const MaxVersions = 1024

const (
	schemaVersion = "1"
	intentFile    = ".intent.json"
	asideFile     = ".intent.json.damaged" // of owners who were told to put it aside
	swapFile      = ".intent.json.swap"    // what was in its place, for a moment
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

// DamagedError says that the file of a Connector cannot be understood, or is not this
// user's alone: nobody knows what was wanted. Renew replaces it.
type DamagedError struct {
	Connector string // its directory's name
	Err       error  // why; for the owner alone, since it can hold paths

	directory bool // one is in its place
	stays     bool // and nothing here can replace it
}

// Error says why.
func (e *DamagedError) Error() string { return "read intent: " + e.Err.Error() }

// Unwrap returns Err.
func (e *DamagedError) Unwrap() error { return e.Err }

// Fix is what the owner can do about it, in commands.
func (e *DamagedError) Fix() string {
	if e.stays {
		return "stop lend serve, take that directory away, then lend connector disable " + e.Connector
	}
	return fmt.Sprintf("lend connector disable %[1]s, then lend connector enable %[1]s; or lend connector remove %[1]s", e.Connector)
}

// Read returns the intent; without a file, the usual one. One that nobody understands is
// a *DamagedError; another error means that the system did not let it be read now.
func (f File) Read() (Intent, error) {
	i, err := f.read()
	var errno syscall.Errno
	if err != nil && (!errors.As(err, &errno) || errors.Is(err, fs.ErrPermission) || errno == syscall.ELOOP) {
		info, look := os.Lstat(filepath.Join(f.dir, intentFile))
		directory := look == nil && info.IsDir()
		return Intent{}, &DamagedError{Connector: filepath.Base(f.dir), Err: err, directory: directory, stays: directory && !canExchange}
	}
	if err != nil {
		return Intent{}, fmt.Errorf("read intent: %w", err)
	}
	return i, nil
}

func (f File) read() (Intent, error) {
	data, err := private.Read(filepath.Join(f.dir, intentFile), maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Intent{SchemaVersion: schemaVersion}, nil
	}
	if err != nil {
		return Intent{}, err
	}
	var i Intent
	if err := strictjson.Decode(data, maxBytes, &i); err != nil {
		return Intent{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := i.check(); err != nil {
		return Intent{}, err
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
	_, err := f.update(ctx, change, false)
	return err
}

// Renew is Update where the file may be a damaged one: change then gets an intent that
// is disabled, since nobody knows what was wanted, and renewed is true. Until the new
// one is in its place the damaged one is. A directory in its place is exchanged for it with
// all that is in it; where the system cannot do that at once it is a *DamagedError, and
// stays: while it was taken away, all would be wanted.
func (f File) Renew(ctx context.Context, change func(*Intent) error) (renewed bool, err error) {
	return f.update(ctx, change, true)
}

func (f File) update(ctx context.Context, change func(*Intent) error, renew bool) (renewed bool, err error) {
	lock, err := f.wait(ctx)
	if err != nil {
		return false, fmt.Errorf("change intent: %w", err)
	}
	defer func() { _ = lock.Close() }() // closing lets go
	i, err := f.Read()
	var damage *DamagedError
	if renewed = renew && errors.As(err, &damage) && !damage.stays; renewed {
		i, err = Intent{SchemaVersion: schemaVersion, Disabled: true}, nil
	}
	if err != nil {
		return false, err
	}
	if err := change(&i); err != nil {
		return false, err
	}
	if err := i.check(); err != nil {
		return false, fmt.Errorf("change intent: %w", err)
	}
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return false, fmt.Errorf("change intent: %w", err)
	}
	if data = append(data, '\n'); damage != nil && damage.directory {
		return renewed, f.replaceDirectory(data, damage)
	}
	return renewed, atomicfile.Write(filepath.Join(f.dir, intentFile), data)
}

// replaceDirectory puts data in the place of a directory, so that at each moment one of
// the two is there. If that cannot be done it is the damage, which stays.
func (f File) replaceDirectory(data []byte, damage *DamagedError) error {
	swap := filepath.Join(f.dir, swapFile)
	if err := removal.Tree(f.dir, swapFile); err != nil {
		return fmt.Errorf("change intent: %w", err)
	}
	if err := atomicfile.Write(swap, data); err != nil {
		return err
	}
	if err := exchange(swap, filepath.Join(f.dir, intentFile)); err != nil {
		damage.stays = true
		return errors.Join(damage, err, os.Remove(swap))
	}
	if err := errors.Join(atomicfile.SyncDir(f.dir), removal.Tree(f.dir, swapFile)); err != nil {
		return fmt.Errorf("change intent: %w", err)
	}
	return nil
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
	if err := removal.Tree(f.dir, swapFile); err != nil {
		return err
	}
	for _, file := range []string{intentFile, asideFile} {
		if err := os.Remove(filepath.Join(f.dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
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
