package strictjson

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func loose() Limits { return Limits{Bytes: 1 << 16, Depth: 16} }

func canonical(t *testing.T, doc string) (string, error) {
	t.Helper()
	v, err := Parse([]byte(doc), loose())
	require.NoError(t, err, "%q", doc)
	out, err := Append(nil, v)
	return string(out), err
}

func TestParseRefuses(t *testing.T) {
	for name, doc := range map[string]string{
		"nothing":                "",
		"white-space-only":       " \n",
		"two-documents":          "1 2",
		"trailing-comma-array":   "[1,]",
		"trailing-comma-object":  `{"a":1,}`,
		"trailing-bytes":         "{}x",
		"unfinished-array":       "[1",
		"unfinished-object":      `{"a":1`,
		"unfinished-string":      `"a`,
		"unfinished-escape":      `"\`,
		"missing-colon":          `{"a" 1}`,
		"missing-value":          `{"a":}`,
		"bare-key":               `{a:1}`,
		"single-quotes":          `'a'`,
		"duplicate-key":          `{"a":1,"b":2,"a":3}`,
		"duplicate-key-escaped":  `{"a":1,"\u0061":2}`,
		"duplicate-key-nested":   `[{"x":{"a":1,"a":1}}]`,
		"byte-order-mark":        "\ufeff{}",
		"not-utf-8":              "\"\xff\"",
		"surrogate-bytes":        "\"\xed\xa0\x80\"",
		"lone-high-surrogate":    `"\ud800"`,
		"lone-low-surrogate":     `"\udc00"`,
		"reversed-surrogates":    `"\udc00\ud800"`,
		"high-then-letter":       `"\ud800\u0061"`,
		"replacement-character":  `"\ufffd"`,
		"short-escape":           `"\u12"`,
		"bad-hex":                `"\u12g4"`,
		"unknown-escape":         `"\x41"`,
		"raw-newline":            "\"a\nb\"",
		"raw-nul":                "\"\x00\"",
		"leading-zero":           "01",
		"leading-plus":           "+1",
		"leading-dot":            ".5",
		"trailing-dot":           "1.",
		"empty-exponent":         "1e",
		"lone-minus":             "-",
		"hex-number":             "0x1",
		"nan":                    "NaN",
		"infinity":               "-Infinity",
		"upper-case-word":        "True",
		"cut-word":               "tru",
		"comment":                "1 // x",
		"vertical-tab":           "\v1",
		"no-break-space":         "\u00a01",
		"nul-at-the-end":         "1\x00",
		"nul-where-a-colon-goes": "{\"a\"\x001}",
		"too-deep":               strings.Repeat("[", 17) + strings.Repeat("]", 17),
		"too-long":               `"` + strings.Repeat("a", 1<<16) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			v, err := Parse([]byte(doc), loose())
			var syntax *SyntaxError
			require.ErrorAs(t, err, &syntax)
			require.Zero(t, v)
			require.LessOrEqual(t, syntax.Offset, len(doc))
		})
	}
}

func TestParse(t *testing.T) {
	v, err := Parse([]byte(" {\"a\\n\" : [ null , true,false , -1.5E+3, \"\\u00e4\\ud83d\\ude00\\/\" , {} , [ ] ] } \r\n\t"), loose())
	require.NoError(t, err)
	require.Equal(t, Value{Kind: Object, Members: []Member{{"a\n", Value{Kind: Array, Items: []Value{
		{Kind: Null, Text: "null"},
		{Kind: Bool, Text: "true"},
		{Kind: Bool, Text: "false"},
		{Kind: Number, Text: "-1.5E+3"},
		{Kind: String, Text: "ä😀/"},
		{Kind: Object},
		{Kind: Array},
	}}}}}, v)
	_, err = Parse([]byte(strings.Repeat("[", 16)+strings.Repeat("]", 16)), loose())
	require.NoError(t, err, "the bound itself is allowed")
}

