package argv

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// restName is the key of a command's tail in objects and in Call.Values.
const restName = "rest"

// Grammar is a command made ready to read arguments. It is immutable and safe for
// concurrent use.
type Grammar struct {
	command   Command
	prefix    []string // fixed arguments of contract and command
	params    []*param // flags by name, positions in order, then variables by name
	flags     map[string]*param
	positions []*param
	stdin     *param
	rest      *regexp.Regexp // nil: no tail
	restName  name.Parameter
}

// Compile validates the command and prepares it. The error is that of
// Command.Validate.
//
// The order of a rendering does not depend on the order of declarations, as the
// contract's hash does not: flags are sorted by the name of their parameter,
// then come the positions and the tail.
func (c Command) Compile(contract Contract) (*Grammar, error) {
	if err := c.Validate(contract); err != nil {
		return nil, err
	}
	g := &Grammar{
		command: c,
		prefix:  slices.Concat(contract.Arguments, c.Arguments),
		flags:   map[string]*param{},
	}
	for i := range c.Parameters {
		if err := g.add(&c, c.Parameters[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(g.params, comparePlaces)
	for _, p := range g.params {
		if p.Position != 0 {
			g.positions = append(g.positions, p)
		}
	}
	if c.Rest == nil {
		return g, nil
	}
	var err error
	if g.rest, err = compilePattern(c.Rest.Pattern); err != nil {
		return nil, err
	}
	g.restName, err = name.ParseParameter(restName)
	return g, err
}

func (g *Grammar) add(c *Command, q Parameter) error {
	p := &param{Parameter: q, dashes: q.dashes(c)}
	for i := range q.Schemas {
		re, err := compilePattern(q.Schemas[i].Pattern)
		if err != nil {
			return err
		}
		p.patterns = append(p.patterns, re)
	}
	if q.Stdin != nil {
		g.stdin = p
		return nil
	}
	g.params = append(g.params, p)
	for _, f := range q.spellings() {
		g.flags[f] = p
	}
	return nil
}

func comparePlaces(a, b *param) int {
	if d := a.place() - b.place(); d != 0 {
		return d
	}
	return strings.Compare(a.Name.String(), b.Name.String())
}

func (p *param) place() int {
	switch {
	case p.Flag != nil:
		return 0
	case p.Variable != "":
		return maxParameters + 1
	}
	return p.Position
}
