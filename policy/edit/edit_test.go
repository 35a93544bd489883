package edit

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

var update = flag.Bool("update", false, "rewrite golden files")

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

// source has the Connector alpha in every version.
type source struct{}

func (source) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	if key.String() != "alpha" {
		return argv.Contract{}, "", errors.New("not installed")
	}
	return alpha(), "sha256:a", nil
}

var alpha = sync.OnceValue(func() argv.Contract {
	c := argv.Contract{Command: "alpha"}
	for _, n := range []string{"get", "list", "put"} {
		d := argv.Declaration{Arguments: []string{n}, Effect: argv.EffectRead, Parameters: map[string]argv.ParameterDeclaration{
			"repo": {Flag: "--repo", Required: n == "put", Pattern: "[a-d]"},
		}}
		if n == "get" {
			d.Parameters["n"] = argv.ParameterDeclaration{Flag: "--n", Type: argv.TypeInteger, Minimum: ptr(1.0), Maximum: ptr(100.0)}
			d.Parameters["quiet"] = argv.ParameterDeclaration{Flag: "--quiet", Type: argv.TypeBoolean}
		}
		c.Commands = append(c.Commands, must(d.Command(must(name.ParseCommand(n)))))
	}
	return c
})

// argument is one of "to=maria", `rule="two words"`, "alpha".
var argument = regexp.MustCompile(`[^ ="]+=?(?:"[^"]*"|[^ "]*)`)

// run makes the edit that the first line of a test says.
func run(line string, data []byte) (Result, error) {
	var g Grant
	d := Removal{}
	words := argument.FindAllString(line, -1)
	for _, w := range words[1:] {
		k, v, pair := strings.Cut(w, "=")
		if s, err := strconv.Unquote(v); err == nil {
			v = s
		}
		limit, isLimit := strings.CutPrefix(k, "limit.")
		switch {
		case pair && k == "to":
			g.Peer = must(name.ParseLabel(v))
		case pair && k == "id":
			g.ID = must(name.ParsePeerID(v))
		case pair && k == "rule":
			g.Rule = v
		case pair && isLimit:
			if g.Limits == nil {
				g.Limits = map[string]string{}
			}
			g.Limits[limit] = v
		case pair:
			if g.Values == nil {
				g.Values = map[name.Parameter][]string{}
			}
			p := must(name.ParseParameter(k))
			g.Values[p] = append(g.Values[p], v)
		case g.Connector.IsZero():
			g.Connector = must(name.ParseConnectorKey(w))
		default:
			g.Commands = append(g.Commands, must(name.ParseCommand(w)))
		}
	}
	g.Version = must(name.ParseVersion("1"))
	if words[0] == "allow" {
		return Allow("policy.yaml", data, g, source{})
	}
	if words[0] == "dismiss" {
		return Dismiss("policy.yaml", data, g.Peer, source{})
	}
	d.Peer, d.Connector, d.Commands = g.Peer, g.Connector, g.Commands
	return Deny("policy.yaml", data, d, source{})
}

// shown is what an owner gets to see of an edit.
func shown(data []byte, r Result, err error) string {
	var b strings.Builder
	var refusal *RefusedError
	switch {
	case errors.As(err, &refusal):
		fmt.Fprintf(&b, "refused: %s\n", refusal.Text)
		if refusal.Hint != "" {
			fmt.Fprintf(&b, "hint: %s\n", refusal.Hint)
		}
		return b.String()
	case err != nil:
		return fmt.Sprintf("error: %s\n", err)
	}
	b.Write(diff.Diff("old", data, "new", r.Text))
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, c := range r.Changes {
		fmt.Fprintf(&b, "%s: %s\n", c.Effect, c.Text)
	}
	return b.String()
}

func TestEdits(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.Greater(t, len(paths), 30)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			require.NoError(t, err)
			require.Len(t, a.Files, 2)
			data := a.Files[0].Data
			if strings.HasSuffix(path, "-flow.txtar") || strings.HasSuffix(path, "-list.txtar") {
				data = []byte(strings.TrimSuffix(string(data), "\n"))
			}
			line, _, _ := strings.Cut(string(a.Comment), "\n")
			r, err := run(line, data)
			got := shown(data, r, err)
			if *update {
				a.Files[1].Data = []byte(got)
				require.NoError(t, os.WriteFile(path, txtar.Format(a), 0o644))
			}
			require.Equal(t, string(a.Files[1].Data), got)
			if err != nil {
				require.Nil(t, r.Text, "with an error there is nothing to write")
				return
			}
			require.Equal(t, comments(data), slices.Compact(slices.DeleteFunc(comments(r.Text), func(s string) bool { return !slices.Contains(comments(data), s) })), "comments stay, or go with their lines")
			again, err := policy.Parse("policy.yaml", r.Text)
			require.NoError(t, err)
			require.Equal(t, r.Policy.Digest(), again.Digest())
		})
	}
}

// comments are those that are on lines of their own, but for those inside what goes.
func comments(data []byte) (out []string) {
	for line := range strings.Lines(string(data)) {
		if s := strings.TrimSpace(line); strings.HasPrefix(s, "#") && !strings.HasPrefix(s, "# inside") {
			out = append(out, s)
		}
	}
	return out
}
