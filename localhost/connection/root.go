package connection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/localhost/internal/removal"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// Errors of this package.
var (
	// ErrNotFound: there is no such connection, setting or secret.
	ErrNotFound = errors.New("not found")
	// ErrExists: there is one already.
	ErrExists = errors.New("already exists")
	// ErrUnsafe: a file or directory of ours is not private to this user.
	ErrUnsafe = private.ErrUnsafe
	// ErrInvalid: a name, a value or a file breaks the rules or a bound.
	ErrInvalid = errors.New("invalid")
	// ErrReserved: the variable would let its value choose what code runs.
	ErrReserved = errors.New("reserved variable")
	// ErrConflict: two sources give the same variable.
	ErrConflict = errors.New("variable is given twice")
	// ErrPlain: the secret is stored in the form of an earlier version; see SealPlain.
	ErrPlain = errors.New("secret is not sealed yet")
	// ErrDisabled: the owner has disabled the connection.
	ErrDisabled = errors.New("connection is disabled")
)

// Default is the name of a Connector's connection unless the owner named one.
const Default = "default"

// Root is the directory that holds all connections of this machine.
type Root struct {
	dir    string // absolute
	sealed *sealed.Store
}

// Open makes dir, an absolute path, and what is above it, with mode 0700 unless it
// exists. A directory that others can use, or that is a link, is ErrUnsafe. Secrets
// whose key source is a passphrase are locked; see OpenAsking.
func Open(dir string) (*Root, error) { return OpenAsking(dir, nil) }

// OpenAsking is Open with somebody who knows the passphrase, if that is the key
// source. It is asked when a secret is first used, not before.
func OpenAsking(dir string, ask sealed.Ask) (*Root, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("open connections %s: path is not absolute: %w", name.Quote(dir), ErrInvalid)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("open connections: %w", err)
	}
	for _, d := range []string{dir, filepath.Join(dir, connectorsDir)} {
		if err := privateDir(d); err != nil {
			return nil, fmt.Errorf("open connections: %w", err)
		}
	}
	store, err := sealed.Open(filepath.Join(filepath.Clean(dir), "sealed"), ask)
	if err != nil {
		return nil, fmt.Errorf("open connections: %w", err)
	}
	return &Root{dir: filepath.Clean(dir), sealed: store}, nil
}

// Sealed returns the store of all connections' secrets, for its key source.
func (r *Root) Sealed() *sealed.Store { return r.sealed }

const connectorsDir = "connectors"

// Dir returns the absolute path that was opened.
func (r *Root) Dir() string { return r.dir }

func (r *Root) connector(key name.ConnectorKey) string {
	return filepath.Join(r.dir, connectorsDir, key.String())
}

// Intent is the file of what the owner wants of a Connector as a whole.
func (r *Root) Intent(key name.ConnectorKey) intent.File { return intent.At(r.connector(key)) }

// Connectors names the Connectors that have a directory here, sorted, installed or
// not.
func (r *Root) Connectors() ([]name.ConnectorKey, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, connectorsDir))
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	var all []name.ConnectorKey
	for _, e := range entries {
		if key, err := name.ParseConnectorKey(e.Name()); err == nil && e.IsDir() {
			all = append(all, key)
		}
	}
	return all, nil
}

