package synopsis

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lendcli/lend/gateway/synopsis/schema"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Parameter is one thing that a command may be told. At most one of Flag, Position,
// Stdin and Rest says how; with none of them the gateway did not say.
type Parameter struct {
	Name        name.Parameter
	Description string
	Required    bool
	// Type is "string", "integer", "number" or "boolean"; of a list, that of its items.
	Type string

	// Flag is the canonical spelling ("--repo"), Aliases are others.
	Flag    string
	Aliases []string
	// Position is 1, 2, …
	Position int
	Stdin    bool
	// Rest says that any number of positions up to MaxItems may follow the others.
	Rest bool

	// List says that there may be several; MinItems and MaxItems bound them, 0 for no
	// bound. They are joined by Separator or, if that is "", given one by one.
	List               bool
	MinItems, MaxItems int
	Separator          string

	// Values are the only ones that are accepted, in a caller's spelling; nil means
	// that Bounds alone say what is.
	Values []string
	// Bounds say in words what else must hold of a value.
	Bounds []string
}

// Errors of Read.
var (
	// ErrNoSchema: the entry does not say what the command takes.
	ErrNoSchema = errors.New("the catalogue does not say what the command takes")
	// ErrSchema: it says so in a way that this version cannot read.
	ErrSchema = errors.New("what the catalogue says of the command cannot be read")
)

// maxParameters bounds what is shown of one command.
const maxParameters = 512

// Read returns the parameters of a command: options first, by name, then positions in
// their order, what may follow them, and standard input. The error is ErrNoSchema or
// ErrSchema.
func Read(e protocol.CatalogEntry) ([]Parameter, error) {
	if len(e.InputSchema) == 0 {
		return nil, ErrNoSchema
	}
	var s schema.Node
	if err := json.Unmarshal(e.InputSchema, &s); err != nil {
		return nil, fmt.Errorf("%w: not a schema of an object", ErrSchema)
	}
	// A command whose frozen and current declarations differ has both: each must
	// accept, and only what both know can be said.
	all := append([]schema.Node{s}, s.AllOf...)
	all = slices.DeleteFunc(all, func(s schema.Node) bool { return s.Properties == nil })
	if len(all) == 0 {
		return nil, ErrNoSchema
	}
	last := all[len(all)-1]
	if len(last.Properties) > maxParameters {
		return nil, fmt.Errorf("%w: too many parameters", ErrSchema)
	}
	var out []Parameter
	for key, p := range last.Properties {
		n, err := name.ParseParameter(key)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSchema, err)
		}
		q := parameter(&p, n)
		known := true
		for _, other := range all {
			o, ok := other.Properties[key]
			known = known && ok
			q.Required = q.Required || slices.Contains(other.Required, key)
			q.narrow(o)
		}
		if known {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b Parameter) int {
		return cmp.Or(a.order()-b.order(), strings.Compare(a.Name.String(), b.Name.String()))
	})
	return out, nil
}

func (p *Parameter) order() int {
	switch {
	case p.Stdin:
		return maxParameters + 2
	case p.Rest:
		return maxParameters + 1
	}
	return p.Position
}

func parameter(s *schema.Node, n name.Parameter) Parameter {
	p := Parameter{Name: n, Description: s.Description, Type: s.Type, List: s.Items != nil, MinItems: s.MinItems, MaxItems: s.MaxItems}
	if p.List {
		p.Type = s.Items.Type
	}
	at, ok := s.Placed()
	if !ok || at.Position < 0 || at.Position > maxParameters {
		return p
	}
	p.Flag, p.Aliases, p.Position, p.Stdin, p.Rest, p.Separator = at.Flag, at.Aliases, at.Position, at.Stdin, at.Rest, at.Separator
	return p
}

// narrow takes over what s says of the values.
func (p *Parameter) narrow(s schema.Node) {
	if s.Items != nil {
		p.narrow(*s.Items)
		return
	}
	if s.Enum != nil {
		p.only(spell(s.Enum))
	}
	if s.Const != nil {
		p.only(spell([]json.RawMessage{s.Const}))
	}
	for _, b := range boundsOf(&s) {
		if !slices.Contains(p.Bounds, b) {
			p.Bounds = append(p.Bounds, b)
		}
	}
	for _, n := range s.AllOf {
		p.narrow(n)
	}
}

// only keeps of the accepted values those that are among v.
func (p *Parameter) only(v []string) {
	if p.Values == nil {
		p.Values = v
		return
	}
	p.Values = slices.DeleteFunc(slices.Clone(p.Values), func(have string) bool { return !slices.Contains(v, have) })
}

// spell writes values as a caller does.
func spell(values []json.RawMessage) []string {
	out := []string{}
	for _, v := range values {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		out = append(out, s)
	}
	return out
}

func boundsOf(s *schema.Node) (out []string) {
	add := func(v, format string) {
		if v != "" {
			out = append(out, fmt.Sprintf(format, v))
		}
	}
	number := func(v *float64, format string) {
		if v != nil {
			add(strconv.FormatFloat(*v, 'f', -1, 64), format)
		}
	}
	number(s.Minimum, "at least %s")
	number(s.Maximum, "at most %s")
	if s.MinLength != nil && *s.MinLength > 1 {
		add(strconv.Itoa(*s.MinLength), "at least %s characters")
	}
	if s.MaxLength != nil {
		add(strconv.Itoa(*s.MaxLength), "at most %s characters")
	}
	add(s.Bare(), "matches %s")
	return out
}

// Usage is how the parameter stands in a synopsis: "--repo=REPO", "[--limit=N]",
// "NUMBER", "[WORDS...]"; "" for standard input. What lend puts in is ASCII, so that
// it can be shown as it is.
func (p *Parameter) Usage() string {
	value := strings.ToUpper(strings.ReplaceAll(p.Name.String(), "_", "-"))
	if len(p.Values) == 1 {
		value = p.Values[0]
	}
	var s string
	switch {
	case p.Stdin:
		return ""
	case p.Flag == "" && p.Position == 0 && !p.Rest:
		s = value
	case p.Flag != "" && p.Type == "boolean" && !p.List:
		s = p.Flag
	case strings.HasPrefix(p.Flag, "--"):
		s = p.Flag + "=" + value
	case p.Flag != "":
		s = p.Flag + " " + value
	default:
		s = value
	}
	if p.List {
		s += "..."
	}
	if !p.Required {
		s = "[" + s + "]"
	}
	return s
}
