package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/policy/preset"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) policyPresetCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "preset",
		Short: "policies to start from for gh, stripe and lark-cli",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.presetListCommand(), a.presetShowCommand(), a.presetAddCommand())
	return c
}

type shownPreset struct {
	Name         string             `json:"name"`
	CLI          string             `json:"cli"`
	Connector    string             `json:"connector"`
	Versions     []string           `json:"versions"`
	Summary      string             `json:"summary"`
	Gives        []string           `json:"gives"`
	LeavesOut    []string           `json:"leavesOut"`
	Commands     []string           `json:"commands"`
	Placeholders []shownPlaceholder `json:"placeholders"`
}

type shownPlaceholder struct {
	Name     string `json:"name"`
	What     string `json:"what"`
	Example  string `json:"example"`
	Default  string `json:"default,omitempty"`
	Required bool   `json:"required"`
	List     bool   `json:"list"`
}

func presetShown(p preset.Preset) shownPreset {
	s := shownPreset{
		Name: p.Name, CLI: p.CLI, Connector: p.Connector.String(), Versions: madeFor(p), Summary: p.Summary,
		Gives: p.Gives, LeavesOut: p.LeavesOut, Commands: p.Commands, Placeholders: []shownPlaceholder{},
	}
	for _, q := range p.Placeholders {
		s.Placeholders = append(s.Placeholders, shownPlaceholder{q.Name, q.What, q.Example, q.Default, q.Required, q.List})
	}
	return s
}

func madeFor(p preset.Preset) []string {
	out := make([]string, 0, len(p.Versions))
	for _, v := range p.Versions {
		out = append(out, v.String())
	}
	return out
}

func (a *app) presetListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the presets, and what each is to be pinned to",
		Long: `List the policies to start from: for which CLI and which of its versions each
was made, how many commands it lends, and what --set takes; what is in brackets
may be left out. With --json, what each gives and leaves out, too.`,
		Example: "  lend policy preset list\n  lend policy preset list --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := preset.All()
			if err != nil {
				return err
			}
			shown := make([]shownPreset, 0, len(all))
			rows := [][]string{{"NAME", "MADE FOR", "COMMANDS", "SET", "WHAT"}}
			for _, p := range all {
				shown = append(shown, presetShown(p))
				rows = append(rows, []string{
					p.Name, p.CLI + " " + strings.Join(madeFor(p), ", "), fmt.Sprint(len(p.Commands)), settable(p), p.Summary,
				})
			}
			return a.show(struct {
				SchemaVersion int           `json:"schemaVersion"`
				Presets       []shownPreset `json:"presets"`
			}{jsonSchema, shown}, func() error { return a.table(rows) })
		},
	}
}

