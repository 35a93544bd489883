package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const schemaDir = "../../docs/schemas"

// TestDocsOfJSON keeps docs/schemas equal to what the program prints with --json: the
// types of everything that a command shows, found in the source. A command that prints
// JSON in a way that this does not see fails e2e's scripts, which validate real output.
func TestDocsOfJSON(t *testing.T) {
	p := checkSource(t)
	root := newApp(nil, strings.NewReader(""), io.Discard, io.Discard).root()
	want := map[string][]byte{}
	walk(root, func(c *cobra.Command) {
		if shown := p.shownBy(t, c.Short); len(shown) > 0 && !c.Hidden {
			want[manualName(c)+".json"] = p.document(t, c.CommandPath()+" --json", shown)
		}
	})
	want["lend-error.json"] = p.document(t, "any command that fails, with --json", p.shown(p.function(t, "fail").Body, map[types.Object]bool{}))
	require.Greater(t, len(want), 40)
	if *update {
		require.NoError(t, os.RemoveAll(schemaDir))
		require.NoError(t, os.MkdirAll(schemaDir, 0o700))
		for name, text := range want {
			require.NoError(t, os.WriteFile(filepath.Join(schemaDir, name), text, 0o600))
		}
	}
	files, err := filepath.Glob(filepath.Join(schemaDir, "*.json"))
	require.NoError(t, err)
	var have []string
	for _, f := range files {
		have = append(have, filepath.Base(f))
		got, err := os.ReadFile(f)
		require.NoError(t, err)
		require.Equal(t, string(want[filepath.Base(f)]), string(got), "run: go test ./cmd/lend -run TestDocs -update")
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), have)
}

// program is the source of this package, with its types.
type program struct {
	files     []*ast.File
	info      types.Info
	functions map[types.Object]*ast.FuncDecl
}

