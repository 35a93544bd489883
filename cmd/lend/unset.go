package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// secretsLocked says why secrets that are set cannot be had: nil if they can, or if
// there are none. It opens none. lockedSecretsText tells that from other errors.
func secretsLocked(store *install.Store, root *connection.Root) error {
	releases, _, err := store.Releases() // of what is damaged nothing starts
	if err != nil {
		return err
	}
	set := slices.ContainsFunc(releases, func(r install.Release) bool {
		accounts, _ := root.List(r.Manifest.Key)
		return slices.ContainsFunc(accounts, func(c *connection.Connection) bool {
			all, _ := c.Secrets(connection.DeclaredBy(r.Manifest))
			return slices.ContainsFunc(all, func(s connection.SecretStatus) bool { return s.Set })
		})
	})
	if err = root.Sealed().Check(); set && secretHint(err) != "" {
		return err
	}
	return nil
}

// lockedSecretsText says what locked secrets mean, and what comes next; "" if they are not.
func lockedSecretsText(why error) string {
	hint := secretHint(why)
	if hint == "" {
		return ""
	}
	return fmt.Sprintf("no command that needs a secret starts: %v; next: %s", why, hint)
}

// explained adds to the refusal of a start why it was refused, and what the owner has to
// do: about the settings, secrets and homes of the connection that was to start, or of any
// if none was, and about the workspace.
func (o *ownersSide) explained(ctx context.Context, refused error, key name.ConnectorKey, version name.Version, w *witness) error {
	failed := w.failed.Load()
	r, err := o.store.Release(key, version)
	if err != nil {
		return refused
	}
	accounts, err := o.root.List(key)
	if err != nil {
		return refused
	}
	for _, c := range accounts {
		var unready *checkup.UnreadyError
		if failed != nil && c.ID() != failed.connection {
			continue
		}
		if errors.As(checkup.Unready(ctx, o.root, c, r.Manifest), &unready) {
			return &hinted{err: fmt.Errorf("%w: %w", refused, unready), hint: cmp.Or(secretHint(unready.Err), unready.Fix)}
		}
	}
	switch {
	case failed == nil && isRefusal(refused, protocol.CodeRouteAmbiguous):
		return &hinted{err: refused, hint: "give the rule a connection: one of " + connectionNames(accounts)}
	case failed == nil:
		return &hinted{err: refused, hint: "lend policy check"}
	case errors.Is(failed.err, home.ErrBusy):
		return &hinted{err: fmt.Errorf("%w: %w", refused, failed.err), hint: "again, when the login has ended"}
	case errors.Is(failed.err, route.ErrInvalid):
		return &hinted{err: fmt.Errorf("%w: %w", refused, failed.err), hint: "another path: one that stays in the workspace"}
	}
	return &hinted{err: fmt.Errorf("%w: %w", refused, failed.err), hint: "lend doctor"}
}

// connectionNames lists what a rule may name.
func connectionNames(accounts []*connection.Connection) string {
	names := make([]string, 0, len(accounts))
	for _, c := range accounts {
		names = append(names, c.ID().String())
	}
	return strings.Join(names, ", ")
}

// unsetSecrets says which secrets of the routes their manifests declare, and nobody
// has set: the command runs without them.
func (o *ownersSide) unsetSecrets(routes []route.Descriptor) (warnings []string) {
	for _, d := range routes {
		r, err := o.store.Release(d.Identity.Connector, d.Identity.Version)
		if err != nil {
			continue // the route itself will say so
		}
		c, err := o.root.Get(d.Identity.Connector, d.Identity.Connection)
		if err != nil {
			continue
		}
		all, err := c.Secrets(connection.DeclaredBy(r.Manifest))
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s (%s): its secrets cannot be looked at", d.Identity.Connector, d.Identity.Connection))
			continue
		}
		for _, s := range all {
			if !s.Set {
				warnings = append(warnings, fmt.Sprintf("%s (%s): secret %s is not set: lend connector secret set %s %s --connection %s",
					d.Identity.Connector, d.Identity.Connection, s.Name, d.Identity.Connector, s.Name, d.Identity.Connection))
			}
		}
	}
	return warnings
}
