package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// Store is what releases are removed from; *install.Store is one.
type Store interface {
	// Versions names what is installed of a Connector, readable or not; it is an error
	// if nobody can tell.
	Versions(key name.ConnectorKey) ([]name.Version, error)
	// Remove removes one version; a zero one means all, or a link in their place.
	Remove(ctx context.Context, key name.ConnectorKey, version name.Version) error
}

// Config is what a removal works on. It must not be changed afterwards.
type Config struct {
	Store       Store
	Connections *connection.Root
	// Retire has the running host retire the routes that are no longer wanted. Nil
	// means that nothing of the Connector is routed or runs any more, or that no
	// host runs; an error ends the removal there, to be taken up again. A nil
	// function is for whoever knows that no host runs.
	Retire func(ctx context.Context, key name.ConnectorKey) error
	// Withdraw takes away what leads to a Connector of which no version stays, such
	// as shims. It is called again for one that it was called for; nil: nothing does.
	Withdraw func(ctx context.Context, key name.ConnectorKey) error

	at func(step string) // in tests: where a process dies
}

// Request names what to remove. Its zero Version means all; Purge needs that.
type Request struct {
	Connector name.ConnectorKey
	Version   name.Version
	Purge     bool
}

// ErrVersion refuses Purge of one version: connections belong to all of them.
var ErrVersion = errors.New("connections are removed with all versions only")

// Remove removes a Connector. Where a removal of it was interrupted, that is brought
// to its end first. Where nobody can read what was wanted of it, it is removed all the
// same, and what stays of it is disabled. It is install.ErrNotInstalled if there was nothing to remove,
// intent.ErrHeld while another process removes the Connector, ErrVersion for a
// request that cannot be. After any other error the removal stands, and the next
// Remove or Resume goes on with it.
func Remove(ctx context.Context, c Config, r Request) error {
	if r.Connector.IsZero() {
		return fmt.Errorf("remove connector: %w", install.ErrNotInstalled)
	}
	if r.Purge && !r.Version.IsZero() {
		return fmt.Errorf("remove connector %s: %w", r.Connector, ErrVersion)
	}
	if err := c.remove(ctx, r); err != nil {
		return fmt.Errorf("remove connector %s: %w", strings.TrimSpace(r.Connector.String()+" "+r.Version.String()), err)
	}
	return nil
}

// remove goes on until no version stays that was asked for: an update or an import that
// was under way when the removal was written down ends before its last step.
func (c *Config) remove(ctx context.Context, r Request) error {
	err := c.removeThese(ctx, r)
	for err == nil && r.Version.IsZero() {
		var installed []name.Version
		if installed, err = c.Store.Versions(r.Connector); err == nil && len(installed) == 0 {
			return nil
		}
		if err == nil {
			err = c.removeThese(ctx, r)
		}
		if errors.Is(err, install.ErrNotInstalled) {
			return nil // another process was faster
		}
	}
	return err
}

// removeThese removes what is installed now.
func (c *Config) removeThese(ctx context.Context, r Request) error {
	_, there, err := c.anything(r)
	if err != nil {
		return err
	}
	if !there {
		return install.ErrNotInstalled // and no directory is made
	}
	file := c.Connections.Intent(r.Connector)
	lock, err := file.Hold()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // closing lets go
	resumed, err := c.resume(ctx, r.Connector, lock)
	if err != nil {
		return err
	}
	if resumed { // a purge takes the lock along
		_ = lock.Close() // closing lets go
		again, err := file.Hold()
		if err != nil {
			return err
		}
		lock = again
	}
	installed, there, err := c.anything(r)
	switch {
	case err != nil:
		return err
	case !there && resumed:
		return c.tidyHeld(ctx, r.Connector, lock) // it was all that was left to do
	case !there:
		return install.ErrNotInstalled
	}
	removal := intent.Removal{Purge: r.Purge, Versions: []string{}}
	for _, v := range installed {
		if r.Version.IsZero() || v == r.Version {
			removal.Versions = append(removal.Versions, v.String())
		}
	}
	c.reached("begin")
	if _, err := file.Renew(ctx, func(i *intent.Intent) error { i.Removing = &removal; return nil }); err != nil {
		return err
	}
	c.reached("written")
	return c.finish(ctx, r.Connector, removal, lock)
}

// anything names what is installed, and tells whether there is something to remove, or
// to go on with.
func (c *Config) anything(r Request) (installed []name.Version, there bool, err error) {
	if installed, err = c.Store.Versions(r.Connector); linked(err) && r.Version.IsZero() {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	i, err := c.Connections.Intent(r.Connector).Read()
	if damaged(err) {
		return installed, r.Version.IsZero() || slices.Contains(installed, r.Version), nil
	}
	if err != nil {
		return nil, false, err
	}
	if i.Removing != nil || r.Version.IsZero() && len(installed) > 0 || slices.Contains(installed, r.Version) {
		return installed, true, nil
	}
	if !r.Purge {
		return installed, false, nil
	}
	all, err := c.Connections.Names(r.Connector)
	return installed, i.Disabled || len(all) > 0, err
}

// linked tells whether a link is in the place of all versions of a Connector.
func linked(err error) bool {
	var d *install.Damage
	return errors.As(err, &d) && d.Link()
}

// damaged tells whether nobody knows what was wanted of a Connector.
func damaged(err error) bool {
	var d *intent.DamagedError
	return errors.As(err, &d)
}

// Resume brings every removal to its end that a dead process has begun, and names
// the Connectors; those that a live process removes are left to it. One that fails
// keeps none of the others. It removes as well what dead processes have left of purged
// Connectors, and of files that they had not written whole.
func Resume(ctx context.Context, c Config) (resumed []name.ConnectorKey, err error) {
	keys, err := c.Connections.Connectors()
	_ = c.Connections.Sweep(ctx) // it is only for tidiness, and tried again the next time
	for _, key := range keys {
		i, readErr := c.Connections.Intent(key).Read()
		if readErr != nil {
			continue // its routes say so
		}
		if i.Removing == nil {
			_ = c.tidy(ctx, key)
			continue
		}
		done, e := c.resumeHeld(ctx, key)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("remove connector %s: %w", key, e))
		} else if done {
			resumed = append(resumed, key)
		}
	}
	return resumed, err
}

