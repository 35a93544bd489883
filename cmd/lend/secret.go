package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// useOf is what a command does to a connection.
type useOf int

const (
	existing   useOf = iota // it must be there
	perhapsNew              // it is made if it is not there, and stays if f succeeds
)

// withConnection runs f on a connection of an installed Connector. The default
// connection of a Connector that has none is made in any case.
func (a *app) withConnection(ctx context.Context, key, id string, f func(*connection.Connection, install.Release) error) error {
	return a.onConnection(ctx, key, id, existing, f, func(*connection.Connection) error { return nil })
}

// changeConnection is withConnection for one that is made if it is not there. A running
// gateway has to take up one that was made, before show says that all is done.
func (a *app) changeConnection(ctx context.Context, key, id string, f func(*connection.Connection, install.Release) error, show func(*connection.Connection) error) error {
	return a.onConnection(ctx, key, id, perhapsNew, f, show)
}

func (a *app) onConnection(ctx context.Context, key, id string, use useOf, f func(*connection.Connection, install.Release) error, show func(*connection.Connection) error) error {
	return a.withStore("", func(s *install.Store) error {
		r, err := a.release(s, key, "")
		if err != nil {
			return err
		}
		p, err := a.paths()
		if err != nil {
			return err
		}
		root, err := a.connections(p)
		if err != nil {
			return err
		}
		cid, err := name.ParseConnectionID(id)
		if err != nil {
			return &usageError{err: err, hint: "--connection " + connection.Default}
		}
		c, made, err := openConnection(root, r.Manifest.Key, cid, use)
		if err != nil {
			return orHint(err, checkup.PrivateFix(p.connections()))
		}
		switch err := f(c, r); {
		case err != nil && made:
			return errors.Join(err, root.Remove(r.Manifest.Key, cid)) // it would make routes ambiguous
		case err != nil:
			return err
		case made:
			done := fmt.Sprintf("connection %s of %s is there, with what was set", cid, r.Manifest.Key)
			if err := a.takenUp(ctx, change{key: r.Manifest.Key, version: r.Manifest.Version, connection: id, done: done}); err != nil {
				return err
			}
		}
		return show(c)
	})
}

func openConnection(root *connection.Root, key name.ConnectorKey, id name.ConnectionID, use useOf) (c *connection.Connection, made bool, err error) {
	c, err = root.Get(key, id)
	if !errors.Is(err, connection.ErrNotFound) {
		return c, false, err
	}
	if use == perhapsNew {
		c, err = root.Create(key, id)
		return c, true, err
	}
	all, err := root.Ensure(key)
	if err != nil {
		return nil, false, err
	}
	names := []string{}
	for _, c := range all {
		if c.ID() == id {
			return c, false, nil
		}
		names = append(names, "--connection "+c.ID().String())
	}
	return nil, false, usagef(strings.Join(names, ", "), "%s has no connection %s", key, id)
}

// damagedOr is what mends the settings of a connection that cannot be read, else hint.
func damagedOr(c *connection.Connection, hint string) string {
	if _, err := c.Config(); err != nil {
		return checkup.ConfigFix(c, err)
	}
	return hint
}

func connectionFlag(c *cobra.Command, id *string) {
	c.Flags().StringVar(id, "connection", connection.Default, "which account of the Connector")
}

func (a *app) connectorSecretCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "secret",
		Short: "set, list and remove the secrets of a Connector's connection",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.secretSetCommand(), a.secretListCommand(), a.secretRemoveCommand(), a.secretKeyCommand())
	return c
}

