package argv

import (
	"slices"

	"github.com/lendcli/lend/protocol/name"
)

// Narrowing says how one parameter of a command becomes narrower. A pin is a
// Schema with an Enum and Required: a parameter that may be left out is not
// pinned, because the CLI then chooses.
type Narrowing struct {
	Schema    *Schema // another one that must accept; a Type of "" is the parameter's own; nil changes nothing
	Required  bool
	Forbidden bool // the parameter is undeclared; alone
}

// Narrow returns the command with each named parameter narrowed. What the result
// accepts the receiver accepts too, with the same Call (but for Stdin, where that
// is forbidden). A parameter that is not there, a narrowing that does not fit it
// and one that leaves nothing to run are errors: joined *DeclarationError values.
// The receiver is not changed and shares no schema list with the result.
func (c Command) Narrow(by map[name.Parameter]Narrowing) (Command, error) {
	p := newProblems()
	at := p.in("parameters")
	out := c
	out.Parameters = nil
	for i := range c.Parameters {
		q := c.Parameters[i]
		n, ok := by[q.Name]
		if !ok {
			out.Parameters = append(out.Parameters, q)
			continue
		}
		in := at.in(q.Name.String())
		if n.Forbidden {
			in.addIf(q.Required, "the parameter is required: a command without it can never run")
			in.addIf(n.Required || n.Schema != nil, "a parameter is forbidden or narrowed, not both")
			continue
		}
		out.Parameters = append(out.Parameters, q.narrow(in, n))
	}
	for n := range by {
		known := slices.ContainsFunc(c.Parameters, func(q Parameter) bool { return q.Name == n })
		at.in(n.String()).addIf(!known, "the command has no such parameter")
	}
	if len(*p.errs) == 0 {
		out.check(nil, p)
	}
	if err := p.err(); err != nil {
		return Command{}, err
	}
	return out, nil
}

func (q Parameter) narrow(p problems, n Narrowing) Parameter {
	q.Required = q.Required || n.Required
	if n.Schema == nil || len(q.Schemas) == 0 {
		return q
	}
	s := *n.Schema
	if s.Type == "" {
		s.Type = q.Schemas[0].Type
	}
	p.addIf(q.Stdin != nil, "standard input is not judged: no schema narrows it")
	q.Schemas = append(slices.Clone(q.Schemas), s)
	return q
}
