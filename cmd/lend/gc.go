package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/install"
)

type collect func(s *install.Store, ctx context.Context, remove bool, p install.Progress) ([]install.Garbage, []*install.Damage, error)

func (a *app) runtimeGCCommand() *cobra.Command {
	return a.gcCommand("remove the interpreters that no Connector runs on", `Remove the interpreters that no installed Connector runs on. One that a running
gateway holds stays, and so do npm and the newest node while a Connector came
from npm: they repair it. While a Connector is damaged so that nobody can tell
what it runs on, all stay.`, "runtime", (*install.Store).CollectRuntimes)
}

func (a *app) connectorGCCommand() *cobra.Command {
	return a.gcCommand("remove files that no Connector needs", `Remove what is left of installs that did not end, the files of Connectors that
were replaced or removed and that no gateway runs any more, and the cache of
npm, unless npm runs. Every other command removes the first two as well. Of a
Connector that is damaged all stays: it is named, and the others are tidied.`, "connector", (*install.Store).Collect)
}

func (a *app) gcCommand(short, long, noun string, f collect) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use: "gc", Short: short, Long: long,
		Example: "  lend " + noun + " gc --dry-run\n  lend " + noun + " gc --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			s, err := a.openStoreAsIs(p, zerolog.Nop())
			if err != nil {
				return err
			}
			found, kept, err := f(s, cmd.Context(), !dryRun, a.progress())
			err = joinClose(storeError(err), s.Close)
			if err != nil && len(found) == 0 {
				return err
			}
			return errors.Join(a.showGarbage(found, kept, dryRun), err)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	return c
}

func (a *app) showGarbage(found []install.Garbage, kept []*install.Damage, dryRun bool) error {
	type row struct {
		Kind  string `json:"kind"`
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	}
	list := struct {
		SchemaVersion int   `json:"schemaVersion"`
		DryRun        bool  `json:"dryRun"`
		Bytes         int64 `json:"bytes"`
		Removed       []row `json:"removed"`
		// Kept is damaged: what it might need was not touched.
		Kept []string `json:"kept"`
	}{SchemaVersion: jsonSchema, DryRun: dryRun, Removed: []row{}, Kept: []string{}}
	for _, d := range kept {
		list.Kept = append(list.Kept, d.Error())
	}
	rows := [][]string{{"KIND", "NAME", "BYTES"}}
	for _, g := range found {
		list.Removed = append(list.Removed, row{g.Kind, g.Name, g.Bytes})
		list.Bytes += g.Bytes
		rows = append(rows, []string{g.Kind, g.Name, fmt.Sprint(g.Bytes)})
	}
	return a.show(list, func() error {
		a.noteKept(kept)
		switch {
		case len(found) == 0 && len(kept) > 0:
			return nil
		case len(found) == 0:
			a.note("lend: there is nothing that nothing needs")
			return nil
		case dryRun:
			a.note("lend: nothing was removed; without --dry-run, this is:")
		}
		return a.table(rows)
	})
}
