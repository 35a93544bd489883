package argv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// problems collects the faults of a declaration under a path.
type problems struct {
	path string
	errs *[]error
}

func newProblems() problems { return problems{"", new([]error)} }

func (p problems) in(key string) problems {
	if p.path != "" {
		key = p.path + "." + key
	}
	return problems{key, p.errs}
}

func (p problems) index(i int) problems { return problems{fmt.Sprintf("%s[%d]", p.path, i), p.errs} }

func (p problems) add(format string, args ...any) {
	*p.errs = append(*p.errs, &DeclarationError{Path: p.path, Msg: fmt.Sprintf(format, args...)})
}

func (p problems) addIf(bad bool, format string, args ...any) {
	if bad {
		p.add(format, args...)
	}
}

func (p problems) err() error { return errors.Join(*p.errs...) }

// Validate checks the Contract and each of its commands. The error joins
// *DeclarationError values.
func (c Contract) Validate() error {
	p := newProblems()
	c.checkHead(p)
	p.in("commands").addIf(len(c.Commands) > maxCommands, "want at most %d commands", maxCommands)
	for i := range c.Commands {
		at := p.in("commands").in(c.Commands[i].Name.String())
		if i > 0 && c.Commands[i-1].Name.String() >= c.Commands[i].Name.String() {
			at.add("commands are sorted by name and named once")
		}
		c.Commands[i].check(&c, at)
	}
	return p.err()
}

func (c *Contract) checkHead(p problems) {
	ok := c.Command != "" && len(c.Command) <= maxFlag && alnum(c.Command[0]) && wordlike(c.Command)
	p.in("command").addIf(!ok, "want the CLI's name: at most %d letters, digits, '.', '_' and '-'", maxFlag)
	checkFixed(p.in("arguments"), c.Arguments)
	checkTimeout(p.in("timeout"), c.Timeout)
	at := p.in("environment")
	at.addIf(len(c.Environment) > maxVariables, "want at most %d variables", maxVariables)
	for i, v := range c.Environment {
		if msg := variableFault(v); msg != "" {
			at.index(i).add("%s: %s", name.Quote(v), msg)
		}
		at.index(i).addIf(slices.Contains(c.Environment[:i], v), "%s is listed twice", name.Quote(v))
	}
}

