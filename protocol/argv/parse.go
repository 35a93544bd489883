package argv

import (
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// reading collects what a caller said, in canonical spelling.
type reading struct {
	g    *Grammar
	said map[*param][]string
	rest []string
	next int // of g.positions
}

// Parse reads a caller's arguments, which come after the command's name. Flags
// are said as "--x=v" or "--x v", in the canonical name or an alias, in any order
// and between positional arguments; "--" ends them. A parameter that goes to the
// environment is said as "--name". The error is an *Error, and the Call is zero
// with it.
func (g *Grammar) Parse(args []string) (Call, error) {
	if err := boundSaid(args); err != nil {
		return Call{}, err
	}
	r := reading{g: g, said: map[*param][]string{}}
	for i, ended := 0, false; i < len(args); i++ {
		var err *Error
		at := i
		switch a := args[i]; {
		case !ended && a == "--":
			ended = true
		case !ended && len(a) > 1 && a[0] == '-':
			i, err = r.flag(args, i)
		default:
			err = r.positional(a)
		}
		if err != nil {
			if err.Index < 0 {
				err.Index = at
			}
			return Call{}, err
		}
	}
	return r.finish()
}

// boundSaid bounds what is looked at; the limits proper count the rendering.
func boundSaid(args []string) error {
	if len(args) > maxSaid {
		return &Error{Kind: FaultTooMany, Index: maxSaid}
	}
	total := 0
	for i, a := range args {
		if total += len(a) + 1; total > maxSaidBytes {
			return &Error{Kind: FaultTooLarge, Index: i}
		}
		if f := textFault(a); f != "" {
			return &Error{Kind: f, Index: i}
		}
	}
	return nil
}

// flag reads the option at args[i] and returns the index of its last argument.
func (r *reading) flag(args []string, i int) (int, *Error) {
	spelled, value, attached := strings.Cut(args[i], "=")
	p := r.g.flags[spelled]
	if p == nil || attached && shortFlag(spelled) {
		return i, r.g.unknownFlag(args[i], i)
	}
	if r.said[p] != nil && !(p.Flag != nil && p.Flag.Repeat) {
		return i, &Error{Kind: FaultRepeat, Parameter: p.Name, Flag: spelled, Index: i}
	}
	switch {
	case attached:
	case p.Schemas[0].Type == TypeBoolean:
		value = "true"
	case i+1 == len(args):
		return i, &Error{Kind: FaultMissing, Parameter: p.Name, Flag: spelled, Index: i, Rule: "want a value"}
	default:
		i++
		value = args[i]
	}
	items := []string{value}
	if sep := p.separator(); sep != "" {
		items = strings.Split(value, sep)
	}
	if err := r.say(p, items); err != nil {
		err.Flag, err.Index = spelled, i
		return i, err
	}
	return i, nil
}

// unknownFlag tells clusters and attached values from plain unknown flags, and
// shows the option's name alone.
func (g *Grammar) unknownFlag(arg string, i int) *Error {
	spelled, _, attached := strings.Cut(arg, "=")
	err := &Error{Kind: FaultFlag, Flag: spelled, Index: i}
	switch {
	case !strings.HasPrefix(spelled, "--") && (len(spelled) > 2 || attached):
		err.Kind, err.Flag = FaultCluster, spelled[:min(2, len(spelled))]
		err.Rule = "want one flag an argument, and its value after '=' or in the next"
		if attached && len(spelled) == 2 {
			err.Rule = "want the value in the next argument"
		}
	case !flagName(spelled):
		err.Flag = ""
	default:
		err.Rule = g.abbreviated(spelled)
	}
	return err
}

func (g *Grammar) abbreviated(spelled string) string {
	for _, f := range sortedKeys(g.flags) {
		if strings.HasPrefix(f, spelled) {
			return "flags are not abbreviated: want " + f
		}
	}
	return ""
}

func (r *reading) positional(a string) *Error {
	if r.next < len(r.g.positions) {
		p := r.g.positions[r.next]
		if p.List == nil {
			r.next++
		}
		return r.say(p, []string{a})
	}
	if r.g.rest == nil {
		kind := FaultExtra
		if a == "-" {
			kind = FaultDash
		}
		return &Error{Kind: kind, Index: -1}
	}
	return r.tail(a)
}

func (r *reading) tail(a string) *Error {
	rest := r.g.command.Rest
	refuse := func(f Fault, rule string) *Error {
		return &Error{Kind: f, Parameter: r.g.restName, Index: -1, Rule: rule}
	}
	switch {
	case len(r.rest) == rest.MaxItems:
		return refuse(FaultItems, itemsRule(0, rest.MaxItems))
	case looksFault(a, false) != "":
		return refuse(looksFault(a, false), "")
	case !r.g.rest.MatchString(a):
		return refuse(FaultValue, "want a match of "+name.Quote(rest.Pattern))
	}
	r.rest = append(r.rest, a)
	return nil
}

// say adds items to what was said for p.
func (r *reading) say(p *param, items []string) *Error {
	most := 1
	if p.List != nil {
		most = p.List.MaxItems
	}
	if len(r.said[p])+len(items) > most {
		least := 0
		if p.List != nil {
			least = p.List.MinItems
		}
		return p.refuse(FaultItems, itemsRule(least, most))
	}
	for _, item := range items {
		s, err := p.check(item)
		if err != nil {
			return err
		}
		r.said[p] = append(r.said[p], s)
	}
	return nil
}

// finish checks what is missing and renders.
func (r *reading) finish() (Call, error) {
	for _, p := range r.g.params {
		n := len(r.said[p])
		if n == 0 && p.Required {
			return Call{}, p.refuse(FaultMissing, p.missingRule())
		}
		if n > 0 && p.List != nil && n < p.List.MinItems {
			return Call{}, p.refuse(FaultItems, itemsRule(p.List.MinItems, p.List.MaxItems))
		}
		if n > 1 && p.joinedFile(r.said[p]) {
			return Call{}, p.refuse(FaultFile, "")
		}
	}
	for i := 1; i < len(r.g.positions); i++ { // an object may leave a gap
		before := r.g.positions[i-1]
		if r.said[r.g.positions[i]] != nil && r.said[before] == nil {
			return Call{}, before.refuse(FaultMissing, "a later position is given")
		}
	}
	call, err := r.render()
	if err != nil {
		return Call{}, err
	}
	return call, nil
}

func (p *param) missingRule() string {
	if s := p.spellings(); len(s) > 0 {
		return "want " + s[0]
	}
	return "want it as positional argument"
}
