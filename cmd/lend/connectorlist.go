package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) connectorListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the installed Connectors",
		Long: `List the installed Connectors from their receipts. Nothing of them runs. Exit
status 1: one of them is not what was installed, or cannot be read.`,
		Example: "  lend connector list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore("", func(s *install.Store) error {
				found, err := a.inspected(cmd.Context())
				if err != nil {
					return err
				}
				root, err := a.connectionsHere()
				if err != nil {
					return err
				}
				type listed struct {
					shownRelease
					shownInstallation
					State string `json:"state"` // enabled, disabled, partly disabled, removing, unreadable
				}
				list := struct {
					SchemaVersion int      `json:"schemaVersion"`
					Connectors    []listed `json:"connectors"`
					Warning       string   `json:"warning,omitempty"`
				}{jsonSchema, []listed{}, lockedSecretsText(a.secretsLockedHere(s))}
				rows := [][]string{{"KEY", "VERSION", "KIND", "COMMANDS", "INSTALLED", "STATE"}}
				var bad []inspect.Result
				for _, r := range found {
					shown := listed{inspectedShown(r), installationShown(r), stateOf(root, r.Connector, r.Version)}
					list.Connectors = append(list.Connectors, shown)
					rows = append(rows, []string{
						shown.Key, shown.Version, shown.Kind, fmt.Sprint(len(shown.Commands)),
						installedText(shown.Installed, shown.Reason), shown.State,
					})
					if r.State != inspect.Present {
						bad = append(bad, r)
					}
					if shown.State == unreadableState {
						a.note("lend: %s %s: what is wanted of it cannot be read, so nothing of it is lent; next: lend doctor", shown.Key, shown.Version)
					}
				}
				err = a.show(list, func() error {
					if len(found) == 0 {
						a.note("lend: nothing is installed; next: lend connector new exec:PATH, or npm:NAME@VERSION")
						return nil
					}
					if list.Warning != "" {
						a.note("lend: warning: %s", list.Warning)
					}
					return a.table(rows)
				})
				return a.notPresent(bad, err)
			})
		},
	}
}

func (a *app) connectorShowCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "show KEY",
		Short: "show a Connector: digests, commands, secrets, settings, readiness",
		Long: `Show one installed release: its digests, commands, secrets and settings, without
their values, and whether it is what was installed, by its receipts; lend
connector verify hashes all its files.
With a running gateway also, for each connection, whether its probe found it
ready, and what runs. Nothing of the Connector is run by this.`,
		Example: "  lend connector show github\n  lend connector show github --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore("", func(s *install.Store) error {
				r, err := a.release(s, args[0], version)
				if err != nil {
					return err
				}
				shown := releaseShown(r)
				found, err := a.inspectedOne(cmd.Context(), r.Manifest.Key, r.Manifest.Version)
				if err != nil {
					return err
				}
				about := aboutShown(s, r)
				live, err := a.live(cmd.Context(), shown.Key, shown.Version)
				if err != nil {
					return err
				}
				root, err := a.connectionsHere()
				if err != nil {
					return err
				}
				state, settings := stateOf(root, r.Manifest.Key, r.Manifest.Version), settingsShown(root, r.Manifest)
				return a.show(struct {
					SchemaVersion int `json:"schemaVersion"`
					shownRelease
					shownInstallation
					shownLive
					shownAbout
					shownSettings
					State string `json:"state"` // enabled, disabled, partly disabled, removing, unreadable
				}{jsonSchema, shown, installationShown(found), live, about, settings, state}, func() error {
					return a.printRelease(shown, about, settings, r, found, live, state)
				})
			})
		},
	}
	c.Flags().StringVar(&version, "version", "", "which version (default: the only one)")
	return c
}

