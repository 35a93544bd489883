package protocol

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	ruleDefinition = regexp.MustCompile(`(?m)^- \[([A-Z]+-[0-9]+)\]`)
	ruleCitation   = regexp.MustCompile(`spec:((?:\s*(?://)?\s*(?:and )?[A-Z]+-[0-9]+(?: to [A-Z]+-[0-9]+)?,?)+)`)
	ruleID         = regexp.MustCompile(`[A-Z]+-[0-9]+`)
)

// TestSpecIsCited: each rule of docs/protocol.md is cited by a test, and each
// citation is of a rule that is there.
func TestSpecIsCited(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	cited := map[string]bool{}
	for _, m := range ruleDefinition.FindAllSubmatch(page, -1) {
		require.NotContains(t, cited, string(m[1]), "defined twice")
		cited[string(m[1])] = false
	}
	require.Greater(t, len(cited), 30)
	family := map[string]bool{} // others are of other pages
	for id := range cited {
		family[strings.Split(id, "-")[0]] = true
	}
	for _, dir := range []string{".", "../gateway"} {
		eachGoFile(t, dir, func(path, text string) {
			for _, m := range ruleCitation.FindAllStringSubmatch(text, -1) {
				for _, id := range ruleID.FindAllString(m[1], -1) {
					if !family[strings.Split(id, "-")[0]] {
						continue
					}
					require.Contains(t, cited, id, "%s cites a rule that is not there", path)
					cited[id] = cited[id] || strings.HasSuffix(path, "_test.go")
				}
			}
		})
	}
	for id, ok := range cited {
		require.True(t, ok, "no test cites %s", id)
	}
}

func eachGoFile(t *testing.T, dir string, do func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		b, err := os.ReadFile(path)
		do(path, string(b))
		return err
	})
	require.NoError(t, err)
}
