package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/name"
)

// TestResult is the outcome of one test of the file.
type TestResult struct {
	Name     string   `json:"name"`
	Position Position `json:"position"`
	Passed   bool     `json:"passed"`
	Message  string   `json:"message,omitempty"` // why it failed
}

// RunTests runs the tests of the file, in its order. They do not depend on the
// time: an issuer's `until` counts only where a test says `at`.
func (p *Policy) RunTests(source Contracts) []TestResult {
	out := make([]TestResult, 0, len(p.file.Tests))
	for _, t := range p.file.Tests {
		message := judge(t, p.Decide(requestOf(t), source))
		out = append(out, TestResult{Name: t.Name, Position: t.Position, Passed: message == "", Message: message})
	}
	return out
}

// requestOf returns the request of a test.
func requestOf(t *file.Test) Request {
	return Request{
		Issuer: t.Issuer, Peer: t.Peer, Connector: t.Connector, Version: t.Version, Command: t.Command,
		Arguments: t.Arguments, Pins: t.Pins, Stdin: t.Stdin, Now: t.Now,
	}
}

// judge says what is wrong with a decision, "" if nothing is.
func judge(t *file.Test, d Decision) string {
	switch {
	case t.Allow && !d.Allowed:
		return "denied: " + denial(d)
	case !t.Allow && d.Allowed:
		return fmt.Sprintf("allowed by rule %s", name.Quote(d.Rule.Name))
	case t.Allow && t.Rule != "" && d.Rule.Name != t.Rule:
		return fmt.Sprintf("allowed by rule %s, not by %s", name.Quote(d.Rule.Name), name.Quote(t.Rule))
	case t.Allow && t.Argv != nil && !slices.Equal(t.Argv, d.Call.Arguments):
		return "the canonical arguments are " + flow(d.Call.Arguments)
	case !t.Allow && t.Code != "" && d.Reason.Code() != t.Code:
		return "denied, but with " + denial(d)
	}
	return ""
}

func denial(d Decision) string {
	s := d.Reason.Code() + " (" + d.Reason.String() + ")"
	if d.Err != nil {
		s += ": " + d.Err.Error()
	}
	return s
}

// flow writes texts as a list that a test in the file can have.
func flow(texts []string) string {
	quoted := make([]string, 0, len(texts))
	for _, s := range texts {
		quoted = append(quoted, name.Quote(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
