package compare

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

var errNoContract = errors.New("no contract to compare by")

// aspect is what an excess is about.
type aspect uint8

const (
	aspectWords    aspect = iota // texts of rules, where nothing else is known
	aspectFixed                  // what runs: fixed arguments, the end of options
	aspectPlace                  // where a parameter goes
	aspectTail                   // further arguments
	aspectPresent                // one side has the parameter
	aspectRequired               // one side requires it
	aspectValues                 // listed values
	aspectRange                  // bounds, patterns
	aspectItems                  // how often
	aspectLimit
)

// excess is one thing that an arm accepts, or may accept, and another does not.
type excess struct {
	aspect    aspect
	parameter name.Parameter
	what      string   // the name of a limit
	values    []string // of aspectValues
	mine      string   // what the one side says: Prose
	other     string   // what the other says
	// unknown: the other side may accept it all the same.
	unknown bool
}

// excesses are what n accepts beyond o; none means that o accepts all of it, with the
// same meaning and no lower limit.
func excesses(n, o *arm) (out []excess) {
	add := func(e excess) { out = append(out, e) }
	defer func() { out = append(out, limitExcesses(n.limits, o.limits)...) }()
	if n.bare || o.bare {
		if n.bare != o.bare || n.words != o.words {
			add(excess{aspect: aspectWords, mine: n.what, other: o.what, unknown: true})
		}
		return out
	}
	if !slices.Equal(n.command.Arguments, o.command.Arguments) || n.command.EndOfOptions != o.command.EndOfOptions {
		add(excess{aspect: aspectFixed, mine: runs(n.command), other: runs(o.command), unknown: true})
	}
	if tail := n.command.Rest; tail != nil {
		other := o.command.Rest
		switch {
		case other == nil, tail.MaxItems > other.MaxItems, tail.Pattern != other.Pattern:
			add(excess{aspect: aspectTail, mine: tailText(tail), other: tailText(other), unknown: other != nil && tail.MaxItems <= other.MaxItems})
		case positions(n.command) != positions(o.command):
			add(excess{aspect: aspectTail, mine: "after " + positionsText(n.command), other: "after " + positionsText(o.command), unknown: true})
		}
	}
	for _, q := range n.command.Parameters {
		at := slices.IndexFunc(o.command.Parameters, func(p argv.Parameter) bool { return p.Name == q.Name })
		if at < 0 {
			add(excess{aspect: aspectPresent, parameter: q.Name, mine: string(review.Values(q, n.limits))})
			continue
		}
		out = append(out, parameterExcesses(n, q, o, o.command.Parameters[at])...)
	}
	for _, p := range o.command.Parameters {
		has := slices.ContainsFunc(n.command.Parameters, func(q argv.Parameter) bool { return q.Name == p.Name })
		if p.Required && !has {
			add(excess{aspect: aspectRequired, parameter: p.Name})
		}
	}
	return out
}

// positions counts the positional parameters before a tail.
func positions(c argv.Command) (n int) {
	for _, q := range c.Parameters {
		if q.Position != 0 {
			n++
		}
	}
	return n
}

func parameterExcesses(n *arm, q argv.Parameter, o *arm, p argv.Parameter) (out []excess) {
	add := func(e excess) {
		e.parameter = q.Name
		out = append(out, e)
	}
	if !samePlace(q, p) {
		add(excess{aspect: aspectPlace, mine: placeText(q), other: placeText(p), unknown: true})
		return out
	}
	if p.Required && !q.Required {
		add(excess{aspect: aspectRequired})
	}
	if q.Stdin != nil {
		if p.Stdin.Text && !q.Stdin.Text {
			add(excess{aspect: aspectRange, mine: "any bytes", other: "text"})
		}
		return out
	}
	if q.List != nil && (q.List.MaxItems > p.List.MaxItems || q.List.MinItems < p.List.MinItems) {
		add(excess{aspect: aspectItems, mine: itemsText(q.List), other: itemsText(p.List)})
	}
	if reflect.DeepEqual(q.Schemas, p.Schemas) {
		return out
	}
	values, finite := n.values(q)
	if !finite {
		if e, more := rangeExcess(q, p); more {
			e.mine, e.other = valuesText(q, n.limits), valuesText(p, o.limits)
			add(e)
		}
		return out
	}
	has := slices.Contains[[]string]
	if others, listed := o.values(p); listed {
		values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return has(others, v) })
	} else {
		values = slices.DeleteFunc(slices.Clone(values), o.known[p.Name].takes)
	}
	if len(values) > 0 {
		add(excess{aspect: aspectValues, values: values})
	}
	return out
}

