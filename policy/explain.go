package policy

import (
	"fmt"
	"strings"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/name"
)

// Stage is one step of a decision, for people.
type Stage struct {
	Name     string   `json:"name"` // "issuer", "holder", "rule", "frozen grant", "decision"
	Passed   bool     `json:"passed"`
	Detail   string   `json:"detail"`
	Rule     string   `json:"rule,omitempty"`
	Position Position `json:"position,omitzero"`
}

// Explanation shows how a decision came about. It holds argument values: it is for
// the owner alone.
type Explanation struct {
	Allowed    bool     `json:"allowed"`
	Code       string   `json:"code,omitempty"`   // of a denial, public
	Reason     string   `json:"reason,omitempty"` // of a denial
	Rule       string   `json:"rule,omitempty"`
	Position   Position `json:"position,omitzero"`
	Connection string   `json:"connection,omitempty"`
	Workspace  string   `json:"workspace,omitempty"`
	Arguments  []string `json:"arguments,omitempty"` // the canonical argv
	Stages     []Stage  `json:"stages"`
}

// trace collects stages; a nil one collects nothing.
type trace struct{ stages []Stage }

func (t *trace) add(step string, passed bool, detail string) {
	if t != nil {
		t.stages = append(t.stages, Stage{Name: step, Passed: passed, Detail: detail})
	}
}

func (t *trace) rule(r *file.Rule, d Decision) {
	if t == nil {
		return
	}
	detail := "passes"
	if !d.Allowed {
		detail = ruleDetails[d.Reason]
		if d.Err != nil {
			detail += ": " + d.Err.Error()
		}
	}
	t.stages = append(t.stages, Stage{"rule", d.Allowed, detail, r.Name, r.Position})
}

//nolint:gochecknoglobals // table
var ruleDetails = map[Reason]string{
	ReasonRule:      "is not about this peer under this issuer",
	ReasonConnector: "is about another Connector",
	ReasonVersion:   "is about another version",
	ReasonCommand:   "does not have the command",
	ReasonRoute:     "has no current route",
	ReasonArgument:  "refuses the arguments",
	ReasonStdin:     "refuses the input",
	ReasonInternal:  "fails",
}

// Explain decides like Decide (or, with frozen surfaces, like DecideWithin) and
// says how.
func (p *Policy) Explain(frozen []*Surface, r Request, source Contracts) Explanation {
	t := &trace{}
	d := guarded(func() Decision {
		if frozen != nil {
			return p.decideWithin(frozen, r, source, t)
		}
		return first(p.decisions(r, source, t))
	})
	e := Explanation{
		Allowed: d.Allowed, Rule: d.Rule.Name, Position: d.Rule.Position, Stages: t.stages,
		Connection: d.Connection.String(), Workspace: d.Workspace.String(), Arguments: d.Call.Arguments,
	}
	if !d.Allowed {
		e.Code, e.Reason = d.Reason.Code(), d.Reason.String()
	}
	return e
}

// String returns the explanation as lines of text, safe to print.
func (e Explanation) String() string {
	var b strings.Builder
	for _, s := range e.Stages {
		mark := "no "
		if s.Passed {
			mark = "yes"
		}
		if s.Name == "rule" {
			fmt.Fprintf(&b, "%s  rule %s (%s) %s\n", mark, name.Quote(s.Rule), s.Position, s.Detail)
			continue
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", mark, s.Name, s.Detail)
	}
	if !e.Allowed {
		fmt.Fprintf(&b, "denied: %s (%s)", e.Code, e.Reason)
		if e.Rule != "" {
			fmt.Fprintf(&b, "; rule %s (%s) came closest", name.Quote(e.Rule), e.Position)
		}
		return b.String() + "\n"
	}
	fmt.Fprintf(&b, "allowed by rule %s (%s)\n", name.Quote(e.Rule), e.Position)
	b.WriteString("runs:")
	for _, a := range e.Arguments {
		b.WriteString(" " + shown(a))
	}
	return b.String() + "\n"
}

// shown writes an argument bare where that is unmistakable, else quoted and whole.
func shown(a string) string {
	plain := a != "" && strings.IndexFunc(a, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,+%", r))
	}) < 0
	if plain && len(a) <= name.MaxQuoted {
		return a
	}
	return name.Quote(a)
}
