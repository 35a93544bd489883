package policyfile

import (
	"errors"
	"fmt"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

var errPanic = errors.New("the policy could not be judged: a panic")

// problem is what is wrong with a file: the first thing, and how many more.
type problem struct {
	first string
	more  int
}

func (p *problem) Error() string {
	if p.more > 0 {
		return fmt.Sprintf("%s (and %d more)", p.first, p.more)
	}
	return p.first
}

func (p *problem) add(s string) {
	if p.first != "" {
		p.more++
		return
	}
	p.first = s
}

// judge reads a policy and holds it against the contracts. The error says why it is
// not to be served; the policy is nil with it.
func judge(file string, data []byte, contracts func() (policy.Contracts, error)) (p *policy.Policy, err error) {
	defer func() {
		if recover() != nil {
			p, err = nil, errPanic
		}
	}()
	if p, err = policy.Parse(file, data); err != nil {
		return nil, err
	}
	source, err := contracts()
	if err != nil {
		return nil, fmt.Errorf("read the contracts of the Connectors: %w", err)
	}
	var wrong problem
	for _, f := range p.Lint(source) {
		if f.Level == policy.LevelError {
			wrong.add(fmt.Sprintf("%s: %s", f.Position, f.Message))
		}
	}
	for _, t := range p.RunTests(source) {
		if !t.Passed {
			wrong.add(fmt.Sprintf("%s: test %s fails: %s", t.Position, name.Quote(t.Name), t.Message))
		}
	}
	if wrong.first != "" {
		return nil, &wrong
	}
	return p, nil
}

// short is the first problem of an error of many.
func short(err error) string {
	var all policy.Problems
	if errors.As(err, &all) && len(all) > 0 {
		return name.Show((&problem{first: all[0].Error(), more: len(all) - 1}).Error())
	}
	return name.Show(err.Error())
}