func (a *app) secretSetCommand() *cobra.Command {
	var id, file, variable string
	c := &cobra.Command{
		Use:   "set KEY NAME",
		Short: "store a secret, read from standard input or a file",
		Long: `Store a secret of one connection. It is read from standard input, or from
--file; it is never an argument, never printed, and only the Connector's CLI
gets it, in the variable that the manifest declares. For a secret that the
manifest does not declare, name the variable with --env. The next command that
starts has it.

A --connection that is not there is made: another account of the same Connector.
As soon as there are two, each rule of the policy must name the one it means.`,
		Example: `  lend connector secret set github token < token.txt
  lend connector secret set github token --env GH_TOKEN --file token.txt
  lend connector secret set github token --connection work < token.txt`,
		Args: noSecret(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			label, err := secretLabel(args[0], args[1])
			if err != nil {
				return err
			}
			again := fmt.Sprintf("lend connector secret set %s %s < FILE", args[0], label)
			in := a.in
			if file != "" {
				f, err := os.Open(file)
				if err != nil {
					return &hinted{err: err, hint: "--file with a file that is there and that you may read"}
				}
				defer func() { _ = f.Close() }()
				in = f
			} else if isTerminal(a.in) && !isNothing(a.in) {
				return usagef(again, "a secret is read from standard input or --file, not from a terminal")
			}
			value := bufio.NewReader(in)
			if _, err := value.Peek(1); errors.Is(err, io.EOF) {
				return usagef(again, "there is no secret in it: %s is empty", emptyInput(file))
			}
			set := func(c *connection.Connection, r install.Release) error {
				err := c.SetSecret(connection.DeclaredBy(r.Manifest), label, variable, value)
				switch {
				case errors.Is(err, connection.ErrNotFound):
					return &hinted{err: err, hint: fmt.Sprintf("lend connector secret set %s %s --env VARIABLE < FILE", args[0], label)}
				case errors.Is(err, connection.ErrReserved), errors.Is(err, connection.ErrConflict):
					return &hinted{err: err, hint: "another --env; taken are those of lend connector secret list " + args[0] + " and setting list " + args[0]}
				case errors.Is(err, connection.ErrUnsafe), errors.Is(err, fs.ErrPermission):
					p, _ := a.paths() // which were found before
					return &hinted{err: err, hint: checkup.PrivateFix(p.connections())}
				case errors.Is(err, sealed.ErrCorrupt):
					return &hinted{err: err, hint: "lend connector secret key"}
				case err != nil:
					return orHint(err, damagedOr(c, again))
				}
				return nil
			}
			return a.changeConnection(cmd.Context(), args[0], id, set, func(*connection.Connection) error {
				return a.show(struct {
					SchemaVersion int    `json:"schemaVersion"`
					Set           string `json:"set"`
				}{jsonSchema, label.String()}, func() error { return a.say("%s set for %s (%s)", label, args[0], id) })
			})
		},
	}
	connectionFlag(c, &id)
	c.Flags().StringVar(&file, "file", "", "read the secret from this file")
	c.Flags().StringVar(&variable, "env", "", "declare the secret yourself: the variable that carries it")
	return c
}

// noSecret is n arguments, and none more, which would be a secret: it is not repeated.
func noSecret(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef(c.CommandPath()+" --help", "unexpected argument (a secret is never an argument, where others can see it: take another one)")
		}
		return cobra.ExactArgs(n)(c, args)
	}
}

// secretLabel reads the name of a secret.
func secretLabel(key, text string) (name.Label, error) {
	label, err := name.ParseLabel(text)
	if err != nil {
		return label, &usageError{err: err, hint: "lend connector secret list " + harmless(key)}
	}
	return label, nil
}

// isNothing tells whether a stream is the null device, which is a character device, and
// no terminal.
func isNothing(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	have, err := f.Stat()
	null, errNull := os.Stat(os.DevNull)
	return err == nil && errNull == nil && os.SameFile(have, null)
}

func emptyInput(file string) string {
	if file == "" {
		return "standard input"
	}
	return name.Quote(file)
}

