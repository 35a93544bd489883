package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) settingHomeCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "home KEY [copied|shared]",
		Short: "show or choose what a command keeps in a connection's home",
		Long: `Show or choose how commands use the private home of a connection.

  copied  each gets a copy of what the login left, which is dropped at its end:
          what one writes (an alias, a hook) does not reach the next (default)
  shared  all work in the same home: for a CLI that renews its login tokens or
          keeps state. Whoever may run one command can steer the next

A home that is copied has at most 512 entries and 16 MiB. It holds for the next
start, gateway or not.`,
		Example: `  lend connector setting home github
  lend connector setting home lark shared
  lend connector setting home lark copied --connection work`,
		Args:      cobra.RangeArgs(1, 2),
		ValidArgs: []string{"copied", "shared"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConnection(cmd.Context(), args[0], id, func(c *connection.Connection, _ install.Release) error {
				if len(args) == 2 {
					if args[1] != "copied" && args[1] != "shared" {
						return usagef("copied or shared", "%q is not a way to use a home", args[1])
					}
					if err := c.SetSharedHome(args[1] == "shared"); err != nil {
						return orHint(err, damagedOr(c, "lend doctor"))
					}
					var unready *checkup.UnreadyError
					if err := checkup.Uncopied(cmd.Context(), c); errors.As(err, &unready) {
						a.note("lend: no command starts: %s; next: %s", name.Show(err.Error()), unready.Fix)
					}
				}
				cfg, err := c.Config()
				if err != nil {
					return orHint(err, damagedOr(c, "lend doctor"))
				}
				how := "copied"
				if cfg.SharedHome {
					how = "shared"
				}
				return a.show(struct {
					SchemaVersion int    `json:"schemaVersion"`
					Home          string `json:"home"`
				}{jsonSchema, how}, func() error { return a.say("%s", how) })
			})
		},
	}
	connectionFlag(c, &id)
	return c
}
