package preset

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
)

// declared returns the commands of a fragment.
func declared(t *testing.T, p Preset, v Values) map[string]argv.Declaration {
	t.Helper()
	f, err := p.Render(v)
	require.NoError(t, err)
	doc, err := strict.Parse("commands.yaml", []byte(f.Commands), 1<<20)
	require.NoError(t, err)
	require.NoError(t, doc.Err())
	var out struct {
		Commands map[string]map[string]argv.Declaration `json:"commands"`
	}
	require.NoError(t, doc.Root.Decode(&out))
	return out.Commands[p.Connector.String()]
}

// escapes are values with which one parameter could say more than itself: to the
// service's paths and queries, to the CLI's lists, files and programs.
var escapes = []string{
	"", " ", "-", "-x", "--x", "@x", "@/etc/passwd", "../x", "a/../b", "a/..", "..", "/x", "//", "x/", "https://evil.example", "file:/x", "x?y=z", "x&y=z", "x#y", "x%2f..", "x=y&z", "x;y", "x\"y", "x'y", "x\\y",
	"x{y", "{{.}}", "x[y", "x*", "$(id)", "`id`", "x<y", "x>y", "x!y", "x,y", "x~y", "x^y", "x(y", "x y:z", "x repo:other/one", "x\ty", "x\ny", "\u00e9", "x\u202ey", strings.Repeat("x", 600), strings.Repeat("1", 600),
}

// fits are escapes that a parameter takes: a page token is base64, and goes into a
// query that lark-cli encodes.
var fits = map[string][]string{"lark chat.messages page-token": {"x/"}, "lark chat.members page-token": {"x/"}}

// Each parameter of each preset is bound: by listed values, by a pattern that none of
// the escapes fits, by numbers, or it is a switch. What is pinned is required.
func TestEveryParameterIsBound(t *testing.T) {
	for _, p := range all(t) {
		v := full(p)
		var pinned []string
		for _, q := range p.Placeholders {
			pinned = append(pinned, q.Example)
		}
		for command, d := range declared(t, p, v) {
			at := p.Name + " " + command
			require.Equal(t, argv.EffectRead, d.Effect, at)
			require.NotEmpty(t, d.Summary, at)
			require.GreaterOrEqual(t, len(d.Arguments), 2, at)
			require.Nil(t, d.Rest, at)
			pins := 0
			for n, q := range d.Parameters {
				at := at + " " + n
				require.Empty(t, q.Env, at)
				require.Nil(t, q.Stdin, at)
				require.False(t, q.FreeText, at)
				require.Empty(t, q.Kind, at)
				require.True(t, q.Flag != "" || q.Position > 0, at)
				if len(q.Enum) == 1 && slices.Contains(pinned, text(q.Enum[0])) {
					require.True(t, q.Required, at)
					pins++
				}
				if q.Position > 0 && command != "release.view" {
					require.True(t, q.Required, at)
				}
				bound(t, at, q)
			}
			if command != "task.mine" {
				require.Positive(t, pins, "%s is pinned to nothing", at)
			}
		}
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func bound(t *testing.T, at string, q argv.ParameterDeclaration) {
	t.Helper()
	switch {
	case q.Type == argv.TypeBoolean:
		require.NotEqual(t, 2, len(q.Flag), "%s: a short switch has no false", at)
	case q.Type == argv.TypeInteger:
		require.NotNil(t, q.Minimum, at)
		require.GreaterOrEqual(t, *q.Minimum, 0.0, at)
		identifies := q.Position > 0 || q.Required
		require.True(t, identifies || q.Maximum != nil && *q.Maximum <= 1e6, at)
	case q.Enum != nil:
		for _, v := range q.Enum {
			require.Regexp(t, `^[A-Za-z0-9][A-Za-z0-9_./@-]*$`, text(v), at)
		}
	default:
		require.NotEmpty(t, q.Pattern, at)
		re := regexp.MustCompile(`^(?:` + q.Pattern + `)$`)
		for _, s := range escapes {
			require.Equal(t, slices.Contains(fits[at], s), re.MatchString(s), "%s: %q", at, s)
		}
	}
	if q.Separator != "" || q.Repeat != 0 {
		require.LessOrEqual(t, q.MaxItems+q.Repeat, 50, at)
	}
}
