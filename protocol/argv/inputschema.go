package argv

import (
	"encoding/json"
	"regexp"
)

// object is a JSON object in the making.
type object = map[string]any

// placeKeyword annotates a property with how a command line gives it: an object
// {flag, aliases, separator}, {position}, {stdin} or {rest}. Validators of JSON Schema
// ignore it. spec: CATALOG-4
const placeKeyword = "x-lend-place"

// argumentsKeyword is where InputSchema says with which arguments a command line of
// the CLI itself begins that means this command. Validators ignore it. spec: CATALOG-5
const argumentsKeyword = "x-lend-arguments"

// InputSchema describes the object that FromObject reads: JSON Schema 2020-12 in
// canonical form, narrowed. It may be wider than the grammar, never narrower: what
// it cannot say (file references, expressions that ECMAScript does not know, a
// later position without an earlier one) FromObject refuses all the same.
func (g *Grammar) InputSchema() json.RawMessage {
	properties, required := object{}, []string{}
	add := func(p *param, schema object) {
		if p.Description != "" {
			schema["description"] = p.Description
		}
		schema[placeKeyword] = p.callersPlace()
		properties[p.Name.String()] = schema
		if p.Required {
			required = append(required, p.Name.String())
		}
	}
	for _, p := range g.params {
		add(p, p.inputSchema())
	}
	if g.stdin != nil {
		most := g.stdin.Stdin.MaxBytes
		if most == 0 {
			most = defaultStdin
		}
		add(g.stdin, object{"type": "string", "maxLength": most})
	}
	if g.rest != nil {
		item := object{"type": "string", "minLength": 1}
		addPattern(item, g.command.Rest.Pattern)
		properties[restName] = object{"type": "array", "items": item, "maxItems": g.command.Rest.MaxItems, placeKeyword: object{"rest": true}}
	}
	out := object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type":    "object", "properties": properties, "additionalProperties": false,
	}
	if len(required) > 0 {
		out["required"] = required
	}
	if len(g.command.Arguments) > 0 {
		out[argumentsKeyword] = g.command.Arguments
	}
	if g.command.Description != "" {
		out["description"] = g.command.Description
	}
	data, err := CanonicalJSON(out)
	if err != nil { // a validated command holds nothing that could fail
		return json.RawMessage("false")
	}
	return data
}

// callersPlace says how the parameter is given on a command line.
func (p *param) callersPlace() object {
	if p.Stdin != nil {
		return object{"stdin": true}
	}
	if p.Position > 0 {
		return object{"position": p.Position}
	}
	spellings := p.spellings()
	out := object{"flag": spellings[0]}
	if len(spellings) > 1 {
		out["aliases"] = spellings[1:]
	}
	if p.List != nil && p.Flag != nil && p.Flag.Separator != "" {
		out["separator"] = p.Flag.Separator
	}
	return out
}

func (p *param) inputSchema() object {
	item := p.Schemas[0].inputSchema()
	if p.onlyTrue() {
		item["const"] = true
	}
	if len(p.Schemas) > 1 {
		var narrower []any
		for i := range p.Schemas[1:] {
			narrower = append(narrower, p.Schemas[i+1].inputSchema())
		}
		item["allOf"] = narrower
	}
	if p.List == nil {
		return item
	}
	list := object{"type": "array", "items": item, "maxItems": p.List.MaxItems}
	if least := p.List.MinItems; p.Required || least > 0 {
		list["minItems"] = max(least, 1)
	}
	if p.List.MinItems > 0 && !p.Required {
		// an empty array says nothing, which is allowed
		delete(list, "minItems")
	}
	return list
}

func (s *Schema) inputSchema() object {
	out := object{"type": string(s.Type)}
	if s.Enum != nil {
		values := []any{}
		for _, v := range s.Enum {
			values = append(values, s.literal(v))
		}
		out["enum"] = values
	}
	if s.Const != nil {
		out["const"] = s.literal(*s.Const)
	}
	switch {
	case s.MinLength != nil:
		out["minLength"] = *s.MinLength
	case s.Type == TypeString && s.Enum == nil && s.Const == nil:
		out["minLength"] = 1
	}
	if s.MaxLength != nil {
		out["maxLength"] = *s.MaxLength
	}
	if s.Minimum != nil {
		out["minimum"] = *s.Minimum
	}
	if s.Maximum != nil {
		out["maximum"] = *s.Maximum
	}
	addPattern(out, s.Pattern)
	return out
}

// literal is the JSON value that v spells.
func (s *Schema) literal(v string) any {
	switch s.Type {
	case TypeInteger, TypeNumber:
		return json.Number(v)
	case TypeBoolean:
		return v == "true"
	case TypeString:
	}
	return v
}

// addPattern leaves out an expression that ECMAScript, the dialect of JSON
// Schema, reads in another way: groups with flags or names, classes by name and
// escapes that only RE2 has.
func addPattern(schema object, p string) {
	other := regexp.MustCompile(`\(\?[^:]|\\[^dDwWsSbB^$.*+?()\[\]{}|/\\-]|\[\[:|\[\^?\]|\\[sS]|[^ -~]`)
	if p != "" && !other.MatchString(p) {
		schema["pattern"] = "^(?:" + p + ")$"
	}
}
