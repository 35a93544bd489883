package name

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"

	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"
)

// kind is one of the value types, seen from outside.
type kind struct {
	parse    func(s string) (value, error)
	zero     value
	min, max int
	first    string // one example of each character class that may come first
	inside   string // further characters that may come later
	last     string // "" means as inside
	bad      string // characters that are close and refused anywhere
}

type value interface {
	String() string
	IsZero() bool
	MarshalText() ([]byte, error)
}

func as[T value](parse func(string) (T, error)) func(string) (value, error) {
	return func(s string) (value, error) {
		v, err := parse(s)
		return v, err
	}
}

func kinds() map[string]kind {
	return map[string]kind{
		"connector-key": {as(ParseConnectorKey), ConnectorKey{}, 1, MaxConnectorKey, "az09", "._-", "az09", "AZ:/@+"},
		"version":       {as(ParseVersion), Version{}, 1, MaxVersion, "azAZ09", "._+-", "", ":/@~^*"},
		"command":       {as(ParseCommand), Command{}, 1, MaxCommand, "az", "09._-", "", "AZ:/@+"},
		"parameter":     {as(ParseParameter), Parameter{}, 1, MaxParameter, "az", "09_-", "", "AZ.:/@+"},
		"operation-id":  {as(ParseOperationID), OperationID{}, MinOperationID, MaxOperationID, "azAZ09_-", "", "", ".:/@+"},
		"invocation-id": {as(ParseInvocationID), InvocationID{}, 1, MaxInvocationID, "azAZ09", "._:/-", "", "@+~"},
		"connection-id": {as(ParseConnectionID), ConnectionID{}, 1, MaxConnectionID, "azAZ09", "._-", "", ":/@+"},
		"label":         {as(ParseLabel), Label{}, 1, MaxLabel, "azAZ09", "._-", "", ":/@+"},
	}
}

func TestGrammars(t *testing.T) {
	for label, k := range kinds() {
		t.Run(label, func(t *testing.T) {
			fill := strings.Repeat("a", k.min)
			for _, c := range k.first {
				requireAccepted(t, k, string(c)+fill)
			}
			for _, c := range k.first + k.inside {
				requireAccepted(t, k, "a"+string(c)+fill)
			}
			last := k.last
			if last == "" {
				last = k.first + k.inside
			}
			for _, c := range last {
				requireAccepted(t, k, fill+string(c))
			}
			requireAccepted(t, k, fill)
			requireAccepted(t, k, strings.Repeat("a", k.max))

			requireRefused(t, k, "")
			requireRefused(t, k, strings.Repeat("a", k.min-1))
			requireRefused(t, k, strings.Repeat("a", k.max+1))
			requireRefused(t, k, strings.Repeat("a", 1<<20))
			for _, c := range k.inside {
				requireRefused(t, k, string(c)+fill)
			}
			if k.last != "" {
				for _, c := range k.inside {
					requireRefused(t, k, fill+string(c))
				}
			}
			// whatever the kind: nothing that a path, a shell, a terminal or an
			// eye could take for something else
			for _, bad := range []string{
				" ", "\x00", "\n", "\r", "\t", "\x1b", "\x7f", "\u0080", "\u202e", "\u200b", "\ufeff", "\xff", "é", "а", "ａ", "１", "\u2010", "\u2024",
				"\\", "$", "`", "'", "\"", ";", "|", "&", "<", ">", "(", "%", "!", "#", "?", "=", ",",
			} {
				requireRefused(t, k, bad+fill)
				requireRefused(t, k, "a"+bad+fill)
				requireRefused(t, k, fill+bad)
			}
			for _, c := range k.bad {
				requireRefused(t, k, "a"+string(c)+fill)
			}
			requireZero(t, k)
		})
	}
}

func requireAccepted(t *testing.T, k kind, s string) {
	t.Helper()
	v, err := k.parse(s)
	require.NoError(t, err, "%q", s)
	require.Equal(t, s, v.String())
	require.False(t, v.IsZero())
	text, err := v.MarshalText()
	require.NoError(t, err)
	require.Equal(t, s, string(text))
	again, err := k.parse(v.String())
	require.NoError(t, err)
	require.Equal(t, v, again)
	require.Len(t, map[value]bool{v: true, again: true}, 1, "values are keys of maps")
}

func requireRefused(t *testing.T, k kind, s string) {
	t.Helper()
	v, err := k.parse(s)
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid, "%.40q", s)
	require.NotEmpty(t, invalid.Kind)
	require.NotEmpty(t, invalid.Rule)
	require.Equal(t, s, invalid.Value)
	require.True(t, v.IsZero())
	requirePrintable(t, strings.ReplaceAll(err.Error(), "…", ""))
	require.Less(t, len(err.Error()), 2000)
}

