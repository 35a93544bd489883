package checkup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/gateway/policyfile"
	look "github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

const maxPolicyFile = 1 << 20

func (k *checks) loadPolicy() (*policy.Policy, error) {
	target, err := ownerfile.Follow(k.Policy)
	if err != nil {
		return nil, err
	}
	data, err := ownerfile.Read(target, ownerfile.Trusted, maxPolicyFile)
	if err != nil {
		return nil, err
	}
	return policy.Parse(k.Policy, data)
}

// policy judges the file as lend serve would; what it says is for lend policy check.
func (k *checks) policy(context.Context) look.Row {
	p, err := k.loadPolicy()
	var unsafe *ownerfile.UnsafeError
	switch {
	case errors.Is(err, os.ErrNotExist):
		return look.Row{Status: look.Fail, Detail: "there is no policy file, so nothing is lent", Fix: "lend init"}
	case errors.As(err, &unsafe):
		return failed(err, unsafe.Hint)
	case err != nil:
		return look.Row{Status: look.Fail, Detail: "the file does not parse, so it is not served", Fix: "lend policy check"}
	}
	contracts, err := k.Contracts()
	if err != nil {
		return failed(err, "lend connector list")
	}
	errs, warnings, bad := 0, 0, 0
	for _, f := range p.Lint(contracts) {
		switch f.Level {
		case policy.LevelError:
			errs++
		default:
			warnings++
		}
	}
	tests := p.RunTests(contracts)
	for _, t := range tests {
		if !t.Passed {
			bad++
		}
	}
	detail := fmt.Sprintf("%d errors, %d warnings, %d of %d tests fail", errs, warnings, bad, len(tests))
	switch {
	case errs > 0 || bad > 0:
		return look.Row{Status: look.Fail, Detail: detail, Fix: "lend policy check"}
	case warnings > 0:
		return look.Row{Status: look.Warn, Detail: detail, Fix: "lend policy check"}
	}
	return look.Row{Status: look.Pass, Detail: fmt.Sprintf("no errors, %d tests pass", len(tests))}
}

func (k *checks) inForce(ctx context.Context) look.Row {
	s, no := k.running(ctx)
	if no != nil {
		return *no
	}
	if s.Policy.State != policyfile.InForce.String() {
		return look.Row{Status: look.Fail, Detail: "the file is not in force (" + s.Policy.State + "): " + s.Policy.Problem, Fix: "lend policy check"}
	}
	if s.Policy.File != k.Policy {
		return look.Row{Status: look.Pass, Detail: "in force, from another file: lend status shows it"}
	}
	if p, err := k.loadPolicy(); err != nil || p.Digest() != s.Policy.Digest {
		return look.Row{Status: look.Warn, Detail: "the file has changed since it was taken up", Fix: "wait a second, then lend status"}
	}
	return look.Row{Status: look.Pass, Detail: "the file is what the gateway goes by"}
}

// workspaces looks whether commands could run in the directories that the policy names.
func (k *checks) workspaces(context.Context) (rows []look.Row) {
	p, err := k.loadPolicy()
	if err != nil {
		return []look.Row{{Status: look.Skip, Detail: "the policy cannot be read", Fix: "lend policy check"}}
	}
	all := p.Workspaces()
	for _, w := range all {
		err := k.Workspace(w.Path)
		if err == nil {
			continue
		}
		fix := "give it the path of another directory in the policy"
		if errors.Is(err, fs.ErrNotExist) {
			fix = "make the directory " + name.Quote(w.Path) + ", or " + fix
		}
		rows = append(rows, look.Row{Subject: w.Name.String(), Status: look.Fail, Detail: "no command starts in it: " + err.Error(), Fix: fix})
	}
	switch {
	case len(all) == 0:
		return []look.Row{{Status: look.Skip, Detail: "the policy names none"}}
	case len(rows) == 0:
		return []look.Row{{Status: look.Pass, Detail: fmt.Sprintf("%d of %d can be used", len(all), len(all))}}
	}
	return rows
}
