package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const fixture = `package p

func admit(a, b bool, list []int) error {
	if a || b && !a {
		return errNo
	}
	if err := check(); err != nil {
		return err
	}
	for _, x := range list {
		if x == 1 && b {
			return nil
		}
		if x == 2 {
			continue
		}
	}
	if a {
		log()
	}
	switch {
	case b, !a:
		return fmt.Errorf("no")
	default:
		return other()
	}
}

func trusted(a, b bool) bool { return a && (b || !a) }

func revoked(a, b bool) bool {
	if a {
		return true
	}
	return b || a
}

func covers(a bool) (int, Reason) {
	if a {
		return 1, ReasonInternal
	}
	return 0, ReasonRule
}

func recheck(a bool) {
	if a {
		op.Cancel(1)
	}
	go func() error {
		if a {
			return errNo
		}
		return nil
	}()
}

func nested(a, b, c bool) error {
	if a && (b || !c) {
		return errNo
	}
	return nil
}

func later(a, b bool) (err error) {
	if a {
		err = errors.New("no")
	}
	if b {
		err = nil
	}
	if err == nil {
		err = check()
	}
	return err
}

func fault(a bool) Fault {
	if a {
		return FaultNo
	}
	return ""
}

func says(a bool) (at, rule string) {
	if a {
		return "x", "wrong"
	}
	return "", ""
}

func one(a, b bool) error {
	switch {
	case a && b:
		return nil
	default:
		return errNo
	}
}

func chosen(a int, b any) error {
	switch a {
	case 1, 2:
		return errNo
	case 3:
		return nil
	}
	switch b.(type) {
	case int:
		return errNo
	default:
		return errNo
	}
	switch {
	case a == 1:
		log()
	default:
		return errNo
	}
	return nil
}

func shows(a bool) string {
	if a {
		return "yes"
	}
	return "no"
}

func bounded(a, b int) int { return min(max(a, 0), b) }

func take(a bool) (Outcome, error) {
	if a {
		return Outcome{State: conflict}, nil
	}
	return Outcome{}, nil
}

func skipped(a bool) error {
	if a {
		return errNo
	}
	return nil
}
`

func TestGuardsAreFound(t *testing.T) {
	t.Parallel()
	found, err := find(part{dir: "p", denies: []string{"revoked"}, says: []string{"says"}, bounds: []string{"bounded"}, skip: []string{"skipped"}}, "p.go", []byte(fixture))
	require.NoError(t, err)
	var keys []string
	for i, g := range found {
		g.ID = i + 1
		mark := " removed"
		if g.pass {
			mark = " passes"
		}
		keys = append(keys, strings.TrimPrefix(g.Key, "p.")+mark)
		require.Equal(t, g.Line, 1+strings.Count(fixture[:g.start], "\n"))
	}
	require.Equal(t, []string{
		"admit: a removed", "admit: b && !a removed", "admit: err != nil removed",
		"admit: x == 2 removed", "admit: b removed", "admit: !a removed",
		"trusted: a passes", "trusted: (b || !a) passes",
		"revoked: a removed", "revoked: b removed", "revoked: a removed",
		"covers: a passes",
		"recheck: a removed", "recheck: a removed",
		"nested: a && (b || !c) removed", "nested: b removed", "nested: !c removed",
		"later: a removed", "later: err == nil removed",
		"fault: a removed", "says: a removed", "one: a passes", "one: b passes",
		"chosen: case 1 removed", "chosen: case int removed", "chosen: default removed", "chosen: default removed",
		"bounded: min(max(a, 0), b) without max(a, 0) removed", "bounded: min(max(a, 0), b) without b removed",
		"bounded: max(a, 0) without a removed", "bounded: max(a, 0) without 0 removed",
		"take: a removed",
	}, keys)

	out := string(switched([]byte(fixture), found))
	_, err = parser.ParseFile(token.NewFileSet(), "p.go", out, 0)
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "if ((a) && !lendTaken(1)) || ((b && !a) && !lendTaken(2)) {")
	require.Contains(t, out, "return ((a) || lendTaken(7)) && (((b || !a)) || lendTaken(8))")
	require.Contains(t, out, "return lendBound(28, lendBound(29, min(lendBound(30, lendBound(31, max(a, 0), a), 0), b), max(a, 0)), b)")
	require.Contains(t, out, "case 1, 2: if lendTaken(24) { break };\n\t\treturn errNo")
	require.Equal(t, strings.Count(fixture, "\n"), strings.Count(out, "\n"), "lines stay where they are")
}

// TestGuardsOfTheTree: there are many, they are named once, and what may survive is
// among them.
func TestGuardsOfTheTree(t *testing.T) {
	t.Parallel()
	root, err := findRoot()
	require.NoError(t, err)
	guards, err := findAll(root)
	require.NoError(t, err)
	require.Greater(t, len(guards), 300)
	known := map[string]bool{}
	for _, g := range guards {
		require.False(t, known[g.Key], g.Key)
		known[g.Key] = true
	}
	for _, must := range []string{
		"gateway.stop: e.verified.Revoked(n.verifier.Revoked)", "policy.refuseLease: !i.MayName(r.Peer)", "gateway/admin.admit: who.User != 0 && who.User != os.Getuid()",
	} {
		require.True(t, known[must], must)
	}
	allowed, err := readAllowed(filepath.Join(root, "e2e", "mutate", "allowed.txt"))
	require.NoError(t, err)
	stale := 0
	for key := range allowed { // the run itself fails for these
		if !known[key] {
			stale++
			t.Logf("allowed.txt names %s, which is no guard", key)
		}
	}
	require.LessOrEqual(t, stale, len(allowed)/4, "allowed.txt is about another tree")
	for _, p := range path() {
		require.True(t, strings.HasPrefix(guardIn(guards, p.dir), p.dir+"."), "no guard in %s", p.dir)
	}
}

func guardIn(guards []*guard, dir string) string {
	for _, g := range guards {
		if g.dir == dir {
			return g.Key
		}
	}
	return ""
}
