package main

import (
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/edit"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) peerRemoveCommand() *cobra.Command {
	var f editFlags
	c := &cobra.Command{
		Use:   "remove PEER",
		Short: "take a peer out of the policy, after showing what ends",
		Long: `Take a peer out of the policy file: its name and ID, and its places in groups,
rules and the holders of issuers. PEER is its name there, or its ID. What was
about it alone goes: rules, groups, and tests. The rest of the file stays byte
for byte, and nobody else has less or more than before. The change is shown as a
diff and as what ends, and then asked for; without a terminal say --yes. Nothing
is written if the new file would have an error, if one of its tests fails, or if
the file was changed meanwhile.

A running gateway takes the file up by itself: it ends what that peer runs, and
its connections. Leases that it holds give nothing any more, but they are not
revoked: lend lease revoke does that, for the day when the peer is back.
Exit status 1: nothing was written.`,
		Example: "  lend peer remove laptop\n  lend peer remove 12D3KooW… --yes\n  lend peer remove laptop --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.to = args[0]
			if f.to == "" {
				return usagef("lend peer list", "the name of the peer is empty")
			}
			text, contracts, err := a.beginEdit(f)
			if err != nil {
				return err
			}
			label, err := peerLabel(text, f.to)
			if err != nil {
				return err
			}
			r, err := edit.Dismiss(text.file, text.data, label, contracts)
			return a.finishEdit(cmd.Context(), text, f, r, err)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.file, "policy", "", "another policy file than this machine's")
	fl.BoolVar(&f.yes, "yes", false, "do not ask")
	fl.BoolVar(&f.dry, "dry-run", false, "show what would change, and write nothing")
	bindLong(c, &f.long)
	return c
}

// peerLabel is the name that a policy file has for a peer that is named by it or by its ID.
func peerLabel(text policyText, said string) (label name.Label, err error) {
	p, err := policy.Parse(text.file, text.data)
	if err != nil {
		return label, &usageError{err: err}
	}
	if id, err := name.ParsePeerID(said); err == nil {
		called := p.Content().NameOf(id)
		if called == said {
			return label, usagef("lend peer list", "the policy names no peer with that ID")
		}
		said = called
	}
	if label, err = name.ParseLabel(said); err != nil {
		return label, &usageError{err: err, hint: "lend peer list"}
	}
	if _, known := p.Peers()[label]; !known {
		return label, usagef("lend peer list", "no peer of the policy is named %s", name.Quote(said))
	}
	return label, nil
}
