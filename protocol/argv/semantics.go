package argv

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lendcli/lend/protocol/argv/internal/strictjson"
)

// Semantics returns what a Contract means for an invocation, for CanonicalJSON:
// public command, fixed arguments, variables, parameters with places and schemas,
// effects and timeouts (in milliseconds). Descriptions and the order of
// declarations are not in it, and defaults are written out.
func (c Contract) Semantics() any {
	commands := object{}
	for i := range c.Commands {
		commands[c.Commands[i].Name.String()] = c.Commands[i].Semantics()
	}
	return object{
		"command":     c.Command,
		"arguments":   list(c.Arguments),
		"environment": sorted(c.Environment),
		"timeout_ms":  c.Timeout.Milliseconds(),
		"commands":    commands,
	}
}

// Semantics returns what a Command means for an invocation, its name left out, as
// Contract.Semantics does.
func (c Command) Semantics() any {
	parameters := object{}
	for i := range c.Parameters {
		parameters[c.Parameters[i].Name.String()] = c.Parameters[i].semantics()
	}
	effect := EffectWrite
	if c.Effect == EffectRead {
		effect = EffectRead
	}
	out := object{
		"effect":         effect,
		"arguments":      list(c.Arguments),
		"parameters":     parameters,
		"end_of_options": c.EndOfOptions,
		"timeout_ms":     c.Timeout.Milliseconds(),
	}
	if c.Rest != nil {
		out["rest"] = object{"max_items": c.Rest.MaxItems, "pattern": c.Rest.Pattern}
	}
	return out
}

func (q *Parameter) semantics() object {
	schemas := []any{}
	for i := range q.Schemas {
		schemas = append(schemas, q.Schemas[i].semantics())
	}
	out := object{"required": q.Required, "secret": q.Secret, "schemas": schemas}
	if q.List != nil {
		out["list"] = object{"min_items": q.List.MinItems, "max_items": q.List.MaxItems}
	}
	switch {
	case q.Flag != nil:
		out["flag"] = object{
			"name": q.Flag.Name, "aliases": sorted(q.Flag.Aliases), "render": q.Flag.render(),
			"repeat": q.Flag.Repeat, "separator": q.Flag.Separator,
		}
	case q.Position != 0:
		out["position"] = q.Position
	case q.Stdin != nil:
		most := q.Stdin.MaxBytes
		if most == 0 {
			most = defaultStdin
		}
		out["stdin"] = object{"max_bytes": most, "text": q.Stdin.Text}
	default:
		out["env"] = q.Variable
	}
	return out
}

func (s *Schema) semantics() object {
	out := object{"type": s.Type}
	if s.Enum != nil {
		out["enum"] = sorted(s.Enum)
	}
	if s.Const != nil {
		out["const"] = *s.Const
	}
	if s.Pattern != "" {
		out["pattern"] = s.Pattern
	}
	if s.Kind != "" {
		out["kind"] = s.Kind
	}
	if s.MinLength != nil {
		out["min_length"] = *s.MinLength
	}
	if s.MaxLength != nil {
		out["max_length"] = *s.MaxLength
	}
	if s.Minimum != nil {
		out["minimum"] = *s.Minimum
	}
	if s.Maximum != nil {
		out["maximum"] = *s.Maximum
	}
	return out
}

// list makes an absent list and an empty one the same.
func list(values []string) []string { return append([]string{}, values...) }

func sorted(values []string) []string {
	out := list(values)
	slices.Sort(out)
	return out
}

// CanonicalJSON writes v, as encoding/json would, in the canonical form of RFC
// 8785. Numbers that are not finite, integers that a double cannot hold and text
// that is not UTF-8 are errors.
func CanonicalJSON(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	tree, err := strictjson.Parse(data, strictjson.Limits{Bytes: math.MaxInt, Depth: 1000})
	if err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	out, err := strictjson.Append(nil, tree)
	if err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	return out, nil
}
