package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/replay"
	"github.com/lendcli/lend/protocol/name"
)

type diffReport struct {
	SchemaVersion int            `json:"schemaVersion"`
	Old           string         `json:"old"`
	New           string         `json:"new"`
	Changes       compare.Report `json:"changes"`
	replay.Report
}

func (a *app) policyDiffCommand() *cobra.Command {
	var code, long bool
	var since time.Duration
	c := &cobra.Command{
		Use:   "diff [OLD] NEW",
		Short: "say what a changed policy newly allows, and what ends",
		Long: `Compare two policy files by what they let whom do, under the Connectors that are
installed, and print in sentences what is newly allowed (+), what ends (-), and
what changes in a way that cannot be told (~), each with its place. Names,
layout and order change nothing. Then decide under both files the tests of both,
the commands that the ledger has of late, and the operations that run now. OLD
is this machine's policy if only one file is given; - reads standard input. Long
lists and patterns are cut as by lend policy check, unless --long is said.

Exit status 0, whatever it finds; with --exit-code, 1 if there is any line.`,
		Example: `  lend policy diff policy.yaml.new
  lend policy diff old.yaml new.yaml --exit-code
  git show HEAD:policy.yaml | lend policy diff - policy.yaml --json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				p, err := a.paths()
				if err != nil {
					return err
				}
				args = []string{p.policy(), args[0]}
			}
			r, err := a.diffPolicies(cmd.Context(), args[0], args[1], since)
			if err != nil {
				return err
			}
			if err := a.show(r, func() error { return a.printDiff(r, long) }); err != nil {
				return err
			}
			if code && (len(r.Changes) > 0 || !r.Same()) {
				return &statusError{1}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&code, "exit-code", false, "exit with 1 if anything differs")
	c.Flags().Var(atLeastNone(&since, 30*24*time.Hour), "since", "how far back to look into the ledger; 0 leaves it out")
	bindLong(c, &long)
	return c
}

// policyOf reads a policy file; - is standard input.
func (a *app) policyOf(file string) (*policy.Policy, error) {
	if file != "-" {
		return loadPolicy(file)
	}
	data, err := io.ReadAll(io.LimitReader(a.in, policy.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	p, err := policy.Parse("-", data)
	if err != nil {
		return nil, &usageError{err: err}
	}
	return p, nil
}

func (a *app) diffPolicies(ctx context.Context, before, after string, since time.Duration) (diffReport, error) {
	r := diffReport{SchemaVersion: jsonSchema, Old: before, New: after}
	was, err := a.policyOf(before)
	if err != nil {
		return r, err
	}
	is, err := a.policyOf(after)
	if err != nil {
		return r, err
	}
	contracts, err := a.installedContracts()
	if err != nil {
		return r, err
	}
	if r.Changes = compare.Policies(was, is, contracts); r.Changes == nil {
		r.Changes = compare.Report{}
	}
	corpus, err := a.corpus(ctx, since)
	if err != nil {
		return r, err
	}
	r.Report = replay.Policies(was, is, contracts, corpus, r.Changes)
	return r, nil
}

// corpus is what the ledger has of late and what runs. Without either, less is said.
func (a *app) corpus(ctx context.Context, since time.Duration) (replay.Corpus, error) {
	c := replay.Corpus{Now: time.Now()}
	p, err := a.paths()
	if err != nil {
		return c, err
	}
	if since > 0 {
		if c.Asked, err = asked(p.ledger(), c.Now.Add(-since)); err != nil {
			a.note("lend: the ledger was not looked at: %v", err)
		}
	}
	running, err := admin.NewClient(p.socket).Operations(ctx, false)
	if err != nil && !errors.Is(err, admin.ErrNotRunning) {
		a.note("lend: what runs was not looked at: %v", err)
	}
	for _, o := range running.Operations {
		if o.Running() {
			if r, ok := runningOf(o); ok {
				c.Running = append(c.Running, r)
			}
		}
	}
	return c, nil
}

// asked are the commands that were admitted or refused, counted.
func asked(dir string, from time.Time) ([]replay.Asked, error) {
	counts := map[replay.Asked]int{}
	err := ledger.Walk(dir, func(e ledger.Entry) error {
		switch {
		case e.At.Before(from):
		case e.Start != nil:
			s := e.Start
			counts[replay.Asked{Issuer: s.Issuer, Peer: s.Holder, Target: policy.Target{Connector: s.Connector, Version: s.Version, Command: s.Command}, Allowed: true}]++
		case e.Refusal != nil && !e.Refusal.Issuer.IsZero() && !e.Refusal.Command.IsZero():
			f := e.Refusal
			counts[replay.Asked{Issuer: f.Issuer, Peer: f.Peer, Target: policy.Target{Connector: f.Connector, Version: f.Version, Command: f.Command}}] += int(min(f.Count, 1<<30))
		}
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	out := make([]replay.Asked, 0, len(counts))
	for k, n := range counts {
		k.Count = n
		out = append(out, k)
	}
	return out, err
}

func runningOf(o admin.Operation) (r replay.Running, ok bool) {
	var errs [5]error
	r.ID = o.ID
	r.Issuer, errs[0] = name.ParsePeerID(o.Issuer)
	r.Peer, errs[1] = name.ParsePeerID(o.Peer)
	r.Target.Connector, errs[2] = name.ParseConnectorKey(o.Connector)
	r.Target.Version, errs[3] = name.ParseVersion(o.Version)
	r.Target.Command, errs[4] = name.ParseCommand(o.Command)
	return r, errors.Join(errs[:]...) == nil
}

// effectMark is how a line of a diff begins.
func effectMark(e compare.Effect) string {
	switch e {
	case compare.Wider:
		return "+"
	case compare.Narrower:
		return "-"
	case compare.Changed:
	}
	return "~"
}

func (a *app) printDiff(r diffReport, long bool) error {
	if err := a.printEffects(r.Changes, long); err != nil {
		return err
	}
	for _, o := range r.Tests {
		if err := a.say("%s: %s %s", o.Position, effectMark(o.Effect), o.Text); err != nil {
			return err
		}
	}
	for _, o := range r.Asked {
		if err := a.say("ledger: %s %s", effectMark(o.Effect), o.Text); err != nil {
			return err
		}
	}
	for _, o := range r.Running {
		if err := a.say("running: %s %s", effectMark(o.Effect), o.Text); err != nil {
			return err
		}
	}
	counts := map[compare.Effect]int{}
	for _, c := range r.Changes {
		counts[c.Effect]++
	}
	if len(r.Changes) == 0 {
		a.note("lend: nothing is newly allowed, and nothing ends")
		return nil
	}
	a.note("lend: newly allowed: %d; ends: %d; changed, and perhaps either: %d", counts[compare.Wider], counts[compare.Narrower], counts[compare.Changed])
	return nil
}

// changeText is one of the forms of a sentence.
func changeText(c compare.Change, long bool) string {
	if long {
		return c.Text
	}
	return c.Brief
}

func (a *app) printEffects(changes compare.Report, long bool) error {
	for _, c := range changes {
		if err := a.say("%s: %s %s", c.Position, effectMark(c.Effect), changeText(c, long)); err != nil {
			return err
		}
	}
	return nil
}