// List returns the connections of a Connector, sorted by ID. A Connector that has
// none has an empty list.
func (r *Root) List(key name.ConnectorKey) ([]*Connection, error) {
	names, err := r.Names(key)
	if err != nil {
		return nil, err
	}
	var all []*Connection
	for _, id := range names {
		c, err := r.Get(key, id)
		if errors.Is(err, ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Names are the connections of a Connector, sorted, whether they can be opened or not. It
// is ErrUnsafe if the directory that holds them is.
func (r *Root) Names(key name.ConnectorKey) ([]name.ConnectionID, error) {
	err := checkDir(r.connector(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	entries, err := os.ReadDir(r.connector(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	var all []name.ConnectionID
	for _, e := range entries {
		id, err := name.ParseConnectionID(e.Name())
		if err != nil || !e.IsDir() && e.Type()&fs.ModeSymlink == 0 && e.Name() != Default {
			continue // not ours: a directory that is being removed, or a stray file
		}
		all = append(all, id) // a link in the place of one cannot be opened, nor a file where Ensure makes one
	}
	return all, nil
}

// Get opens one connection. It is ErrNotFound if there is none.
func (r *Root) Get(key name.ConnectorKey, id name.ConnectionID) (*Connection, error) {
	c := &Connection{key: key, id: id, dir: filepath.Join(r.connector(key), id.String()), sealed: r.sealed}
	if key.IsZero() || id.IsZero() {
		return nil, fmt.Errorf("open connection: %w", ErrInvalid)
	}
	if err := c.ensure(); err != nil {
		return nil, fmt.Errorf("open connection: %w", err)
	}
	return c, nil
}

// Create makes a connection and its directories. It is ErrExists if there is one
// of that name, ignoring case.
func (r *Root) Create(key name.ConnectorKey, id name.ConnectionID) (*Connection, error) {
	if key.IsZero() || id.IsZero() {
		return nil, fmt.Errorf("create connection: %w", ErrInvalid)
	}
	all, err := r.List(key)
	if err != nil {
		return nil, err
	}
	same := func(c *Connection) bool { return strings.EqualFold(c.id.String(), id.String()) }
	if slices.ContainsFunc(all, same) {
		return nil, fmt.Errorf("connection %s of %s: %w", id, key, ErrExists)
	}
	// Whatever was called so before: a new connection begins without secrets.
	if err := r.sealed.DeleteAll(sealed.Place{Connector: key, Connection: id}); err != nil {
		return nil, fmt.Errorf("create connection: %w", err)
	}
	if err := r.mkdir(key, id); err != nil {
		return nil, fmt.Errorf("create connection: %w", err)
	}
	return r.Get(key, id)
}

// mkdir makes the directory of a connection. A purge that ends at this moment takes the
// Connector's away once more.
func (r *Root) mkdir(key name.ConnectorKey, id name.ConnectionID) (err error) {
	for range 3 {
		if err := privateDir(r.connector(key)); err != nil {
			return err
		}
		if err = os.Mkdir(filepath.Join(r.connector(key), id.String()), 0o700); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// Ensure returns the connections of a Connector, after making the default one if
// there is none.
func (r *Root) Ensure(key name.ConnectorKey) ([]*Connection, error) {
	all, err := r.List(key)
	if err != nil || len(all) > 0 {
		return all, err
	}
	id, err := name.ParseConnectionID(Default)
	if err != nil {
		return nil, err
	}
	c, err := r.Create(key, id)
	if errors.Is(err, ErrExists) {
		return r.List(key) // another process was faster
	}
	if err != nil {
		return nil, err
	}
	return []*Connection{c}, nil
}

// Remove deletes a connection with its secrets, settings and everything that its
// CLI keeps, whether it can be opened or not. Links are removed, never followed.
// ErrNotFound if there is none.
func (r *Root) Remove(key name.ConnectorKey, id name.ConnectionID) error {
	if key.IsZero() || id.IsZero() {
		return fmt.Errorf("remove connection: %w", ErrInvalid)
	}
	if err := checkDir(r.connector(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove connection %s of %s: %w", id, key, err)
	}
	_, err := os.Lstat(filepath.Join(r.connector(key), id.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("connection %s of %s: %w", id, key, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("remove connection %s of %s: %w", id, key, err)
	}
	err = r.sealed.DeleteAll(sealed.Place{Connector: key, Connection: id})
	if err = errors.Join(err, removal.Tree(r.connector(key), id.String())); err != nil {
		return fmt.Errorf("remove connection %s of %s: %w", id, key, err)
	}
	return nil
}

// Sweep removes what processes that were killed had not written whole, of all
// Connectors, and what nobody needs of the sealed secrets. It waits for nobody but the
// writer of an intent; what another process writes is left for the next time.
func (r *Root) Sweep(ctx context.Context) error {
	keys, err := r.Connectors()
	err = errors.Join(err, r.sealed.Sweep())
	for _, key := range keys {
		err = errors.Join(err, r.Intent(key).Sweep(ctx))
		all, listErr := r.List(key)
		if listErr != nil {
			continue // unsafe: Reconcile says so
		}
		for _, c := range all {
			err = errors.Join(err, c.sweep())
		}
	}
	if err != nil {
		return fmt.Errorf("sweep connections: %w", err)
	}
	return nil
}

func (c *Connection) sweep() error {
	if there, err := atomicfile.Halves(c.dir); err != nil || len(there) == 0 {
		return err
	}
	lock, err := filelock.Try(filepath.Join(c.dir, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.Sweep(c.dir), lock.Close())
}