// settable shows what --set takes.
func settable(p preset.Preset) string {
	var out []string
	for _, q := range p.Placeholders {
		s := q.Name + "="
		if !q.Required {
			s = "[" + s + "]"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

type presetFlags struct {
	to, set                    []string
	connector, version, issuer string
}

func (f *presetFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVar(&f.to, "to", nil, "a peer to lend to: its name, or NAME=PEERID to name it, too; may be repeated")
	fl.StringArrayVar(&f.set, "set", nil, "what to pin to, as in repo=acme/site,acme/docs; may be repeated")
	fl.StringVar(&f.connector, "connector", "", "the Connector's key (default: the preset's)")
	fl.StringVar(&f.version, "version", "", "its version (default: the installed one, else that which the preset was made for)")
	fl.StringVar(&f.issuer, "issuer", "", "under whose leases the tests ask; needed if the policy has several issuers")
}

func (a *app) presetShowCommand() *cobra.Command {
	var f presetFlags
	c := &cobra.Command{
		Use:   "show NAME --to PEER [--set NAME=VALUE[,VALUE…]]…",
		Short: "print a part of a policy that lends read-only commands",
		Long: `Print what a policy file needs to lend the read-only commands of a CLI: the
commands with their arguments, one rule, and tests that prove what is refused,
below a comment that says what it gives and leaves out, and why. The commands
are pinned to what --set names. lend policy preset list names the presets.

A policy file has each of its keys once. If yours has none of peers, commands,
allow and tests yet, as after lend init, add the output to its end; else put
each part below yours. Then: lend policy check.`,
		Example: `  lend policy preset show gh --to laptop=12D3KooW… --set repo=acme/site \
    >> policy.yaml
  lend policy preset show stripe --to laptop
  lend policy preset show lark --to laptop --set chat=oc_0123456789abcdef \
    --set calendar=primary`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, fragment, err := a.renderPreset(args[0], f)
			if err != nil {
				return err
			}
			return a.show(struct {
				SchemaVersion int      `json:"schemaVersion"`
				Preset        string   `json:"preset"`
				Rule          string   `json:"rule"`
				Commands      []string `json:"commands"`
				Text          string   `json:"text"`
			}{jsonSchema, p.Name, fragment.Rule, fragment.Names, fragment.String()}, func() error {
				return a.say("%s", strings.TrimRight(fragment.String(), "\n"))
			})
		},
	}
	f.add(c)
	return c
}

// renderPreset finds the preset and renders it for what the flags say.
func (a *app) renderPreset(which string, f presetFlags) (preset.Preset, preset.Fragment, error) {
	p, err := preset.Find(which)
	if errors.Is(err, preset.ErrUnknown) {
		return p, preset.Fragment{}, &usageError{err: err, hint: "lend policy preset list"}
	}
	if err != nil {
		return p, preset.Fragment{}, err
	}
	v, err := f.values()
	if err != nil {
		return p, preset.Fragment{}, err
	}
	if v.Version.IsZero() {
		key := v.Connector
		if key.IsZero() {
			key = p.Connector
		}
		v.Version = a.installedVersion(key)
	}
	if s := v.Version.String(); s != "" && !strings.Contains(" "+strings.Join(madeFor(p), " ")+" ", " "+s+" ") {
		a.note("lend: the preset was made for %s %s, not %s: try its commands before you lend them", p.CLI, strings.Join(madeFor(p), ", "), s)
	}
	fragment, err := p.Render(v)
	var refused *preset.ValueError
	if errors.As(err, &refused) {
		return p, fragment, &usageError{err: err, hint: refused.Hint}
	}
	return p, fragment, err
}

// installedVersion is the version of the only installed release of a Connector,
// zero if there is none or several.
func (a *app) installedVersion(key name.ConnectorKey) (found name.Version) {
	p, err := a.paths()
	if err != nil {
		return found
	}
	store, err := a.openStore(p, nil, "", zerolog.Nop())
	if err != nil {
		return found
	}
	releases, _, err := store.Releases()
	if joinClose(err, store.Close) != nil {
		return found
	}
	for _, r := range releases {
		switch {
		case r.Manifest.Key != key:
		case found.IsZero():
			found = r.Manifest.Version
		case found != r.Manifest.Version:
			return name.Version{}
		}
	}
	return found
}

func (f presetFlags) values() (preset.Values, error) {
	v := preset.Values{Set: map[string][]string{}}
	for _, s := range f.to {
		label, id, named := strings.Cut(s, "=")
		var peer preset.Peer
		var err error
		if peer.Name, err = name.ParseLabel(label); err != nil {
			return v, &usageError{err: err, hint: "--to laptop"}
		}
		if named {
			if peer.ID, err = name.ParsePeerID(id); err != nil {
				return v, &usageError{err: err, hint: "lend id, on the peer's machine, prints its ID"}
			}
		}
		v.To = append(v.To, peer)
	}
	for _, s := range f.set {
		n, values, ok := strings.Cut(s, "=")
		if !ok {
			return v, usagef("--set repo=acme/site", "--set %s: not NAME=VALUE", name.Quote(s))
		}
		v.Set[n] = append(v.Set[n], strings.Split(values, ",")...)
	}
	var errs [3]error
	if f.connector != "" {
		v.Connector, errs[0] = name.ParseConnectorKey(f.connector)
	}
	if f.version != "" {
		v.Version, errs[1] = name.ParseVersion(f.version)
	}
	if f.issuer != "" {
		v.Issuer, errs[2] = name.ParseLabel(f.issuer)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return v, &usageError{err: err}
	}
	return v, nil
}

// notePreset names the policy to start from for a Connector, if there is one for its
// CLI.
func (a *app) notePreset(r shownRelease) {
	all, err := preset.All()
	if err != nil {
		return
	}
	for _, p := range all {
		if p.CLI != r.Command {
			continue
		}
		words := "lend policy preset add " + p.Name + " --to PEER"
		if r.Key != p.Connector.String() {
			words += " --connector " + r.Key
		}
		for _, q := range p.Placeholders {
			if q.Required {
				words += " --set " + q.Name + "=" + q.Example
			}
		}
		a.note("lend: next, to lend what only reads: %s", words)
	}
}
