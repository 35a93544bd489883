package compare

import (
	"maps"
	"slices"

	"github.com/lendcli/lend/protocol/argv"
)

// Bounds of the search for several arms that are together what one is.
const (
	maxPieces = 64   // values of one parameter that are tried one by one
	maxSteps  = 2000 // comparisons for one arm
)

// covered tells whether each request that n accepts is accepted by some of the
// others, with the same meaning. No is also the answer where that cannot be shown.
func covered(n *arm, others []*arm) bool {
	if len(others) == 0 {
		return false
	}
	c := &cover{others: others, steps: maxSteps}
	return c.all(n, nil)
}

type cover struct {
	others []*arm
	steps  int
}

// all splits n by the values of one parameter after the other until each piece is in
// one of the others. Pinned are the parameters that were split already.
func (c *cover) all(n *arm, pinned []string) bool {
	if c.steps -= len(c.others); c.steps < 0 {
		return false
	}
	if slices.ContainsFunc(c.others, func(o *arm) bool { return len(excesses(n, o)) == 0 }) {
		return true
	}
	if len(c.others) < 2 || n.bare {
		return false
	}
	for i, q := range n.command.Parameters {
		if slices.Contains(pinned, q.Name.String()) || q.List != nil {
			continue
		}
		values, finite := n.values(q)
		if !finite && !q.Required && q.Stdin == nil {
			values = nil // said or not said: two pieces
		} else if !finite || len(values) > maxPieces {
			continue
		}
		pinned := append(slices.Clone(pinned), q.Name.String())
		if !q.Required && !(n.command.Rest != nil && q.Position != 0) && !c.all(n.without(i), pinned) {
			return false
		}
		if !finite {
			return c.all(n.required(i), pinned)
		}
		for _, v := range values {
			if !c.all(n.with(i, v), pinned) {
				return false
			}
		}
		return true
	}
	return false
}

func (a *arm) changed(parameters []argv.Parameter) *arm {
	b := *a
	b.command.Parameters = parameters
	return &b
}

// without is the arm as far as the parameter is not said.
func (a *arm) without(i int) *arm {
	return a.changed(slices.Delete(slices.Clone(a.command.Parameters), i, i+1))
}

// required is the arm as far as the parameter is said.
func (a *arm) required(i int) *arm {
	parameters := slices.Clone(a.command.Parameters)
	parameters[i].Required = true
	return a.changed(parameters)
}

// with is the arm as far as the parameter has one value, of those that it accepts.
func (a *arm) with(i int, value string) *arm {
	b := a.required(i)
	q := &b.command.Parameters[i]
	b.known = maps.Clone(b.known)
	b.known[q.Name] = accepted{[]string{value}, true, func(v string) bool { return v == value }}
	q.Schemas = append(slices.Clone(q.Schemas), argv.Schema{Type: q.Schemas[0].Type, Enum: []string{value}})
	return b
}

// closest returns what n accepts beyond the one of the others that is most like it.
func closest(n *arm, others []*arm) (o *arm, least []excess) {
	for _, other := range others {
		if found := excesses(n, other); o == nil || len(found) < len(least) {
			o, least = other, found
		}
	}
	return o, least
}

// beyond leaves out the values that others accept in the same request.
func beyond(n *arm, others []*arm, found []excess) []excess {
	out := slices.Clone(found)
	for k, e := range out {
		if e.aspect != aspectValues || len(e.values) > maxPieces {
			continue
		}
		i := slices.IndexFunc(n.command.Parameters, func(q argv.Parameter) bool { return q.Name == e.parameter })
		if i < 0 || n.command.Parameters[i].List != nil {
			continue
		}
		out[k].values = slices.DeleteFunc(slices.Clone(e.values), func(v string) bool { return covered(n.with(i, v), others) })
	}
	return slices.DeleteFunc(out, func(e excess) bool { return e.aspect == aspectValues && len(e.values) == 0 })
}
