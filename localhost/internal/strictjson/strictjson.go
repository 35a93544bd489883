package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth bounds nesting, in objects and arrays.
const MaxDepth = 32

// Error says where in a document what is wrong.
type Error struct {
	Path   string // "cli.commands.print", "" for the whole document
	Offset int64  // in bytes, of the token after which it was found
	Msg    string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg)
	}
	return fmt.Sprintf("%s (byte %d): %s", e.Path, e.Offset, e.Msg)
}

// Decode reads the one JSON object in data, of at most maxBytes bytes, into the struct that
// v points to. The error is an *Error or one of a type that decodes itself; v is then undefined.
func Decode(data []byte, maxBytes int, v any) error { return decode(data, maxBytes, v, true) }

// DecodeKnown is Decode, but ignores names that the struct does not have.
func DecodeKnown(data []byte, maxBytes int, v any) error { return decode(data, maxBytes, v, false) }

func decode(data []byte, maxBytes int, v any, strict bool) error {
	if len(data) > maxBytes {
		return &Error{Msg: fmt.Sprintf("more than %d bytes", maxBytes)}
	}
	if !utf8.Valid(data) {
		return &Error{Msg: "not UTF-8"}
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(data)), strict: strict}
	w.dec.UseNumber()
	if err := w.value(reflect.TypeOf(v).Elem(), "", 0); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return w.fail("", "something follows the document")
	}
	err := json.Unmarshal(data, v)
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) {
		got, _, _ := strings.Cut(other.Value, " ") // of a number, its digits follow
		return &Error{Path: other.Field, Offset: other.Offset, Msg: "want " + wanted(other.Type) + ", not " + article(got)}
	}
	return err
}

type walker struct {
	dec    *json.Decoder
	strict bool
}

func (w *walker) fail(path, format string, args ...any) error {
	return &Error{Path: path, Offset: w.dec.InputOffset(), Msg: fmt.Sprintf(format, args...)}
}

func (w *walker) value(t reflect.Type, path string, depth int) error {
	tok, err := w.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &Error{Path: path, Offset: w.dec.InputOffset(), Msg: "not JSON: " + err.Error()}
	}
	t = shape(t)
	switch tok {
	case nil:
		if t != nil && w.strict {
			return w.fail(path, "null is not allowed: leave it out")
		}
		return nil
	case json.Delim('{'), json.Delim('['):
		if depth++; depth > MaxDepth {
			return w.fail(path, "nested more than %d deep", MaxDepth)
		}
		if tok == json.Delim('{') {
			err = w.object(t, path, depth)
		} else {
			err = w.array(t, path, depth)
		}
		if err != nil {
			return err
		}
		if _, err = w.dec.Token(); err != nil {
			return &Error{Path: path, Offset: w.dec.InputOffset(), Msg: "not JSON: " + err.Error()}
		}
	}
	return nil
}

func (w *walker) array(t reflect.Type, path string, depth int) error {
	var elem reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		elem = t.Elem()
	}
	for i := 0; w.dec.More(); i++ {
		if err := w.value(elem, fmt.Sprintf("%s[%d]", path, i), depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) object(t reflect.Type, path string, depth int) error {
	seen := make(map[string]bool)
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return &Error{Path: path, Offset: w.dec.InputOffset(), Msg: "not JSON: " + err.Error()}
		}
		key, ok := tok.(string)
		if !ok {
			return w.fail(path, "not JSON: want a name")
		}
		if seen[key] {
			return w.fail(path, "duplicate field %s", quote(key))
		}
		seen[key] = true
		child, err := w.child(t, key, path)
		if err != nil {
			return err
		}
		if err := w.value(child, join(path, key), depth); err != nil {
			return err
		}
	}
	return nil
}

// child finds the type of the field that key names; nil means anything goes.
func (w *walker) child(t reflect.Type, key, path string) (reflect.Type, error) {
	switch {
	case t == nil:
		return nil, nil
	case t.Kind() == reflect.Map:
		return t.Elem(), nil
	case t.Kind() != reflect.Struct:
		return nil, nil // json.Unmarshal says what is wrong
	}
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == "" || tag == "-" {
			continue
		}
		if tag == key {
			return t.Field(i).Type, nil
		}
		if strings.EqualFold(tag, key) {
			return nil, w.fail(path, "unknown field %s (did you mean %q?)", quote(key), tag)
		}
	}
	if w.strict {
		return nil, w.fail(path, "unknown field %s", quote(key))
	}
	return nil, nil
}

// shape looks through pointers; a type that decodes itself, or any, has none.
func shape(t reflect.Type) reflect.Type {
	for t != nil {
		p := reflect.PointerTo(t)
		if t.Kind() == reflect.Interface || p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
			p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return nil
		}
		if t.Kind() != reflect.Pointer {
			return t
		}
		t = t.Elem()
	}
	return nil
}

// wanted names a type in the words of JSON.
func wanted(t reflect.Type) string {
	switch k := t.Kind(); {
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.String:
		return "a string"
	case k == reflect.Slice || k == reflect.Array:
		return "an array"
	case k == reflect.Struct || k == reflect.Map:
		return "an object"
	case k >= reflect.Int && k <= reflect.Uint64:
		return "a whole number in its range"
	default:
		return "a number"
	}
}

func article(of string) string {
	if of == "array" || of == "object" {
		return "an " + of
	}
	return "a " + of
}

// quote makes a name of the document safe to show.
func quote(key string) string {
	if len(key) > 128 {
		return strconv.QuoteToASCII(key[:128]) + "…"
	}
	return strconv.QuoteToASCII(key)
}

func join(path, key string) string {
	q := quote(key)
	if q == `"`+key+`"` && !strings.ContainsAny(key, ". ") {
		q = key
	}
	if path == "" {
		return q
	}
	return path + "." + q
}