func alnum(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

func wordlike(s string) bool {
	for i := range len(s) {
		if !alnum(s[i]) && !strings.ContainsRune("._-", rune(s[i])) {
			return false
		}
	}
	return true
}

// checkFixed bounds what an owner or a manifest writes into argv. It may look
// like an option: that is what it is for.
func checkFixed(p problems, args []string) {
	p.addIf(len(args) > maxFixed, "want at most %d fixed arguments", maxFixed)
	for i, a := range args {
		f := textFault(a)
		p.index(i).addIf(a == "" || len(a) > maxFixedBytes || f != "", "want 1 to %d bytes of text without control characters", maxFixedBytes)
	}
}

func checkTimeout(p problems, d time.Duration) {
	p.addIf(d < 0 || d > maxTimeout || d%time.Millisecond != 0, "want whole milliseconds, at most %s", maxTimeout)
}

func checkDescription(p problems, s string) {
	p.addIf(len(s) > maxDescription || textFault(s) != "", "want one line of at most %d bytes without control characters", maxDescription)
}

// Lookup finds the command named n among those that the Contract declares.
func (c Contract) Lookup(n name.Command) (Command, bool) {
	for i := range c.Commands {
		if c.Commands[i].Name == n {
			return c.Commands[i], true
		}
	}
	return Command{}, false
}

// Validate checks the command, which need not be one of the Contract's own. The
// error joins *DeclarationError values.
func (c Command) Validate(contract Contract) error {
	p := newProblems()
	contract.checkHead(p.in("contract"))
	c.check(&contract, p)
	return p.err()
}

// check leaves out what depends on the Contract if that is nil.
func (c *Command) check(contract *Contract, p problems) {
	p.addIf(c.Name.IsZero(), "the command has no name")
	checkDescription(p.in("summary"), c.Description)
	checkTimeout(p.in("timeout"), c.Timeout)
	p.in("effect").addIf(c.Effect != "" && c.Effect != EffectRead && c.Effect != EffectWrite, "want read or write")
	checkFixed(p.in("arguments"), c.Arguments)
	at := p.in("parameters")
	at.addIf(len(c.Parameters) > maxParameters, "want at most %d parameters", maxParameters)
	seen := map[name.Parameter]bool{}
	for i := range c.Parameters {
		q := &c.Parameters[i]
		in := at.in(q.Name.String())
		in.addIf(q.Name.IsZero(), "the parameter has no name")
		in.addIf(seen[q.Name], "the parameter is declared twice")
		seen[q.Name] = true
		q.check(contract, c, in)
	}
	c.checkPlaces(p)
}

// checkPlaces checks what parameters do to one another.
func (c *Command) checkPlaces(p problems) {
	at := p.in("parameters")
	flags, variables, stdin := map[string]bool{}, map[string]bool{}, 0
	var positions []*Parameter
	for i := range c.Parameters {
		q := &c.Parameters[i]
		in := at.in(q.Name.String())
		for _, f := range q.spellings() {
			in.addIf(flags[f], "the flag %s is declared twice", name.Quote(f))
			flags[f] = true
		}
		if q.Variable != "" {
			in.in("env").addIf(variables[q.Variable], "the variable is set twice")
			variables[q.Variable] = true
		}
		if q.Stdin != nil {
			stdin++
			in.in("stdin").addIf(stdin > 1, "there is one standard input")
		}
		if q.Position > 0 {
			positions = append(positions, q)
		}
	}
	slices.SortStableFunc(positions, func(a, b *Parameter) int { return a.Position - b.Position })
	for i, q := range positions {
		in, last := at.in(q.Name.String()), i == len(positions)-1
		in.in("position").addIf(q.Position != i+1, "positions are 1, 2, … without gaps and doubles")
		in.addIf(i > 0 && q.Required && !positions[i-1].Required, "a required position follows an optional one")
		in.addIf(q.List != nil && (!last || c.Rest != nil), "only the last position may be a list, and only without rest")
		in.addIf(!q.Required && c.Rest != nil, "positions before rest are required")
	}
	c.checkRest(p.in("rest"))
}

func (c *Command) checkRest(p problems) {
	if c.Rest == nil {
		return
	}
	word := slices.ContainsFunc(c.Arguments, func(a string) bool { return !strings.HasPrefix(a, "-") })
	p.addIf(!word, "an open tail is allowed after a fixed argument that is no option: with none the caller would choose the command")
	p.in("max_items").addIf(c.Rest.MaxItems < 1 || c.Rest.MaxItems > maxItems, "want 1 to %d", maxItems)
	_, err := compilePattern(c.Rest.Pattern)
	p.in("pattern").addIf(err != nil || c.Rest.Pattern == "", "want a regular expression (RE2) of 1 to %d bytes", maxPattern)
	for i := range c.Parameters {
		p.addIf(c.Parameters[i].Name.String() == restName, "a parameter is named rest as well")
	}
}

// check checks one parameter by itself.
func (q *Parameter) check(contract *Contract, c *Command, p problems) {
	checkDescription(p.in("description"), q.Description)
	q.checkPlace(contract, p)
	if q.List != nil {
		p.in("max_items").addIf(q.List.MaxItems < 1 || q.List.MaxItems > maxItems, "want 1 to %d", maxItems)
		p.in("min_items").addIf(q.List.MinItems < 0 || q.List.MinItems > max(q.List.MaxItems, 0), "want 0 to max_items")
		p.addIf(q.Flag == nil && q.Position == 0, "a list is given by a flag or by the last position")
	}
	if len(q.Schemas) == 0 {
		p.add("the parameter has no schema")
		return
	}
	for i := range q.Schemas {
		at := p
		if i > 0 {
			at = p.in("narrowed").index(i - 1)
		}
		q.Schemas[i].check(at)
		at.in("type").addIf(q.Schemas[i].Type != q.Schemas[0].Type, "a schema that narrows has the type that is declared: %s", q.Schemas[0].Type)
		at.in("kind").addIf(i > 0 && q.Schemas[i].Kind != "" && q.Schemas[i].Kind != q.Schemas[0].Kind, "a schema that narrows adds no kind")
	}
	q.checkFit(c, p)
}

func (q *Parameter) checkPlace(contract *Contract, p problems) {
	places := 0
	for _, here := range []bool{q.Flag != nil, q.Position != 0, q.Stdin != nil, q.Variable != ""} {
		if here {
			places++
		}
	}
	p.addIf(places != 1, "want exactly one place: flag, position, stdin or env")
	p.in("position").addIf(q.Position < 0 || q.Position > maxParameters, "want 1 to %d", maxParameters)
	p.in("secret").addIf(q.Secret && (q.Flag != nil || q.Position != 0), "a secret goes to stdin or env: arguments are seen by every process of the machine")
	if q.Flag != nil {
		q.checkFlag(p)
	}
	if q.Stdin != nil {
		p.in("stdin.max_bytes").addIf(q.Stdin.MaxBytes < 0 || q.Stdin.MaxBytes > maxStdin, "want 1 to %d", int64(maxStdin))
	}
	if q.Variable == "" {
		return
	}
	at := p.in("env")
	if msg := variableFault(q.Variable); msg != "" {
		at.add("%s: %s", name.Quote(q.Variable), msg)
	} else if contract != nil {
		at.addIf(!slices.Contains(contract.Environment, q.Variable), "%s is not among the variables that the Connector lets parameters set", name.Quote(q.Variable))
	}
}

func (q *Parameter) checkFlag(p problems) {
	f := q.Flag
	p.in("flag").addIf(!flagName(f.Name), "want an option such as --repo or -R, of at most %d letters, digits, '.', '_' and '-'", maxFlag)
	p.in("aliases").addIf(len(f.Aliases) > maxAliases, "want at most %d", maxAliases)
	for i, a := range f.Aliases {
		p.in("aliases").index(i).addIf(!flagName(a), "want an option such as --repo or -R")
	}
	at := p.in("render")
	switch f.Render {
	case "", RenderSpace:
	case RenderEquals:
		at.addIf(shortFlag(f.Name), "a flag of one letter is rendered with a space")
	default:
		at.add("want equals or space")
	}
	list := f.Repeat || f.Separator != ""
	p.addIf(list != (q.List != nil), "a flag that is a list says repeat or separator and how many items, another says neither")
	p.in("separator").addIf(f.Repeat && f.Separator != "", "want either repeat or separator")
	p.in("separator").addIf(f.Separator != "" && (len(f.Separator) != 1 || !strings.Contains(",;:|+/ ", f.Separator)), "want one of , ; : | + / and space")
}

// checkFit checks schemas against the place.
func (q *Parameter) checkFit(c *Command, p problems) {
	s := &q.Schemas[0]
	if q.Stdin != nil {
		bare := s.Type == TypeString && len(q.Schemas) == 1 && s.unconstrained() && s.MinLength == nil && s.MaxLength == nil
		p.addIf(!bare, "standard input is not judged: it takes max_bytes and text, no schema")
		return
	}
	if s.Type == TypeString && s.unconstrained() && !s.FreeText {
		*p.errs = append(*p.errs, &DeclarationError{
			Path: p.path, Bare: true,
			Msg: "nothing constrains this string: add enum, const, pattern or kind, or say free_text: true",
		})
	}
	p.in("type").addIf(s.Type == TypeBoolean && q.List != nil, "a list of booleans says nothing")
	p.in("kind").addIf(s.Kind == KindPath && q.Variable != "", "a path goes to a flag or a position")
	if q.Flag != nil && q.Flag.Separator != "" {
		numeric := s.Type == TypeInteger || s.Type == TypeNumber
		p.in("render").addIf(numeric && q.Flag.render() == RenderSpace, "a list of numbers is rendered with equals: the first may be negative")
	}
	for _, v := range s.words() {
		p.addIf(len(v) > 1 && v[0] == '-' && !q.dashes(c), "%s would look like an option: render with equals, or set end_of_options for a position", name.Quote(v))
		p.addIf(q.Flag != nil && q.Flag.Separator != "" && strings.Contains(v, q.Flag.Separator), "%s holds the separator", name.Quote(v))
	}
}

// dashes tells whether a value that begins with '-' may be rendered in this
// place.
func (q *Parameter) dashes(c *Command) bool {
	switch {
	case q.Flag != nil && q.Flag.render() == RenderSpace:
		return q.Schemas[0].Type == TypeInteger || q.Schemas[0].Type == TypeNumber
	case q.Position != 0:
		return c.EndOfOptions
	}
	return true
}

// spellings are the options with which a caller says the parameter. One that goes
// to the environment is said as "--name": the child never sees that.
func (q *Parameter) spellings() []string {
	switch {
	case q.Flag != nil:
		return append([]string{q.Flag.Name}, q.Flag.Aliases...)
	case q.Variable != "":
		return []string{"--" + q.Name.String()}
	}
	return nil
}

func (f *Flag) render() Render {
	if f.Render == "" && !strings.HasPrefix(f.Name, "--") {
		return RenderSpace
	}
	if f.Render == "" {
		return RenderEquals
	}
	return f.Render
}

// flagName tells "--repo", "-R" and the Go style "-repo".
func flagName(s string) bool {
	word := strings.TrimPrefix(strings.TrimPrefix(s, "-"), "-")
	return s != word && word != "" && len(s) <= maxFlag && alnum(word[0]) && wordlike(word)
}

// shortFlag tells a flag of one letter, whose attached values are ambiguous.
func shortFlag(s string) bool { return len(s) == 2 }
