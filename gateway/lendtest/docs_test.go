package lendtest_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/embedding.md again")

const embedding = "../../docs/embedding.md"

// TestEmbeddingPage: each block of the page is a piece of a test, which is compiled and
// runs with the package that it is in.
func TestEmbeddingPage(t *testing.T) {
	page, err := os.ReadFile(embedding)
	require.NoError(t, err)
	blocks := 0
	marked := regexp.MustCompile("(?s)<!-- ([a-z_/]+\\.go) ([a-z]+) -->\n```go\n(.*?)```\n")
	fresh := marked.ReplaceAllStringFunc(string(page), func(block string) string {
		m := marked.FindStringSubmatch(block)
		blocks++
		return "<!-- " + m[1] + " " + m[2] + " -->\n```go\n" + piece(t, m[1], m[2]) + "```\n"
	})
	require.Equal(t, strings.Count(string(page), "```go"), blocks, "a block without a test")
	require.Equal(t, strings.Count(string(page), "```"), 2*blocks)
	if *update {
		require.NoError(t, os.WriteFile(embedding, []byte(fresh), 0o600))
		return
	}
	require.Equal(t, fresh, string(page), "run: go test ./gateway/lendtest -run TestEmbeddingPage -update")
}

// piece is what a test has between "// doc: NAME" and "// end doc", less its indent.
func piece(t *testing.T, file, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(file)))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?ms)^(\t*)// doc: ` + name + `\n(.*?)^\t*// end doc$`).FindStringSubmatch(string(b))
	require.NotNil(t, m, "%s has no piece %s", file, name)
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(m[2], "\n") + "\n") {
		out.WriteString(strings.TrimPrefix(line, m[1]))
	}
	return out.String()
}
