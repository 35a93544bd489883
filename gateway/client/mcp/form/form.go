package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/lendcli/lend/gateway/synopsis/schema"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// AuthorityKey is the argument that says whose Connector runs. No parameter has such a
// name: they have no capitals.
const AuthorityKey = "connectorAuthority"

// Whose Connector runs.
const (
	Owner  = "owner"  // the lease's
	Caller = "caller" // this machine's own
)

// ErrForm says that an entry of a catalogue is not what gateways of this version write.
var ErrForm = errors.New("the catalogue does not say in a known way what the command takes")

// Form is what a command takes. There are two grammars where the command was declared
// anew since its invocation began: both must accept. It is immutable and safe for
// concurrent use.
type Form struct {
	grammars []*argv.Grammar
	fixed    []int // arguments that a grammar puts first
}

// anyItem stands for an expression that JSON Schema cannot say: the gateway judges.
const anyItem = "(?s).+"

// Read reads the schema of an entry. Everything in it is bounded by argv's own bounds of
// a declaration, and checked for control characters. The error is ErrForm, with what is
// wrong.
func Read(e protocol.CatalogEntry) (*Form, error) {
	var n schema.Node
	if err := json.Unmarshal(e.InputSchema, &n); err != nil {
		return nil, fmt.Errorf("%w: no schema of an object", ErrForm)
	}
	all := []schema.Node{n}
	if n.Properties == nil {
		all = n.AllOf
	}
	if len(all) == 0 || len(all) > 2 {
		return nil, ErrForm
	}
	s := &Form{}
	for _, one := range all {
		c, err := command(&one, e.Command)
		if err != nil {
			return nil, err
		}
		g, err := c.Compile(argv.Contract{Command: "lent"})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		s.grammars, s.fixed = append(s.grammars, g), append(s.fixed, len(c.Arguments))
	}
	return s, nil
}

// command declares the command again, as a caller types it: what is an environment
// variable there is a flag here. "--" before positions is always understood.
func command(n *schema.Node, c name.Command) (argv.Command, error) {
	out := argv.Command{Name: c, Description: n.Description, Arguments: n.Words, EndOfOptions: true}
	if n.Properties == nil || n.Type != "object" {
		return out, ErrForm
	}
	for key, p := range n.Properties {
		at, ok := p.Placed()
		if !ok {
			return out, fmt.Errorf("%w: no place of a parameter", ErrForm)
		}
		if at.Rest {
			if p.Items == nil || out.Rest != nil {
				return out, ErrForm
			}
			out.Rest = &argv.Rest{MaxItems: p.MaxItems, Pattern: p.Items.Bare()}
			if out.Rest.Pattern == "" {
				out.Rest.Pattern = anyItem
			}
			continue
		}
		pn, err := name.ParseParameter(key)
		if err != nil {
			return out, fmt.Errorf("%w: %w", ErrForm, err)
		}
		q, err := parameter(&p, at, pn, slices.Contains(n.Required, key))
		if err != nil {
			return out, err
		}
		out.Parameters = append(out.Parameters, q)
	}
	return out, nil
}

func parameter(n *schema.Node, at schema.Place, pn name.Parameter, required bool) (argv.Parameter, error) {
	q := argv.Parameter{Name: pn, Description: n.Description, Required: required, Position: at.Position}
	if at.Stdin {
		q.Stdin = &argv.Stdin{}
		if n.MaxLength != nil {
			q.Stdin.MaxBytes = int64(*n.MaxLength)
		}
		q.Schemas = []argv.Schema{{Type: argv.TypeString, FreeText: true}}
		return q, nil
	}
	item := n
	if n.Items != nil {
		item = n.Items
		q.List = &argv.List{MinItems: n.MinItems, MaxItems: n.MaxItems}
	}
	if at.Flag != "" {
		q.Flag = &argv.Flag{Name: at.Flag, Aliases: at.Aliases, Separator: at.Separator, Repeat: q.List != nil && at.Separator == ""}
		q.Flag.Render = argv.RenderEquals
		if len(at.Flag) == 2 {
			q.Flag.Render = argv.RenderSpace
		}
	}
	for _, one := range append([]schema.Node{*item}, item.AllOf...) {
		s, err := values(&one)
		if err != nil {
			return q, err
		}
		q.Schemas = append(q.Schemas, s)
	}
	return q, nil
}