// TestNumbers holds the samples of RFC 8785 appendix B that are finite, each as
// the bits of a double.
func TestNumbers(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		f := math.Float64frombits(bits)
		require.Equal(t, want, string(appendFloat(nil, f)), "%x", bits)
		// and through a document
		got, err := canonical(t, strconv.FormatFloat(f, 'e', -1, 64))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestCanonical(t *testing.T) {
	for name, c := range map[string]struct{ doc, want string }{
		// RFC 8785 section 3.2.2, the example that runs through the document
		"rfc-example": {
			`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`,
			"{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
		},
		// section 3.2.3: order by UTF-16 code units, so a pair comes before U+FB33
		"rfc-sorting": {
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
			  "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
		"controls":          {`"\u0000\u0001\b\t\n\u000b\f\r\u001f\u007f"`, "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\x7f\""},
		"separators-raw":    {`"\u2028\u2029<>&"`, "\"\u2028\u2029<>&\""},
		"no-normalisation":  {`"A\u030a"`, "\"A\u030a\""},
		"prefix-first":      {`{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		"case-and-numbers":  {`{"b":1,"B":2,"10":3,"9":4}`, `{"10":3,"9":4,"B":2,"b":1}`},
		"nested":            {`[{"b":[],"a":{}}]`, `[{"a":{},"b":[]}]`},
		"minus-zero":        {`[-0,-0.0,0e5]`, `[0,0,0]`},
		"integral-fraction": {`[1.0,100e-2,1e2]`, `[1,1,100]`},
		"largest-safe":      {`9007199254740991`, `9007199254740991`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := canonical(t, c.doc)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			again, err := canonical(t, got)
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for name, doc := range map[string]string{
		"overflow":             "1e400",
		"integer-in-between":   "9007199254740993",
		"integer-of-64-bits":   "18446744073709551615",
		"inside":               `{"a":[1e999]}`,
		"negative-in-between":  "-9007199254740993",
		"long-integer-literal": "1" + strings.Repeat("0", 30),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := canonical(t, doc)
			require.Error(t, err)
		})
	}
}

func TestUnmarshal(t *testing.T) {
	type inner struct {
		Value  int    `json:"value"`
		Hidden string `json:"-"`
		NoTag  string
	}
	type outer struct {
		Name  string            `json:"name,omitempty"`
		List  []*inner          `json:"list"`
		Map   map[string]inner  `json:"map"`
		Words map[string]string `json:"words"`
		Any   any               `json:"any"`
	}
	var out outer
	require.NoError(t, Unmarshal([]byte(`{"name":"n","list":[{"value":1}],"map":{"Any Key":{"value":2}},"words":{"a":"b"},"any":{"x":1}}`), loose(), &out))
	require.Equal(t, "n", out.Name)
	require.Equal(t, 1, out.List[0].Value)
	require.Equal(t, 2, out.Map["Any Key"].Value)
	for name, c := range map[string]struct{ doc, path string }{
		"unknown":       {`{"nam":"n"}`, "nam"},
		"another-case":  {`{"Name":"n"}`, "Name"},
		"in-list":       {`{"list":[{"Value":1}]}`, "list.Value"},
		"in-map":        {`{"map":{"a b":{"x":1}}}`, "map.a b.x"},
		"dash":          {`{"list":[{"-":1}]}`, "list.-"},
		"hidden":        {`{"list":[{"Hidden":""}]}`, "list.Hidden"},
		"without-a-tag": {`{"list":[{"NoTag":""}]}`, "list.NoTag"},
	} {
		t.Run(name, func(t *testing.T) {
			var unknown *UnknownKeyError
			err := Unmarshal([]byte(c.doc), loose(), new(outer))
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, c.path, unknown.Path)
			require.NotEmpty(t, unknown.Known)
		})
	}
	require.Error(t, Unmarshal([]byte(`{"name":1}`), loose(), new(outer)), "another type")
	require.Error(t, Unmarshal([]byte(`{"name":"a","name":"b"}`), loose(), new(outer)), "a duplicate key")
}

// FuzzParse: what is accepted encoding/json accepts too, with the same meaning,
// and the canonical form is a fixed point.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `[1,"a",null,true]`, `{"a":{"b":[1.5e3,-0]}}`, `"\ud83d\ude00\ufb33"`, `{"a":1,"a":2}`, `1e400`, "\"\xff\"", `"\ufffd"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data, loose())
		if err != nil {
			require.Zero(t, v)
			return
		}
		require.True(t, json.Valid(data))
		out, err := Append(nil, v)
		if err != nil {
			require.Nil(t, out)
			return
		}
		var want, got any
		require.NoError(t, json.Unmarshal(data, &want))
		require.NoError(t, json.Unmarshal(out, &got))
		require.Equal(t, want, got)
		again, err := Parse(out, Limits{Bytes: 1 << 20, Depth: 16})
		require.NoError(t, err)
		twice, err := Append(nil, again)
		require.NoError(t, err)
		require.True(t, bytes.Equal(out, twice))
	})
}
