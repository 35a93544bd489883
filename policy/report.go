package policy

import "time"

// Level says how bad a Finding is.
type Level string

// The levels. A policy with an error is not to be served.
const (
	LevelError   Level = "error"
	LevelWarning Level = "warning"
)

// Finding is one thing that Lint has to say about the file.
type Finding struct {
	Level    Level    `json:"level"`
	Position Position `json:"position"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
}

// Lint says what does not fit the Connectors' contracts (errors) and what is risky
// (mostly warnings), in the order of the file. With a nil source, contracts are not
// looked at.
func (p *Policy) Lint(source Contracts) []Finding { return nil }

// Access says in sentences who may do what, sorted, and who can never do anything.
// It is what an owner reviews.
func (p *Policy) Access(source Contracts) []string { return nil }

// TestResult is the outcome of one test of the file.
type TestResult struct {
	Name     string   `json:"name"`
	Position Position `json:"position"`
	Passed   bool     `json:"passed"`
	Message  string   `json:"message,omitempty"` // why it failed
}

// RunTests runs the tests of the file, in its order. They do not depend on the
// time: an issuer's `until` counts only where a test says `at`.
func (p *Policy) RunTests(source Contracts) []TestResult { return nil }

// Stage is one step of a decision, for people.
type Stage struct {
	Name     string   `json:"name"` // "issuer", "holder", "rule", "route", "arguments", …
	Passed   bool     `json:"passed"`
	Detail   string   `json:"detail"`
	Rule     string   `json:"rule,omitempty"`
	Position Position `json:"position,omitzero"`
}

// Explanation shows how a decision came about. It may hold argument values: it is
// for the owner alone.
type Explanation struct {
	Allowed    bool          `json:"allowed"`
	Code       string        `json:"code,omitempty"`
	Rule       string        `json:"rule,omitempty"`
	Position   Position      `json:"position,omitzero"`
	Connection string        `json:"connection,omitempty"`
	Workspace  string        `json:"workspace,omitempty"`
	Arguments  []string      `json:"arguments,omitempty"` // the canonical argv
	Run        time.Duration `json:"run,omitempty"`
	Stages     []Stage       `json:"stages"`
}

// Explain decides like Decide (or, with frozen surfaces, like DecideWithin) and
// says how.
func (p *Policy) Explain(frozen []*Surface, r Request, source Contracts) Explanation {
	return Explanation{}
}

// String returns the explanation as lines of text.
func (e Explanation) String() string { return "" }
