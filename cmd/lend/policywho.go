package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

type whoReport struct {
	SchemaVersion int               `json:"schemaVersion"`
	Connector     name.ConnectorKey `json:"connector"`
	Command       name.Command      `json:"command"`
	Holders       []review.Holder   `json:"holders"`
}

func (a *app) policyWhoCommand() *cobra.Command {
	var file, version string
	var params []string
	var long bool
	c := &cobra.Command{
		Use:   "who-can KEY/COMMAND",
		Short: "say who may run a command, by which rule and under whose leases",
		Long: `List each peer that may run a command now, the rule that lets it with its place
in the file, the issuers under whose leases it may, and what the rule narrows.
With --param, only rules that accept these values count. "Whoever ISSUER names"
are peers that the file may not know. Long lists and patterns are cut as by lend
policy check, unless --long is said. Exit status 1: nobody may.`,
		Example: `  lend policy who-can github/issue.comment
  lend policy who-can github/issue.list --param repo=acme/site --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			q := review.Question{Now: time.Now()}
			var err error
			if q.Connector, q.Command, err = parseTarget(args[0]); err != nil {
				return err
			}
			if version != "" {
				if q.Version, err = name.ParseVersion(version); err != nil {
					return &usageError{err: err}
				}
			}
			if q.Values, err = parseValues("--param", params); err != nil {
				return err
			}
			path, err := a.policyFile(nonEmpty(file))
			if err != nil {
				return err
			}
			return a.whoCan(path, args[0], q, long)
		},
	}
	f := c.Flags()
	f.StringVar(&version, "version", "", "only this version of the Connector")
	f.StringArrayVar(&params, "param", nil, "NAME=VALUE that the caller would say; may be repeated")
	f.StringVar(&file, "policy", "", "another policy file than this machine's")
	bindLong(c, &long)
	return c
}

func (a *app) whoCan(file, target string, q review.Question, long bool) error {
	p, err := loadPolicy(file)
	if err != nil {
		return err
	}
	contracts, err := a.installedContracts()
	if err != nil {
		return err
	}
	r := whoReport{jsonSchema, q.Connector, q.Command, p.WhoCan(q, contracts)}
	if len(r.Holders) > 0 {
		return a.show(r, func() error { return a.printHolders(r, long) })
	}
	r.Holders = []review.Holder{}
	if err := a.show(r, func() error { return nil }); err != nil {
		return err
	}
	hint := "lend policy check"
	if targets := p.Targets(contracts); !slices.Contains(targets, target) {
		hint = cmp.Or(strict.Meant(target, targets), hint)
	}
	a.problem("nobody may run "+target, hint)
	return &statusError{1}
}

func (a *app) printHolders(r whoReport, long bool) error {
	for _, h := range r.Holders {
		where, what := "version "+saidOf(review.Listed(h.Versions), long), h.Brief
		if long {
			what = h.What
		}
		if !h.Connection.IsZero() {
			where += ", connection " + h.Connection.String()
		}
		if !h.Workspace.IsZero() {
			where += ", in the workspace " + h.Workspace.String()
		}
		if err := a.say("%s: %s, under leases of %s, by rule %s (%s): %s.", h.Position, h.Peer, saidOf(review.Listed(h.Issuers), long), name.Quote(h.Rule), where, what); err != nil {
			return err
		}
	}
	return nil
}

// parseTarget reads KEY/COMMAND.
func parseTarget(s string) (key name.ConnectorKey, command name.Command, err error) {
	k, c, ok := strings.Cut(s, "/")
	if !ok {
		return key, command, usagef("KEY/COMMAND, such as github/issue.list", "%s: want KEY/COMMAND", name.Quote(s))
	}
	if key, err = name.ParseConnectorKey(k); err == nil {
		command, err = name.ParseCommand(c)
	}
	if err != nil {
		return key, command, &usageError{err: err}
	}
	return key, command, nil
}

// parseValues reads the NAME=VALUE of a flag, which may name a parameter again.
func parseValues(flag string, pairs []string) (map[name.Parameter][]string, error) {
	out := map[name.Parameter][]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		parameter, err := name.ParseParameter(key)
		if !ok || err != nil {
			return nil, usagef(fmt.Sprintf("%s repo=acme/site", flag), "%s %s: want NAME=VALUE", flag, name.Quote(pair))
		}
		out[parameter] = append(out[parameter], value)
	}
	return out, nil
}
