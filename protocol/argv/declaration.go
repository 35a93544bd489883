package argv

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/lendcli/lend/protocol/argv/internal/strictjson"
	"github.com/lendcli/lend/protocol/name"
)

// Declaration is a command as files spell it: the same keys in a Connector's
// JSON manifest and in an owner's YAML policy. Declaration.Command turns it into
// a checked value. JSON is read strictly whatever the decoder: keys are exact,
// known and said once. A reader of YAML must see to that itself.
type Declaration struct {
	Summary      string                          `json:"summary,omitempty" yaml:"summary,omitempty"`
	Effect       Effect                          `json:"effect,omitempty" yaml:"effect,omitempty"`
	Arguments    []string                        `json:"arguments,omitempty" yaml:"arguments,omitempty"`
	Timeout      string                          `json:"timeout,omitempty" yaml:"timeout,omitempty"` // "2m"
	EndOfOptions bool                            `json:"end_of_options,omitempty" yaml:"end_of_options,omitempty"`
	Rest         *Rest                           `json:"rest,omitempty" yaml:"rest,omitempty"`
	Parameters   map[string]ParameterDeclaration `json:"parameters,omitempty" yaml:"parameters,omitempty"`
}

// ParameterDeclaration is one parameter as files spell it. Enum and Const hold
// strings, numbers and booleans, as the type says.
type ParameterDeclaration struct {
	Description string `json:"description,omitempty" yaml:"description,omitempty"`
	Required    bool   `json:"required,omitempty" yaml:"required,omitempty"`
	Secret      bool   `json:"secret,omitempty" yaml:"secret,omitempty"`

	Flag      string   `json:"flag,omitempty" yaml:"flag,omitempty"`
	Aliases   []string `json:"aliases,omitempty" yaml:"aliases,omitempty"`
	Render    Render   `json:"render,omitempty" yaml:"render,omitempty"`
	Repeat    int      `json:"repeat,omitempty" yaml:"repeat,omitempty"`
	Separator string   `json:"separator,omitempty" yaml:"separator,omitempty"`
	Position  int      `json:"position,omitempty" yaml:"position,omitempty"`
	Stdin     *Stdin   `json:"stdin,omitempty" yaml:"stdin,omitempty"`
	Env       string   `json:"env,omitempty" yaml:"env,omitempty"`

	Type      Type     `json:"type,omitempty" yaml:"type,omitempty"` // "" means string
	Enum      []any    `json:"enum,omitempty" yaml:"enum,omitempty"`
	Const     any      `json:"const,omitempty" yaml:"const,omitempty"`
	Pattern   string   `json:"pattern,omitempty" yaml:"pattern,omitempty"`
	MinLength *int     `json:"min_length,omitempty" yaml:"min_length,omitempty"`
	MaxLength *int     `json:"max_length,omitempty" yaml:"max_length,omitempty"`
	Minimum   *float64 `json:"minimum,omitempty" yaml:"minimum,omitempty"`
	Maximum   *float64 `json:"maximum,omitempty" yaml:"maximum,omitempty"`
	FreeText  bool     `json:"free_text,omitempty" yaml:"free_text,omitempty"`
	Kind      Kind     `json:"kind,omitempty" yaml:"kind,omitempty"`
	MinItems  int      `json:"min_items,omitempty" yaml:"min_items,omitempty"`
	MaxItems  int      `json:"max_items,omitempty" yaml:"max_items,omitempty"`
}

// UnmarshalJSON reads the declaration strictly.
func (d *Declaration) UnmarshalJSON(data []byte) error {
	type plain Declaration
	var out plain
	if err := strictjson.Unmarshal(data, strictjson.Limits{Bytes: MaxObject, Depth: 8}, &out); err != nil {
		return err
	}
	*d = Declaration(out)
	return nil
}

// Command turns the declaration into a command named n, with the parameters
// sorted by name. The error joins *DeclarationError values. What depends on the
// Contract is checked by Command.Validate.
func (d Declaration) Command(n name.Command) (Command, error) {
	p := newProblems()
	c := Command{
		Name: n, Description: d.Summary, Effect: d.Effect, Arguments: slices.Clone(d.Arguments),
		EndOfOptions: d.EndOfOptions, Timeout: parseTimeout(p.in("timeout"), d.Timeout),
	}
	if d.Rest != nil {
		rest := *d.Rest
		c.Rest = &rest
	}
	for _, key := range sortedKeys(d.Parameters) {
		at := p.in("parameters").in(key)
		pn, err := name.ParseParameter(key)
		if err != nil {
			p.in("parameters").add("%v", err)
			continue
		}
		declared := d.Parameters[key]
		c.Parameters = append(c.Parameters, declared.parameter(at, pn))
	}
	if len(*p.errs) == 0 {
		c.check(nil, p)
	}
	if err := p.err(); err != nil {
		return Command{}, err
	}
	return c, nil
}