func (a *app) printRelease(s shownRelease, about shownAbout, settings shownSettings, r install.Release, found inspect.Result, live shownLive, state string) error {
	rows := [][]string{
		{"connector", s.Key + " " + s.Version},
		{"name", name.Quote(s.DisplayName)},
		{"kind", strings.TrimSpace(s.Kind + " " + s.Runtime)},
		{"release", s.Digest},
		{"contract", s.ContractHash},
		{"installed", installedText(string(found.State), string(found.Reason))},
		{"state", state},
	}
	rows = append(append(rows, about.rows()...), live.rows()...)
	for _, secret := range s.Secrets {
		rows = append(rows, []string{"secret", secret})
	}
	rows = append(rows, settings.rows()...)
	if len(r.Contract.Commands) == 0 {
		rows = append(rows, []string{"commands", "none declared: the policy declares those that you share"})
	}
	for _, c := range r.Contract.Commands {
		rows = append(rows, []string{"command", c.Name.String() + "  " + c.Description})
		for _, p := range c.Parameters {
			place := ""
			switch {
			case p.Flag != nil:
				place = p.Flag.Name
			case p.Position > 0:
				place = fmt.Sprintf("position %d", p.Position)
			case p.Stdin != nil:
				place = "standard input"
			default:
				place = "variable " + p.Variable
			}
			required := ""
			if p.Required {
				required = ", required"
			}
			rows = append(rows, []string{"", fmt.Sprintf("  %s: %s, %s%s", p.Name, place, typeShown(p), required)})
		}
	}
	return a.table(rows)
}

func (a *app) connectorVerifyCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:     "verify [KEY]",
		Short:   "hash every installed file again and compare",
		Example: "  lend connector verify\n  lend connector verify github",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore("", func(s *install.Store) error {
				releases, damaged, err := s.Releases()
				if err == nil && len(args) == 1 {
					releases, damaged, err = a.verifiable(s, damaged, args[0], version)
				}
				if err != nil {
					return err
				}
				type result struct {
					Key     string `json:"key"`
					Version string `json:"version"`
					OK      bool   `json:"ok"`
					Error   string `json:"error,omitempty"`
				}
				all := struct {
					SchemaVersion int      `json:"schemaVersion"`
					Connectors    []result `json:"connectors"`
				}{jsonSchema, []result{}}
				failed := false
				var hints []string
				for _, r := range releases {
					row := result{Key: r.Manifest.Key.String(), Version: r.Manifest.Version.String(), OK: true}
					if err := s.Verify(cmd.Context(), r.Manifest.Key, r.Manifest.Version); err != nil {
						row.OK, row.Error, failed = false, err.Error(), true
						hints = append(hints, verifyHint(err))
					}
					all.Connectors = append(all.Connectors, row)
				}
				for _, d := range damaged {
					failed = true
					hints = append(hints, damageHint(d))
					all.Connectors = append(all.Connectors, result{Key: name.Show(d.Owner), Version: name.Show(d.Version), Error: d.Error()})
				}
				err = a.show(all, func() error {
					if len(all.Connectors) == 0 {
						a.note("lend: nothing is installed; next: lend connector new exec:PATH, or npm:NAME@VERSION")
					}
					for _, r := range all.Connectors {
						state := "as installed"
						if !r.OK {
							state = r.Error
						}
						if err := a.say("%s: %s", strings.TrimSpace(r.Key+" "+r.Version), state); err != nil {
							return err
						}
					}
					return nil
				})
				if failed {
					slices.Sort(hints)
					for _, hint := range slices.Compact(hints) {
						a.note("lend: hint: %s", hint)
					}
					return errors.Join(err, &statusError{1})
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&version, "version", "", "which version (default: the only one)")
	return c
}

// verifiable is the release that a command line means, and what is damaged of it, or of
// the Connector where it names no version.
func (a *app) verifiable(s *install.Store, damaged []*install.Damage, key, version string) (all []install.Release, bad []*install.Damage, err error) {
	r, err := a.release(s, key, version)
	var damage *install.Damage
	switch {
	case err == nil:
		all = []install.Release{r}
	case !errors.As(err, &damage):
		return nil, nil, err
	case version != "":
		return nil, []*install.Damage{damage}, nil
	}
	for _, d := range damaged {
		if version == "" && d.Owner == key {
			bad = append(bad, d)
		}
	}
	return all, bad, nil
}
