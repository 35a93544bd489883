package route

import (
	"slices"

	"github.com/lendcli/lend/protocol/argv"
)

// cloneContract copies everything that c refers to, so that the maker of a
// descriptor cannot change what was published.
func cloneContract(c argv.Contract) argv.Contract {
	c.Arguments = slices.Clone(c.Arguments)
	c.Environment = slices.Clone(c.Environment)
	c.Commands = slices.Clone(c.Commands)
	for i := range c.Commands {
		cmd := &c.Commands[i]
		cmd.Arguments = slices.Clone(cmd.Arguments)
		cmd.Rest = clonePointer(cmd.Rest)
		cmd.Parameters = slices.Clone(cmd.Parameters)
		for j := range cmd.Parameters {
			cloneParameter(&cmd.Parameters[j])
		}
	}
	return c
}

func cloneParameter(p *argv.Parameter) {
	p.List = clonePointer(p.List)
	p.Stdin = clonePointer(p.Stdin)
	if p.Flag = clonePointer(p.Flag); p.Flag != nil {
		p.Flag.Aliases = slices.Clone(p.Flag.Aliases)
	}
	p.Schemas = slices.Clone(p.Schemas)
	for i := range p.Schemas {
		s := &p.Schemas[i]
		s.Enum = slices.Clone(s.Enum)
		s.Const = clonePointer(s.Const)
		s.MinLength = clonePointer(s.MinLength)
		s.MaxLength = clonePointer(s.MaxLength)
		s.Minimum = clonePointer(s.Minimum)
		s.Maximum = clonePointer(s.Maximum)
	}
}

func cloneProbe(p *Probe) *Probe {
	if p = clonePointer(p); p != nil {
		p.Arguments = slices.Clone(p.Arguments)
	}
	return p
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
