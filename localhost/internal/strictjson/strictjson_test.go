package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type inner struct {
	A string `json:"a"`
}

type doc struct {
	Name  string           `json:"name"`
	Count int              `json:"count"`
	In    *inner           `json:"in"`
	List  []inner          `json:"list"`
	Map   map[string]inner `json:"map"`
	Any   any              `json:"any"`
	Raw   json.RawMessage  `json:"raw"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for _, c := range []struct{ name, in, want string }{
		{"good", `{"name":"x","count":1,"in":{"a":"b"},"list":[{"a":"c"}],"map":{"k":{"a":"d"}},"any":{"x":null},"raw":[1]}`, ""},
		{"empty", ``, "unexpected EOF"},
		{"half", `{"name":`, "unexpected EOF"},
		{"unknown", `{"nam":"x"}`, `unknown field "nam"`},
		{"case", `{"Name":"x"}`, `did you mean "name"?`},
		{"unknown-in-list", `{"list":[{"a":"x"},{"b":"x"}]}`, `list[1] (byte`},
		{"unknown-in-map", `{"map":{"k":{"b":"x"}}}`, `map.k (byte`},
		{"duplicate", `{"name":"x","name":"y"}`, `duplicate field "name"`},
		{"duplicate-in-any", `{"any":{"x":1,"x":2}}`, `duplicate field "x"`},
		{"duplicate-by-escape", `{"name":"x","n\u0061me":"y"}`, `duplicate field "name"`},
		{"null", `{"in":null}`, "null is not allowed"},
		{"trailing", `{"name":"x"} {}`, "something follows"},
		{"trailing-garbage", `{"name":"x"}x`, "something follows"},
		{"not-utf-8", "{\"name\":\"\xff\"}", "not UTF-8"},
		{"too-large", `{"name":"` + strings.Repeat("x", 1000) + `"}`, "more than 1000 bytes"},
		{"too-deep", `{"any":` + deep + `}`, "nested more than"},
		{"wrong-type", `{"name":1}`, "name (byte 9): want a string, not a number"},
		{"wrong-type-real", `{"count":1.5}`, "count (byte 12): want a whole number in its range, not a number"},
		{"wrong-type-large", `{"count":1e99}`, "want a whole number in its range"},
		{"wrong-type-below", `{"in":{"a":true}}`, "in.a (byte 15): want a string, not a bool"},
		{"wrong-type-object", `{"list":{}}`, "want an array, not an object"},
		{"wrong-type-map", `{"map":[]}`, "want an object, not an array"},
		{"bidi-name", `{"` + "\u202e" + `":1}`, `unknown field "\u202e"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d doc
			err := Decode([]byte(c.in), 1000, &d)
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, "d", d.Map["k"].A)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestDecodeKnown(t *testing.T) {
	t.Parallel()
	var d doc
	require.NoError(t, DecodeKnown([]byte(`{"name":"x","other":{"y":null},"in":null}`), 1000, &d))
	require.Equal(t, "x", d.Name)
	require.ErrorContains(t, DecodeKnown([]byte(`{"NAME":"x"}`), 1000, &d), "did you mean")
	require.ErrorContains(t, DecodeKnown([]byte(`{"other":1,"other":2}`), 1000, &d), "duplicate")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"x","any":[1,{"a":2}]}`))
	f.Add([]byte(`{"name":"x","name":"y"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var strict, known doc
		if Decode(in, 1<<16, &strict) == nil {
			require.NoError(t, DecodeKnown(in, 1<<16, &known))
			require.Equal(t, strict, known)
		}
	})
}