func (c *Config) resumeHeld(ctx context.Context, key name.ConnectorKey) (bool, error) {
	lock, err := c.Connections.Intent(key).Hold()
	if errors.Is(err, intent.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = lock.Close() }() // closing lets go
	return c.resume(ctx, key, lock)
}

// tidy removes the directory of a Connector of which nothing is left.
func (c *Config) tidy(ctx context.Context, key name.ConnectorKey) error {
	if !c.nothing(key) {
		return nil
	}
	lock, err := c.Connections.Intent(key).Hold()
	if errors.Is(err, intent.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // closing lets go
	return c.tidyHeld(ctx, key, lock)
}

func (c *Config) tidyHeld(ctx context.Context, key name.ConnectorKey, lock *filelock.Lock) error {
	if !c.nothing(key) {
		return nil
	}
	return c.Connections.Intent(key).Forget(ctx, lock)
}

// nothing tells whether no version of a Connector is installed, it has no connection,
// and nothing is wanted of it. What cannot be read is something.
func (c *Config) nothing(key name.ConnectorKey) bool {
	installed, err := c.Store.Versions(key)
	if err != nil || len(installed) > 0 {
		return false
	}
	i, err := c.Connections.Intent(key).Read()
	if err != nil || i.Removing != nil || i.Disabled {
		return false
	}
	all, err := c.Connections.Names(key)
	return err == nil && len(all) == 0
}

// resume goes on with what was interrupted, if anything was. The Connector is held.
func (c *Config) resume(ctx context.Context, key name.ConnectorKey, lock *filelock.Lock) (bool, error) {
	i, err := c.Connections.Intent(key).Read()
	if damaged(err) {
		return false, nil // whatever it was, what is asked for now takes its place
	}
	if err != nil || i.Removing == nil {
		return false, err
	}
	return true, c.finish(ctx, key, *i.Removing, lock)
}

// finish does what is written down, each step of which may have been done already. The
// lock is that of Hold; a purge takes it along.
func (c *Config) finish(ctx context.Context, key name.ConnectorKey, r intent.Removal, lock *filelock.Lock) error {
	if c.Retire != nil {
		if err := c.Retire(ctx, key); err != nil {
			return fmt.Errorf("end what runs of it: %w", err)
		}
	}
	c.reached("retired")
	installed, err := c.Store.Versions(key)
	if linked(err) { // it alone goes
		if err = c.Store.Remove(ctx, key, name.Version{}); err == nil {
			installed, err = c.Store.Versions(key)
		}
	}
	if err != nil {
		return err
	}
	stays := func(v name.Version) bool { return !slices.Contains(r.Versions, v.String()) }
	if c.Withdraw != nil && !slices.ContainsFunc(installed, stays) {
		if err := c.Withdraw(ctx, key); err != nil {
			return fmt.Errorf("take away what leads to it: %w", err)
		}
		c.reached("withdrawn")
	}
	for _, s := range r.Versions {
		v, err := name.ParseVersion(s)
		if err != nil {
			return err
		}
		if err := c.Store.Remove(ctx, key, v); err != nil && !errors.Is(err, install.ErrNotInstalled) {
			return err
		}
		c.reached("removed " + s)
	}
	if r.Purge {
		if err := c.purge(key); err != nil {
			return err
		}
	}
	if r.Purge {
		err = c.Connections.Intent(key).Forget(ctx, lock)
	} else {
		err = c.Connections.Intent(key).Update(ctx, func(i *intent.Intent) error { i.Removing = nil; return nil })
	}
	if err == nil {
		c.reached("forgotten")
	}
	return err
}

func (c *Config) purge(key name.ConnectorKey) error {
	all, err := c.Connections.Names(key)
	if err != nil {
		return err
	}
	for _, id := range all {
		if err := c.Connections.Remove(key, id); err != nil && !errors.Is(err, connection.ErrNotFound) {
			return err
		}
		c.reached("purged " + id.String())
	}
	// Those of a connection whose directory was taken away by hand, too.
	return c.Connections.Sealed().DeleteAll(sealed.Place{Connector: key})
}

// reached is where a test has a process die.
func (c *Config) reached(step string) {
	word, _, _ := strings.Cut(step, " ")
	failpoint.Hit("uninstall-" + word)
	if c.at != nil {
		c.at(step)
	}
}
