package compare

import (
	"fmt"
	"slices"
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// cell is one command in one place: what is compared with each other.
type cell struct {
	target     surface.Target
	connection name.ConnectionID
	workspace  name.Label
}

// arm is what one rule gives in a cell.
type arm struct {
	at      strict.Position // of the command in the rule
	command argv.Command    // without parameters that accept nothing
	limits  file.Limits     // as if the gateway had none of its own
	what    string          // as review.Access says it: Prose
	// words is the rule's text for a command whose contract is not known; all that
	// can be said of two of them is whether they are the same.
	words string
	bare  bool
	cell  cell
	known map[name.Parameter]accepted // of the command's parameters
}

// accepted is what a parameter accepts.
type accepted struct {
	values []string // all of them, if finite
	finite bool
	takes  func(value string) bool
}

// side is one of the files, with the arms of its rules.
type side struct {
	*file.File
	neutral *file.File
	source  review.Contracts
	rules   map[*file.Rule][]*arm
}

// neutralLimits are those of a gateway that bounds nothing: its own limits are
// compared once, not with each command.
func neutralLimits() file.Limits {
	return file.Limits{
		Stdout: file.Unlimited, Stderr: file.Unlimited, Detached: time.Hour,
		Arguments: argv.MaxArguments, ArgumentBytes: argv.MaxTotal,
	}
}

func newSide(f *file.File, source review.Contracts) *side {
	s := &side{File: f, source: source, rules: map[*file.Rule][]*arm{}}
	neutral := *f
	neutral.Limits = neutralLimits()
	s.neutral = &neutral
	for _, r := range f.Rules {
		for _, v := range r.Versions {
			for _, g := range r.Commands {
				if a := s.arm(r, g, v); a != nil {
					s.rules[r] = append(s.rules[r], a)
				}
			}
		}
	}
	return s
}

// arm is nil where the rule gives nothing.
func (s *side) arm(r *file.Rule, g *file.Grant, v name.Version) *arm {
	a := &arm{
		at:   s.Doc.Position(g.Key),
		what: string(review.Bounds(s.File, r, g, v, s.source)),
		cell: cell{surface.Target{Connector: r.Connector, Version: v, Command: g.Name}, r.Connection, r.Workspace},
	}
	contract, err := s.contract(r, v)
	if err != nil {
		a.bare, a.what = true, "as its Connector declares, which is not installed here"
		a.limits = s.neutral.Operation(argv.Contract{}, argv.Command{}, r.Limits)
		if len(g.Narrow) > 0 {
			a.words = fmt.Sprint(r.Node.Get("commands").Get(g.Name.String()).Value())
			a.what += ", and as the rule narrows it"
		}
		return a
	}
	made, err := surface.Make(s.neutral, r, g, v, contract, "")
	if err != nil {
		return nil // nor does a decision find it
	}
	a.command, a.limits, a.known = made.Command(), made.Limits(), map[name.Parameter]accepted{}
	for _, q := range a.command.Parameters {
		takes := surface.Takes(a.command, q)
		values, finite := listed(q, takes)
		a.known[q.Name] = accepted{values, finite, takes}
	}
	return a.withoutVoid()
}

// contract is that of the source, else that of commands which the file declares.
func (s *side) contract(r *file.Rule, v name.Version) (argv.Contract, error) {
	if s.source != nil {
		contract, _, err := s.source.Contract(r.Connector, v, r.Connection)
		if err == nil || len(s.Declared[r.Connector]) == 0 {
			return contract, err
		}
	}
	if len(s.Declared[r.Connector]) > 0 {
		c := argv.Contract{Command: r.Connector.String()}
		for _, d := range s.Declared[r.Connector] {
			for _, p := range d.Command.Parameters {
				if p.Variable != "" && !slices.Contains(c.Environment, p.Variable) {
					c.Environment = append(c.Environment, p.Variable)
				}
			}
		}
		return c, nil
	}
	return argv.Contract{}, errNoContract
}

// withoutVoid drops parameters that accept nothing; nil if such a one is required.
func (a *arm) withoutVoid() *arm {
	var kept []argv.Parameter
	for _, q := range a.command.Parameters {
		nothing := a.known[q.Name].finite && len(a.known[q.Name].values) == 0 || q.Schemas[0].Kind == argv.KindPath && a.cell.workspace.IsZero()
		switch {
		case !nothing:
			kept = append(kept, q)
		case q.Required:
			return nil
		}
	}
	a.command.Parameters = kept
	return a
}

const maxSpan = 1024 // whole numbers that are looked at one by one

// values are what a parameter accepts, if that can be listed. The caller must not
// change them.
func (a *arm) values(q argv.Parameter) ([]string, bool) {
	k := a.known[q.Name]
	return k.values, k.finite
}

// listed are the values of a parameter one by one, if they are few.
func listed(q argv.Parameter, takes func(string) bool) ([]string, bool) {
	var candidates []string
	named := false
	narrow := func(of []string) {
		if !named || len(of) < len(candidates) {
			candidates, named = of, true
		}
	}
	low, high := -1e18, 1e18
	for _, s := range q.Schemas {
		if s.Const != nil {
			narrow([]string{*s.Const})
		}
		if s.Enum != nil {
			narrow(s.Enum)
		}
		if s.Minimum != nil {
			low = max(low, *s.Minimum)
		}
		if s.Maximum != nil {
			high = min(high, *s.Maximum)
		}
	}
	switch {
	case q.Stdin != nil:
		return nil, false
	case named:
	case q.Schemas[0].Type == argv.TypeBoolean:
		candidates = []string{"true", "false"}
	case low > high:
	case q.Schemas[0].Type == argv.TypeInteger && high-low < maxSpan:
		for v := int64(low) - 1; float64(v) <= high; v++ {
			candidates = append(candidates, fmt.Sprint(v))
		}
	default:
		return nil, false
	}
	return slices.DeleteFunc(slices.Clone(candidates), func(v string) bool { return !takes(v) }), true
}
