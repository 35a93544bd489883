package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/argv"
)

// Risk is one thing that is risky about a command.
type Risk struct {
	Error     bool   // it amounts to a shell, or to the account's credentials
	Parameter string // that of the command that it is about, or ""
	Message   string
	Hint      string
}

// Name returns the name by which the tables know a CLI: its public command, or
// else the Connector's key, both without path and ending.
func Name(command, key string) string {
	n := command
	if n == "" {
		n = key
	}
	n = strings.ToLower(path.Base(strings.ReplaceAll(n, `\`, "/")))
	for _, ending := range []string{".exe", ".cmd", ".bat", ".com", ".js", ".py", ".sh"} {
		n = strings.TrimSuffix(n, ending)
	}
	return n
}

// ReadsPaths tells whether a parameter is a path in a workspace.
func ReadsPaths(c argv.Command) bool {
	return slices.ContainsFunc(c.Parameters, func(p argv.Parameter) bool {
		return slices.ContainsFunc(p.Schemas, func(s argv.Schema) bool { return s.Kind == argv.KindPath })
	})
}

// Command returns the risks of a command as narrow as a rule has it. cli is the
// Name of the CLI; prefix are the fixed arguments that its contract puts first.
func Command(cli string, prefix []string, c argv.Command) []Risk {
	fixed := append(slices.Clone(prefix), c.Arguments...)
	l := &linter{cli: cli, command: c}
	l.program(fixed)
	l.verbs(fixed)
	l.fixedOptions(fixed)
	for _, p := range c.Parameters {
		l.parameter(p)
	}
	if c.Rest != nil {
		l.add(false, "", "the tail of arguments (rest) is open-ended", "declare parameters instead")
	}
	l.resource()
	return l.risks
}

type linter struct {
	cli     string
	command argv.Command
	risks   []Risk
}

func (l *linter) add(fatal bool, parameter, message, hint string) {
	l.risks = append(l.risks, Risk{fatal, parameter, message, hint})
}

// program looks at what is run, and at what that is told to run.
func (l *linter) program(fixed []string) {
	switch {
	case shells[l.cli]:
		l.add(true, "", l.cli+" is a shell", "lend a command, never a shell")
	case interpreters[l.cli]:
		fatal := slices.ContainsFunc(fixed, evaluates) || l.command.Rest != nil || slices.ContainsFunc(l.command.Parameters, func(p argv.Parameter) bool {
			return p.Flag != nil && evaluates(p.Flag.Name) && !Pinned(p) || len(fixed) == 0 && p.Position == 1 && !Pinned(p)
		})
		l.add(fatal, "", l.cli+" is an interpreter: it runs programs that its arguments name", "lend a CLI of its own")
	case runners[l.cli]:
		l.add(l.open(), "", l.cli+" runs other programs, or copies files", "lend the program itself")
	}
	if !runners[l.cli] {
		return
	}
	for _, a := range fixed {
		if n := Name(a, ""); shells[n] || interpreters[n] {
			l.add(true, "", l.cli+" is told to run "+n, "lend a command, never a shell")
		}
	}
}

func evaluates(a string) bool { return evaluators[a] }

// open tells whether a caller has a say in the arguments that nothing pins.
func (l *linter) open() bool {
	return l.command.Rest != nil || slices.ContainsFunc(l.command.Parameters, func(p argv.Parameter) bool {
		return p.Stdin == nil && !Pinned(p) && p.Schemas[0].Type == argv.TypeString
	})
}

// verbs looks for subcommands of known CLIs.
func (l *linter) verbs(fixed []string) {
	var said []string
	for _, a := range fixed {
		if !strings.HasPrefix(a, "-") {
			said = append(said, a)
		}
	}
	known := verbs[l.cli]
	for n := min(3, len(said)); n > 0; n-- {
		verb := strings.Join(said[:n], " ")
		if d, ok := known[verb]; ok {
			l.add(d.fatal, "", verb+" "+d.why, "leave the command out")
			return
		}
	}
	if known != nil && len(said) == 0 {
		l.add(true, "", "the fixed arguments name no subcommand of "+l.cli, "put it into arguments")
	}
}

// fixedOptions looks at options that the owner fixed: a program that is fixed is
// the owner's word, so these are warnings.
func (l *linter) fixedOptions(fixed []string) {
	for _, a := range fixed {
		option, _, _ := strings.Cut(a, "=")
		if d, ok := options[option]; ok && d.fatal {
			l.add(false, "", option+" "+d.why, "leave it out")
		}
	}
}

func (l *linter) option(o string) (danger, bool) {
	if d, ok := own[l.cli][o]; ok {
		return d, d.why != ""
	}
	d, ok := options[o]
	return d, ok
}

func (l *linter) parameter(p argv.Parameter) {
	n := p.Name.String()
	if p.Flag != nil {
		for _, spelling := range append([]string{p.Flag.Name}, p.Flag.Aliases...) {
			if d, ok := l.option(spelling); ok && !harmless(p, d) && (!Pinned(p) || switchedOn(p)) {
				l.add(d.fatal, n, spelling+" "+d.why, "forbid it, or list its values with enum")
				break
			}
		}
	}
	if variables[p.Variable] && !Pinned(p) {
		l.add(true, n, "the variable "+p.Variable+" chooses another account, server or resource", "list its values with enum, or leave it out")
	}
	l.probe(p)
	if l.writes() && p.Stdin == nil && freeText(p) {
		l.add(false, n, "any text at all goes into an argument of a command that writes", "bound it with pattern and max_length, or read it from standard input")
	}
}

// probe tries values that are known to lead a CLI elsewhere.
func (l *linter) probe(p argv.Parameter) {
	if p.Position == 0 || p.Schemas[0].Type != argv.TypeString || Pinned(p) {
		return
	}
	for _, try := range probes[l.cli] {
		if accepts(p, try.value) {
			l.add(false, p.Name.String(), fmt.Sprintf("it accepts %q, which %s", try.value, try.why), "bound it with a pattern without / and :")
			return
		}
	}
}

// accepts tells whether the patterns and lengths of a parameter let a text through.
func accepts(p argv.Parameter, s string) bool {
	return !slices.ContainsFunc(p.Schemas, func(q argv.Schema) bool {
		re, err := regexp.Compile(`^(?:` + q.Pattern + `)$`)
		return q.Kind != "" || q.MaxLength != nil && len(s) > *q.MaxLength || err != nil || q.Pattern != "" && !re.MatchString(s)
	})
}

// harmless tells whether what a parameter accepts leaves an option no harm: a
// number; a boolean that is off; and, unless the option is fatal, what a pattern or
// a path bounds.
func harmless(p argv.Parameter, d danger) bool {
	switch p.Schemas[0].Type {
	case argv.TypeInteger, argv.TypeNumber:
		return true
	case argv.TypeBoolean, argv.TypeString:
	}
	return !d.fatal && slices.ContainsFunc(p.Schemas, func(s argv.Schema) bool { return s.Pattern != "" || s.Kind == argv.KindPath })
}

// Pinned tells whether only listed values of a parameter are accepted.
func Pinned(p argv.Parameter) bool {
	return slices.ContainsFunc(p.Schemas, func(s argv.Schema) bool { return s.Const != nil || s.Enum != nil })
}

// switchedOn tells whether a boolean may be true: to list that is no bound.
func switchedOn(p argv.Parameter) bool {
	return p.Schemas[0].Type == argv.TypeBoolean && !slices.ContainsFunc(p.Schemas, func(s argv.Schema) bool { return s.Const != nil && *s.Const == "false" })
}

func freeText(p argv.Parameter) bool {
	free := false
	for _, s := range p.Schemas {
		free = free || s.FreeText
		if s.Enum != nil || s.Const != nil || s.Pattern != "" || s.Kind != "" {
			return false
		}
	}
	return free
}

func (l *linter) writes() bool { return l.command.Effect != argv.EffectRead }

// resource reports a write whose caller chooses what is written to.
func (l *linter) resource() {
	if !l.writes() {
		return
	}
	chooses := l.command.Rest != nil
	for _, p := range l.command.Parameters {
		if p.Required && Pinned(p) {
			return
		}
		chooses = chooses || p.Stdin == nil && p.Schemas[0].Type == argv.TypeString && !Pinned(p)
	}
	if chooses {
		l.add(false, "", fmt.Sprintf("%s writes, and no required parameter is pinned to listed resources", l.command.Name), "give one an enum or a const, and required: true")
	}
}
