package compare

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

// declared is a policy that declares one command.
func declared(t *testing.T, file, declaration, rule string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(file, []byte("policy: 1\nissuers: {owner: {id: "+ownerID+", connectors: any}}\npeers: {maria: "+mariaID+"}\nworkspaces: {site: {path: /srv/site}}\n"+
		"commands: {beta: {do: {arguments: [do], "+declaration+"}}}\nallow: [{name: r, to: [maria], connector: beta, version: \"1\", commands: {do: {}}"+rule+"}]\n"))
	require.NoError(t, err)
	return p
}

// What one declaration accepts beyond another, aspect by aspect, is said in both
// directions.
func TestAspects(t *testing.T) {
	const both = "maria may run beta do (version 1) "
	for _, c := range []struct {
		name, old, new   string
		forward, reverse []string
	}{
		{
			"end of options", "end_of_options: true", "end_of_options: false",
			[]string{`~ differently: it runs "do" instead of "do" and "--" before positions.`},
			[]string{`~ differently: it runs "do" and "--" before positions instead of "do".`},
		},
		{
			"tail", `rest: {max_items: 1, pattern: "a+"}`, `rest: {max_items: 2, pattern: "a+"}`,
			[]string{`+ in more ways: further arguments up to 2 that match "a+" instead of up to 1 that match "a+".`},
			[]string{`- in fewer ways: further arguments up to 1 that match "a+" instead of up to 2 that match "a+".`},
		},
		{
			"tail pattern", `rest: {max_items: 2, pattern: "a+"}`, `rest: {max_items: 2, pattern: "b+"}`,
			[]string{`~ differently: further arguments up to 2 that match "b+" instead of up to 2 that match "a+".`},
			[]string{`~ differently: further arguments up to 2 that match "a+" instead of up to 2 that match "b+".`},
		},
		{
			"tail and position", `rest: {max_items: 2, pattern: "a+"}, parameters: {p: {position: 1, enum: [b], required: true}}`, `rest: {max_items: 2, pattern: "a+"}`,
			[]string{"+ in more ways: further arguments after 0 positions instead of after 1 position; p may be left out.", "-"},
			nil,
		},
		{
			"text", `parameters: {in: {stdin: {text: true}}}`, `parameters: {in: {stdin: {text: false}}}`,
			[]string{"+ in more ways: in any bytes instead of text."},
			[]string{"- in fewer ways: in text instead of any bytes."},
		},
		{
			"items", `parameters: {p: {flag: --p, repeat: 2, enum: [a]}}`, `parameters: {p: {flag: --p, repeat: 3, enum: [a]}}`,
			[]string{"+ in more ways: p up to 3 times instead of up to 2 times."},
			[]string{"- in fewer ways: p up to 2 times instead of up to 3 times."},
		},
		{
			"fewest items", `parameters: {p: {flag: --p, repeat: 3, min_items: 2, enum: [a]}}`, `parameters: {p: {flag: --p, repeat: 3, min_items: 1, enum: [a]}}`,
			[]string{"+ in more ways: p 1 to 3 times instead of 2 to 3 times."},
			[]string{"- in fewer ways: p 2 to 3 times instead of 1 to 3 times."},
		},
		{
			"flag", `parameters: {p: {flag: --p, enum: [a]}}`, `parameters: {p: {flag: --q, enum: [a]}}`,
			[]string{"~ differently: p is the option --q (string) instead of the option --p (string)."},
			[]string{"~ differently: p is the option --p (string) instead of the option --q (string)."},
		},
		{
			"variable", `parameters: {p: {env: ONE, enum: [a]}}`, `parameters: {p: {env: OTHER, enum: [a]}}`,
			[]string{"~ differently: p is the variable OTHER (string) instead of the variable ONE (string)."},
			[]string{"~ differently: p is the variable ONE (string) instead of the variable OTHER (string)."},
		},
		{
			"positions", `parameters: {p: {position: 1, enum: [a]}, q: {position: 2, enum: [a]}}`, `parameters: {p: {position: 2, enum: [a]}, q: {position: 1, enum: [a]}}`,
			[]string{"~ differently: p is position 2 (string) instead of position 1 (string); q is position 1 (string) instead of position 2 (string)."},
			[]string{"~ differently: p is position 1 (string) instead of position 2 (string); q is position 2 (string) instead of position 1 (string)."},
		},
		{
			"type", `parameters: {p: {flag: --p, type: integer, enum: [1]}}`, `parameters: {p: {flag: --p, enum: ["1"]}}`,
			[]string{"~ differently: p is the option --p (string) instead of the option --p (integer)."},
			[]string{"~ differently: p is the option --p (integer) instead of the option --p (string)."},
		},
		{
			"empty", `parameters: {p: {flag: --p, pattern: "a*"}}`, `parameters: {p: {flag: --p, pattern: "a*", min_length: 0}}`,
			[]string{`+ in more ways: p matching "a*", or empty instead of matching "a*".`},
			[]string{`- in fewer ways: p matching "a*" instead of matching "a*", or empty.`},
		},
		{
			"path", `parameters: {p: {flag: --p, kind: path, pattern: "a+"}}`, `parameters: {p: {flag: --p, pattern: "a+"}}`,
			[]string{`~ differently: p matching "a+" instead of a path in the workspace.`},
			[]string{`~ differently: p a path in the workspace instead of matching "a+".`},
		},
		{
			"list to pattern", `parameters: {p: {flag: --p, enum: [a]}}`, `parameters: {p: {flag: --p, pattern: "a+"}}`,
			[]string{`+ in more ways: p matching "a+" instead of "a".`},
			[]string{`- in fewer ways: p "a" instead of matching "a+".`},
		},
		{
			"list within a pattern", `parameters: {p: {flag: --p, pattern: "a+"}}`, `parameters: {p: {flag: --p, enum: [a, aa, b]}}`,
			[]string{`+ in more ways: p also "b".`, "-"},
			nil,
		},
		{
			"an option as a value", `parameters: {p: {flag: --p, pattern: "-?a"}}`, `parameters: {p: {flag: --p, enum: ["-a", a]}}`,
			[]string{`+ in more ways: p also "-a".`, "-"},
			nil,
		},
		{
			"least length", `parameters: {p: {flag: --p, pattern: "a+", min_length: 3}}`, `parameters: {p: {flag: --p, pattern: "a+", min_length: 2}}`,
			[]string{`+ in more ways: p matching "a+", at least 2 characters instead of matching "a+", at least 3 characters.`},
			[]string{`- in fewer ways: p matching "a+", at least 3 characters instead of matching "a+", at least 2 characters.`},
		},
		{
			"minimum", `parameters: {p: {flag: --p, type: number, minimum: 2.5}}`, `parameters: {p: {flag: --p, type: number, minimum: 1}}`,
			[]string{`+ in more ways: p 1 or more instead of 2.5 or more.`},
			[]string{`- in fewer ways: p 2.5 or more instead of 1 or more.`},
		},
		{
			"whole numbers one by one", `parameters: {p: {flag: --p, type: integer, enum: [1, 2, 3]}}`, `parameters: {p: {flag: --p, type: integer, minimum: 1, maximum: 4}}`,
			[]string{`+ in more ways: p also "4".`},
			[]string{`- in fewer ways: p no longer "4".`},
		},
		{"the same in other words", `parameters: {p: {flag: --p, type: integer, minimum: 1, maximum: 3}}`, `parameters: {p: {flag: --p, type: integer, enum: [3, 2, 1]}}`, []string{}, []string{}},
		{"booleans", `parameters: {p: {flag: --p, type: boolean, enum: [true, false]}}`, `parameters: {p: {flag: --p, type: boolean}}`, []string{}, []string{}},
		{"nothing to say", `parameters: {p: {flag: --p, type: integer, minimum: 1, enum: [0]}}`, "effect: write", []string{}, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule := ""
			if strings.Contains(c.old, "path") {
				rule = ", workspace: site"
			}
			before, after := declared(t, "old.yaml", c.old, rule), declared(t, "new.yaml", c.new, rule)
			for i, want := range [][]string{c.forward, c.reverse} {
				if i == 1 {
					before, after = after, before
				}
				got := []string{}
				for _, change := range Policies(before, after, source{}) {
					got = append(got, map[Effect]string{Wider: "+ ", Narrower: "- ", Changed: "~ "}[change.Effect]+strings.TrimPrefix(strings.Replace(change.Text, ", in the workspace site", "", 1), both))
				}
				if want == nil {
					require.NotEmpty(t, got, "the other direction differs as well")
					continue
				}
				for k := range min(len(want), len(got)) {
					if len(want[k]) == 1 { // only the direction
						got[k] = got[k][:1]
					}
				}
				require.Equal(t, want, got)
			}
		})
	}
}

// A parameter that accepts nothing is none; a command that requires it is none.
func TestVoid(t *testing.T) {
	void := `parameters: {p: {flag: --p, kind: path, required: true}}`
	none := declared(t, "old.yaml", "effect: write", "")
	report := Policies(none, declared(t, "new.yaml", void, ""), source{})
	require.Len(t, report, 1)
	require.Equal(t, Narrower, report[0].Effect, "without a workspace the command cannot run: %v", report)
	require.False(t, report.Widens())
	require.True(t, Policies(none, declared(t, "new.yaml", void, ", workspace: site"), source{}).Widens())
	optional := declared(t, "new.yaml", `parameters: {p: {flag: --p, kind: path}}`, "")
	require.Empty(t, Policies(none, optional, source{}))
}
