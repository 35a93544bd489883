package preset

import (
	"errors"
	"math/bits"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const (
	ownerID  = "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4"
	laptopID = "12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j"
	agentID  = "12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func peer(label, id string) Peer {
	p := Peer{Name: must(name.ParseLabel(label))}
	if id != "" {
		p.ID = must(name.ParsePeerID(id))
	}
	return p
}

// bare has a contract without commands, as lend connector new makes it.
type bare struct{ cli string }

func (b bare) Contract(name.ConnectorKey, name.Version, name.ConnectionID) (argv.Contract, string, error) {
	return argv.Contract{Command: b.cli}, "sha256:x", nil
}

// full are values for everything that a preset can lend.
func full(p Preset) Values {
	v := Values{To: []Peer{peer("laptop", laptopID)}, Set: map[string][]string{}}
	for _, q := range p.Placeholders {
		v.Set[q.Name] = []string{q.Example}
	}
	return v
}

func file(f Fragment) string {
	return "policy: 1\nissuers: {owner: {id: " + ownerID + ", connectors: any}}\n" + f.String()
}

func load(t *testing.T, f Fragment) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(file(f)))
	require.NoError(t, err, "%s", file(f))
	return p
}

func all(t *testing.T) []Preset {
	t.Helper()
	ps, err := All()
	require.NoError(t, err)
	require.Len(t, ps, 3)
	return ps
}

// Each optional placeholder, each pair and all of them make a policy that is served: it loads,
// lint has nothing at all to say, and its own tests pass.
func TestEachPresetIsServed(t *testing.T) {
	for _, p := range all(t) {
		optional := p.optional()
		for mask := range 1 << len(optional) {
			if given := bits.OnesCount(uint(mask)); given > 2 && given < len(optional) {
				continue // pairs, and all
			}
			v := full(p)
			for i, n := range optional {
				if mask&(1<<i) == 0 {
					delete(v.Set, n)
				}
			}
			f, err := p.Render(v)
			var refused *ValueError
			if errors.As(err, &refused) {
				require.True(t, mask == 0 || v.Set["table"] != nil && v.Set["base"] == nil, "%s %v: %v", p.Name, v.Set, err)
				continue
			}
			require.NoError(t, err)
			require.NotContains(t, f.String(), "${")
			require.NotContains(t, f.String(), "#if")
			laid, err := layout.Format("policy.yaml", []byte(file(f)))
			require.NoError(t, err)
			require.Equal(t, file(f), string(laid), "the text is as lend policy fmt lays it out")
			loaded := load(t, f)
			require.Empty(t, loaded.Lint(bare{p.CLI}), "%s %v", p.Name, v.Set)
			tests := loaded.RunTests(bare{p.CLI})
			require.NotEmpty(t, tests)
			for _, r := range tests {
				require.True(t, r.Passed, "%s: %s: %s", p.Name, r.Name, r.Message)
			}
			if mask == 1<<len(optional)-1 {
				require.Equal(t, p.Commands, f.Names)
			}
		}
	}
}

func TestReadOnly(t *testing.T) {
	for _, p := range all(t) {
		f, err := p.Render(full(p))
		require.NoError(t, err)
		require.Equal(t, len(f.Names), strings.Count(f.Commands, "      effect: read\n"), p.Name)
		require.NotContains(t, f.Commands, "effect: write")
		require.NotContains(t, f.Commands, "free_text")
		require.NotContains(t, f.Commands, "rest:")
		require.NotContains(t, f.Commands, "kind: path")
		require.NotContains(t, f.Commands, "env:")
		require.NotContains(t, f.Commands, "stdin:")
	}
}

