package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/strict"
)

// corpus are files as people write them.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, pattern := range []string{"testdata/*.yaml", "../testdata/policies/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, p := range paths {
			data, err := os.ReadFile(p)
			require.NoError(t, err)
			out[filepath.Base(p)] = data
		}
	}
	return out
}

// Every span of a file, read by itself, is the same value.
func TestSpans(t *testing.T) {
	for file, data := range corpus(t) {
		t.Run(file, func(t *testing.T) {
			data, _ := Unix(data)
			s, err := Read(file, data)
			require.NoError(t, err)
			n := 0
			var walk func(*strict.Node)
			walk = func(v *strict.Node) {
				n++
				at := s.Span(v)
				text := s.Text[at.From:at.To]
				if (v.Kind == strict.Map || v.Kind == strict.List) && !s.Flow(v) {
					text = "\n" + indented(s, at)
				}
				if v.Quoted && (text[0] == '|' || text[0] == '>') {
					require.Contains(t, text, strings.SplitN(v.Text, "\n", 2)[0])
					return
				}
				doc, err := strict.Parse("span", []byte("v: "+text+"\n"), 1<<20)
				require.NoError(t, err, "%s", text)
				require.NoError(t, doc.Err(), "%s", text)
				require.True(t, strict.Equal(v, doc.Root.Get("v")), "%s", text)
				for i := range v.Values {
					if v.Kind == strict.Map {
						walk(v.Keys[i])
					}
					walk(v.Values[i])
				}
			}
			walk(s.Root)
			require.Greater(t, n, 2)
		})
	}
}

// indented is the text of a block with the space before it.
func indented(s *Source, at Span) string {
	pad := ""
	for range s.Column(at.From) + 1 {
		pad += " "
	}
	var b []byte
	line := s.Line(at.From)
	for i := at.From; i < at.To; i++ {
		if i == s.LineStart(line+1) {
			line++
			b = append(b, ' ')
		}
		b = append(b, s.Text[i])
	}
	return pad + string(b)
}
