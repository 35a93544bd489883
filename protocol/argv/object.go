package argv

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/argv/internal/strictjson"
)

// FromObject reads the JSON object that InputSchema describes: parameters by
// name, lists as arrays, the tail as "rest". It is read strictly: duplicate and
// unknown keys, another type, null, exponents, anything after the object are
// refused. The Call equals that of Parse for the same values; Call.Input holds
// what was said for standard input. The error is an *Error, and the Call is zero
// with it.
func (g *Grammar) FromObject(data []byte) (Call, error) {
	v, err := strictjson.Parse(data, strictjson.Limits{Bytes: MaxObject, Depth: 2})
	if err != nil {
		return Call{}, objectError(err)
	}
	if v.Kind != strictjson.Object {
		return Call{}, &Error{Kind: FaultObject, Index: -1, Rule: "want an object"}
	}
	r := reading{g: g, said: map[*param][]string{}}
	var input *string
	for _, m := range v.Members {
		var fault *Error
		if g.stdin != nil && m.Name == g.stdin.Name.String() {
			input, fault = g.input(m.Value)
		} else {
			fault = r.member(m)
		}
		if fault != nil {
			return Call{}, fault
		}
	}
	if g.stdin != nil && g.stdin.Required && input == nil {
		return Call{}, g.stdin.refuse(FaultMissing, "")
	}
	call, err := r.finish()
	if err != nil {
		return Call{}, err
	}
	call.Input = input
	return call, nil
}

func objectError(err error) *Error {
	out := &Error{Kind: FaultObject, Index: -1, Rule: "want one JSON object"}
	var syntax *strictjson.SyntaxError
	if errors.As(err, &syntax) {
		out.Rule = syntax.Error()
	}
	return out
}

func (r *reading) member(m strictjson.Member) *Error {
	if r.g.rest != nil && m.Name == restName {
		return r.tailItems(m.Value)
	}
	for _, p := range r.g.params {
		if p.Name.String() != m.Name {
			continue
		}
		items, ok := p.literals(m.Value)
		if !ok {
			return p.refuse(FaultObject, "want "+p.jsonRule())
		}
		return r.say(p, items)
	}
	return &Error{Kind: FaultObject, Flag: m.Name, Index: -1, Rule: "unknown key"}
}

func (r *reading) tailItems(v strictjson.Value) *Error {
	err := &Error{Kind: FaultObject, Parameter: r.g.restName, Index: -1, Rule: "want an array of strings"}
	if v.Kind != strictjson.Array {
		return err
	}
	for _, item := range v.Items {
		if item.Kind != strictjson.String {
			return err
		}
		if f := textFault(item.Text); f != "" {
			return &Error{Kind: f, Parameter: r.g.restName, Index: -1}
		}
		if err := r.tail(item.Text); err != nil {
			return err
		}
	}
	return nil
}

// literals returns the items of v if its kind is that of the parameter.
func (p *param) literals(v strictjson.Value) ([]string, bool) {
	if p.List == nil {
		return []string{p.spell(v)}, p.jsonKind() == v.Kind
	}
	if v.Kind != strictjson.Array {
		return nil, false
	}
	items := make([]string, 0, len(v.Items))
	for _, item := range v.Items {
		if item.Kind != p.jsonKind() {
			return nil, false
		}
		items = append(items, p.spell(item))
	}
	return items, true
}

// spell is how a command line says v: an integer has no fraction there, where JSON says
// that 3.0 is one.
func (p *param) spell(v strictjson.Value) string {
	if p.Schemas[0].Type == TypeInteger && v.Kind == strictjson.Number {
		if whole, frac, ok := strings.Cut(v.Text, "."); ok && strings.Trim(frac, "0") == "" {
			return whole
		}
	}
	return v.Text
}

func (p *param) jsonKind() strictjson.Kind {
	switch p.Schemas[0].Type {
	case TypeInteger, TypeNumber:
		return strictjson.Number
	case TypeBoolean:
		return strictjson.Bool
	case TypeString:
	}
	return strictjson.String
}

func (p *param) jsonRule() string {
	rule := "a " + string(p.Schemas[0].Type)
	if p.List != nil {
		rule = "an array, each item " + rule
	}
	return rule
}

// input reads the text for standard input. It is content, not an argument:
// control characters pass.
func (g *Grammar) input(v strictjson.Value) (*string, *Error) {
	most := g.stdin.Stdin.MaxBytes
	if most == 0 {
		most = defaultStdin
	}
	switch {
	case v.Kind != strictjson.String || !utf8.ValidString(v.Text):
		return nil, g.stdin.refuse(FaultObject, "want a string")
	case int64(len(v.Text)) > most:
		return nil, g.stdin.refuse(FaultTooLarge, "want at most "+strconv.FormatInt(most, 10)+" bytes")
	}
	return &v.Text, nil
}
