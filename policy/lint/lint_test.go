package lint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

type params map[string]argv.ParameterDeclaration

func command(t *testing.T, effect argv.Effect, fixed []string, rest *argv.Rest, ps params) argv.Command {
	t.Helper()
	n, err := name.ParseCommand("x")
	require.NoError(t, err)
	c, err := argv.Declaration{Effect: effect, Arguments: fixed, Rest: rest, Parameters: ps}.Command(n)
	require.NoError(t, err)
	return c
}

func bound(flag string) params {
	return params{"p": {Flag: flag, Pattern: "[a-z/]+"}}
}

func listed(flag string) params { return params{"p": {Flag: flag, Enum: []any{"a", "b"}}} }

func boolean(flag string) params { return params{"p": {Flag: flag, Type: argv.TypeBoolean}} }

func TestRisks(t *testing.T) {
	read, write := argv.EffectRead, argv.EffectWrite
	free := params{"p": {Position: 1, FreeText: true}}
	tail := &argv.Rest{MaxItems: 2, Pattern: "[a-z]+"}
	const none, warning, fatal = "none", "warning", "error"
	for title, c := range map[string]struct {
		cli    string
		effect argv.Effect
		fixed  []string
		rest   *argv.Rest
		params params
		want   string
	}{
		"gh-issue-list":          {"gh", read, []string{"issue", "list"}, nil, listed("--repo"), none},
		"sh":                     {"sh", read, []string{"-c"}, nil, free, fatal},
		"bash-script":            {"bash", read, []string{"/opt/x.sh"}, nil, nil, fatal},
		"busybox":                {"busybox", read, []string{"sh"}, nil, nil, fatal},
		"powershell":             {"powershell", read, []string{"-Command"}, nil, nil, fatal},
		"python-c":               {"python3", read, []string{"-c"}, nil, free, fatal},
		"python-tail":            {"python3", read, []string{"x.py"}, tail, nil, fatal},
		"python-script":          {"python3", read, []string{"x.py"}, nil, listed("--y"), warning},
		"node-e":                 {"node", read, []string{"-e", "1"}, nil, nil, fatal},
		"node-free":              {"node", read, nil, nil, params{"p": {Position: 1, Pattern: "[a-z]+"}}, fatal},
		"perl-flag":              {"perl", read, []string{"x.pl"}, nil, bound("-e"), fatal},
		"env":                    {"env", read, []string{"PATH=/x"}, nil, free, fatal},
		"env-bash":               {"env", read, []string{"bash"}, nil, nil, fatal},
		"xargs":                  {"xargs", read, []string{"-n", "1"}, tail, nil, fatal},
		"find-fixed":             {"find", read, []string{".", "-name"}, nil, listed("-name"), warning},
		"find-free":              {"find", read, []string{"."}, tail, nil, fatal},
		"ssh":                    {"ssh", read, []string{"host"}, nil, free, fatal},
		"sudo-python":            {"sudo", read, []string{"/usr/bin/python3", "x.py"}, nil, nil, fatal},
		"make":                   {"make", read, []string{"all"}, nil, nil, warning},
		"gh-alias":               {"gh", write, []string{"alias", "set"}, nil, nil, fatal},
		"gh-extension":           {"gh", write, []string{"extension", "install"}, nil, nil, fatal},
		"gh-api":                 {"gh", read, []string{"api"}, nil, listed("--method"), fatal},
		"gh-api-after-option":    {"gh", read, []string{"--paginate", "api"}, nil, nil, fatal},
		"gh-browse":              {"gh", read, []string{"browse"}, nil, nil, fatal},
		"gh-codespace":           {"gh", read, []string{"codespace", "ssh"}, nil, nil, fatal},
		"gh-auth-token":          {"gh", read, []string{"auth", "token"}, nil, nil, fatal},
		"gh-auth-status":         {"gh", read, []string{"auth", "status"}, nil, nil, warning},
		"gh-no-subcommand":       {"gh", read, nil, nil, listed("--x"), fatal},
		"gh-repo-pattern":        {"gh", read, []string{"issue", "list"}, nil, bound("--repo"), none},
		"gh-repo-free":           {"gh", read, []string{"issue", "list"}, nil, params{"p": {Flag: "--repo", FreeText: true}}, warning},
		"gh-web":                 {"gh", read, []string{"issue", "view"}, nil, boolean("--web"), fatal},
		"gh-web-off":             {"gh", read, []string{"issue", "view"}, nil, params{"p": {Flag: "--web", Type: argv.TypeBoolean, Const: false}}, none},
		"gh-web-alias":           {"gh", read, []string{"issue", "view"}, nil, params{"p": {Flag: "--site", Aliases: []string{"-w"}, Type: argv.TypeBoolean}}, fatal},
		"gh-web-in-fixed":        {"gh", read, []string{"issue", "view", "--web"}, nil, nil, warning},
		"jq":                     {"gh", read, []string{"issue", "list"}, nil, bound("--jq"), fatal},
		"jq-listed":              {"gh", read, []string{"issue", "list"}, nil, listed("--jq"), none},
		"template":               {"gh", read, []string{"issue", "list"}, nil, bound("--template"), fatal},
		"editor":                 {"tool", read, []string{"x"}, nil, bound("--editor"), fatal},
		"pager":                  {"tool", read, []string{"x"}, nil, bound("--pager"), fatal},
		"exec":                   {"tool", read, []string{"x"}, nil, bound("--exec"), fatal},
		"upload-pack":            {"git", read, []string{"ls-remote"}, nil, bound("--upload-pack"), fatal},
		"git-c":                  {"git", read, []string{"log"}, nil, bound("-c"), fatal},
		"git-C-number":           {"git", read, []string{"log"}, nil, params{"p": {Flag: "-C", Type: argv.TypeInteger}}, none},
		"git-C-path":             {"git", read, []string{"log"}, nil, bound("-C"), fatal},
		"git-config":             {"git", write, []string{"config"}, nil, nil, fatal},
		"git-after-fixed-option": {"git", read, []string{"-c", "core.hooksPath=/dev/null", "log"}, nil, nil, none},
		"config":                 {"tool", read, []string{"x"}, nil, bound("--config"), fatal},
		"hostname":               {"tool", read, []string{"x"}, nil, bound("--hostname"), fatal},
		"output-free":            {"tool", read, []string{"x"}, nil, params{"p": {Flag: "--output", FreeText: true}}, warning},
		"output-listed":          {"tool", read, []string{"x"}, nil, listed("--output"), none},
		"file":                   {"tool", read, []string{"x"}, nil, params{"p": {Flag: "--file", FreeText: true}}, warning},
		"file-in-workspace":      {"tool", read, []string{"x"}, nil, params{"p": {Flag: "--file", Kind: argv.KindPath}}, none},
		"verbose":                {"tool", read, []string{"x"}, nil, boolean("--verbose"), warning},
		"variable-repo":          {"gh", read, []string{"issue", "list"}, nil, params{"p": {Env: "GH_REPO", Pattern: "[a-z/]+"}}, fatal},
		"variable-repo-listed":   {"gh", read, []string{"issue", "list"}, nil, params{"p": {Env: "GH_REPO", Enum: []any{"a/b"}}}, none},
		"variable-own":           {"tool", read, []string{"x"}, nil, params{"p": {Env: "TOOL_TITLE", Pattern: "[a-z]+"}}, none},
		"rest":                   {"tool", read, []string{"x"}, tail, nil, warning},
		"write-free-text":        {"tool", write, []string{"x"}, nil, params{"p": {Flag: "--text", FreeText: true}, "q": {Flag: "--to", Required: true, Const: "a"}}, warning},
		"write-bound-text":       {"tool", write, []string{"x"}, nil, params{"p": {Flag: "--text", Pattern: "[a-z ]+"}, "q": {Flag: "--to", Required: true, Const: "a"}}, none},
		"write-without-resource": {"tool", write, []string{"x"}, nil, bound("--to"), warning},
		"write-optional-pin":     {"tool", write, []string{"x"}, nil, params{"p": {Flag: "--text", Pattern: "[a-z ]+"}, "q": {Flag: "--to", Const: "a"}}, warning},
		"write-fixed":            {"tool", write, []string{"x"}, nil, nil, none},
		"write-from-stdin":       {"tool", write, []string{"x"}, nil, params{"p": {Stdin: &argv.Stdin{}}}, none},
		"stripe-listen":          {"stripe", read, []string{"listen"}, nil, nil, fatal},
		"stripe-post":            {"stripe", write, []string{"post", "/v1/x"}, nil, nil, fatal},
		"lark-api":               {"lark-cli", read, []string{"api"}, nil, nil, fatal},
		"gh-run-steps":           {"gh", read, []string{"run", "view"}, nil, boolean("--verbose"), none},
		"gh-run-log":             {"gh", read, []string{"run", "view"}, nil, boolean("--log"), warning},
		"gh-search":              {"gh", read, []string{"issue", "list"}, nil, params{"p": {Flag: "--search", FreeText: true}}, warning},
		"gh-search-command":      {"gh", read, []string{"search", "issues"}, nil, nil, warning},
		"gh-url-position":        {"gh", read, []string{"issue", "view"}, nil, params{"p": {Position: 1, Pattern: "[a-z0-9:/.]+"}}, warning},
		"gh-number":              {"gh", read, []string{"issue", "view"}, nil, params{"p": {Position: 1, Type: argv.TypeInteger}}, none},
		"gh-tag-climbs":          {"gh", read, []string{"release", "view"}, nil, params{"p": {Position: 1, Pattern: "[a-z0-9./]+"}}, warning},
		"gh-tag":                 {"gh", read, []string{"release", "view"}, nil, params{"p": {Position: 1, Pattern: "v[0-9.]+"}}, none},
		"gh-short-tag":           {"gh", read, []string{"release", "view"}, nil, params{"p": {Position: 1, Pattern: "[a-z0-9./]+", MaxLength: new(9)}}, none},
		"stripe-config":          {"stripe", read, []string{"config", "--list"}, nil, nil, fatal},
		"stripe-switch":          {"stripe", write, []string{"switch"}, nil, nil, fatal},
		"stripe-intents":         {"stripe", read, []string{"payment_intents", "list"}, nil, nil, warning},
		"stripe-expand":          {"stripe", read, []string{"charges", "list"}, nil, params{"p": {Flag: "--expand", FreeText: true}}, warning},
		"stripe-data":            {"stripe", read, []string{"charges", "list"}, nil, bound("-d"), fatal},
		"stripe-id-climbs":       {"stripe", read, []string{"charges", "retrieve"}, nil, params{"p": {Position: 1, Pattern: "[a-z./]+"}}, warning},
		"stripe-id":              {"stripe", read, []string{"charges", "retrieve"}, nil, params{"p": {Position: 1, Pattern: "ch_[A-Za-z0-9]+"}}, none},
		"stripe-headers":         {"stripe", read, []string{"charges", "list"}, nil, boolean("--show-headers"), warning},
		"stripe-account":         {"stripe", read, []string{"charges", "list"}, nil, listed("--stripe-account"), none},
		"lark-auth":              {"lark-cli", read, []string{"auth", "status"}, nil, nil, fatal},
		"lark-profile":           {"lark-cli", read, []string{"profile", "list"}, nil, nil, fatal},
		"lark-params":            {"lark-cli", read, []string{"calendar", "events", "list"}, nil, bound("--params"), fatal},
		"lark-doc-url":           {"lark-cli", read, []string{"docs", "+fetch"}, nil, params{"p": {Flag: "--doc", FreeText: true}}, warning},
		"lark-doc":               {"lark-cli", read, []string{"docs", "+fetch"}, nil, listed("--doc"), none},
		"lark-filter":            {"lark-cli", read, []string{"base", "+record-list"}, nil, params{"p": {Flag: "--filter-json", FreeText: true}}, warning},
		"reveal":                 {"tool", read, []string{"x"}, nil, boolean("--reveal"), fatal},
		"kubectl-exec":           {"kubectl", read, []string{"exec"}, nil, nil, fatal},
		"aws-execute":            {"aws", read, []string{"ecs", "execute-command"}, nil, nil, fatal},
	} {
		t.Run(title, func(t *testing.T) {
			got := none
			for _, r := range Command(c.cli, nil, command(t, c.effect, c.fixed, c.rest, c.params)) {
				require.NotEmpty(t, r.Message)
				require.NotEmpty(t, r.Hint)
				if r.Error {
					got = fatal
				} else if got == none {
					got = warning
				}
			}
			require.Equal(t, c.want, got, "%v", Command(c.cli, nil, command(t, c.effect, c.fixed, c.rest, c.params)))
		})
	}
}

