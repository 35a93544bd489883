package npm

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMadeForThisSystem(t *testing.T) {
	t.Parallel()
	os, cpu := system()
	for in, want := range map[string]bool{
		`{}`:                          false, // every system's
		`{"os":["` + os + `"]}`:       true,
		`{"os":["x","` + os + `"]}`:   true,
		`{"os":["x"]}`:                false,
		`{"os":["!x"]}`:               true,
		`{"os":["!` + os + `"]}`:      false,
		`{"os":["!x","y"]}`:           false,
		`{"os":["any"]}`:              true,
		`{"os":"` + os + `"}`:         false,
		`{"cpu":["` + cpu + `"]}`:     true,
		`{"cpu":["x"]}`:               false,
		`{"os":[],"cpu":["!x"]}`:      true,
		`{"os":["x"],"cpu":["!x"]}`:   false,
		`{"os":["!x"],"libc":["gl"]}`: false,
	} {
		var e lockEntry
		require.NoError(t, json.Unmarshal([]byte(in), &e))
		require.Equal(t, want, madeForThisSystem(e), in)
	}
}

// wrapper is the lock of a package whose program is in one optional package a
// system; have says which of them a registry served.
func wrapper(have ...string) string {
	os, cpu := system()
	own := "@w/cli-" + os + "-" + cpu
	entry := func(extra string) string {
		return `{"version": "1.0.0", "resolved": "https://h/x.tgz", "integrity": "` + integrityText("x") + `"` + extra + `}`
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"wrapper": "1.0.0"}}, "node_modules/wrapper": %s`,
		entry(`, "optionalDependencies": {"@w/cli-other-x64": "1.0.0", "`+own+`": "1.0.0"}`))
	for _, n := range have {
		if n == "own" {
			fmt.Fprintf(&b, `, "node_modules/%s": %s`, own, entry(`, "optional": true, "os": ["`+os+`"], "cpu": ["`+cpu+`"]`))
		} else {
			fmt.Fprintf(&b, `, "node_modules/wrapper/node_modules/@w/cli-other-x64": %s`, entry(`, "optional": true, "os": ["other"]`))
		}
	}
	return b.String() + "}}"
}

func integrityText(s string) string { return Integrity{sum: [64]byte{s[0]}}.String() }

// Packages of other systems may be missing everywhere: in the registry, the lock and
// the tree. This system's own may not.
func TestOptionalPlatformPackages(t *testing.T) {
	t.Parallel()
	os, cpu := system()
	own := "node_modules/@w/cli-" + os + "-" + cpu
	_, err := ParseLock([]byte(wrapper("other")), "wrapper", "1.0.0")
	var le *LockError
	require.ErrorAs(t, err, &le)
	require.ErrorContains(t, err, "on this system, and the lock lacks it")

	for _, have := range [][]string{{"own"}, {"own", "other"}} {
		l, err := ParseLock([]byte(wrapper(have...)), "wrapper", "1.0.0")
		require.NoError(t, err)
		b, err := portable([]byte(wrapper(have...)))
		require.NoError(t, err)
		require.Equal(t, len(have) == 2, strings.Contains(string(b), `"@w/cli-other-x64"`), "npm insists on what a lock names")
		require.Contains(t, string(b), `"`+strings.TrimPrefix(own, "node_modules/")+`"`)
		require.NotContains(t, string(b), "https://h")

		tree := fstest.MapFS{
			"node_modules/wrapper/package.json": {Data: []byte(`{"name":"wrapper","version":"1.0.0"}`)},
			own + "/package.json":               {Data: []byte(`{"name":"` + strings.TrimPrefix(own, "node_modules/") + `","version":"1.0.0"}`)},
		}
		require.NoError(t, CheckTree(tree, l))
		delete(tree, own+"/package.json")
		err = CheckTree(tree, l)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "this system's own package")
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	all := map[string]int{"": 0, "node_modules/a": 1, "node_modules/@s/b": 1, "node_modules/@s/b/node_modules/a": 1, "node_modules/c": 1}
	for in, want := range map[[2]string]string{
		{"node_modules/@s/b", "a"}:                "node_modules/@s/b/node_modules/a",
		{"node_modules/@s/b/node_modules/a", "c"}: "node_modules/c",
		{"node_modules/a", "@s/b"}:                "node_modules/@s/b",
		{"", "a"}:                                 "node_modules/a",
		{"node_modules/@s/b", "d"}:                "",
	} {
		got, ok := resolve(all, in[0], in[1])
		require.Equal(t, want, got, in)
		require.Equal(t, want != "", ok)
	}
}
