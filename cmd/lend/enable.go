package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/uninstall"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) connectorDisableCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "disable KEY",
		Short: "stop lending a Connector, or one connection of it",
		Long: `Stop lending a Connector with all its connections, or one connection of it. A
running gateway ends what runs of it, whether it listens or not, and starts
nothing any more; the next gateway does not either. Installed files, secrets and
homes stay. Without a gateway it holds for the next one.`,
		Example: `  lend connector disable github
  lend connector disable github --connection work`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.setDisabled(cmd.Context(), args[0], id, true) },
	}
	c.Flags().StringVar(&id, "connection", "", "only this account of the Connector (default: all, of now and later)")
	return c
}

func (a *app) connectorEnableCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "enable KEY",
		Short: "lend a Connector, or one of its connections, again",
		Long: `Take back what lend connector disable did: of the Connector as a whole, or of
one connection. A connection that was disabled by its name stays disabled until
it is enabled by its name.`,
		Example: `  lend connector enable github
  lend connector enable github --connection work`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.setDisabled(cmd.Context(), args[0], id, false) },
	}
	c.Flags().StringVar(&id, "connection", "", "only this account of the Connector (default: the Connector)")
	return c
}

// setDisabled writes down what is wanted, and then has a running gateway do it.
func (a *app) setDisabled(ctx context.Context, key, id string, disabled bool) error {
	k, err := name.ParseConnectorKey(key)
	if err != nil {
		return &usageError{err: err, hint: hintInstalled}
	}
	return a.withStore("", func(s *install.Store) error {
		versions, err := s.Versions(k)
		if err == nil && len(versions) == 0 {
			err = fmt.Errorf("connector %s: %w", k, install.ErrNotInstalled)
		}
		if err != nil {
			return err
		}
		root, err := a.connectionsHere()
		if err != nil {
			return err
		}
		if id == "" {
			err = a.setAllDisabled(ctx, root, k, disabled)
		} else {
			err = setConnectionDisabled(root, k, id, disabled)
		}
		if err != nil {
			return err
		}
		// What the gateway did not do is said as the failure of this command.
		if err := a.setRunning(ctx, k, id, disabled); err != nil {
			return err
		}
		return a.showEnabled(root, k, id, disabled)
	})
}

// setAllDisabled writes down what is wanted of a Connector. Disabled is what may be said
// of one of which nobody can read what was wanted before.
func (a *app) setAllDisabled(ctx context.Context, root *connection.Root, key name.ConnectorKey, disabled bool) error {
	set := func(i *intent.Intent) error { i.Disabled = disabled; return nil }
	if !disabled {
		return root.Intent(key).Update(ctx, set)
	}
	renewed, err := root.Intent(key).Renew(ctx, set)
	if renewed && err == nil {
		a.note("lend: what was wanted of %s could not be read, and is forgotten: whether it was disabled, or being removed", key)
	}
	return err
}

func (a *app) setRunning(ctx context.Context, key name.ConnectorKey, id string, disabled bool) error {
	what := strings.TrimSpace(key.String() + " " + id)
	if disabled {
		return a.retired(ctx, change{key: key, connection: id, done: what + " is disabled on the disk, so nothing more of it starts"})
	}
	return a.takenUp(ctx, change{key: key, connection: id, done: what + " is enabled on the disk"})
}

func setConnectionDisabled(root *connection.Root, key name.ConnectorKey, id string, disabled bool) error {
	cid, err := name.ParseConnectionID(id)
	if err != nil {
		return &usageError{err: err, hint: "--connection " + connection.Default}
	}
	all := ""
	if disabled {
		all = "lend connector disable " + key.String() + ", which needs nothing of the connection; or "
	}
	c, _, err := openConnection(root, key, cid, existing)
	if err != nil {
		return orHint(err, all+checkup.PrivateFix(root.Dir()))
	}
	return orHint(c.SetDisabled(disabled), all+damagedOr(c, "lend doctor"))
}

// showEnabled ends with what still keeps something from being lent.
func (a *app) showEnabled(root *connection.Root, key name.ConnectorKey, id string, disabled bool) error {
	now, err := root.Intent(key).Read()
	if err != nil {
		return err
	}
	r := struct {
		SchemaVersion int      `json:"schemaVersion"`
		Connector     string   `json:"connector"`
		Connection    string   `json:"connection,omitempty"`
		Disabled      bool     `json:"disabled"`
		Still         []string `json:"still,omitempty"` // what keeps all or some of it from being lent all the same
	}{SchemaVersion: jsonSchema, Connector: key.String(), Connection: id, Disabled: disabled}
	if !disabled {
		if r.Still, err = stillDisabled(root, key, id, now); err != nil {
			return err
		}
	}
	return a.show(r, func() error {
		for _, s := range r.Still {
			a.note("lend: %s", s)
		}
		what := strings.TrimSpace(key.String() + " " + id)
		if disabled {
			return a.say("%s disabled; lend connector enable %s ends it", what, enableArguments(key, id))
		}
		return a.say("%s enabled", what)
	})
}

func enableArguments(key name.ConnectorKey, id string) string {
	if id == "" {
		return key.String()
	}
	return key.String() + " --connection " + id
}

func stillDisabled(root *connection.Root, key name.ConnectorKey, id string, now intent.Intent) (still []string, err error) {
	if now.Removing != nil {
		still = append(still, fmt.Sprintf("its removal was interrupted; next: lend connector remove %s", key))
	}
	if id != "" && now.Disabled {
		still = append(still, fmt.Sprintf("the Connector as a whole is disabled; next: lend connector enable %s", key))
	}
	all, err := root.List(key)
	if err != nil {
		return nil, orHint(err, checkup.PrivateFix(root.Dir()))
	}
	for _, c := range all {
		cfg, err := c.Config()
		if err != nil {
			return nil, orHint(err, damagedOr(c, "lend doctor"))
		}
		if cfg.Disabled && id == "" {
			still = append(still, fmt.Sprintf("connection %s is disabled; next: lend connector enable %s", c.ID(), enableArguments(key, c.ID().String())))
		}
	}
	return still, nil
}

