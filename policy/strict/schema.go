package strict

import "encoding/json"

// JSONSchema writes the shape as a JSON Schema (2020-12), with sorted keys and a
// line feed at the end.
func (s *Shape) JSONSchema(title string) []byte {
	definitions := map[string]any{}
	root := s.schema(definitions)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = title
	if len(definitions) > 0 {
		root["$defs"] = definitions
	}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // maps, lists, strings and numbers of our own
	}
	return append(b, '\n')
}

func (s *Shape) schema(definitions map[string]any) map[string]any {
	if s.Name == "" {
		return s.body(definitions)
	}
	if definitions[s.Name] == nil {
		definitions[s.Name] = true // a mark, for a shape that holds itself
		definitions[s.Name] = s.body(definitions)
	}
	return map[string]any{"$ref": "#/$defs/" + s.Name}
}

func (s *Shape) body(definitions map[string]any) map[string]any {
	var alternatives []any
	add := func(m map[string]any) { alternatives = append(alternatives, m) }
	if s.Fields != nil {
		add(s.object(definitions))
	}
	if s.Map != nil {
		m := map[string]any{"type": "object", "additionalProperties": s.Map.Value.schema(definitions), "propertyNames": s.Map.Key.schema()}
		if s.Map.Min > 0 {
			m["minProperties"] = s.Map.Min
		}
		add(m)
	}
	if s.List != nil {
		add(s.List.schema(definitions))
	}
	if s.Text != nil {
		add(s.Text.schema())
	}
	if s.Int != nil {
		add(map[string]any{"type": "integer", "minimum": s.Int.Min, "maximum": s.Int.Max})
	}
	if s.Number {
		add(map[string]any{"type": "number"})
	}
	if s.Bool {
		add(map[string]any{"type": "boolean"})
	}
	out := map[string]any{}
	if len(alternatives) == 1 {
		out = alternatives[0].(map[string]any) //nolint:forcetypeassert // added above
	} else {
		out["anyOf"] = alternatives
	}
	if s.Doc != "" {
		out["description"] = s.Doc
	}
	return out
}

func (s *Shape) object(definitions map[string]any) map[string]any {
	properties, required := map[string]any{}, []any{}
	for _, f := range s.Fields {
		properties[f.Key] = f.Shape.schema(definitions)
		if f.Required {
			required = append(required, f.Key)
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (e *Elements) schema(definitions map[string]any) map[string]any {
	out := map[string]any{"type": "array", "items": e.Item.schema(definitions)}
	if e.Min > 0 {
		out["minItems"] = e.Min
	}
	if e.Max > 0 {
		out["maxItems"] = e.Max
	}
	if e.Unique {
		out["uniqueItems"] = true
	}
	return out
}

func (t *Text) schema() map[string]any {
	out := map[string]any{"type": "string"}
	if len(t.Words) > 0 {
		out["enum"] = t.Words
	}
	if t.Pattern != "" {
		out["pattern"] = t.Pattern
	}
	if t.Max != maxText || len(t.Words) == 0 {
		out["maxLength"] = t.Max
	}
	return out
}
