package argv_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestContractFaults(t *testing.T) {
	good := func() argv.Contract { return argv.Contract{Command: "gh", Environment: []string{"ACME_A"}} }
	require.NoError(t, good().Validate())
	b, a := declare(t, "{}"), declare(t, "{}")
	a.Name, b.Name = mustCommand(t, "a"), mustCommand(t, "b")
	for label, c := range map[string]struct {
		change func(c *argv.Contract)
		path   string
	}{
		"no-command":       {func(c *argv.Contract) { c.Command = "" }, "command"},
		"command-path":     {func(c *argv.Contract) { c.Command = "../gh" }, "command"},
		"command-option":   {func(c *argv.Contract) { c.Command = "-gh" }, "command"},
		"command-long":     {func(c *argv.Contract) { c.Command = strings.Repeat("a", 65) }, "command"},
		"argument":         {func(c *argv.Contract) { c.Arguments = []string{"a", "\x1b"} }, "arguments[1]"},
		"argument-long":    {func(c *argv.Contract) { c.Arguments = []string{strings.Repeat("a", 4097)} }, "arguments[0]"},
		"timeout":          {func(c *argv.Contract) { c.Timeout = -1 }, "timeout"},
		"variable-twice":   {func(c *argv.Contract) { c.Environment = []string{"A", "A"} }, "environment[1]"},
		"variables-many":   {func(c *argv.Contract) { c.Environment = manyVariables(65) }, "environment"},
		"commands-order":   {func(c *argv.Contract) { c.Commands = []argv.Command{b, a} }, "commands.a"},
		"commands-twice":   {func(c *argv.Contract) { c.Commands = []argv.Command{a, a} }, "commands.a"},
		"command-inside":   {func(c *argv.Contract) { a := a; a.Effect = "x"; c.Commands = []argv.Command{a} }, "commands.a.effect"},
		"command-unnamed":  {func(c *argv.Contract) { c.Commands = []argv.Command{{}} }, "commands."},
		"parameter-no-nam": {func(c *argv.Contract) { c.Commands = []argv.Command{unnamed(a)} }, "commands.a.parameters."},
	} {
		t.Run(label, func(t *testing.T) {
			contract := good()
			c.change(&contract)
			faults := faultsOf(t, contract.Validate())
			require.Equal(t, c.path, faults[0].Path)
		})
	}
	contract := good()
	contract.Commands = make([]argv.Command, 257)
	for i := range contract.Commands {
		contract.Commands[i] = a
		contract.Commands[i].Name = mustCommand(t, fmt.Sprintf("c%03d", i))
	}
	require.Len(t, faultsOf(t, contract.Validate()), 1)
	contract.Commands = contract.Commands[:256]
	require.NoError(t, contract.Validate())
}

func unnamed(c argv.Command) argv.Command {
	c.Parameters = []argv.Parameter{{Position: 1, Schemas: []argv.Schema{{Type: argv.TypeInteger}}}}
	return c
}

func manyVariables(n int) []string {
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, fmt.Sprintf("V%d", i))
	}
	return out
}

func TestLookup(t *testing.T) {
	a := declare(t, "{arguments: [x]}")
	c := argv.Contract{Command: "gh", Commands: []argv.Command{a}}
	got, ok := c.Lookup(a.Name)
	require.True(t, ok)
	require.Equal(t, a, got)
	for _, n := range []name.Command{{}, mustCommand(t, "tes"), mustCommand(t, "test2")} {
		got, ok = c.Lookup(n)
		require.False(t, ok)
		require.Zero(t, got)
	}
}

// TestVariables: what may steer the child's loader, interpreter, shell or helper
// programs is nobody's to set from afar.
func TestVariables(t *testing.T) {
	for _, v := range []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "ld_preload", "DYLD_INSERT_LIBRARIES", "PATH", "Path", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV",
		"BASH_FUNC_x", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "npm_config_registry", "PYTHONPATH", "PYTHONSTARTUP", "PERL5LIB",
		"PERL5OPT", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "GIT_SSH_COMMAND",
		"GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT", "GIT_DIR", "GIT_EXEC_PATH", "SSH_ASKPASS", "PAGER", "GH_PAGER", "EDITOR", "GH_EDITOR",
		"VISUAL", "BROWSER", "GH_BROWSER", "LESSOPEN", "TMPDIR", "XDG_CONFIG_HOME", "GH_CONFIG_DIR", "HTTPS_PROXY", "https_proxy", "NO_PROXY",
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "OPENSSL_CONF", "GODEBUG", "GLIBC_TUNABLES", "GCONV_PATH", "HOSTALIASES",
		"LEND_AUTHORITY", "LEND_DIR", "TERM", "USERPROFILE", "COMSPEC", "PATHEXT", "DOTNET_STARTUP_HOOKS", "COR_PROFILER", "KUBECONFIG",
		"AWS_CONFIG_FILE", "DOCKER_CONFIG", "CLOUDSDK_CONFIG", "INPUTRC", "GNUPGHOME",
		"", "1A", "A-B", "A=B", "A B", "Ä", "A\x00", strings.Repeat("A", 129),
	} {
		t.Run(fmt.Sprintf("%.20q", v), func(t *testing.T) {
			c := argv.Contract{Command: "gh", Environment: []string{v}}
			faults := faultsOf(t, c.Validate())
			require.Len(t, faults, 1)
			require.Equal(t, "environment[0]", faults[0].Path)
		})
	}
	c := argv.Contract{Command: "gh", Environment: []string{"GH_REPO", "ACME_TOKEN", "GIT_AUTHOR_NAME", "GIT_COMMITTER_DATE", "_x", "FORMAT", strings.Repeat("A", 128)}}
	require.NoError(t, c.Validate())
}

