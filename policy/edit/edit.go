package edit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// RefusedError says why a file is not changed, and what to do instead.
type RefusedError struct {
	Text string
	Hint string // may be empty
}

func (e *RefusedError) Error() string { return e.Text }

func refuse(hint, format string, args ...any) error {
	return &RefusedError{Text: fmt.Sprintf(format, args...), Hint: hint}
}

// ErrNothing says that the file says so already.
var ErrNothing = errors.New("nothing to change")

// Result is a changed file. Nothing was written.
type Result struct {
	Text    []byte
	Policy  *policy.Policy // of Text
	Changes compare.Report // against what it was
	Notes   []review.Prose // what the owner may not expect, in sentences
	// Warnings are those of lint that the file did not have.
	Warnings []policy.Finding
}

// work is one edit: the file as it was, and its text with line feeds.
type work struct {
	filename string
	before   *policy.Policy
	text     string
	dos      bool
	source   policy.Contracts
	notes    []review.Prose
}

func begin(filename string, data []byte, source policy.Contracts) (*work, error) {
	before, err := policy.Parse(filename, data)
	if err != nil {
		return nil, err
	}
	text, dos := layout.Unix(data)
	if !dos && len(text) != len(data) {
		return nil, refuse("lend policy fmt", "%s has lines that end in two ways", filename)
	}
	return &work{filename: filename, before: before, text: string(text), dos: dos, source: source}, nil
}

// sheet reads the text as it is by now.
func (w *work) sheet() (*sheet, error) {
	s, err := layout.Read(w.filename, []byte(w.text))
	if errors.Is(err, layout.ErrLayout) {
		return nil, refuse("lend policy fmt, or change it by hand", "%s", err)
	}
	if err != nil {
		return nil, err
	}
	return &sheet{Source: s}, nil
}

// finish checks the changed text as a gateway would before it takes it up.
func (w *work) finish() (Result, error) {
	r := Result{Text: []byte(w.text), Notes: w.notes}
	if w.dos {
		r.Text = layout.Dos(r.Text)
	}
	var err error
	if r.Policy, err = policy.Parse(w.filename, r.Text); err != nil {
		return Result{}, refuse("change it by hand", "the changed file could not be read: %s", err)
	}
	had := w.before.Lint(w.source)
	for _, f := range r.Policy.Lint(w.source) {
		known := slices.ContainsFunc(had, func(h policy.Finding) bool { return h.Level == f.Level && h.Message == f.Message })
		if f.Level != policy.LevelError {
			if !known {
				r.Warnings = append(r.Warnings, f)
			}
			continue
		}
		where := "the changed file"
		if known {
			where = "the file, as it is already,"
		}
		return Result{}, refuse(f.Hint, "%s would not be served: %s: %s", where, f.Position, f.Message)
	}
	for _, t := range r.Policy.RunTests(w.source) {
		if !t.Passed {
			return Result{}, refuse("change the test first if it no longer says what you want",
				"the file's test %s (%s) would fail: %s", name.Quote(t.Name), t.Position, t.Message)
		}
	}
	r.Changes = compare.Policies(w.before, r.Policy, w.source)
	return r, nil
}

// only refuses changes that were not asked for.
func only(changes compare.Report, asked func(compare.Change) bool) error {
	for _, c := range changes {
		if !asked(c) {
			return refuse("change it by hand", "the edit would change more than what was asked: %s", c.Brief)
		}
	}
	return nil
}

// ruleAt finds a rule in the text by its name.
func ruleAt(s *layout.Source, title string) (list *strict.Node, i int) {
	list = s.Root.Get("allow")
	if list == nil {
		return nil, -1
	}
	return list, slices.IndexFunc(list.Values, func(n *strict.Node) bool { return n.Get("name").Str() == title })
}

// unused returns a title that no rule has.
func unused(p *policy.Policy, title string) string {
	taken := map[string]bool{}
	for _, r := range p.Content().Rules {
		taken[r.Name] = true
	}
	return unusedTitle(taken, title)
}

func unusedTitle(taken map[string]bool, title string) string {
	const most = 100 // characters of a title
	title = strings.TrimSpace(shorten(title, most))
	for n := 2; taken[title]; n++ {
		suffix := fmt.Sprintf(" %d", n)
		base := strings.TrimSuffix(title, fmt.Sprintf(" %d", n-1))
		title = strings.TrimSpace(shorten(base, most-len(suffix))) + suffix
	}
	return title
}

func shorten(s string, most int) string {
	runes := []rune(s)
	return string(runes[:min(len(runes), most)])
}