func TestRender(t *testing.T) {
	p, err := Find("gh")
	require.NoError(t, err)
	v := Values{
		To: []Peer{peer("laptop", laptopID), peer("agent", agentID)}, Connector: must(name.ParseConnectorKey("gh-work")),
		Version: must(name.ParseVersion("2.40.1")), Issuer: must(name.ParseLabel("desk")),
		Set: map[string][]string{"repo": {"acme/site", "acme/.github"}},
	}
	f, err := p.Render(v)
	require.NoError(t, err)
	require.Equal(t, "peers:\n  laptop: "+laptopID+"\n  agent: "+agentID+"\n", f.Peers)
	require.Equal(t, "laptop, agent: gh, read-only", f.Rule)
	require.True(t, strings.HasPrefix(f.Commands, "commands:\n  gh-work:\n    issue.list:\n"))
	require.Contains(t, f.Commands, `enum: ["acme/site", "acme/.github"], required: true`)
	require.Contains(t, f.Allow, "    to: [laptop, agent]\n    connector: gh-work\n    version: \"2.40.1\"\n    commands:\n      issue.list: {}\n")
	require.Contains(t, f.Tests, "peer: laptop, issuer: desk, run: [gh-work, issue.list, -R, \"acme/site\"")
	require.Contains(t, f.Header, "# Preset gh, made for gh 2.23.0:\n")
	require.Contains(t, f.Header, "--key gh-work --version 2.40.1")
	for line := range strings.Lines(f.Header) {
		require.True(t, strings.HasPrefix(line, "#"), line)
	}
	v.To = []Peer{peer("laptop", "")}
	f, err = p.Render(v)
	require.NoError(t, err)
	require.Empty(t, f.Peers)
}

// Names that YAML could take for something else stand in quotes.
func TestNamesThatMeanSomethingElse(t *testing.T) {
	p, err := Find("lark") // with the shortest fragment
	require.NoError(t, err)
	for _, n := range []string{"on", "yes", "true", "null", "123", "1e3", "0x10", "1.5", "Laptop.2", "off", "no", "NaN", "2026-01-01"} {
		f, err := p.Render(Values{To: []Peer{peer(n, laptopID)}, Set: map[string][]string{"tasks": {"mine"}}, Connector: must(name.ParseConnectorKey(strings.ToLower(n)))})
		require.NoError(t, err)
		loaded := load(t, f)
		require.Contains(t, loaded.Peers(), must(name.ParseLabel(n)))
		for _, r := range loaded.RunTests(bare{p.CLI}) {
			require.True(t, r.Passed, "%s: %s", n, r.Message)
		}
	}
}

// nasty are values that would be something else than a value in YAML, in the
// template, in argv or at the service.
var nasty = []string{
	"", " ", "acme/site ", " acme/site", "acme/site\n", "acme/site\n    evil: {}", "acme/site\"", `acme/site", "evil/x`, "acme/site]", "acme/site}, x: {",
	"acme/site, evil/x", "acme/site: x", "acme/site #x", "&a acme/site", "*a", "!!str x", "${connector}", "${repo}", "#if x", "acme/${to}", "'acme/site'",
	"acme/site\u2028x", "acme/s\u00efte", "acme/site\x00", "-R", "--repo=evil/x", "@me", "@/etc/passwd", "file:///etc/passwd", "https://github.com/acme/site",
	"github.com/acme/site", "evil.example/acme/site", "acme/site/", "/acme/site", "acme//site", "acme/..", "acme/.", "../site", "acme/site/..", "acme", "acme\\site",
	"%2e%2e/x", "acme/site?x", "acme/site#x", "acme/*", ".", "..", "~", "acme/" + strings.Repeat("x", 200),
}

func TestNastyValues(t *testing.T) {
	for _, p := range all(t) {
		for _, q := range p.Placeholders {
			for _, s := range nasty {
				v := full(p)
				v.Set[q.Name] = []string{s}
				f, err := p.Render(v)
				var refused *ValueError
				require.ErrorAs(t, err, &refused, "%s %s %q", p.Name, q.Name, s)
				require.Zero(t, f)
				if len(s) > 3 {
					require.NotContains(t, err.Error(), s, "errors hold no value")
				}
			}
		}
	}
}

