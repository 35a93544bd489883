package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThreatsNameTests looks for each test that docs/threats.md names.
func TestThreatsNameTests(t *testing.T) {
	t.Parallel()
	rows := namedTests(t, "threats.md", regexp.MustCompile(`^\| \d+[a-z]? \|`))
	numbers := map[string]bool{}
	for _, cells := range rows {
		numbers[strings.TrimSpace(cells[1])] = true
	}
	require.Greater(t, len(rows), 54)
	for n := 1; n <= 54; n++ { // those of the study that the design began with
		checkf(t, numbers[strconv.Itoa(n)], "docs/threats.md has no row %d", n)
	}
}

// TestRuntimePromisesNameTests looks for each test that docs/runtime-acceptance.md names.
func TestRuntimePromisesNameTests(t *testing.T) {
	t.Parallel()
	rows := namedTests(t, "runtime-acceptance.md", regexp.MustCompile(`^\| `))
	require.Greater(t, len(rows), 75)
}

// namedTests returns the cells of the rows of a document's tables that match. The last
// one names tests, and scripts below e2e/testdata, which are looked for.
func namedTests(t *testing.T, document string, row *regexp.Regexp) (rows [][]string) {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", document))
	require.NoError(t, err)
	tests := map[string]bool{}
	for _, p := range loadPackages(t) {
		for _, f := range p.tests {
			for name := range f.Scope.Objects {
				tests[p.dir+"."+name] = true
			}
		}
	}
	for line := range strings.Lines(string(doc)) {
		if !row.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if strings.TrimSpace(cells[len(cells)-2]) == "test" {
			continue // the head of a table
		}
		rows = append(rows, cells)
		named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-2], -1)
		checkf(t, len(named) > 0, "row without a test: %s", line)
		for _, m := range named {
			if strings.HasSuffix(m[1], ".txtar") {
				_, err := os.Stat(filepath.Join("testdata", m[1]))
				checkf(t, err == nil, "no such script: %s", m[1])
				continue
			}
			checkf(t, tests[m[1]], "no such test: %s", m[1])
		}
	}
	return rows
}

// TestLinks looks for each file that a document links to.
func TestLinks(t *testing.T) {
	t.Parallel()
	root := repoRoot(t)
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	n := 0
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	for _, file := range append(docs, filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			_, err := os.Stat(filepath.Join(filepath.Dir(file), m[1]))
			checkf(t, err == nil, "%s links to %s, which is not there", filepath.Base(file), m[1])
		}
	}
	require.Greater(t, n, 15)
}

// TestDecisionsAreShort keeps the pages of docs/adr in their form.
func TestDecisionsAreShort(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(repoRoot(t), "docs", "adr", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	seen := map[string]string{}
	for _, file := range pages {
		base := filepath.Base(file)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		checkf(t, strings.Count(string(b), "\n") <= 40, "%s is longer than 40 lines", base)
		for _, part := range []string{"Context", "Decision", "Alternatives", "Consequences"} {
			checkf(t, strings.Contains(string(b), part), "%s has no %s", base, part)
		}
		number := base[:4]
		checkf(t, seen[number] == "", "%s and %s have one number", seen[number], base)
		seen[number] = base
	}
}