func TestVariableMustBeListed(t *testing.T) {
	c := declare(t, "{parameters: {a: {env: ACME_A, free_text: true}}}")
	_, err := c.Compile(argv.Contract{Command: "tool", Environment: []string{"ACME_B", "acme_a"}})
	faults := faultsOf(t, err)
	require.Len(t, faults, 1)
	require.Equal(t, "parameters.a.env", faults[0].Path)
	require.NoError(t, c.Validate(argv.Contract{Command: "tool", Environment: []string{"ACME_A"}}))
}

// TestHandMadeCommands covers what a Declaration cannot spell.
func TestHandMadeCommands(t *testing.T) {
	flag := func(s ...argv.Schema) argv.Parameter {
		return argv.Parameter{Name: mustParameter(t, "a"), Flag: &argv.Flag{Name: "--a"}, Schemas: s}
	}
	str := argv.Schema{Type: argv.TypeString, FreeText: true}
	for label, c := range map[string]struct {
		parameters []argv.Parameter
		path       string
	}{
		"no-schema":         {[]argv.Parameter{flag()}, "parameters.a"},
		"no-type":           {[]argv.Parameter{flag(argv.Schema{})}, "parameters.a.type"},
		"types-differ":      {[]argv.Parameter{flag(str, argv.Schema{Type: argv.TypeInteger})}, "parameters.a.narrowed[0].type"},
		"later-schema-bad":  {[]argv.Parameter{flag(str, argv.Schema{Type: argv.TypeString, Pattern: "("})}, "parameters.a.narrowed[0].pattern"},
		"later-kind":        {[]argv.Parameter{flag(str, argv.Schema{Type: argv.TypeString, Kind: argv.KindPath})}, "parameters.a.narrowed[0].kind"},
		"declared-twice":    {[]argv.Parameter{flag(str), {Name: mustParameter(t, "a"), Position: 1, Schemas: []argv.Schema{str}}}, "parameters.a"},
		"not-a-number":      {[]argv.Parameter{flag(argv.Schema{Type: argv.TypeNumber, Minimum: ptr(math.NaN())})}, "parameters.a.minimum"},
		"infinite":          {[]argv.Parameter{flag(argv.Schema{Type: argv.TypeNumber, Maximum: ptr(math.Inf(1))})}, "parameters.a.maximum"},
		"enum-spelling":     {[]argv.Parameter{flag(argv.Schema{Type: argv.TypeNumber, Enum: []string{"1.0"}})}, "parameters.a.enum[0]"},
		"const-spelling":    {[]argv.Parameter{flag(argv.Schema{Type: argv.TypeInteger, Const: ptr("+1")})}, "parameters.a.const"},
		"enum-not-utf-8":    {[]argv.Parameter{flag(argv.Schema{Type: argv.TypeString, Enum: []string{"\xff"}})}, "parameters.a.enum[0]"},
		"repeat-not-a-list": {[]argv.Parameter{{Name: mustParameter(t, "a"), Flag: &argv.Flag{Name: "--a", Repeat: true}, Schemas: []argv.Schema{str}}}, "parameters.a"},
	} {
		t.Run(label, func(t *testing.T) {
			command := argv.Command{Name: mustCommand(t, "x"), Parameters: c.parameters}
			faults := faultsOf(t, command.Validate(argv.Contract{Command: "tool"}))
			require.Equal(t, c.path, faults[0].Path)
			g, err := command.Compile(argv.Contract{Command: "tool"})
			require.Error(t, err)
			require.Nil(t, g)
		})
	}
	require.Error(t, argv.Command{}.Validate(argv.Contract{Command: "tool"}))
	require.Error(t, declare(t, "{}").Validate(argv.Contract{}), "the contract's own faults count")

	many := argv.Command{Name: mustCommand(t, "x"), Timeout: time.Minute}
	for i := range 65 {
		many.Parameters = append(many.Parameters, argv.Parameter{
			Name: mustParameter(t, fmt.Sprintf("p%d", i)), Flag: &argv.Flag{Name: fmt.Sprintf("--p%d", i)}, Schemas: []argv.Schema{str},
		})
	}
	require.Len(t, faultsOf(t, many.Validate(argv.Contract{Command: "tool"})), 1)
	many.Parameters = many.Parameters[:64]
	require.NoError(t, many.Validate(argv.Contract{Command: "tool"}))
}
