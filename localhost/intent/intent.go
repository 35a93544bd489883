package intent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	if err := private.Dir(f.dir); err != nil {
		return fmt.Errorf("change intent: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	lock, err := filelock.Exclusive(ctx, filepath.Join(f.dir, intentLock))
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
	if err := private.Dir(f.dir); err != nil {
		return nil, fmt.Errorf("hold connector: %w", err)
	}
	lock, err := filelock.Try(filepath.Join(f.dir, removalLock))
	if err != nil {
		return nil, fmt.Errorf("hold connector: %w", err)
	}
	return lock, nil
}
