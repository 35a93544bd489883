package compare

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

var update = flag.Bool("update", false, "rewrite golden files")

// lines writes a report as a terminal gets it, but for positions' files.
func lines(r Report) string {
	var b strings.Builder
	for _, c := range r {
		fmt.Fprintf(&b, "%s %s %s\n", c.Position, c.Effect, c.Text)
	}
	return b.String()
}

func TestSentences(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.Greater(t, len(paths), 10)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			require.NoError(t, err)
			require.Len(t, a.Files, 3)
			before, err := policy.Parse("old.yaml", a.Files[0].Data)
			require.NoError(t, err)
			after, err := policy.Parse("new.yaml", a.Files[1].Data)
			require.NoError(t, err)
			got := lines(Policies(before, after, source{}))
			if *update {
				a.Files[2].Data = []byte(got)
				require.NoError(t, os.WriteFile(path, txtar.Format(a), 0o644))
			}
			require.Equal(t, string(a.Files[2].Data), got)
			if got == "" {
				require.Empty(t, Policies(after, before, source{}), "nothing in the one direction is nothing in the other")
			}
		})
	}
}
