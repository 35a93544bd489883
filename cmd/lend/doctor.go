package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	gatewaycheckup "github.com/lendcli/lend/gateway/checkup"
	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/checkup"
)

// doctorTime bounds all checks together: a passphrase alone takes seconds on a machine
// that is slow or busy.
const doctorTime = 40 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "look for what is wrong on this machine, and say what mends it",
		Long: `Look at the keys, directories, policy, record, revocations and leases of this
machine, at the Connectors that are installed, at the gateway, if one runs, and
at the system below them. Each row is pass, warn, fail, or skip with the reason,
and says what mends it. Nothing is changed, and nothing private is printed.

Exit status 1: something failed; with --strict also if there is a warning.`,
		Example: "  lend doctor\n  lend doctor --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), strict) },
	}
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 if there is a warning, too")
	return c
}

func (a *app) doctor(ctx context.Context, strict bool) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	r := checkup.Run(ctx, doctorTime, a.checks(p))
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := a.show(r, func() error { return a.printDoctor(r) }); err != nil {
		return err
	}
	if !r.OK || strict && r.Warned > 0 {
		return &statusError{1}
	}
	return nil
}

func (a *app) checks(p paths) []checkup.Check {
	all := gatewaycheckup.Checks(gatewaycheckup.Config{
		Identity: p.identityKey(), Owner: p.ownerKey(), Policy: absolute(p.policy()), Ledger: p.ledger(),
		Revocations: p.revocations(), Lockdown: p.lockdown(), Issued: p.issued(), Socket: p.socket,
		Directories: []string{p.config, p.state, p.ledger(), p.store(), p.connections(), filepath.Dir(p.socket)},
		Version:     buildVersion().Version, Port: defaultPort, Contracts: a.installedContracts,
		Workspace: func(path string) error {
			return localhost.CheckWorkspace(path, p.connections(), p.config, p.state)
		},
	})
	places := checkup.Places{Store: p.store(), Connections: p.connections(), Publishers: p.publishers()}
	if passphraseGiven() { // nobody is asked for it
		places.Ask = func(bool) ([]byte, error) { return a.passphrase() }
	}
	all = append(all, checkup.Connectors(places)...)
	return append(all, checkup.Machine(sync.OnceValue(func() checkup.Facts { return checkup.ReadFacts(p.state) }))...)
}

func (a *app) printDoctor(r checkup.Report) error {
	rows := [][]string{{"STATUS", "CHECK", "FOUND"}}
	for _, row := range r.Rows {
		found := row.Detail
		if row.Subject != "" {
			found = row.Subject + ": " + found
		}
		rows = append(rows, []string{string(row.Status), row.Name, found})
		if row.Fix != "" && row.Status != checkup.Pass {
			rows = append(rows, []string{"", "", "→ " + row.Fix})
		}
	}
	if err := a.table(rows); err != nil {
		return err
	}
	return a.say("%s", fmt.Sprintf("%d pass, %d warn, %d fail, %d skip", r.Passed, r.Warned, r.Failed, r.Skipped))
}