func requireZero(t *testing.T, k kind) {
	t.Helper()
	require.True(t, k.zero.IsZero())
	require.Empty(t, k.zero.String())
	text, err := k.zero.MarshalText()
	require.NoError(t, err)
	require.Empty(t, text)
}

// TestRealNames holds names that exist, and ones that look like them.
func TestRealNames(t *testing.T) {
	for _, s := range []string{"github", "lark-cli", "com.example.tool", "a", "json5", "x_y"} {
		_, err := ParseConnectorKey(s)
		require.NoError(t, err, s)
	}
	for _, s := range []string{"GitHub", "github ", "github/cli", "..", "-github", "github.", ".github", "gіthub"} {
		_, err := ParseConnectorKey(s)
		require.Error(t, err, s)
	}
	for _, s := range []string{"2.40.1", "1.0.0-rc.1+build.5", "v1", "2026-11-30", "7"} {
		_, err := ParseVersion(s)
		require.NoError(t, err, s)
	}
	for _, s := range []string{"", ">=1", "^1.0", "1.x ", "../1", "1/2", ".", "-1", "latest\n"} {
		_, err := ParseVersion(s)
		require.Error(t, err, s)
	}
	for _, s := range []string{"issue.list", "a", "im.messages-send"} {
		_, err := ParseCommand(s)
		require.NoError(t, err, s)
	}
	for _, s := range []string{"issue list", "Issue.list", "1st", ".list", "issue.list\x00", "issue．list"} {
		_, err := ParseCommand(s)
		require.Error(t, err, s)
	}
}

// everyName is what a file or frame would hold.
type everyName struct {
	K ConnectorKey `json:"k"`
	V Version      `json:"v"`
	C Command      `json:"c"`
	P Parameter    `json:"p"`
	O OperationID  `json:"o"`
	I InvocationID `json:"i"`
	N ConnectionID `json:"n"`
	L Label        `json:"l"`
	R PeerID       `json:"r"`
}

func TestUnmarshalIsParse(t *testing.T) {
	peer := peerOf(t, 1)
	doc := `{"k":"github","v":"2.40.1","c":"issue.list","p":"repo","o":"0123456789abcdef","i":"run/7","n":"work","l":"maria-laptop","r":"` + peer.String() + `"}`
	var v everyName
	require.NoError(t, json.Unmarshal([]byte(doc), &v))
	data, err := json.Marshal(v)
	require.NoError(t, err)
	require.JSONEq(t, doc, string(data))
	for _, key := range []string{"k", "v", "c", "p", "o", "i", "n", "l", "r"} {
		for _, bad := range []string{`""`, `"a b"`, `"\u0000"`, `1`} {
			var v everyName
			require.Error(t, json.Unmarshal([]byte(`{"`+key+`":`+bad+`}`), &v), "%s %s", key, bad)
			require.Zero(t, v, "%s %s", key, bad)
		}
	}
}

func peerOf(tb testing.TB, seed byte) PeerID {
	tb.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string([]byte{seed}), ed25519.SeedSize)))
	p, err := PeerIDFromKey(key.Public().(ed25519.PublicKey))
	require.NoError(tb, err)
	return p
}

func TestPeerID(t *testing.T) {
	p := peerOf(t, 1)
	require.Len(t, p.String(), 52)
	require.True(t, strings.HasPrefix(p.String(), "12D3KooW"))
	require.Len(t, p.Key(), ed25519.PublicKeySize)
	back, err := PeerIDFromKey(p.Key())
	require.NoError(t, err)
	require.Equal(t, p, back)
	parsed, err := ParsePeerID(p.String())
	require.NoError(t, err)
	require.Equal(t, p, parsed)
	require.NotEqual(t, p, peerOf(t, 2))
	require.Nil(t, PeerID{}.Key())
	require.True(t, PeerID{}.IsZero())

	for label, s := range map[string]string{
		"empty":            "",
		"cut":              p.String()[:51],
		"longer":           p.String() + "1",
		"leading-one":      "1" + p.String(),
		"space":            " " + p.String(),
		"lower-case":       strings.ToLower(p.String()),
		"zero-digit":       strings.Replace(p.String(), "K", "0", 1),
		"rsa":              "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
		"cid":              "bafzaajaiaejcal72gwuz2or47oyxxn6b3rkwdmmkrxgkjxzy3rqt5kczyn7lcm3l",
		"base58-huge":      strings.Repeat("z", 1<<20),
		"multibase-prefix": "z" + p.String(),
	} {
		t.Run(label, func(t *testing.T) {
			got, err := ParsePeerID(s)
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Zero(t, got)
		})
	}
	_, err = ParsePeerID(strings.Repeat("z", 65))
	require.ErrorContains(t, err, "of at most 64 bytes", "no more than that is looked at")
	for _, b := range [][]byte{ // what begins like an ID and is none
		append(bytes.Clone(peerPrefix), make([]byte, 31)...),
		append(bytes.Clone(peerPrefix), make([]byte, 33)...),
		append([]byte{0x00, 0x24, 0x08, 0x02, 0x12, 0x20}, make([]byte, 32)...), // a secp256k1 key
		append([]byte{0x12, 0x24, 0x08, 0x01, 0x12, 0x20}, make([]byte, 32)...), // a hash
	} {
		_, err := ParsePeerID(base58.Encode(b))
		require.ErrorContains(t, err, peerRule, "%x", b)
	}
	for _, n := range []int{0, 31, 33, 64} {
		got, err := PeerIDFromKey(make([]byte, n))
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Zero(t, got)
	}
}

