package checkup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// UnreadyError says why nothing starts of a connection that is enabled and whose release
// is as installed. It holds no value of a setting or a secret.
type UnreadyError struct {
	Connection name.ConnectionID
	Fix        string // a command or an action
	Err        error  // matches sealed.ErrLocked where the key of the secrets cannot be had
}

func (e *UnreadyError) Error() string {
	return fmt.Sprintf("connection %s: %v", e.Connection, e.Err)
}

// Unwrap returns the cause.
func (e *UnreadyError) Unwrap() error { return e.Err }

// Unready looks whether a start of m in c would have its settings, its secrets and its
// home: nil, or an *UnreadyError. Secrets are opened and dropped; nothing is changed. A
// disabled connection is not looked at.
func Unready(ctx context.Context, root *connection.Root, c *connection.Connection, m manifest.Manifest) error {
	ail := func(err error, fix string) error {
		return &UnreadyError{Connection: c.ID(), Fix: fix, Err: err}
	}
	of := fmt.Sprintf("%s --connection %s", m.Key, c.ID())
	cfg, err := c.Config()
	if err != nil {
		return ail(err, ConfigFix(c, err))
	}
	if cfg.Disabled {
		return nil
	}
	declared := connection.DeclaredBy(m)
	all, err := c.Secrets(declared)
	switch {
	case errors.Is(err, sealed.ErrBlocked):
		return ail(err, fmt.Sprintf("lend connector secret set %[1]s NAME --connection %[2]s < FILE, for each again; or lend connector remove %[1]s --purge", m.Key, c.ID()))
	case err != nil:
		return ail(err, "lend connector secret list "+of)
	}
	for _, s := range all {
		if !s.Set {
			continue
		}
		if err := root.Sealed().Check(); err != nil {
			return ail(err, KeyFix(root))
		}
		if err := opens(root.Sealed(), c, s.Name); err != nil {
			return ail(fmt.Errorf("secret %s does not open: %w", s.Name, err),
				fmt.Sprintf("lend connector secret set %s %s --connection %s < FILE", m.Key, s.Name, c.ID()))
		}
	}
	_, err = c.Environment(declared, nil, nil)
	switch {
	case errors.Is(err, connection.ErrPlain):
		return ail(err, "lend init")
	case err != nil:
		return ail(err, "lend connector setting list "+of+", and setting remove")
	}
	return Uncopied(ctx, c)
}

// Uncopied looks whether a start in c would have its home, which most get a copy of: nil,
// or an *UnreadyError.
func Uncopied(ctx context.Context, c *connection.Connection) error {
	cfg, err := c.Config()
	if err != nil {
		return &UnreadyError{Connection: c.ID(), Fix: ConfigFix(c, err), Err: err}
	}
	if cfg.SharedHome {
		return nil
	}
	if err := c.Dirs().Check(ctx); err != nil && ctx.Err() == nil {
		return &UnreadyError{Connection: c.ID(), Fix: homeFix(err, c), Err: err}
	}
	return nil
}

// opens opens one value and drops it. One that is stored as an earlier version did is not
// for here.
func opens(s *sealed.Store, c *connection.Connection, secret string) error {
	label, err := name.ParseLabel(secret)
	if err != nil {
		return err
	}
	value, err := s.Get(sealed.Place{Connector: c.Connector(), Connection: c.ID(), Name: label})
	clear(value)
	if errors.Is(err, sealed.ErrNotFound) {
		return nil
	}
	return err
}

// notOurs tells whether modes or owners are what keeps a file from being used.
func notOurs(err error) bool {
	return errors.Is(err, connection.ErrUnsafe) || errors.Is(err, fs.ErrPermission)
}

// regular is false of a link to a file.
func regular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// ConfigFix says what mends the settings of a connection that err keeps from being read.
func ConfigFix(c *connection.Connection, err error) string {
	if notOurs(err) {
		return PrivateFix(filepath.Dir(c.Home()))
	}
	file := filepath.Join(filepath.Dir(c.Home()), "connection.json")
	return "restore it from a copy, or: mv " + file + " " + file + ".damaged, then lend connector setting set"
}

func homeFix(err error, c *connection.Connection) string {
	dir := filepath.Dir(c.Home())
	shared := fmt.Sprintf(", or lend connector setting home %s shared --connection %s", c.Connector(), c.ID())
	switch {
	case errors.Is(err, home.ErrTooLarge):
		return "remove from " + dir + " what it does not need" + shared
	case errors.Is(err, home.ErrLink):
		return "remove that link from " + dir + shared
	}
	return fmt.Sprintf("look at %s, or lend connector login %s --connection %s", dir, c.Connector(), c.ID())
}

// PrivateFix says what makes a directory of ours private again, and what is in it.
func PrivateFix(dir string) string {
	return "chmod -R u+rwX,go= " + dir + ", or take away the link or file that it names"
}

// KeyFix says what brings back the key of secrets that are locked or unreadable.
func KeyFix(root *connection.Root) string {
	source, err := root.Sealed().Source()
	dir := filepath.Join(root.Dir(), "sealed")
	lost := ", or without it: mv " + dir + " " + dir + ".lost, then lend init, and lend connector secret set each again"
	switch {
	case errors.Is(err, sealed.ErrNoSource):
		return "lend init"
	case notOurs(err):
		return PrivateFix(dir)
	case err != nil:
		return "restore " + dir + " from a copy" + lost
	case source.Kind == sealed.KeyFile && notOurs(root.Sealed().Check()):
		return PrivateFix(dir)
	case source.Kind == sealed.Age && regular(source.Identity) && notOurs(root.Sealed().Check()):
		return "chmod 600 " + source.Identity
	case source.Kind == sealed.KeyFile:
		return "restore the file key-….secret of " + dir + " from a copy" + lost
	case source.Kind == sealed.Age:
		return "bring back " + source.Identity + lost
	case source.Kind == sealed.Passphrase:
		return "give the passphrase: LEND_PASSPHRASE_FD=3 lend doctor 3< FILE" + lost
	}
	return "unlock the login keyring, whose DBUS_SESSION_BUS_ADDRESS lend has to be started with" + lost
}