func values(n *schema.Node) (argv.Schema, error) {
	s := argv.Schema{
		Type: argv.Type(n.Type), Pattern: n.Bare(),
		MinLength: n.MinLength, MaxLength: n.MaxLength, Minimum: n.Minimum, Maximum: n.Maximum,
	}
	if n.Enum != nil {
		s.Enum = []string{}
	}
	for _, raw := range n.Enum {
		word, err := spell(s.Type, raw)
		if err != nil {
			return s, err
		}
		s.Enum = append(s.Enum, word)
	}
	if n.Const != nil {
		word, err := spell(s.Type, n.Const)
		if err != nil {
			return s, err
		}
		s.Const = &word
	}
	s.FreeText = s.Type == argv.TypeString && s.Enum == nil && s.Const == nil && s.Pattern == ""
	return s, nil
}

// spell writes a literal as a command line does.
func spell(t argv.Type, raw json.RawMessage) (string, error) {
	if t != argv.TypeString {
		return string(raw), nil // argv knows whether it is one
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", ErrForm
	}
	return s, nil
}

// Schema is what clients see: the catalogue's schema, written by argv, with
// the choice of an authority if there is one.
func (s *Form) Schema(authority bool) (json.RawMessage, error) {
	var all []any
	for _, g := range s.grammars {
		var one map[string]any
		d := json.NewDecoder(bytes.NewReader(g.InputSchema()))
		d.UseNumber()
		if err := d.Decode(&one); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		properties, ok := one["properties"].(map[string]any)
		if !ok {
			return nil, ErrForm
		}
		if authority {
			properties[AuthorityKey] = map[string]any{
				"type": "string", "enum": []string{Owner, Caller},
				"description": "whose Connector runs: owner (the lease's, if left out) or caller (the one installed on this machine)",
			}
		}
		all = append(all, one)
	}
	if len(all) == 1 {
		return json.Marshal(all[0])
	}
	return json.Marshal(map[string]any{"type": "object", "allOf": all})
}

// Arguments turns the object of a call into the canonical arguments that follow the
// command's name, and the text for standard input; nil if none was said. The error is
// an *argv.Error.
func (s *Form) Arguments(object json.RawMessage) (args []string, input *string, err error) {
	if len(object) == 0 {
		object = json.RawMessage("{}")
	}
	for i, g := range s.grammars {
		call, err := g.FromObject(object)
		if err != nil {
			return nil, nil, err
		}
		args, input = call.Arguments[s.fixed[i]:], call.Input
	}
	return args, input, nil
}

// ErrAuthority says that the selector is none of the two words, or is there twice.
var ErrAuthority = errors.New(AuthorityKey + `: want "owner" or "caller", once`)

// TakeAuthority takes the selector out of an object: Owner, Caller, or "" if it has none;
// ErrAuthority. What is no object stays as it is: Arguments says what is wrong.
func TakeAuthority(object json.RawMessage) (rest json.RawMessage, authority string, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return object, "", nil //nolint:nilerr // likewise
	}
	others := []byte{'{'}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return object, "", nil //nolint:nilerr // likewise
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return object, "", nil //nolint:nilerr // likewise
		}
		if key != AuthorityKey {
			if len(others) > 1 {
				others = append(others, ',')
			}
			k, err := json.Marshal(key)
			if err != nil {
				return object, "", nil //nolint:nilerr // likewise
			}
			others = append(append(append(others, k...), ':'), v...)
			continue
		}
		var s string
		_ = json.Unmarshal(v, &s) // what is no string is none of the two
		if authority != "" || s != Owner && s != Caller {
			return nil, "", ErrAuthority
		}
		authority = s
	}
	if authority == "" {
		return object, "", nil
	}
	return append(others, '}'), authority, nil
}