func (a *app) secretListCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:     "list KEY",
		Short:   "list the secrets of a connection, without their values",
		Example: "  lend connector secret list github",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConnection(cmd.Context(), args[0], id, func(c *connection.Connection, r install.Release) error {
				all, err := c.Secrets(connection.DeclaredBy(r.Manifest))
				if err != nil {
					return orHint(err, damagedOr(c, "lend doctor"))
				}
				type row struct {
					Name     string `json:"name"`
					Variable string `json:"variable"`
					Set      bool   `json:"set"`
				}
				list := struct {
					SchemaVersion int   `json:"schemaVersion"`
					Secrets       []row `json:"secrets"`
				}{jsonSchema, []row{}}
				rows := [][]string{{"NAME", "VARIABLE", "STATE"}}
				for _, s := range all {
					list.Secrets = append(list.Secrets, row{s.Name, s.Variable, s.Set})
					state := "missing"
					if s.Set {
						state = "set"
					}
					rows = append(rows, []string{s.Name, s.Variable, state})
				}
				return a.show(list, func() error {
					if len(all) == 0 {
						a.note("lend: %s (%s) has no secrets; next: lend connector secret set %s NAME --env VARIABLE", args[0], id, args[0])
						return nil
					}
					return a.table(rows)
				})
			})
		},
	}
	connectionFlag(c, &id)
	return c
}

func (a *app) secretRemoveCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:     "remove KEY NAME",
		Short:   "remove a secret",
		Example: "  lend connector secret remove github token",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			label, err := secretLabel(args[0], args[1])
			if err != nil {
				return err
			}
			return a.withConnection(cmd.Context(), args[0], id, func(c *connection.Connection, _ install.Release) error {
				if err := c.DeleteSecret(label); err != nil {
					return orHint(err, damagedOr(c, "lend connector secret list "+args[0]))
				}
				return a.show(struct {
					SchemaVersion int    `json:"schemaVersion"`
					Removed       string `json:"removed"`
				}{jsonSchema, label.String()}, func() error { return a.say("%s removed from %s (%s)", label, args[0], id) })
			})
		},
	}
	connectionFlag(c, &id)
	return c
}

func (a *app) connectorSettingCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "setting",
		Short: "set, list and remove plain settings of a Connector's connection",
		Args:  cobra.NoArgs,
	}
	var id string
	set := &cobra.Command{
		Use:   "set KEY NAME VALUE",
		Short: "set a plain variable of a connection",
		Long: `Set a variable that the CLI starts with: one that the manifest declares, or any
other by its name (proxy, certificates, TZ, LANG, …). Variables that would make
a loader or an interpreter run something else are refused. Not for secrets.`,
		Example: "  lend connector setting set github HTTPS_PROXY http://proxy.example:3128",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := func(c *connection.Connection, r install.Release) error {
				return orHint(c.SetSetting(connection.DeclaredBy(r.Manifest), args[1], args[2]), damagedOr(c, "another NAME or VALUE; lend connector show "+args[0]+" has the names that it declares"))
			}
			return a.changeConnection(cmd.Context(), args[0], id, set, a.showSettings)
		},
	}
	unset := &cobra.Command{
		Use:     "remove KEY NAME",
		Short:   "remove a setting",
		Example: "  lend connector setting remove github HTTPS_PROXY",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConnection(cmd.Context(), args[0], id, func(c *connection.Connection, r install.Release) error {
				if err := c.UnsetSetting(connection.DeclaredBy(r.Manifest), args[1]); err != nil {
					return orHint(err, damagedOr(c, "lend connector setting list "+args[0]))
				}
				return a.showSettings(c)
			})
		},
	}
	list := &cobra.Command{
		Use:     "list KEY",
		Short:   "list the settings of a connection",
		Example: "  lend connector setting list github",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConnection(cmd.Context(), args[0], id, func(c *connection.Connection, _ install.Release) error {
				return a.showSettings(c)
			})
		},
	}
	for _, sub := range []*cobra.Command{set, unset, list} {
		connectionFlag(sub, &id)
		c.AddCommand(sub)
	}
	c.AddCommand(a.settingHomeCommand())
	return c
}