func checkSource(t *testing.T) *program {
	t.Helper()
	exports := map[string]string{}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s", errs.String())
	for line := range strings.Lines(string(out)) {
		if name, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[name] = file
		}
	}
	fset := token.NewFileSet()
	p := &program{functions: map[types.Object]*ast.FuncDecl{}, info: types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .GoFiles " "}}`, ".")
	out, err = list.Output()
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(out)) {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		p.files = append(p.files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })}
	_, err = config.Check("main", fset, p.files, &p.info)
	require.NoError(t, err)
	for _, f := range p.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				p.functions[p.info.Defs[fn.Name]] = fn
			}
		}
	}
	return p
}

func (p *program) function(t *testing.T, name string) *ast.FuncDecl {
	t.Helper()
	for _, fn := range p.functions {
		if fn.Name.Name == name {
			return fn
		}
	}
	require.Fail(t, "no such function", name)
	return nil
}

// shownBy finds the command that has this short text, and what it shows.
func (p *program) shownBy(t *testing.T, short string) (out []types.Type) {
	t.Helper()
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if lit := p.command(n); lit != nil && p.short(lit) == short {
				out = append(out, p.shown(lit, map[types.Object]bool{})...)
			}
			return true
		})
	}
	return out
}

// command returns n if it makes a command.
func (p *program) command(n ast.Node) *ast.CompositeLit {
	lit, ok := n.(*ast.CompositeLit)
	if !ok || p.info.TypeOf(lit) == nil || p.info.TypeOf(lit).String() != "github.com/spf13/cobra.Command" {
		return nil
	}
	return lit
}

func (p *program) short(lit *ast.CompositeLit) string {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if key, isIdent := kv.Key.(*ast.Ident); ok && isIdent && key.Name == "Short" {
			if v, ok := kv.Value.(*ast.BasicLit); ok {
				s, _ := strconv.Unquote(v.Value)
				return s
			}
		}
	}
	return ""
}

// shown lists the types that n shows, by itself or by functions that it refers to, but
// for those that make other commands.
func (p *program) shown(n ast.Node, seen map[types.Object]bool) (out []types.Type) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if p.shows(n) {
				out = append(out, p.info.TypeOf(n.Args[0]))
			}
		case *ast.Ident:
			fn := p.functions[p.info.Uses[n]]
			if fn == nil || seen[p.info.Uses[n]] || p.isPlumbing(fn) {
				return true
			}
			seen[p.info.Uses[n]] = true
			out = append(out, p.shown(fn.Body, seen)...)
		}
		return true
	})
	return out
}

func (p *program) shows(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	switch f.Sel.Name {
	case "show", "printJSON":
		return true
	case "Encode":
		return p.info.TypeOf(f.X).String() == "*encoding/json.Encoder"
	}
	return false
}

// isPlumbing tells functions that make commands, or show what they are given.
func (p *program) isPlumbing(fn *ast.FuncDecl) (yes bool) {
	if slices.Contains([]string{"show", "printJSON", "fail"}, fn.Name.Name) && fn.Type.Params.NumFields() > 0 {
		return true
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		yes = yes || p.command(n) != nil
		return !yes
	})
	return yes
}

// document is the schema file of everything that a command may show.
func (p *program) document(t *testing.T, title string, shown []types.Type) []byte {
	t.Helper()
	w := &schemaWriter{t: t, defs: map[string]any{}}
	var all []any
	for _, typ := range shown {
		s := w.schema(typ, false)
		if !slices.ContainsFunc(all, func(have any) bool { return reflect.DeepEqual(have, s) }) {
			all = append(all, s)
		}
	}
	doc := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title,
		"description": "One value, or one a line. Fields are only ever added.",
	}
	if len(all) == 1 {
		maps.Copy(doc, all[0].(map[string]any))
	} else {
		slices.SortFunc(all, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		doc["anyOf"] = all
	}
	if len(w.defs) > 0 {
		doc["$defs"] = w.defs
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	require.NoError(t, err)
	return append(b, '\n')
}

// Two commands with the same short text could not be told apart.
func TestDocsShortTexts(t *testing.T) {
	seen := map[string]string{}
	walk(newApp(nil, strings.NewReader(""), io.Discard, io.Discard).root(), func(c *cobra.Command) {
		if strings.Contains(c.CommandPath(), "completion") {
			return
		}
		require.Empty(t, seen[c.Short], "%s: %s", c.CommandPath(), c.Short)
		seen[c.Short] = c.CommandPath()
	})
}

type schemaWriter struct {
	t    *testing.T
	defs map[string]any
}

// schema describes how encoding/json writes a value of typ. Null is possible unless the
// field is left out then.
func (w *schemaWriter) schema(typ types.Type, never0 bool) any {
	typ = types.Unalias(typ)
	if p, ok := typ.(*types.Pointer); ok {
		s := w.schema(p.Elem(), true)
		if never0 {
			return s
		}
		return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
	}
	named, ok := typ.(*types.Named)
	if !ok {
		return w.plain(typ, never0)
	}
	switch {
	case named.String() == "time.Time":
		return map[string]any{"type": "string", "format": "date-time"}
	case named.String() == "encoding/json.RawMessage" || named.String() == "encoding/json/jsontext.Value":
		return map[string]any{}
	case has(named, "MarshalJSON"):
		require.Fail(w.t, "how is it written?", named.String())
	case has(named, "MarshalText"):
		return map[string]any{"type": "string"}
	}
	if _, ok := named.Underlying().(*types.Struct); !ok {
		return w.plain(named.Underlying(), never0)
	}
	key := path.Base(named.String())
	if _, ok := w.defs[key]; !ok {
		w.defs[key] = nil // it may hold itself
		w.defs[key] = w.plain(named.Underlying(), false)
	}
	return map[string]any{"$ref": "#/$defs/" + key}
}

func has(t types.Type, method string) bool {
	o, _, _ := types.LookupFieldOrMethod(t, true, nil, method)
	_, ok := o.(*types.Func)
	return ok
}

func (w *schemaWriter) plain(typ types.Type, never0 bool) any {
	orNull := func(s map[string]any) any {
		if !never0 {
			s["type"] = []any{s["type"], "null"}
		}
		return s
	}
	switch u := typ.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsBoolean != 0:
			return map[string]any{"type": "boolean"}
		case u.Info()&types.IsUnsigned != 0:
			return map[string]any{"type": "integer", "minimum": 0}
		case u.Info()&types.IsInteger != 0:
			return map[string]any{"type": "integer"}
		case u.Info()&types.IsFloat != 0:
			return map[string]any{"type": "number"}
		}
		return map[string]any{"type": "string"}
	case *types.Slice:
		if types.Identical(u.Elem(), types.Typ[types.Byte]) {
			return orNull(map[string]any{"type": "string", "contentEncoding": "base64"})
		}
		return orNull(map[string]any{"type": "array", "items": w.schema(u.Elem(), false)})
	case *types.Array:
		return map[string]any{"type": "array", "items": w.schema(u.Elem(), false)}
	case *types.Map:
		return orNull(map[string]any{"type": "object", "additionalProperties": w.schema(u.Elem(), false)})
	case *types.Struct:
		properties, required := map[string]any{}, []string{}
		w.fields(u, properties, &required)
		slices.Sort(required)
		return map[string]any{"type": "object", "properties": properties, "required": required}
	case *types.Interface:
		return map[string]any{}
	}
	require.Fail(w.t, "cannot be shown", typ.String())
	return nil
}

func (w *schemaWriter) fields(s *types.Struct, properties map[string]any, required *[]string) {
	for i := range s.NumFields() {
		f := s.Field(i)
		tag, tagged := reflect.StructTag(s.Tag(i)).Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Embedded() && !tagged {
			inner := f.Type()
			if p, ok := inner.(*types.Pointer); ok {
				inner = p.Elem()
			}
			if u, ok := inner.Underlying().(*types.Struct); ok {
				w.fields(u, properties, required)
				continue
			}
		}
		if !f.Exported() || tag == "-" {
			continue
		}
		name = cmp.Or(name, f.Name())
		left := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		properties[name] = w.schema(f.Type(), left)
		if doc := reflect.StructTag(s.Tag(i)).Get("doc"); doc != "" {
			properties[name].(map[string]any)["description"] = doc
		}
		if !left {
			*required = append(*required, name)
		}
	}
}
