package surface

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const policy = `policy: 1
peers: {maria: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j}
commands:
  tool:
    all:
      effect: write
      arguments: [all]
      timeout: 90s
      end_of_options: true
      rest: {max_items: 2, pattern: "[a-z]+"}
      parameters:
        level: {flag: --level, aliases: [-l], render: space, type: integer, minimum: -1, maximum: 9}
        ratio: {flag: --ratio, type: number, minimum: 0.25}
        tag: {flag: --tag, repeat: 3, pattern: "[a-z]{1,9}", min_length: 1, max_length: 9}
        fields: {flag: --fields, separator: ",", max_items: 2, enum: [a, b]}
        dry: {flag: --dry, type: boolean, const: true}
        file: {position: 1, required: true, kind: path}
        note: {stdin: {max_bytes: 4096, text: true}}
        title: {env: TITLE, free_text: true, max_length: 20}
workspaces: {w: {path: /w}}
allow:
  - {name: a rule, to: [maria], connector: tool, version: "1", workspace: w, connection: work, commands: {all: {level: {maximum: 3}}}}
  - {name: without a workspace, to: [maria], connector: tool, version: "1", commands: {all: {}}}
`

func make2(t testing.TB) (bound, loose *Surface) {
	t.Helper()
	f, err := file.Parse("p", []byte(policy))
	require.NoError(t, err)
	v, err := name.ParseVersion("1")
	require.NoError(t, err)
	contract := argv.Contract{Command: "tool", Arguments: []string{"--quiet"}, Environment: []string{"TITLE"}}
	var out []*Surface
	for _, r := range f.Rules {
		s, err := Make(f, r, r.Commands[0], v, contract, "sha256:x")
		require.NoError(t, err)
		out = append(out, s)
	}
	return out[0], out[1]
}

// Everything that a command can have is kept, and accepts the same after it was
// read again.
func TestEverythingIsKept(t *testing.T) {
	s, _ := make2(t)
	again, err := Parse(s.Marshal())
	require.NoError(t, err)
	require.Equal(t, s.Marshal(), again.Marshal())
	require.Equal(t, s.Limits(), again.Limits())
	require.Equal(t, s.Target(), again.Target())
	require.Equal(t, "work", again.Connection().String())
	require.Equal(t, "w", again.Workspace().String())
	require.Equal(t, "a rule", again.Rule())
	require.Equal(t, "sha256:x", again.ContractHash())
	require.Equal(t, 90*time.Second, again.Limits().Run)
	require.Len(t, again.Command().Parameters, len(s.Command().Parameters))
	for _, args := range [][]string{
		{"a/b"},
		{"--level", "3", "--ratio=0.5", "--tag", "x", "--tag=y", "--fields", "a,b", "--dry", "a", "word"},
		{"--level", "4", "a"},
		{"--ratio=0.2", "a"},
		{"--tag=a", "--tag=b", "--tag=c", "--tag=d", "a"},
		{"--dry=false", "a"},
		{"../a"},
		{},
		{"a", "b", "c", "d"},
	} {
		one, errOne := s.Accepts(args)
		two, errTwo := again.Accepts(args)
		require.Equal(t, one, two)
		require.Equal(t, errOne, errTwo)
	}
	call, err := again.Accepts([]string{"-l", "3", "a/b", "x"})
	require.NoError(t, err)
	require.Equal(t, []string{"--quiet", "all", "--level", "3", "--", "a/b", "x"}, call.Arguments)
	require.Equal(t, int64(4096), call.Stdin.MaxBytes)
}

func TestPathsNeedAWorkspace(t *testing.T) {
	bound, loose := make2(t)
	_, err := bound.Accepts([]string{"a"})
	require.NoError(t, err)
	_, err = loose.Accepts([]string{"a"})
	var refused *argv.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, argv.FaultPath, refused.Kind)
}

func TestZeroSurfaceAcceptsNothing(t *testing.T) {
	var none *Surface
	_, err := none.Accepts(nil)
	require.Error(t, err)
	_, err = (&Surface{}).Accepts(nil)
	require.Error(t, err)
}

func TestJoinErrors(t *testing.T) {
	f, err := file.Parse("p", []byte(policy))
	require.NoError(t, err)
	r := f.Rules[0]
	other, err := name.ParseCommand("other")
	require.NoError(t, err)
	_, err = Base(f, r.Connector, other, argv.Contract{})
	require.ErrorIs(t, err, ErrUndefined)
	command, err := Base(f, r.Connector, r.Commands[0].Name, argv.Contract{})
	require.NoError(t, err)
	_, err = Narrowed(f, r, r.Commands[0], argv.Contract{Commands: []argv.Command{command}})
	require.ErrorIs(t, err, ErrTwice)
}

func FuzzParse(f *testing.F) {
	s, loose := make2(f)
	f.Add(s.Marshal())
	f.Add(loose.Marshal())
	f.Add([]byte(strings.Replace(string(s.Marshal()), `"surface":1`, `"surface":2`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if s != nil {
				t.Fatal("an error with a value")
			}
			return
		}
		if !bytes.Equal(s.Marshal(), data) {
			t.Fatal("accepted and written otherwise")
		}
	})
}
