package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Unmarshal reads data into the value that target points to, which is what
// encoding/json would do, after Parse has accepted data and every key has been
// found, letter by letter, among the json tags of the structs. The error may be a
// *SyntaxError or an *UnknownKeyError.
func Unmarshal(data []byte, l Limits, target any) error {
	v, err := Parse(data, l)
	if err != nil {
		return err
	}
	if err := checkKeys(v, reflect.TypeOf(target), ""); err != nil {
		return err
	}
	return json.Unmarshal(data, target)
}

// UnknownKeyError names a key that the Go type does not have. Path holds it and
// the keys above it, joined by dots; Error shows it quoted.
type UnknownKeyError struct {
	Path  string
	Known []string
}

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("unknown key %s (want one of %s)", name.Quote(e.Path), strings.Join(e.Known, ", "))
}

func checkKeys(v Value, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var fields map[string]reflect.Type
	switch {
	case v.Kind == Array && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		for _, item := range v.Items {
			if err := checkKeys(item, t.Elem(), path); err != nil {
				return err
			}
		}
		return nil
	case v.Kind != Object:
		return nil
	case t.Kind() == reflect.Struct:
		fields = structFields(t)
	case t.Kind() != reflect.Map:
		return nil
	}
	for _, m := range v.Members {
		elem, ok := fields[m.Name]
		if fields == nil {
			elem, ok = t.Elem(), true
		}
		if !ok {
			return &UnknownKeyError{path + m.Name, known(t)}
		}
		if err := checkKeys(m.Value, elem, path+m.Name+"."); err != nil {
			return err
		}
	}
	return nil
}

func structFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		out[jsonName(f)] = f.Type
	}
	return out
}

func known(t reflect.Type) []string {
	var out []string
	for f := range fieldsOf(t) {
		out = append(out, jsonName(f))
	}
	return out
}

// fieldsOf yields the fields with a json name; embedding is not used here.
func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); jsonName(f) != "" && jsonName(f) != "-" && !yield(f) {
				return
			}
		}
	}
}

func jsonName(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return key
}
