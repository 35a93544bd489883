package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecification: every rule of docs/ledger.md is cited by code and by a test,
// and every citation names a rule.
func TestSpecification(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "ledger.md"))
	require.NoError(t, err)
	rules := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^- \[(LEDGER-\d+)\]`).FindAllStringSubmatch(string(doc), -1) {
		require.False(t, rules[m[1]], "%s is there twice", m[1])
		rules[m[1]] = true
	}
	require.NotEmpty(t, rules)
	for _, m := range regexp.MustCompile(`\[(LEDGER-\d+)\]`).FindAllStringSubmatch(string(doc), -1) {
		require.True(t, rules[m[1]], "docs/ledger.md refers to %s", m[1])
	}
	code, tests := make(map[string]bool), make(map[string]bool)
	for _, pattern := range []string{"*.go", "*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			into := code
			if strings.HasSuffix(file, "_test.go") {
				into = tests
			}
			cite(t, file, into)
		}
	}
	for r := range rules {
		require.True(t, code[r], "no code cites %s", r)
		require.True(t, tests[r], "no test cites %s", r)
	}
	for _, cited := range []map[string]bool{code, tests} {
		for r := range cited {
			require.True(t, rules[r], "%s is cited but is no rule", r)
		}
	}
}

// cite collects the rules behind "spec: ", of which "A to B" is a range.
func cite(t *testing.T, file string, into map[string]bool) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	text := regexp.MustCompile(`\n\s*// ?`).ReplaceAllString(string(b), " ")
	for _, m := range regexp.MustCompile(`spec: ((?:LEDGER-\d+(?:, | to )?)+)`).FindAllStringSubmatch(text, -1) {
		for part := range strings.SplitSeq(m[1], ", ") {
			from, to, ranged := strings.Cut(part, " to ")
			if !ranged {
				into[part] = true
				continue
			}
			for n := number(t, from); n <= number(t, to); n++ {
				into[fmt.Sprintf("LEDGER-%d", n)] = true
			}
		}
	}
	delete(into, "")
}

func number(t *testing.T, rule string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(rule, "LEDGER-"))
	require.NoError(t, err)
	return n
}
