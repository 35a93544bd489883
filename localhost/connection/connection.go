package connection

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// Connection is one account of a Connector. It holds no state in memory: every
// method reads or replaces files.
type Connection struct {
	key name.ConnectorKey
	id  name.ConnectionID
	dir string // absolute

	sealed *sealed.Store
}

// Connector returns the key of the Connector that the account is of.
func (c *Connection) Connector() name.ConnectorKey { return c.key }

// ID returns the name of the connection.
func (c *Connection) ID() name.ConnectionID { return c.id }

// Home returns the absolute path of the CLI's private home directory.
func (c *Connection) Home() string { return filepath.Join(c.dir, "home") }

// Temp returns the absolute path of the CLI's private temporary directory.
func (c *Connection) Temp() string { return filepath.Join(c.dir, "tmp") }

// State returns the absolute path of the CLI's private state directory.
func (c *Connection) State() string { return filepath.Join(c.dir, "state") }

// Dirs returns the directories that the CLI's own login works in. They are the
// baseline: an operation gets a copy (Operations.Home), unless the owner shares them.
func (c *Connection) Dirs() home.Dirs {
	return home.Dirs{Home: c.Home(), Temp: c.Temp(), State: c.State()}
}

func (c *Connection) homeLock() string { return filepath.Join(c.dir, "home.lock") }

// shareHome keeps a login from beginning while the home is copied.
func (c *Connection) shareHome() (io.Closer, error) {
	lock, err := filelock.TryShared(c.homeLock())
	if errors.Is(err, filelock.ErrHeld) {
		return nil, home.ErrBusy
	}
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// HoldHome keeps operations from copying the home while a login changes it; the
// caller must Close the result.
func (c *Connection) HoldHome() (io.Closer, error) { return lockFile(c.homeLock()) }

// ensure checks the directories and makes those that are missing; a connection
// that was removed stays removed.
func (c *Connection) ensure() error {
	err := checkDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("connection %s of %s: %w", c.id, c.key, ErrNotFound)
	}
	if err != nil {
		return err
	}
	for _, d := range []string{c.Home(), c.Temp(), c.State()} {
		if err := privateDir(d); err != nil {
			return err
		}
	}
	return nil
}

// Declared is what a release says about the variables that its connections have.
type Declared struct {
	Settings []Declaration
	Secrets  []Declaration
}

// Declaration names one setting or secret and the variable that carries it.
type Declaration struct {
	Name        string // a label
	Variable    string
	Description string
	Default     string // of a setting; "" means that it is not set
}

// DeclaredBy returns what a release's manifest declares.
func DeclaredBy(m manifest.Manifest) Declared {
	var d Declared
	for _, s := range m.Settings {
		d.Settings = append(d.Settings, Declaration{Name: s.Name, Variable: s.Env, Description: s.Description, Default: s.Default})
	}
	for _, s := range m.Secrets {
		d.Secrets = append(d.Secrets, Declaration{Name: s.Name, Variable: s.Env, Description: s.Description})
	}
	return d
}
