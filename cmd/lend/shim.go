package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client/broker/shims"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) shimCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shim",
		Short: "put the native names of lent CLIs on the PATH",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.lentShimAddCommand(), a.lentShimListCommand(), a.lentShimRemoveCommand(), a.shimCompletionCommand(), a.shimCompleteCommand())
	return c
}

func (a *app) lentShimAddCommand() *cobra.Command {
	var as string
	c := &cobra.Command{
		Use:   "add KEY --as NAME",
		Short: "make a command NAME that runs what is lent of a Connector",
		Long: `Put NAME into this machine's private directory of shims, which belongs in front
of the PATH (lend lease accept prints it). Called by that name, the shim hands
its arguments and its standard input, output and error to the broker of the
session in $LEND_SESSION, and returns what comes back: bytes, exit status,
cancellation.

The command line is the CLI's own: "gh issue list --limit 5" is the lent command
whose fixed arguments are "issue list". If none or several begin like this,
nothing runs, and it says what is lent; --help tells more, and is a refusal as
well, since nothing ran. Exit statuses are those of lend run.

$LEND_AUTHORITY says whose Connector it is: owner, or none: the lease's; caller:
this machine's own, installed here and allowed by this machine's own policy to
its own lend id. Anything else runs nothing. The shim is a link to lend-shim,
found beside lend: it holds no lease and no path of a program. What is not a
shim of lend's is never replaced.`,
		Example: `  lend shim add github --as gh
  PATH="$(lend shim list --json | jq -r .path):$PATH" gh issue list`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if as == "" {
				return usagef("lend shim add github --as gh", "--as is missing: the name of the command")
			}
			key, err := name.ParseConnectorKey(args[0])
			if err != nil {
				return &usageError{err: err}
			}
			return a.addLentShim(cmd.Context(), key, as)
		},
	}
	c.Flags().StringVar(&as, "as", "", "the name of the command (required)")
	return c
}

type lentShim struct {
	Name      string `json:"name"`
	Connector string `json:"connector"`
	State     string `json:"state"`
}

type lentShims struct {
	SchemaVersion int        `json:"schemaVersion"`
	Path          string     `json:"path"`
	Shims         []lentShim `json:"shims"`
}

func (a *app) addLentShim(ctx context.Context, key name.ConnectorKey, as string) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	if _, err := loadIdentity(p); err != nil {
		return err
	}
	target, err := lendShim()
	if err != nil {
		return err
	}
	d := shims.New(p.shims())
	if err := d.Add(as, key, target); err != nil {
		return lentShimError(err, as)
	}
	state, note := a.looksLent(ctx, key)
	return a.show(lentShims{jsonSchema, d.Bin(), []lentShim{{as, key.String(), state}}}, func() error {
		a.note("lend: %s", note)
		return a.say("%s: runs what is lent of %s", filepath.Join(d.Bin(), as), key)
	})
}

// looksLent tells the state of a new shim, and what comes next: whether something of the
// Connector is lent now is the broker's to say, where one has a session.
func (a *app) looksLent(ctx context.Context, key name.ConnectorKey) (state, note string) {
	unchecked := fmt.Sprintf("whether anything of %s is lent could not be checked; next, while lend broker runs: %s", key, hintAccept)
	text, at, ok := socket.SplitSession(os.Getenv(sessionVariable))
	if !ok {
		return "not checked", unchecked
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	c, err := socket.Lent(ctx, at, text)
	n := 0
	for _, l := range c.Commands {
		if l.Entry.Connector == key {
			n++
		}
	}
	switch {
	case err != nil:
		return "not checked", fmt.Sprintf("whether anything of %s is lent could not be checked: %v; next, while lend broker runs: %s", key, err, hintAccept)
	case n > 0:
		return "ready", fmt.Sprintf("the session may run %s of %s", count(n, "command", "commands"), key)
	case len(c.Silent) > 0:
		return "not checked", fmt.Sprintf("whether anything of %s is lent could not be checked: %s of the session did not say", key, count(len(c.Silent), "gateway", "gateways"))
	}
	return "not lent", fmt.Sprintf("nothing of %s is lent to the session now; lend catalog lists what is; ask the owner for more", key)
}

// lendShim is the lend-shim beside this program.
func lendShim() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "lend-shim")
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return "", hintf("go install ./cmd/lend ./cmd/lend-shim", "there is no lend-shim beside %s", self)
	}
	return path, nil
}

func lentShimError(err error, as string) error {
	switch {
	case errors.Is(err, shims.ErrName):
		return usagef("lend shim add github --as gh", "--as %s: %w", name.Quote(as), err)
	case errors.Is(err, shims.ErrTaken):
		return hintf("lend shim remove "+as, "%s: %w", as, err)
	case errors.Is(err, shims.ErrNone):
		return hintf("lend shim list", "%s: %w", name.Quote(as), err)
	case errors.Is(err, shims.ErrForeign):
		return hintf("remove it yourself, if you do not need it", "%s: %w", as, err)
	case errors.Is(err, syscall.ENOSPC):
		return &hinted{err: err, hint: diskFull}
	}
	return err
}

func (a *app) lentShimListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "list the shims, and the directory that belongs on the PATH",
		Example: "  lend shim list\n  lend shim list --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			d := shims.New(p.shims())
			all, err := d.List()
			if err != nil {
				return err
			}
			r := lentShims{jsonSchema, d.Bin(), []lentShim{}}
			rows := [][]string{{"NAME", "CONNECTOR", "STATE"}}
			for _, s := range all {
				state := "ready"
				if s.Foreign {
					state = "not lend's any more"
				}
				r.Shims = append(r.Shims, lentShim{s.Name, s.Connector.String(), state})
				rows = append(rows, []string{s.Name, s.Connector.String(), state})
			}
			return a.show(r, func() error {
				if len(all) == 0 {
					a.note("lend: there is no shim; next: lend shim add KEY --as NAME")
					return nil
				}
				a.note("lend: for the PATH: %s", r.Path)
				return a.table(rows)
			})
		},
	}
}

func (a *app) lentShimRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "take a shim away",
		Example: "  lend shim remove gh",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			if err := shims.New(p.shims()).Remove(args[0]); err != nil {
				return lentShimError(err, args[0])
			}
			return a.show(struct {
				SchemaVersion int    `json:"schemaVersion"`
				Removed       string `json:"removed"`
			}{jsonSchema, args[0]}, func() error { return a.say("removed %s", args[0]) })
		},
	}
}
