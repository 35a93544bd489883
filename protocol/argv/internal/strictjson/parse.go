package strictjson

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Kind is the kind of a JSON value.
type Kind int

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// Value is one JSON value. Text is the literal of a Bool or Number and the
// decoded text of a String; Items are those of an Array, Members those of an
// Object in the order of the text.
type Value struct {
	Kind    Kind
	Text    string
	Items   []Value
	Members []Member
}

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// Limits bounds a document. Bytes counts all of it, Depth the arrays and objects
// inside one another.
type Limits struct{ Bytes, Depth int }

// SyntaxError says where a document was refused. It shows nothing of the
// document.
type SyntaxError struct {
	Offset int // in bytes
	Msg    string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg) }

type parser struct {
	data  []byte
	at    int
	depth int
}

// Parse reads one document. The error is a *SyntaxError.
func Parse(data []byte, l Limits) (Value, error) {
	if len(data) > l.Bytes {
		return Value{}, &SyntaxError{0, fmt.Sprintf("more than %d bytes", l.Bytes)}
	}
	if !utf8.Valid(data) {
		return Value{}, &SyntaxError{0, "not UTF-8"}
	}
	p := &parser{data: data, depth: l.Depth}
	p.space()
	v, err := p.value()
	if err != nil {
		return Value{}, err
	}
	p.space()
	if p.at < len(data) {
		return Value{}, p.fail("bytes after the document")
	}
	return v, nil
}

func (p *parser) fail(msg string) error { return &SyntaxError{p.at, msg} }

func (p *parser) peek() byte {
	if p.at < len(p.data) {
		return p.data[p.at]
	}
	return 0
}

func (p *parser) take(c byte) bool {
	if p.peek() != c || p.at >= len(p.data) {
		return false
	}
	p.at++
	return true
}

func (p *parser) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) value() (Value, error) {
	switch c := p.peek(); {
	case c == '{':
		return p.nested(p.object)
	case c == '[':
		return p.nested(p.array)
	case c == '"':
		s, err := p.text()
		return Value{Kind: String, Text: s}, err
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	}
	for _, w := range []struct {
		word string
		kind Kind
	}{{"true", Bool}, {"false", Bool}, {"null", Null}} {
		if end := p.at + len(w.word); end <= len(p.data) && string(p.data[p.at:end]) == w.word {
			p.at = end
			return Value{Kind: w.kind, Text: w.word}, nil
		}
	}
	return Value{}, p.fail("want a value")
}

func (p *parser) nested(read func() (Value, error)) (Value, error) {
	if p.depth == 0 {
		return Value{}, p.fail("nested too deep")
	}
	p.depth--
	p.at++ // the bracket
	v, err := read()
	p.depth++
	return v, err
}

// list reads the comma-separated rest of an array or object up to end.
func (p *parser) list(end byte, item func() error) error {
	p.space()
	if p.take(end) {
		return nil
	}
	for {
		p.space()
		if err := item(); err != nil {
			return err
		}
		p.space()
		if p.take(end) {
			return nil
		}
		if !p.take(',') {
			return p.fail("want ',' or the end of the list")
		}
	}
}

func (p *parser) array() (Value, error) {
	out := Value{Kind: Array}
	err := p.list(']', func() error {
		v, err := p.value()
		out.Items = append(out.Items, v)
		return err
	})
	return out, err
}

func (p *parser) object() (Value, error) {
	out := Value{Kind: Object}
	seen := map[string]bool{}
	err := p.list('}', func() error {
		start := p.at
		if p.peek() != '"' {
			return p.fail("want a key")
		}
		key, err := p.text()
		if err != nil {
			return err
		}
		if seen[key] {
			p.at = start
			return p.fail("duplicate key")
		}
		seen[key] = true
		p.space()
		if !p.take(':') {
			return p.fail("want ':'")
		}
		p.space()
		v, err := p.value()
		out.Members = append(out.Members, Member{key, v})
		return err
	})
	return out, err
}

func (p *parser) digits() bool {
	start := p.at
	for '0' <= p.peek() && p.peek() <= '9' {
		p.at++
	}
	return p.at > start
}

func (p *parser) number() (Value, error) {
	start := p.at
	p.take('-')
	ok := p.take('0') || p.digits()
	if ok && p.take('.') {
		ok = p.digits()
	}
	if ok && (p.take('e') || p.take('E')) {
		_ = p.take('+') || p.take('-')
		ok = p.digits()
	}
	if !ok {
		return Value{}, p.fail("want a number")
	}
	return Value{Kind: Number, Text: string(p.data[start:p.at])}, nil
}

func (p *parser) text() (string, error) {
	p.at++ // the quote
	var out []byte
	for {
		c := p.peek()
		switch {
		case p.at >= len(p.data):
			return "", p.fail("unfinished string")
		case c == '"':
			p.at++
			return string(out), nil
		case c < 0x20:
			return "", p.fail("control character in a string")
		case c == '\\':
			p.at++
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
			p.at++
		}
	}
}

func (p *parser) escape() (rune, error) {
	c := p.peek()
	p.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return p.unicode()
	}
	p.at--
	return 0, p.fail("unknown escape")
}

func (p *parser) unicode() (rune, error) {
	r, ok := p.hex4()
	if ok && utf16.IsSurrogate(r) {
		var low rune
		ok = p.take('\\') && p.take('u')
		if ok {
			low, ok = p.hex4()
		}
		r = utf16.DecodeRune(r, low) // U+FFFD if they are no pair
	}
	if !ok || r == utf8.RuneError {
		return 0, p.fail("no character")
	}
	return r, nil
}

func (p *parser) hex4() (rune, bool) {
	if p.at+4 > len(p.data) {
		return 0, false
	}
	var r rune
	for _, c := range p.data[p.at : p.at+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.at += 4
	return r, true
}