func TestPrefixCounts(t *testing.T) {
	c := command(t, argv.EffectRead, []string{"x"}, nil, nil)
	require.Empty(t, Command("gh", []string{"issue"}, c))
	require.NotEmpty(t, Command("gh", []string{"alias"}, c))
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"gh": "gh", "/usr/bin/gh": "gh", `C:\bin\GH.EXE`: "gh", "x/bash": "bash", "tool.js": "tool",
	} {
		require.Equal(t, want, Name(in, "key"))
	}
	require.Equal(t, "key", Name("", "key"))
}

func TestReadsPaths(t *testing.T) {
	require.True(t, ReadsPaths(command(t, argv.EffectRead, []string{"x"}, nil, params{"p": {Position: 1, Kind: argv.KindPath}})))
	require.False(t, ReadsPaths(command(t, argv.EffectRead, []string{"x"}, nil, bound("--x"))))
}

func TestPinned(t *testing.T) {
	c := command(t, argv.EffectRead, []string{"x"}, nil, params{"a": {Flag: "--a", Const: "x"}, "b": {Flag: "--b", Pattern: "x"}})
	require.True(t, Pinned(c.Parameters[0]))
	require.False(t, Pinned(c.Parameters[1]))
}

func TestTables(t *testing.T) {
	for cli, vs := range verbs {
		require.Equal(t, cli, Name(cli, ""))
		for v, d := range vs {
			require.NotEmpty(t, d.why, v)
		}
	}
	for o, d := range options {
		require.Regexp(t, `^--?[a-zA-Z-]+$`, o)
		require.NotEmpty(t, d.why, o)
	}
	for v := range variables {
		require.Regexp(t, `^[A-Z0-9_]+$`, v)
	}
}