func requirePrintable(tb testing.TB, s string) {
	tb.Helper()
	for i := range len(s) {
		require.True(tb, ' ' <= s[i] && s[i] <= '~', "%q at %d", s, i)
	}
}

func TestQuote(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", `""`},
		{"issue.list", `"issue.list"`},
		{`a "b" \c`, `"a \"b\" \\c"`},
		{"\x1b[31mred\x00\x07\n", `"\x1b[31mred\x00\a\n"`},
		{"\u202egpj.exe", `"\u202egpj.exe"`},
		{"\u009b1m\u2028é😀", `"\u009b1m\u2028\u00e9\U0001f600"`},
		{"\xff\xc3", `"\xff\xc3"`},
		{strings.Repeat("a", MaxQuoted), `"` + strings.Repeat("a", MaxQuoted) + `"`},
		{strings.Repeat("a", MaxQuoted+1), `"` + strings.Repeat("a", MaxQuoted) + `"…`},
		{strings.Repeat("a", MaxQuoted-1) + "é", `"` + strings.Repeat("a", MaxQuoted-1) + `"…`},
		{strings.Repeat("a", MaxQuoted-3) + "😀", `"` + strings.Repeat("a", MaxQuoted-3) + `"…`},
	} {
		require.Equal(t, c.want, Quote(c.in), "%q", c.in)
	}
}

// FuzzQuote: whatever comes in, what goes out is short printable ASCII, but for
// the mark of a cut.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "\x1b]0;x\x07", "\u202e", "\xed\xa0\x80", strings.Repeat("\x80", 300), strings.Repeat("😀", 60)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := Quote(s)
		inner, cut := strings.CutSuffix(q, "…")
		require.Equal(t, len(s) > MaxQuoted, cut)
		requirePrintable(t, inner)
		require.LessOrEqual(t, len(q), 10*MaxQuoted+len(`""…`))
		require.True(t, len(inner) >= 2 && inner[0] == '"' && inner[len(inner)-1] == '"')
	})
}

// FuzzNames: what a kind accepts is printable ASCII, within its bounds, and reads
// as itself; what it refuses leaves nothing behind.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "github", "2.40.1", "a/b:c", "0123456789abcdef", "..", "a\x00", "аbc", strings.Repeat("a", 192)} {
		f.Add(s)
	}
	f.Add(peerOf(f, 1).String())
	f.Fuzz(func(t *testing.T, s string) {
		for label, k := range kinds() {
			v, err := k.parse(s)
			if err != nil {
				require.True(t, v.IsZero(), label)
				var invalid *InvalidError
				require.ErrorAs(t, err, &invalid, label)
				continue
			}
			require.Equal(t, s, v.String(), label)
			require.True(t, k.min <= len(s) && len(s) <= k.max, label)
			requirePrintable(t, s)
			require.NotContains(t, s, " ", label)
		}
		p, err := ParsePeerID(s)
		if err != nil {
			require.Zero(t, p)
			return
		}
		back, err := PeerIDFromKey(p.Key())
		require.NoError(t, err)
		require.Equal(t, s, back.String())
	})
}

func TestShow(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "",
		`refuse "a", want b~`:    `refuse "a", want b~`,
		"line\nbreak":            `"line\nbreak"`,
		"\x1b[31mred":            `"\x1b[31mred"`,
		"caf\u00e9":              `"caf\u00e9"`,
		"\u202eevil":             `"\u202eevil"`,
		"\x7f":                   `"\x7f"`,
		strings.Repeat("a", 201): `"` + strings.Repeat("a", 200) + `"…`,
	} {
		require.Equal(t, want, Show(in))
	}
}
