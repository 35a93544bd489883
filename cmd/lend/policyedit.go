package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/policyfile"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/edit"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/name"
)

type editFlags struct {
	to, as, file                         string
	rule, version, connection, workspace string
	params, limits                       []string
	yes, dry, long                       bool
}

func (f *editFlags) bind(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.to, "to", "", "the peer: a name of the policy or a peer ID (required)")
	fl.StringVar(&f.file, "policy", "", "another policy file than this machine's")
	fl.BoolVar(&f.yes, "yes", false, "do not ask")
	fl.BoolVar(&f.dry, "dry-run", false, "show what would change, and write nothing")
	bindLong(c, &f.long)
}

func (a *app) policyAllowCommand() *cobra.Command {
	var f editFlags
	c := &cobra.Command{
		Use:   "allow --to PEER KEY COMMAND…",
		Short: "add a rule to the policy file, after showing what it allows",
		Long: `Add a rule that lets one peer run the named commands of the Connector KEY. The
rest of the file stays byte for byte, comments included. The change is shown as
a diff and as what is newly allowed, and then asked for; without a terminal say
--yes. Nothing is written if the new file would have an error, if one of its
tests fails, or if the file was changed meanwhile. The running gateway takes the
file up by itself.

A --param NAME=VALUE must then be given and have that value; named again, it may
have each. A peer that the file does not know is named by its ID and --as NAME.
Exit status 1: nothing was written.`,
		Example: `  lend policy allow --to laptop --param repo=acme/site github issue.list
  lend policy allow --to 12D3KooW… --as laptop --yes \
    --limit run=30s github issue.list`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, contracts, err := a.beginEdit(f)
			if err != nil {
				return err
			}
			g, err := a.grantOf(text, f, args)
			if err != nil {
				return err
			}
			r, err := edit.Allow(text.file, text.data, g, contracts)
			return a.finishEdit(cmd.Context(), text, f, r, err)
		},
	}
	f.bind(c)
	fl := c.Flags()
	fl.StringVar(&f.as, "as", "", "the name of a peer that is new to the file")
	fl.StringArrayVar(&f.params, "param", nil, "NAME=VALUE that a call must have; repeat a name to allow several values")
	fl.StringVar(&f.rule, "name", "", "the rule's name, or that of a rule of this peer alone, to add to (default: a new one)")
	fl.StringVar(&f.version, "version", "", "the Connector's version (default: the only installed one)")
	fl.StringVar(&f.connection, "connection", "", "which account of the Connector (default: the only one)")
	fl.StringVar(&f.workspace, "workspace", "", "the workspace that the commands run in")
	fl.StringArrayVar(&f.limits, "limit", nil, "NAME=VALUE of the rule's limits, such as run=30s")
	return c
}

func (a *app) policyDenyCommand() *cobra.Command {
	var f editFlags
	c := &cobra.Command{
		Use:   "deny --to PEER KEY [COMMAND…]",
		Short: "take commands away from one peer, and from nobody else",
		Long: `Change the rules so that one peer may no longer run the named commands of the
Connector KEY, or none of it, in no version and under no issuer. Others keep
what they have: a rule that is shared is split, and the members of a group are
written out. Tests that want the peer to be allowed what goes go as well. The
change is shown and asked for as with lend policy allow. It is refused, with
what to do instead, where a rule is for whoever an issuer names, or another test
fails.
Operations of that peer that no longer pass end as soon as the running gateway
has taken the file up. Exit status 1: nothing was written.`,
		Example: "  lend policy deny --to laptop github issue.comment\n  lend policy deny --to laptop github --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, contracts, err := a.beginEdit(f)
			if err != nil {
				return err
			}
			g, err := a.targetsOf(text, f, args)
			if err != nil {
				return err
			}
			r, err := edit.Deny(text.file, text.data, edit.Removal{Peer: g.Peer, Connector: g.Connector, Commands: g.Commands}, contracts)
			return a.finishEdit(cmd.Context(), text, f, r, err)
		},
	}
	f.bind(c)
	return c
}

func (a *app) beginEdit(f editFlags) (policyText, policy.Contracts, error) {
	if f.to == "" {
		return policyText{}, nil, usagef("--to PEER", "--to is missing")
	}
	file, err := a.policyFile(nonEmpty(f.file))
	if err != nil {
		return policyText{}, nil, err
	}
	if file == "-" {
		return policyText{}, nil, usagef("--policy FILE", "standard input cannot be changed")
	}
	text, err := a.openPolicy(file)
	if err != nil {
		return text, nil, err
	}
	contracts, err := a.installedContracts()
	return text, contracts, err
}

// targetsOf reads who and what an edit is about.
func (a *app) targetsOf(text policyText, f editFlags, args []string) (edit.Grant, error) {
	var g edit.Grant
	p, err := policy.Parse(text.file, text.data)
	if err != nil {
		return g, &usageError{err: err}
	}
	label := f.to
	if id, err := name.ParsePeerID(f.to); err == nil {
		label = p.Content().NameOf(id)
		if label == f.to {
			g.ID = id
			label = f.as
		}
	}
	if label == "" {
		return g, usagef("--as NAME", "the file does not know that peer: give it a name")
	}
	if g.Peer, err = name.ParseLabel(label); err != nil {
		return g, &usageError{err: err}
	}
	if f.as != "" && f.as != label {
		return g, usagef("without --as", "the file knows that peer already, as %s", label)
	}
	if g.Connector, err = name.ParseConnectorKey(args[0]); err != nil {
		return g, &usageError{err: err}
	}
	for _, s := range args[1:] {
		c, err := name.ParseCommand(s)
		if err != nil {
			return g, &usageError{err: err}
		}
		g.Commands = append(g.Commands, c)
	}
	return g, nil
}

