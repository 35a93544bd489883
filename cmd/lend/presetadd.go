package main

import (
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/edit"
	"github.com/lendcli/lend/policy/preset"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) presetAddCommand() *cobra.Command {
	var f presetFlags
	var e editFlags
	c := &cobra.Command{
		Use:   "add NAME --to PEER [--set NAME=VALUE[,VALUE…]]…",
		Short: "put a preset into the policy file, after showing what it allows",
		Long: `Add to the policy file what lend policy preset show prints: the commands, one
rule, its tests, and the peers that are new to the file. The Connector has to be
installed before. The rest of the file stays byte for byte, comments included;
commands that it declares in the same way already are not declared again. The
change is shown and asked for as with lend policy allow. Exit status 1: nothing
was written.`,
		Example: `  lend policy preset add gh --to laptop=12D3KooW… --set repo=acme/site
  lend policy preset add stripe --to laptop --yes
  lend policy preset add lark --to laptop --set tasks=mine --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(f.to) == 0 {
				return usagef("--to PEER", "--to is missing")
			}
			e.to = f.to[0]
			text, contracts, err := a.beginEdit(e)
			if err != nil {
				return err
			}
			if err := a.fitPreset(text, &f); err != nil {
				return err
			}
			_, fragment, err := a.renderPreset(args[0], f)
			if err != nil {
				return err
			}
			part, err := presetPart(fragment, f)
			if err != nil {
				return err
			}
			r, err := edit.Add(text.file, text.data, part, contracts)
			return a.finishEdit(cmd.Context(), text, e, r, err)
		},
	}
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&e.file, "policy", "", "another policy file than this machine's")
	fl.BoolVar(&e.yes, "yes", false, "do not ask")
	fl.BoolVar(&e.dry, "dry-run", false, "show what would change, and write nothing")
	bindLong(c, &e.long)
	return c
}

// fitPreset looks what the flags leave open up in the policy: who asks under whose
// leases, and whether the peers are known.
func (a *app) fitPreset(text policyText, f *presetFlags) error {
	p, err := policy.Parse(text.file, text.data)
	if err != nil {
		return &usageError{err: err}
	}
	v, err := f.values()
	if err != nil {
		return err
	}
	for _, q := range v.To {
		if _, known := p.Peers()[q.Name]; !known && q.ID.IsZero() {
			return usagef("--to "+q.Name.String()+"=ID; lend id, on the peer's machine, prints its ID", "no peer of the policy is named %s", q.Name)
		}
	}
	if f.issuer != "" || len(p.Issuers()) < 2 {
		return nil
	}
	id, err := a.resolveIssuer(p, "")
	if err != nil {
		return err
	}
	if i, ok := p.Issuer(id); ok {
		f.issuer = i.Name.String()
	}
	return nil
}

func presetPart(f preset.Fragment, flags presetFlags) (edit.Part, error) {
	v, err := flags.values()
	if err != nil {
		return edit.Part{}, err
	}
	out := edit.Part{Connector: f.Connector, Version: f.Version, Rule: f.Rule, Declarations: f.Commands, Rules: f.Allow, Tests: f.Tests}
	for _, q := range v.To {
		out.Peers = append(out.Peers, edit.Newcomer{Name: q.Name, ID: q.ID})
	}
	for _, n := range f.Names {
		c, err := name.ParseCommand(n)
		if err != nil {
			return edit.Part{}, err
		}
		out.Commands = append(out.Commands, c)
	}
	return out, nil
}