func (a *app) showSettings(c *connection.Connection) error {
	cfg, err := c.Config()
	if err != nil {
		return orHint(err, damagedOr(c, "lend doctor"))
	}
	if cfg.Settings == nil {
		cfg.Settings = map[string]string{}
	}
	return a.show(struct {
		SchemaVersion int               `json:"schemaVersion"`
		Settings      map[string]string `json:"settings"`
	}{jsonSchema, cfg.Settings}, func() error {
		if len(cfg.Settings) == 0 {
			a.note("lend: nothing is set for %s (%s); next: lend connector setting set %s NAME VALUE", c.Connector(), c.ID(), c.Connector())
			return nil
		}
		rows := [][]string{}
		for _, k := range slices.Sorted(maps.Keys(cfg.Settings)) {
			rows = append(rows, []string{k, name.Quote(cfg.Settings[k])})
		}
		return a.table(rows)
	})
}

func (a *app) connectorLoginCommand() *cobra.Command {
	var id, version string
	c := &cobra.Command{
		Use:   "login KEY",
		Short: "run the CLI's own login in a connection's private home",
		Long: `Run the login that the manifest declares on this terminal, in the private home
of the connection. What it stores there, and only there, is what lent commands
get a copy of (see lend connector setting home); while it runs, none starts. It
runs on this machine only; no peer can reach it. If what it left cannot be
copied, such as a link that leads out of the home, that is a failure: it stays
as it is, and no command starts.
Exit status 1: the login failed, or no command could start with what it left.`,
		Example: "  lend connector login github",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			login := func(c *connection.Connection, _ install.Release) error {
				v, err := a.chooseVersion(c.Connector(), version)
				if err != nil {
					return err
				}
				held, err := c.HoldHome() // no command copies it half changed
				if err != nil {
					return err
				}
				err = a.login(cmd, route.Query{Connector: c.Connector(), Version: v, Connection: c.ID()})
				return joinClose(err, held.Close)
			}
			return a.changeConnection(cmd.Context(), args[0], id, login, func(c *connection.Connection) error {
				var unready *checkup.UnreadyError
				if err := checkup.Uncopied(cmd.Context(), c); errors.As(err, &unready) {
					return hintf(unready.Fix, "the login has ended, but no command starts with what it left: %w", err)
				}
				return nil
			})
		},
	}
	connectionFlag(c, &id)
	c.Flags().StringVar(&version, "version", "", "which version (default: the only one)")
	return c
}

func (a *app) login(cmd *cobra.Command, q route.Query) (err error) {
	p, err := a.paths()
	if err != nil {
		return err
	}
	side, err := a.openOwnersSide(p, nil, zerolog.Nop())
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, side.close) }()
	if _, err := side.store.Release(q.Connector, q.Version); err != nil {
		return storeError(err)
	}
	if err := side.host.ReconcileRelease(cmd.Context(), q.Connector, q.Version); err != nil {
		return orHint(storeError(err), "lend doctor")
	}
	spec, err := side.host.LoginSpec(q)
	switch {
	case errors.Is(err, route.ErrInvalid):
		return hintf("lend connector secret set "+q.Connector.String()+" NAME", "the manifest of %s declares no login", q.Connector)
	case errors.Is(err, route.ErrNotFound):
		return hintf("lend connector show "+q.Connector.String()+", and lend connector enable", "%s %s is not lent for the connection %s", q.Connector, q.Version, q.Connection)
	case err != nil:
		return orHint(err, "lend doctor")
	}
	exit, err := side.transport.Interactive(cmd.Context(), spec)
	switch {
	case err != nil:
		return err
	case exit.Signal != "":
		return hintf("lend connector login "+q.Connector.String(), "the login ended by %s", exit.Signal)
	case exit.Code != 0:
		return hintf("lend connector login "+q.Connector.String(), "the login ended with exit status %d", exit.Code)
	default:
		return nil
	}
}