func parseTimeout(p problems, s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	p.addIf(err != nil || d <= 0, "want a duration such as 90s or 2m")
	return d
}

func (d *ParameterDeclaration) parameter(p problems, n name.Parameter) Parameter {
	q := Parameter{
		Name: n, Description: d.Description, Required: d.Required, Secret: d.Secret,
		Position: d.Position, Variable: d.Env, Schemas: []Schema{d.schema(p, TypeString)},
	}
	if d.Stdin != nil {
		in := *d.Stdin
		q.Stdin = &in
	}
	if d.Flag != "" {
		q.Flag = &Flag{Name: d.Flag, Aliases: slices.Clone(d.Aliases), Render: d.Render, Repeat: d.Repeat != 0, Separator: d.Separator}
	} else {
		p.addIf(d.Aliases != nil || d.Render != "" || d.Repeat != 0 || d.Separator != "", "aliases, render, repeat and separator belong to a flag")
	}
	p.in("max_items").addIf(d.Repeat != 0 && d.MaxItems != 0, "repeat says it already")
	switch {
	case d.Repeat != 0 || d.MaxItems != 0:
		q.List = &List{MinItems: d.MinItems, MaxItems: d.Repeat + d.MaxItems}
	case d.MinItems != 0:
		p.in("min_items").add("a list says repeat or max_items as well")
	}
	return q
}

// schema turns the keys of a schema into one; t is the type if none is said.
func (d *ParameterDeclaration) schema(p problems, t Type) Schema {
	if d.Type != "" {
		t = d.Type
	}
	s := Schema{
		Type: t, Pattern: d.Pattern, FreeText: d.FreeText, Kind: d.Kind,
		MinLength: clone(d.MinLength), MaxLength: clone(d.MaxLength), Minimum: clone(d.Minimum), Maximum: clone(d.Maximum),
	}
	p.in("enum").addIf(d.Enum != nil && len(d.Enum) == 0, "an empty list accepts nothing: leave the parameter out")
	for i, v := range d.Enum {
		s.Enum = append(s.Enum, scalar(p.in("enum").index(i), t, v))
	}
	if d.Const != nil {
		v := scalar(p.in("const"), t, d.Const)
		s.Const = &v
	}
	return s
}

func (d *ParameterDeclaration) hasSchema() bool {
	return d.Type != "" || d.Enum != nil || d.Const != nil || d.Pattern != "" || d.MinLength != nil || d.MaxLength != nil ||
		d.Minimum != nil || d.Maximum != nil || d.FreeText || d.Kind != ""
}

// scalar spells a value of a file as a caller would. Types are not converted: a
// version 2.40 that YAML read as a number is no longer what was written.
func scalar(p problems, t Type, v any) string {
	switch v := v.(type) {
	case string:
		if t == TypeString {
			return v
		}
	case bool:
		if t == TypeBoolean {
			return strconv.FormatBool(v)
		}
	case int, int64, uint64, float64, json.Number:
		if t == TypeInteger || t == TypeNumber {
			return decimalOf(p, t, v)
		}
	}
	if t == TypeString {
		p.add("want a string: put it in quotes")
	} else {
		p.add("want %s", typeRule(t))
	}
	return ""
}

func decimalOf(p problems, t Type, v any) string {
	var s string
	switch v := v.(type) {
	case int:
		s = strconv.Itoa(v)
	case int64:
		s = strconv.FormatInt(v, 10)
	case uint64:
		s = strconv.FormatUint(v, 10)
	case float64:
		s = strconv.FormatFloat(v, 'f', -1, 64)
	case json.Number:
		s = v.String()
	}
	out, fault := canonicalScalar(t, s)
	p.addIf(fault != "", "want %s", typeRule(t))
	return out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Narrowing turns the declaration into a narrowing of base: only the keys of a
// schema and required may be there; a type that is absent is base's. The error
// joins *DeclarationError values.
func (d ParameterDeclaration) Narrowing(base Parameter) (Narrowing, error) {
	p := newProblems()
	placed := d.Flag != "" || d.Aliases != nil || d.Render != "" || d.Repeat != 0 || d.Separator != "" ||
		d.Position != 0 || d.Stdin != nil || d.Env != "" || d.Secret || d.Description != "" || d.MinItems != 0 || d.MaxItems != 0
	p.addIf(placed, "only the keys of a schema and required narrow a parameter: its place is declared elsewhere")
	out := Narrowing{Required: d.Required}
	if d.hasSchema() && len(base.Schemas) > 0 {
		s := d.schema(p, base.Schemas[0].Type)
		s.check(p)
		out.Schema = &s
	}
	if err := p.err(); err != nil {
		return Narrowing{}, err
	}
	return out, nil
}
