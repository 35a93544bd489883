package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/ledger"
)

func (a *app) acceptLossCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "accept-loss",
		Short: "begin a new ledger when the old one is lost or damaged",
		Long: `Set a ledger aside that is lost or damaged, so that nothing is deleted, and
begin a new one. What the old one recorded is not known any more: leases that
were issued before now are refused, and their holders need new ones. A gateway
that runs stays locked until it is started again.`,
		Example: "  lend ops accept-loss --yes\n  lend serve",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !yes {
				return usagef("lend ops accept-loss --yes", "this refuses every lease that was issued before now: say --yes")
			}
			return a.acceptLoss()
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	return c
}

func (a *app) acceptLoss() error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	aside, err := ledger.AcceptLoss(ledger.Config{Dir: p.ledger()})
	switch {
	case errors.Is(err, ledger.ErrIntact):
		return hintf("lend status", "the ledger is intact: there is no loss to accept")
	case errors.Is(err, ledger.ErrLocked):
		return hintf("lend status", "a gateway uses the ledger of this directory")
	case err != nil:
		return err
	}
	r := struct {
		SchemaVersion int      `json:"schemaVersion"`
		Directory     string   `json:"directory"`
		SetAside      []string `json:"setAside"`
	}{jsonSchema, p.ledger(), aside}
	return a.show(r, func() error {
		for _, n := range aside {
			if err := a.say("kept %s", filepath.Join(r.Directory, n)); err != nil {
				return err
			}
		}
		return a.say("a new ledger was begun; leases from before are refused; start the gateway again with lend serve")
	})
}

// lockedBy tells whether an error of the ledger starts the gateway locked.
func lockedBy(err error) bool {
	return errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrLost)
}

func lockedText(err error) string {
	return fmt.Sprintf("locked until lend ops accept-loss: %v", err)
}