func TestValues(t *testing.T) {
	p, err := Find("gh")
	require.NoError(t, err)
	laptop := []Peer{peer("laptop", "")}
	many := make([]string, 33)
	for i := range many {
		many[i] = "acme/r" + strings.Repeat("x", i)
	}
	for title, v := range map[string]Values{
		"nothing":         {To: laptop},
		"no peer":         {Set: map[string][]string{"repo": {"acme/site"}}},
		"peer twice":      {To: []Peer{laptop[0], laptop[0]}, Set: map[string][]string{"repo": {"acme/site"}}},
		"peer no name":    {To: []Peer{{}}, Set: map[string][]string{"repo": {"acme/site"}}},
		"too many":        {To: laptop, Set: map[string][]string{"repo": many}},
		"twice":           {To: laptop, Set: map[string][]string{"repo": {"acme/site", "acme/site"}}},
		"unknown":         {To: laptop, Set: map[string][]string{"repo": {"acme/site"}, "account": {"x"}}},
		"unknown strange": {To: laptop, Set: map[string][]string{"repo": {"acme/site"}, "\x1b[2J": {"x"}}},
	} {
		t.Run(title, func(t *testing.T) {
			_, err := p.Render(v)
			var refused *ValueError
			require.ErrorAs(t, err, &refused)
			require.NotContains(t, err.Error(), "\x1b")
		})
	}
	for _, good := range []string{"acme/site", "a/b", "Acme-2/Site_x.y", "acme/.github", "acme_corp/x-"} {
		_, err := p.Render(Values{To: laptop, Set: map[string][]string{"repo": {good}}})
		require.NoError(t, err, good)
	}
	lark, err := Find("lark")
	require.NoError(t, err)
	_, err = lark.Render(Values{To: laptop})
	require.ErrorContains(t, err, "set one of base, calendar, chat, doc, table, tasks")
	_, err = lark.Render(Values{To: laptop, Set: map[string][]string{"table": {"tblAbCdEfGhIjKl"}, "tasks": {"mine"}}})
	require.ErrorContains(t, err, "table: no command uses it")
	_, err = lark.Render(Values{To: laptop, Set: map[string][]string{"as": {"user", "bot"}, "tasks": {"mine"}}})
	require.ErrorContains(t, err, "as: it takes one value")
}

func TestFind(t *testing.T) {
	_, err := Find("git\x1b")
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "there are gh, lark, stripe")
	require.NotContains(t, err.Error(), "\x1b")
}

func TestFilesOfPresets(t *testing.T) {
	good := "preset: 1\nname: x\ncli: x\nconnector: x\nversions: [\"1\"]\nsummary: s\ngives: [a]\nleaves_out: [b]\nsetup: [c]\nplaceholders: {a: {what: w, example: e, pattern: e}}\n---\n"
	_, err := parse("x.yaml", good)
	require.NoError(t, err)
	for _, bad := range []string{
		strings.Replace(good, "---", "", 1), strings.Replace(good, "preset: 1", "preset: 2", 1), strings.Replace(good, "name: x", "name: y", 1),
		strings.Replace(good, "cli: x\n", "", 1), strings.Replace(good, "pattern: e", "pattern: '('", 1), strings.Replace(good, "connector: x", "connector: x-", 1),
		strings.Replace(good, "summary", "summery", 1), strings.Replace(good, "[\"1\"]", "[1]", 1), "a: [\n---\n",
	} {
		_, err := parse("x.yaml", bad)
		require.Error(t, err, bad)
	}
}

// Whatever is accepted is one value of the list, and the rest of the text stays.
func FuzzValues(f *testing.F) {
	for _, s := range append(nasty, "acme/site", "a/b", "acme/.github") {
		f.Add(s)
	}
	p, err := Find("gh")
	require.NoError(f, err)
	render := func(s string) (Fragment, error) {
		return p.Render(Values{To: []Peer{peer("laptop", laptopID)}, Set: map[string][]string{"repo": {s}}})
	}
	const mark = "mark-0/mark-1"
	like, err := render(mark)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		fragment, err := render(s)
		if err != nil {
			require.Zero(t, fragment)
			return
		}
		require.Equal(t, strings.ReplaceAll(like.String(), mark, s), fragment.String())
		doc, err := strict.Parse("v", []byte("v: ["+quote(s)+"]\n"), 1<<10)
		require.NoError(t, err)
		require.NoError(t, doc.Err())
		require.Len(t, doc.Root.Get("v").Items(), 1)
		require.Equal(t, s, doc.Root.Get("v").Items()[0].Str())
	})
}
