package argv

import (
	"slices"
	"strconv"
	"strings"
)

// render writes what was said in the one canonical spelling, and counts it.
func (r *reading) render() (Call, *Error) {
	call := Call{Arguments: append(make([]string, 0, len(r.g.prefix)+len(r.said)+len(r.rest)+1), r.g.prefix...)}
	ended := !r.g.command.EndOfOptions
	for _, p := range r.g.params {
		items := r.said[p]
		if items == nil {
			continue
		}
		call.Values = append(call.Values, Value{p.Name, slices.Clone(items)})
		switch {
		case p.Flag != nil:
			call.renderFlag(p, items)
		case p.Variable != "":
			call.Environment = append(call.Environment, Variable{p.Variable, items[0]})
		default:
			ended = call.endOptions(ended)
			for _, item := range items {
				call.add(p, "", item)
			}
		}
	}
	if len(r.rest) > 0 {
		call.endOptions(ended)
		call.Arguments = append(call.Arguments, r.rest...)
		call.Values = append(call.Values, Value{r.g.restName, slices.Clone(r.rest)})
	}
	slices.SortFunc(call.Environment, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	if r.g.stdin != nil {
		in := *r.g.stdin.Stdin
		if in.MaxBytes == 0 {
			in.MaxBytes = defaultStdin
		}
		call.Stdin = &in
	}
	return call, call.bound()
}

func (c *Call) endOptions(ended bool) bool {
	if !ended {
		c.Arguments = append(c.Arguments, "--")
	}
	return true
}

func (c *Call) renderFlag(p *param, items []string) {
	f := p.Flag
	switch {
	case p.Schemas[0].Type == TypeBoolean:
		if items[0] == "true" {
			c.Arguments = append(c.Arguments, f.Name)
		} else {
			c.Arguments = append(c.Arguments, f.Name+"="+items[0])
		}
	case f.Separator != "":
		c.addFlag(p, items)
	default:
		for _, item := range items {
			c.addFlag(p, []string{item})
		}
	}
}

// addFlag writes one flag with the items that its separator joins.
func (c *Call) addFlag(p *param, items []string) {
	prefix := p.Flag.Name + "="
	if p.Flag.render() == RenderSpace {
		c.Arguments = append(c.Arguments, p.Flag.Name)
		prefix = ""
	}
	c.add(p, prefix, items...)
}

// add writes one argument and remembers where paths are in it.
func (c *Call) add(p *param, prefix string, items ...string) {
	var b strings.Builder
	b.WriteString(prefix)
	for i, item := range items {
		if i > 0 {
			b.WriteString(p.Flag.Separator)
		}
		if p.isPath() {
			c.Paths = append(c.Paths, Path{Index: len(c.Arguments), Offset: b.Len(), Path: item})
		}
		b.WriteString(item)
	}
	c.Arguments = append(c.Arguments, b.String())
}

// bound counts a rendering, the NUL that ends each argument included.
func (c *Call) bound() *Error {
	if len(c.Arguments) > MaxArguments {
		return &Error{Kind: FaultTooMany, Index: -1, Rule: "want at most " + strconv.Itoa(MaxArguments) + " arguments"}
	}
	total := 0
	for _, a := range c.Arguments {
		if len(a) > MaxArgument {
			return &Error{Kind: FaultTooLong, Index: -1, Rule: "want at most " + strconv.Itoa(MaxArgument) + " bytes in each argument"}
		}
		total += len(a) + 1
	}
	for _, v := range c.Environment {
		if n := len(v.Name) + 1 + len(v.Value); n > MaxArgument {
			return &Error{Kind: FaultTooLong, Index: -1, Rule: "want at most " + strconv.Itoa(MaxArgument) + " bytes in each variable"}
		}
		total += len(v.Name) + len(v.Value) + 2
	}
	if total > MaxTotal {
		return &Error{Kind: FaultTooLarge, Index: -1, Rule: "want at most " + strconv.Itoa(MaxTotal) + " bytes together"}
	}
	return nil
}

func itemsRule(least, most int) string {
	if least == most {
		return "want " + strconv.Itoa(most)
	}
	return "want " + strconv.Itoa(least) + " to " + strconv.Itoa(most)
}