func samePlace(q, p argv.Parameter) bool {
	return reflect.DeepEqual(q.Flag, p.Flag) && q.Position == p.Position && q.Variable == p.Variable &&
		(q.Stdin == nil) == (p.Stdin == nil) && (q.List == nil) == (p.List == nil) &&
		len(q.Schemas) > 0 && len(p.Schemas) > 0 && q.Schemas[0].Type == p.Schemas[0].Type
}

// rangeExcess compares what cannot be listed: the other side's schemas must each
// follow from those of this one.
func rangeExcess(q, p argv.Parameter) (e excess, more bool) {
	e = excess{aspect: aspectRange}
	empty := func(q argv.Parameter) bool { return q.Schemas[0].MinLength != nil && *q.Schemas[0].MinLength == 0 }
	if empty(q) && !empty(p) || q.Schemas[0].Kind != p.Schemas[0].Kind {
		more = true
		e.unknown = e.unknown || q.Schemas[0].Kind != p.Schemas[0].Kind
	}
	for _, s := range p.Schemas {
		switch {
		case slices.ContainsFunc(q.Schemas, func(t argv.Schema) bool { return reflect.DeepEqual(s, t) }):
			continue
		case s.Enum != nil || s.Const != nil:
			more = true
			continue
		}
		if s.Pattern != "" && !slices.ContainsFunc(q.Schemas, func(t argv.Schema) bool { return t.Pattern == s.Pattern }) {
			more = true
			e.unknown = e.unknown || slices.ContainsFunc(q.Schemas, func(t argv.Schema) bool { return t.Pattern != "" })
		}
		more = more ||
			s.MinLength != nil && *s.MinLength > 0 && !bound(q, s.MinLength, func(t argv.Schema) *int { return t.MinLength }, 1) ||
			!bound(q, s.MaxLength, func(t argv.Schema) *int { return t.MaxLength }, -1) ||
			!bound(q, s.Minimum, func(t argv.Schema) *float64 { return t.Minimum }, 1) ||
			!bound(q, s.Maximum, func(t argv.Schema) *float64 { return t.Maximum }, -1)
	}
	return e, more
}

// bound tells whether some schema of q has a bound at least as tight; sign is 1 for a
// least value, -1 for a most.
func bound[T int | float64](q argv.Parameter, other *T, of func(argv.Schema) *T, sign T) bool {
	return other == nil || slices.ContainsFunc(q.Schemas, func(t argv.Schema) bool {
		mine := of(t)
		return mine != nil && *mine*sign >= *other*sign
	})
}

// limitExcesses are the limits of n that are above those of o.
func limitExcesses(n, o file.Limits) (out []excess) {
	add := func(what string, higher bool, mine, other string) {
		if higher {
			out = append(out, excess{aspect: aspectLimit, what: what, mine: mine, other: other})
		}
	}
	size := func(what string, mine, other, neutral int64) {
		show := func(v int64) string {
			if v == neutral {
				return "what the gateway lets"
			}
			return file.ShowSize(v)
		}
		add(what, above(mine, other), show(mine), show(other))
	}
	free := neutralLimits()
	if n.Stdin != 0 && o.Stdin != 0 {
		size("input", n.Stdin, o.Stdin, 0)
	}
	size("output", n.Stdout, o.Stdout, free.Stdout)
	size("error output", n.Stderr, o.Stderr, free.Stderr)
	size("memory", or(n.Memory), or(o.Memory), file.Unlimited)
	size("bytes of arguments", int64(n.ArgumentBytes), int64(o.ArgumentBytes), int64(free.ArgumentBytes))
	number := func(what string, mine, other, neutral int64) {
		show := func(v int64) string {
			if v == neutral {
				return "what the gateway lets"
			}
			return count(v)
		}
		add(what, above(mine, other), show(mine), show(other))
	}
	number("processes", or(int64(n.Processes)), or(int64(o.Processes)), file.Unlimited)
	number("arguments", int64(n.Arguments), int64(o.Arguments), int64(free.Arguments))
	add("a run of", n.Run > o.Run, file.ShowDuration(n.Run), file.ShowDuration(o.Run))
	detached := func(d time.Duration) string {
		if d == free.Detached {
			return "what the gateway lets"
		}
		return file.ShowDetached(d)
	}
	add("after a lost link", n.Detached > o.Detached, detached(n.Detached), detached(o.Detached))
	return out
}

// or makes "no bound" what it is for sizes.
func or(v int64) int64 {
	if v == 0 {
		return file.Unlimited
	}
	return v
}

// above compares limits of which Unlimited is the highest.
func above(a, b int64) bool {
	return b != file.Unlimited && (a == file.Unlimited || a > b)
}