// noteDisabled says that what was added is not lent, if so.
func (a *app) noteDisabled(key string) error {
	k, err := name.ParseConnectorKey(key)
	if err != nil {
		return err
	}
	root, err := a.connectionsHere()
	if err != nil {
		return err
	}
	i, err := root.Intent(k).Read()
	if i.Disabled {
		a.note("lend: it is disabled; next: lend connector enable %s", k)
	}
	return err
}

// connectionsHere opens the connections of this directory.
func (a *app) connectionsHere() (*connection.Root, error) {
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	return a.connections(p)
}

// unreadableState: nobody knows what is wanted of a Connector or its connections.
const unreadableState = "unreadable"

// stateOf says in a word whether a Connector is lent.
func stateOf(root *connection.Root, key name.ConnectorKey, version name.Version) string {
	i, err := root.Intent(key).Read()
	switch {
	case err != nil:
		return unreadableState
	case i.Removes(version):
		return "removing"
	case i.Disabled:
		return "disabled"
	}
	all, err := root.List(key)
	if err != nil {
		return unreadableState
	}
	disabled := 0
	for _, c := range all {
		if cfg, err := c.Config(); err != nil || cfg.Disabled {
			disabled++
		}
	}
	switch {
	case disabled == 0:
		return "enabled"
	case disabled == len(all):
		return "disabled"
	default:
		return "partly disabled"
	}
}

func (a *app) connectorRemoveCommand() *cobra.Command {
	var version string
	var purge bool
	c := &cobra.Command{
		Use:   "remove KEY",
		Short: "remove a Connector; its connections' secrets and state are kept",
		Long: `Remove the installed files of a Connector: one version of it, or all. A running
gateway ends what runs of it first. Secrets, settings and the CLI's private
state stay, so that the Connector can be added again; --purge removes the
connections with them, also of a Connector that was removed before. The record
of operations stays in any case. A removal that is interrupted holds: nothing of
it is lent, and the next remove, add or serve ends it.`,
		Example: `  lend connector remove github
  lend connector remove github --version 2.23.0
  lend connector remove github --purge`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := uninstall.Request{Purge: purge}
			var err error
			if q.Connector, err = name.ParseConnectorKey(args[0]); err != nil {
				return &usageError{err: err, hint: hintInstalled}
			}
			if version != "" {
				if q.Version, err = name.ParseVersion(version); err != nil {
					return &usageError{err: err, hint: hintInstalled}
				}
			}
			return a.withUninstall(func(c uninstall.Config) error {
				err := uninstall.Remove(cmd.Context(), c, q)
				switch {
				case errors.Is(err, uninstall.ErrVersion):
					return &usageError{err: err, hint: "lend connector remove " + args[0] + " --purge"}
				case errors.Is(err, intent.ErrHeld):
					return hintf("lend connector list", "another process is removing %s", q.Connector)
				case err != nil:
					return err
				}
				// Its policy is judged anew.
				gone := change{key: q.Connector, version: q.Version, done: strings.TrimSpace(args[0]+" "+version) + " is removed"}
				if err := a.retired(cmd.Context(), gone); err != nil {
					return err
				}
				r := struct {
					SchemaVersion int    `json:"schemaVersion"`
					Removed       string `json:"removed"`
					Purged        bool   `json:"purged,omitempty"`
				}{jsonSchema, strings.TrimSpace(q.Connector.String() + " " + version), purge}
				return a.show(r, func() error {
					if purge {
						return a.say("%s removed, with its connections and their secrets", r.Removed)
					}
					return a.say("%s removed", r.Removed)
				})
			})
		},
	}
	c.Flags().StringVar(&version, "version", "", "only this version (default: all)")
	c.Flags().BoolVar(&purge, "purge", false, "also remove its connections: secrets, settings and private state")
	return c
}

func (a *app) withUninstall(f func(uninstall.Config) error) error {
	return a.withStore("", func(s *install.Store) error {
		root, err := a.connectionsHere()
		if err != nil {
			return err
		}
		return f(uninstall.Config{Store: s, Connections: root, Retire: a.retireRunning, Withdraw: a.removeLocalShims})
	})
}

// finishRemovals ends the removals that were interrupted, before something is added
// that they would meet. One that cannot be ended holds nothing else up; see stillRemoved.
func (a *app) finishRemovals(ctx context.Context) error {
	return a.withUninstall(func(c uninstall.Config) error {
		resumed, err := uninstall.Resume(ctx, c)
		for _, key := range resumed {
			a.note("lend: the removal of %s, which was interrupted, has ended", key)
		}
		if err != nil {
			a.note("lend: a removal that was interrupted could not be ended: %s; next: lend connector list", name.Show(strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		return nil
	})
}

// stillRemoved fails if a removal of what was added stands: nothing of it is lent.
func (a *app) stillRemoved(key name.ConnectorKey, version name.Version) error {
	root, err := a.connectionsHere()
	if err != nil {
		return err
	}
	i, err := root.Intent(key).Read()
	var unknown *intent.DamagedError
	if errors.As(err, &unknown) {
		return hintf(unknown.Fix(), "%s %s is verified, but nothing of it is lent: %w", key, version, err)
	}
	if err != nil || !i.Removes(version) {
		return err
	}
	return hintf("lend connector remove "+key.String()+", then the same command again",
		"%s %s is installed, but a removal of it was interrupted and could not be ended: nothing of it is lent", key, version)
}
