package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// cli checks the command-line program: one implementation, or one for each target.
func (c *checker) cli(d *cliDocument) CLI {
	one := implementationDocument{d.Kind, d.Entrypoint, d.SHA256, d.Runtime, d.Package, d.Archive}
	var out CLI
	if d.Targets == nil {
		out.Implementation = c.implementation("cli", one)
	} else {
		out.Targets = c.targets(d.Targets)
		if one != (implementationDocument{}) {
			c.bad("cli", "with targets, each of them says what it is, and nothing beside them does")
		}
	}
	out.Probe = c.probe(d.Probe)
	out.Contract = c.contract(d)
	return out
}

// probe is a run without a caller: its arguments are exactly these.
func (c *checker) probe(d *probeDocument) *Probe {
	if d == nil {
		return nil
	}
	if n := len(d.Arguments); n < 1 || n > maxProbeArguments {
		c.bad("cli.readinessProbe.arguments", "want 1 to %d", maxProbeArguments)
	}
	size := 0
	for i, a := range d.Arguments {
		if strings.ContainsRune(a, 0) {
			c.bad(fmt.Sprintf("cli.readinessProbe.arguments[%d]", i), "it holds NUL")
		}
		size += len(a)
	}
	if size > maxProbeBytes {
		c.bad("cli.readinessProbe.arguments", "longer than %d bytes together", maxProbeBytes)
	}
	t, err := time.ParseDuration(d.Timeout)
	if err != nil || t < minTimeout || t > maxProbeTimeout {
		c.bad("cli.readinessProbe.timeout", "want a time from %s to %s, such as \"5s\"", minTimeout, maxProbeTimeout)
	}
	return &Probe{Arguments: slices.Clone(d.Arguments), Timeout: t}
}

func (c *checker) contract(d *cliDocument) argv.Contract {
	out := argv.Contract{Command: d.Command, Arguments: slices.Clone(d.Arguments), Environment: slices.Clone(d.Environment)}
	c.identifier("cli.command", d.Command)
	c.arguments("cli.arguments", d.Arguments)
	c.environment(d.Environment)
	if d.Timeout != "" {
		t, err := time.ParseDuration(d.Timeout)
		if err != nil || t < minTimeout || t > maxTimeout {
			c.bad("cli.timeout", "want a time from %s to %s, such as \"2m\"", minTimeout, maxTimeout)
		}
		out.Timeout = t
	}
	if len(d.Commands) > maxCommands {
		c.bad("cli.commands", "more than %d", maxCommands)
		return out
	}
	before := len(c.errs)
	for _, n := range slices.Sorted(maps.Keys(d.Commands)) {
		c.command(&out, n, d.Commands[n])
	}
	if len(c.errs) == before {
		c.err("cli", out.Validate())
	}
	return out
}

func (c *checker) command(out *argv.Contract, n string, d argv.Declaration) {
	path := "cli.commands." + n
	parsed, err := name.ParseCommand(n)
	if err != nil {
		c.err("cli.commands", err)
		return
	}
	cmd, err := d.Command(parsed)
	if err != nil {
		c.err(path, err)
		return
	}
	out.Commands = append(out.Commands, cmd)
}

func (c *checker) environment(vars []string) {
	if len(vars) > maxVariables {
		c.bad("cli.environment", "more than %d variables", maxVariables)
	}
	seen := map[string]bool{}
	for _, v := range vars {
		c.variable("cli.environment", v)
		if seen[v] {
			c.bad("cli.environment", "%s is there twice", name.Quote(v))
		}
		if loadsCode(strings.ToUpper(v)) {
			c.bad("cli.environment", "%s lets a caller choose what code runs", name.Quote(v))
		}
		seen[v] = true
	}
}
