package compare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/name"
)

// Two patterns that people see as the same words are not said to be the same.
func TestBriefExcess(t *testing.T) {
	repo := must(name.ParseParameter("repo"))
	a, b := strings.Repeat("a", 41), strings.Repeat("b", 41)
	e := excess{
		aspect: aspectRange, parameter: repo,
		mine: string(review.Pattern("matching", a)), other: string(review.Pattern("matching", b)),
	}
	text := review.Prose(e.text(Wider))
	require.Equal(t, fmt.Sprintf("repo matching %q instead of matching %q", a, b), text.Long())
	require.Equal(t, "repo matching a pattern, not the same as before (--long says both)", text.Brief())
	e.other = string(review.Pattern("matching", "b"))
	require.Equal(t, `repo matching "b" instead of matching a pattern`, review.Prose(e.text(Narrower)).Brief())

	e = excess{aspect: aspectValues, parameter: repo}
	for i := range 9 {
		e.values = append(e.values, fmt.Sprint(i))
	}
	text = review.Prose(e.text(Wider))
	require.Equal(t, `repo also "0", "1", "2", "3", "4", "5", "6", "7" and 1 more`, text.Long())
	require.Equal(t, `repo also "0", "1", "2", … (9 in all)`, text.Brief())
	e.values = e.values[:6]
	require.NotContains(t, review.Prose(e.text(Wider)).Brief(), "in all")
}

// Each difference has both forms, and no mark of them is left in either.
func TestChangesHaveBothForms(t *testing.T) {
	before := must(parseBrief(`{repo: "` + strings.Repeat("[a-d]", 9) + `"}`))
	after := must(parseBrief(`{repo: {pattern: "` + strings.Repeat("[a-c]?", 9) + `"}}`))
	report := Policies(before, after, source{})
	require.NotEmpty(t, report)
	for _, c := range report {
		require.NotEmpty(t, c.Text)
		require.NotEmpty(t, c.Brief)
		require.NotContains(t, c.Text+c.Brief, "\x02")
		require.NotContains(t, c.Brief, "[a-c]?[a-c]?")
		require.NotEqual(t, c.Text, c.Brief)
	}
	gone := Policies(after, must(parseBrief("")), source{})
	require.NotEmpty(t, gone)
	for _, c := range gone {
		require.NotEmpty(t, c.Brief)
	}
}

// parseBrief reads a policy that narrows one command; without it, one without peers.
func parseBrief(narrowing string) (*policy.Policy, error) {
	text := "policy: 1\nissuers:\n  owner: {id: " + ownerID + ", connectors: any}\n"
	if narrowing != "" {
		text += "peers: {maria: " + mariaID + "}\nallow:\n  - {name: r, to: [maria], connector: alpha, version: \"1\", commands: {get: " + narrowing + "}}\n"
	}
	return policy.Parse("p", []byte(text))
}
