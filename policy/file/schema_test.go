package file

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
)

var update = flag.Bool("update", false, "rewrite golden files")

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// beyondSchema are the constraints that the JSON Schema cannot express. A file
// that breaks nothing else is refused by the loader alone.
func beyondSchema() map[string]string {
	return map[string]string{
		strict.RuleYAML:      "what is no plain YAML: anchors, aliases, merge keys, tags, directives, a second document, characters that cannot be seen",
		strict.RuleSize:      "the size of the file, its depth and the number of its tokens",
		strict.RuleQuoted:    "a version, a date, or a word such as on has to be in quotes; numbers have one spelling",
		strict.RuleFormat:    "a peer ID that has the right letters and is none; a day that does not exist; . and .. in a path",
		strict.RuleUnique:    "duplicate keys, names of rules and tests, peers and issuers with two names, a group named like a peer",
		strict.RuleReference: "names of peers, groups, issuers, workspaces and rules that the file does not have",
		strict.RuleMeaning:   "parts that do not fit together: limits that are raised, what argv.Declaration.Command refuses, tests that contradict themselves",
	}
}

// Loader and schema agree on every file of testdata: what the loader accepts the
// schema accepts; what it refuses the schema refuses too, unless each problem is of
// a kind that the schema cannot express.
func TestSchemaAgreesWithLoader(t *testing.T) {
	schema := compileSchema(t)
	seen := map[string]bool{}
	paths, err := filepath.Glob("../testdata/*/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(paths), 70)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = Parse("p", data)
		accepted, readable := validates(t, schema, data)
		if err == nil {
			require.True(t, readable && accepted, "%s: the schema refuses what the loader accepts", path)
			continue
		}
		structural := false
		for _, problem := range err.(strict.Problems) { //nolint:errorlint,forcetypeassert // documented
			structural = structural || problem.Rule == ""
			if problem.Rule != "" {
				require.Contains(t, beyondSchema(), problem.Rule)
				seen[problem.Rule] = true
			}
		}
		if structural && readable {
			require.False(t, accepted, "%s: the schema accepts what the loader refuses: %v", path, err)
		}
		if !structural && readable {
			require.True(t, accepted, "%s: refused for what the schema is said not to express: %v", path, err)
		}
	}
	archives, err := filepath.Glob("../testdata/decide/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		require.NoError(t, err)
		accepted, readable := validates(t, schema, archive.Files[0].Data)
		require.True(t, accepted && readable, path)
	}
	for rule := range beyondSchema() {
		require.True(t, seen[rule], "no file of testdata shows the rule %s", rule)
	}
}

// One change in a good file at a time: a key misspelt, removed or given another
// kind of value. Loader and schema must agree on each.
func TestSchemaAgreesOnMutations(t *testing.T) {
	schema := compileSchema(t)
	doc, err := strict.Parse("p", read(t, "../testdata/policies/everything.yaml"), MaxSize)
	require.NoError(t, err)
	n := 0
	mutate(doc.Root.Value(), func(change string, root any) {
		text, err := json.Marshal(root)
		require.NoError(t, err)
		_, err = Parse("p", text)
		accepted := schema.Validate(root) == nil
		n++
		structural := false
		if err != nil {
			for _, problem := range err.(strict.Problems) { //nolint:errorlint,forcetypeassert // documented
				structural = structural || problem.Rule == ""
			}
		}
		require.Equal(t, structural, !accepted, "%s: %v", change, err)
	})
	require.Greater(t, n, 300)
}

// mutate calls f with root after each single change, and undoes the change.
func mutate(root any, f func(change string, root any)) {
	var walk func(path string, v any, set func(any))
	others := []any{"x y", 3.0, true, []any{}, nil}
	walk = func(path string, v any, set func(any)) {
		for _, o := range others {
			set(o)
			f(path+" = "+string(encoded(o)), root)
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for _, k := range sortedKeys(v) {
				old := v[k]
				delete(v, k)
				f("delete "+path+"."+k, root)
				v[k+"x!"] = old
				f("rename "+path+"."+k, root)
				delete(v, k+"x!")
				v[k] = old
				walk(path+"."+k, old, func(n any) { v[k] = n })
			}
		case []any:
			for i := range min(len(v), 2) { // the items of a list are alike
				old := v[i]
				walk(path+"[]", old, func(n any) { v[i] = n })
			}
		}
	}
	m := root.(map[string]any) //nolint:forcetypeassert // the file is a map
	for _, k := range sortedKeys(m) {
		old := m[k]
		delete(m, k)
		f("delete "+k, root)
		m[k] = old
		walk(k, old, func(n any) { m[k] = n })
	}
}

func sortedKeys(m map[string]any) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("policy.schema.json", doc))
	schema, err := c.Compile("policy.schema.json")
	require.NoError(t, err)
	return schema
}

// validates reads YAML as an editor would, and asks the schema.
func validates(t testing.TB, schema *jsonschema.Schema, data []byte) (accepted, readable bool) {
	t.Helper()
	doc, err := strict.Parse("p", data, MaxSize)
	if err != nil || doc.Err() != nil {
		return false, false
	}
	return schema.Validate(doc.Root.Value()) == nil, true
}

func TestSchemaIsPublished(t *testing.T) {
	const path = "../testdata/policy.schema.json"
	if *update {
		require.NoError(t, os.WriteFile(path, Schema(), 0o644))
	}
	require.Equal(t, string(read(t, path)), string(Schema()))
}

// The keys of a declaration in the tables are those of the grammar's types.
func TestShapeHasTheKeysOfDeclarations(t *testing.T) {
	require.ElementsMatch(t, jsonKeys(argv.Declaration{}), fieldKeys(declarationShape()))
	require.ElementsMatch(t, jsonKeys(argv.ParameterDeclaration{}), fieldKeys(parameterShape()))
}

// docs/policy.md names every key.
func TestDocsNameEveryKey(t *testing.T) {
	doc := string(read(t, "../../docs/policy.md"))
	for _, s := range []*strict.Shape{
		fileShape(), gatewayLimitsShape(), ruleShape(), testShape(), issuerShape(), declarationShape(), parameterShape(), narrowingShape(),
	} {
		for _, key := range fieldKeys(s) {
			require.Contains(t, doc, "`"+key+"`", "docs/policy.md leaves out a key")
		}
	}
}

func jsonKeys(v any) (keys []string) {
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		keys = append(keys, tag)
	}
	return keys
}

func fieldKeys(s *strict.Shape) (keys []string) {
	for _, f := range s.Fields {
		keys = append(keys, f.Key)
	}
	return keys
}