func (a *app) grantOf(text policyText, f editFlags, args []string) (edit.Grant, error) {
	g, err := a.targetsOf(text, f, args)
	if err != nil {
		return g, err
	}
	if g.Version, err = a.chooseVersion(g.Connector, f.version); err != nil {
		return g, err
	}
	if g.Values, err = parseValues("--param", f.params); err != nil {
		return g, err
	}
	g.Rule, g.Limits = f.rule, map[string]string{}
	for _, pair := range f.limits {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return g, usagef("--limit run=30s", "--limit %s: want NAME=VALUE", name.Quote(pair))
		}
		g.Limits[k] = v
	}
	if f.connection != "" {
		if g.Connection, err = name.ParseConnectionID(f.connection); err != nil {
			return g, &usageError{err: err}
		}
	}
	if f.workspace != "" {
		if g.Workspace, err = name.ParseLabel(f.workspace); err != nil {
			return g, &usageError{err: err}
		}
	}
	return g, nil
}

type editReport struct {
	SchemaVersion int              `json:"schemaVersion"`
	File          string           `json:"file"`
	Diff          string           `json:"diff"`
	Changes       compare.Report   `json:"changes"`
	Notes         []review.Prose   `json:"notes,omitempty"`
	Warnings      []policy.Finding `json:"warnings,omitempty"`
	Written       bool             `json:"written"`
	// Gateway is what a running gateway made of it: "taken up", "refused", "not yet";
	// empty if none runs with this file.
	Gateway string `json:"gateway,omitempty"`
}

// finishEdit shows an edit, asks, and writes it.
func (a *app) finishEdit(ctx context.Context, text policyText, f editFlags, r edit.Result, err error) error {
	var refused *edit.RefusedError
	report := editReport{SchemaVersion: jsonSchema, File: text.file, Changes: r.Changes, Notes: r.Notes, Warnings: r.Warnings}
	switch {
	case errors.Is(err, edit.ErrNothing):
		report.Changes = compare.Report{}
		return a.show(report, func() error {
			a.note("lend: %v", err)
			return nil
		})
	case errors.As(err, &refused):
		return &hinted{err: fmt.Errorf("%w; nothing was written", err), hint: refused.Hint}
	case err != nil:
		return &usageError{err: err}
	}
	report.Diff = string(diff.Diff(text.file, text.data, text.file+" (new)", r.Text))
	if !a.json {
		if err := a.printEdit(report, f.long); err != nil {
			return err
		}
	}
	if !f.dry {
		if err := a.confirm(f, "write it?"); err != nil {
			return err
		}
		if err := a.replace(text, r.Text); err != nil {
			return err
		}
		report.Written = true
		report.Gateway = a.noteTaken(ctx, text.file, r.Policy.Digest())
	}
	return a.show(report, func() error { return nil })
}

func (a *app) printEdit(r editReport, long bool) error {
	_, shown, _ := strings.Cut(r.Diff, "\n") // without the line "diff FILE FILE"
	if err := a.say("%s", strings.TrimRight(shown, "\n")); err != nil {
		return err
	}
	for _, c := range r.Changes {
		if err := a.say("%s %s", effectMark(c.Effect), changeText(c, long)); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		a.note("lend: %s", saidOf(n, long))
	}
	for _, w := range r.Warnings {
		a.note("%s: %s: %s", w.Position, w.Level, w.Message)
	}
	return nil
}

// confirm asks on a terminal; elsewhere --yes has to be said.
func (a *app) confirm(f editFlags, question string) error {
	if f.yes {
		return nil
	}
	unasked := usagef("say --yes, or --dry-run to see what would change", "there is no terminal to ask on, so nothing was written")
	if a.json || !isTerminal(a.in) {
		return unasked
	}
	_, _ = fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(io.LimitReader(a.in, 64)).ReadString('\n')
	if err != nil && answer == "" {
		return unasked
	}
	if s := strings.ToLower(strings.TrimSpace(answer)); s == "y" || s == "yes" {
		return nil
	}
	a.note("lend: nothing was written")
	return &statusError{1}
}

const takeUpTime = 2 * time.Second // in which a gateway takes up a new file

// noteTaken waits until the running gateway, if it has this file, has the new policy,
// and says so.
func (a *app) noteTaken(ctx context.Context, file, digest string) string {
	ctx, stop := context.WithTimeout(ctx, takeUpTime)
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		served, here := a.servedPolicy(ctx, file)
		switch {
		case ctx.Err() == nil && !here:
			a.note("lend: written; no gateway runs here with this file")
			return ""
		case here && served.Digest == digest && served.State == policyfile.InForce.String():
			a.note("lend: written; the running gateway has taken it up")
			return "taken up"
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if served.Problem != "" {
			a.note("lend: written; the running gateway keeps its last good policy: %s", served.Problem)
			return "refused"
		}
		a.note("lend: written; the running gateway has not taken it up yet; next: lend status")
		return "not yet"
	}
}
