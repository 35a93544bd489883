package policy

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const freezeRule = `allow:
  - name: r
    to: [maria-laptop]
    connector: tool
    version: "1"
    commands: {issue.list: {}, issue.view: {}}
`

const declaredCommands = `commands:
  tool:
    issue.list: {effect: read, arguments: [issue, list], parameters: {repo: {flag: --repo, required: true, enum: [acme/site, acme/docs]}}}
    issue.view: {effect: read, arguments: [issue, view], parameters: {note: {stdin: {max_bytes: 100}}}}
`

func toolSource() fakeContracts { return fakeContracts{"tool@1": {Command: "tool"}} }

func toolRequest(command string, args ...string) Request {
	return Request{
		Issuer: must(parsePeer(ownerID)), Peer: must(parsePeer(mariaID)), Now: someDay,
		Connector: must(name.ParseConnectorKey("tool")), Version: must(name.ParseVersion("1")),
		Command: must(name.ParseCommand(command)), Arguments: args,
	}
}

func targetOf(r Request) Target {
	return Target{Connector: r.Connector, Version: r.Version, Command: r.Command}
}

func freezeAll(t *testing.T, p *Policy) []*Surface {
	t.Helper()
	r := toolRequest("issue.list")
	frozen := p.Freeze(r.Issuer, r.Peer, r.Now, []Target{
		targetOf(toolRequest("issue.view")), targetOf(r), targetOf(r), targetOf(toolRequest("issue.delete")),
	}, toolSource())
	require.Len(t, frozen, 2)
	kept := make([]*Surface, 0, 2)
	for _, s := range frozen {
		again, err := ParseSurface(s.Marshal())
		require.NoError(t, err)
		require.Equal(t, s.Marshal(), again.Marshal())
		kept = append(kept, again)
	}
	return kept
}

// Edits of the policy while an invocation lives, and what the invocation gets.
func TestEditsUnderAnInvocation(t *testing.T) {
	first := head + declaredCommands + freezeRule
	listDocs := []string{"--repo", "acme/docs"}
	cases := map[string]struct {
		policy string
		args   []string
		reason Reason // ReasonInternal: allowed
	}{
		"nothing-changed":             {first, listDocs, ReasonInternal},
		"rule-renamed":                {strings.Replace(first, "name: r", "name: another", 1), listDocs, ReasonInternal},
		"re-pointed":                  {strings.Replace(first, "[issue, list]", "[issue, delete]", 1), listDocs, ReasonFrozen},
		"another-option":              {strings.Replace(first, "flag: --repo", "flag: --repository, aliases: [--repo]", 1), listDocs, ReasonFrozen},
		"another-order-of-options":    {strings.Replace(first, "parameters: {repo", "parameters: {all: {flag: --all, type: boolean}, repo", 1), listDocs, ReasonInternal},
		"wider":                       {strings.Replace(first, "acme/docs]", "acme/docs, acme/secret]", 1), []string{"--repo", "acme/secret"}, ReasonArgument},
		"wider-by-a-parameter":        {strings.Replace(first, "parameters: {repo", "parameters: {all: {flag: --all, type: boolean}, repo", 1), append([]string{"--all"}, listDocs...), ReasonArgument},
		"narrower":                    {strings.Replace(first, "issue.list: {}", "issue.list: {repo: acme/site}", 1), listDocs, ReasonArgument},
		"narrower-and-within":         {strings.Replace(first, "issue.list: {}", "issue.list: {repo: acme/docs}", 1), listDocs, ReasonInternal},
		"command-removed":             {strings.Replace(first, "issue.list: {}, ", "", 1), listDocs, ReasonCommand},
		"rule-removed":                {head + declaredCommands, listDocs, ReasonRule},
		"another-workspace":           {strings.Replace(first, "connector: tool", "connector: tool\n    workspace: w", 1) + "workspaces: {w: {path: /w}}\n", listDocs, ReasonFrozen},
		"re-pointed-through-the-cli":  {strings.Replace(first, "effect: read, arguments: [issue, list]", "effect: read, arguments: [issue], rest: {max_items: 1, pattern: list}", 1), listDocs, ReasonFrozen},
		"another-peer":                {strings.Replace(first, "to: [maria-laptop]", "to: [build-agent]", 1), listDocs, ReasonRule},
		"issuer-removed":              {strings.Replace(first, "id: "+ownerID, "id: "+deskID, 1), listDocs, ReasonIssuer},
		"holder-removed-from-issuer":  {strings.Replace(first, "connectors: any", "connectors: any, holders: [build-agent]", 1), listDocs, ReasonHolder},
		"another-version":             {strings.Replace(first, `version: "1"`, `version: "2"`, 1), listDocs, ReasonVersion},
		"broken-by-its-own-narrowing": {strings.Replace(first, "issue.list: {}", "issue.list: {repo: {minimum: 1}}", 1), listDocs, ReasonCommand},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			frozen := freezeAll(t, mustParse(t, first))
			p := mustParse(t, c.policy)
			r := toolRequest("issue.list", c.args...)
			d := p.DecideWithin(frozen, r, toolSource())
			require.Equal(t, c.reason == ReasonInternal, d.Allowed, "%s: %v", d.Reason, d.Err)
			if !d.Allowed {
				require.Equal(t, c.reason, d.Reason, "%v", d.Err)
				require.Empty(t, d.Call.Arguments)
			}
			e := p.Explain(frozen, r, toolSource())
			require.Equal(t, d.Allowed, e.Allowed)
			if c.reason == ReasonFrozen {
				require.Contains(t, e.String(), "no   frozen grant: ")
			}
		})
	}
}

// A workspace is frozen with its directory: another one under the same name is
// another meaning.
func TestWorkspaceIsFrozen(t *testing.T) {
	at := func(path string) *Policy {
		return mustParse(t, head+declaredCommands+strings.Replace(freezeRule, "connector: tool", "connector: tool\n    workspace: w", 1)+"workspaces: {w: {path: "+path+"}, other: {path: /x}}\n")
	}
	frozen, r := freezeAll(t, at("/a")), toolRequest("issue.list", "--repo", "acme/site")
	d := at("/a").DecideWithin(frozen, r, toolSource())
	require.True(t, d.Allowed)
	require.Equal(t, "6a50dc8584134c7de537c0052ff6d236bf874355e050c90523e0c5ff2a543a28", d.Surface.Place())
	d = at("/b").DecideWithin(frozen, r, toolSource())
	require.False(t, d.Allowed)
	require.Equal(t, ReasonFrozen, d.Reason)
	for _, s := range frozen {
		require.NotContains(t, string(s.Marshal()), "/a")
	}
}

func TestSameStart(t *testing.T) {
	first := head + declaredCommands + freezeRule
	list := func(text string, source Contracts) *Surface {
		r := toolRequest("issue.list")
		found := mustParse(t, text).Freeze(r.Issuer, r.Peer, r.Now, []Target{targetOf(r)}, source)
		require.Len(t, found, 1)
		return found[0]
	}
	s := list(first, toolSource())
	require.True(t, s.SameStart(s))
	require.True(t, s.SameStart(list(strings.Replace(first, "issue.list: {}", "issue.list: {repo: acme/site}", 1), toolSource())))
	for title, o := range map[string]*Surface{
		"fixed-arguments": list(strings.Replace(first, "[issue, list]", "[issue, delete]", 1), toolSource()),
		"connection":      list(strings.Replace(first, "connector: tool", "connector: tool\n    connection: work", 1), fakeContracts{"tool@1#work": {Command: "tool"}}),
		"workspace":       list(strings.Replace(first, "connector: tool", "connector: tool\n    workspace: w", 1)+"workspaces: {w: {path: /w}}\n", toolSource()),
		"contract":        list(first, fakeContracts{"tool@1": {Command: "tool", Environment: []string{"X"}}}),
	} {
		require.False(t, s.SameStart(o), title)
		require.False(t, o.SameStart(s), title)
	}
}

func TestContractHashIsFrozen(t *testing.T) {
	p := mustParse(t, head+declaredCommands+freezeRule)
	frozen := freezeAll(t, p)
	r := toolRequest("issue.list", "--repo", "acme/site")
	require.True(t, p.DecideWithin(frozen, r, toolSource()).Allowed)
	changed := fakeContracts{"tool@1": {Command: "tool", Environment: []string{"X"}}}
	d := p.DecideWithin(frozen, r, changed)
	require.False(t, d.Allowed)
	require.Equal(t, ReasonFrozen, d.Reason)
	require.Equal(t, "POLICY_DENIED", d.Reason.Code())
	require.Equal(t, "differs-from-frozen", d.Reason.String())
}

func TestLimitsOfBothBind(t *testing.T) {
	first := mustParse(t, head+declaredCommands+freezeRule+"    limits: {stdin: 50B, stdout: 5MiB, run: 20s, on_disconnect: {keep: 30s}, processes: 9}\n")
	frozen := freezeAll(t, first)
	later := mustParse(t, head+declaredCommands+freezeRule+"    limits: {stdin: 90B, stdout: 4MiB, run: 30s, on_disconnect: {keep: 45s}, memory: 1GiB, arguments: 10}\n")
	r := toolRequest("issue.view")
	r.Stdin = true
	d := later.DecideWithin(frozen, r, toolSource())
	require.True(t, d.Allowed)
	require.Equal(t, Limits{Stdin: 50, Stdout: 4 << 20, Stderr: 16 << 20, Run: 20 * time.Second, Detached: 30 * time.Second, Processes: 9, Memory: 1 << 30, Arguments: 10, ArgumentBytes: 256 << 10}, d.Limits)
	require.Equal(t, int64(50), d.Call.Stdin.MaxBytes)
}

func TestFrozenAlone(t *testing.T) {
	frozen := freezeAll(t, mustParse(t, head+declaredCommands+freezeRule))
	allowed := DecideFrozen(frozen, toolRequest("issue.list", "--repo", "acme/site"))
	require.True(t, allowed.Allowed)
	require.Equal(t, []string{"issue", "list", "--repo=acme/site"}, allowed.Call.Arguments)
	require.Equal(t, "r", allowed.Rule.Name)
	for title, c := range map[string]struct {
		r      Request
		reason Reason
	}{
		"arguments": {toolRequest("issue.list", "--repo", "evil/x"), ReasonArgument},
		"command":   {toolRequest("issue.delete"), ReasonCommand},
		"input":     {func() Request { r := toolRequest("issue.list", "--repo", "acme/site"); r.Stdin = true; return r }(), ReasonStdin},
		"version":   {func() Request { r := toolRequest("issue.list"); r.Version = must(name.ParseVersion("2")); return r }(), ReasonVersion},
		"zero":      {Request{}, ReasonConnector},
	} {
		d := DecideFrozen(frozen, c.r)
		require.False(t, d.Allowed, title)
		require.Equal(t, c.reason, d.Reason, title)
	}
	require.False(t, DecideFrozen(nil, toolRequest("issue.list")).Allowed)
	require.False(t, DecideFrozen([]*Surface{nil}, toolRequest("issue.list")).Allowed)
	require.False(t, DecideFrozen([]*Surface{{}}, Request{}).Allowed)
}

func TestParseSurfaceIsStrict(t *testing.T) {
	s := freezeAll(t, mustParse(t, head+declaredCommands+freezeRule))[0]
	good := string(s.Marshal())
	golden(t, "testdata/surface.golden", good+"\n")
	require.Equal(t, "issue.list", s.Target().Command.String())
	require.Equal(t, "r", s.Rule())
	require.True(t, strings.HasPrefix(s.ContractHash(), "sha256:"))
	require.Equal(t, 2*time.Minute, s.Limits().Run)
	require.Equal(t, argv.EffectRead, s.Command().Effect)
	for title, bad := range map[string]string{
		"empty":             "",
		"null":              "null",
		"empty-object":      "{}",
		"data-after":        good + "{}",
		"space":             good + " ",
		"unknown-field":     strings.Replace(good, `"rule"`, `"path":"/bin/sh","rule"`, 1),
		"other-version":     strings.Replace(good, `"surface":1`, `"surface":2`, 1),
		"no-hash":           strings.Replace(good, s.ContractHash(), "", 1),
		"no-schemas":        strings.Replace(good, `"schemas":[{"enum":["acme/site","acme/docs"],"type":"string"}]`, `"schemas":[]`, 1),
		"unlimited-run":     strings.Replace(good, `"run_seconds":120`, `"run_seconds":0`, 1),
		"too-many-argument": strings.Replace(good, `"arguments":256`, `"arguments":257`, 1),
		"negative-output":   strings.Replace(good, `"stdout":67108864`, `"stdout":-2`, 1),
		"bad-pattern":       strings.Replace(good, `"enum":["acme/site","acme/docs"]`, `"pattern":"("`, 1),
		"reordered":         "{" + strings.Replace(strings.TrimPrefix(good, "{"), `,"surface":1`, "", 1)[:0] + `"surface":1,` + strings.TrimPrefix(strings.Replace(good, `"surface":1,`, "", 1), "{"),
		"too-large":         strings.Repeat(" ", surface.MaxSize+1),
	} {
		require.NotEqual(t, good, bad, title)
		_, err := ParseSurface([]byte(bad))
		require.Error(t, err, title)
	}
}

func FuzzParseSurface(f *testing.F) {
	p, err := Parse("p", []byte(head+declaredCommands+freezeRule))
	require.NoError(f, err)
	r := toolRequest("issue.list")
	for _, s := range p.Freeze(r.Issuer, r.Peer, r.Now, []Target{targetOf(r)}, toolSource()) {
		f.Add(s.Marshal())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSurface(data)
		if err == nil && !bytes.Equal(s.Marshal(), data) {
			t.Fatal("accepted and written otherwise")
		}
		if err != nil && s != nil {
			t.Fatal("an error with a value")
		}
	})
}

func TestInputSchemaWithPins(t *testing.T) {
	s := freezeAll(t, mustParse(t, head+declaredCommands+freezeRule))[0]
	all, err := s.InputSchema(nil)
	require.NoError(t, err)
	require.Contains(t, string(all), "acme/docs")
	repo := must(name.ParseParameter("repo"))
	pinned, err := s.InputSchema(map[name.Parameter][]string{repo: {"acme/site"}})
	require.NoError(t, err)
	require.NotEqual(t, string(all), string(pinned))
	_, err = s.InputSchema(map[name.Parameter][]string{must(name.ParseParameter("nothing")): {"x"}})
	require.Error(t, err)
	_, err = s.InputSchema(map[name.Parameter][]string{repo: {"evil/x", "evil/y"}})
	require.ErrorContains(t, err, "repo accepts none of the pinned values")
	_, err = s.InputSchema(map[name.Parameter][]string{repo: {"evil/x", "acme/site"}})
	require.NoError(t, err, "one of them is accepted")
}

// Faults anywhere below Decide deny.
func TestFaultsDeny(t *testing.T) {
	p := mustParse(t, head+declaredCommands+freezeRule)
	r := toolRequest("issue.list", "--repo", "acme/site")
	frozen := freezeAll(t, p)
	require.True(t, p.Decide(r, toolSource()).Allowed)
	for title, source := range map[string]Contracts{"none": nil, "panic": brokenSource{panics: true}, "error": brokenSource{}} {
		p := mustParse(t, head+declaredCommands+freezeRule)
		for _, d := range []Decision{p.Decide(r, source), p.DecideWithin(frozen, r, source)} {
			require.False(t, d.Allowed, title)
			require.Error(t, d.Err, title)
			require.Empty(t, d.Call.Arguments, title)
		}
		require.Empty(t, p.Freeze(r.Issuer, r.Peer, r.Now, []Target{targetOf(r)}, source), title)
		require.False(t, p.Explain(nil, r, source).Allowed)
	}
	require.False(t, p.Decide(Request{}, toolSource()).Allowed)
	for title, change := range map[string]func(*Request){
		"issuer":    func(r *Request) { r.Issuer = name.PeerID{} },
		"peer":      func(r *Request) { r.Peer = name.PeerID{} },
		"connector": func(r *Request) { r.Connector = name.ConnectorKey{} },
		"version":   func(r *Request) { r.Version = name.Version{} },
		"command":   func(r *Request) { r.Command = name.Command{} },
	} {
		q := r
		change(&q)
		require.False(t, p.Decide(q, toolSource()).Allowed, title)
	}
}

type brokenSource struct{ panics bool }

func (b brokenSource) Contract(name.ConnectorKey, name.Version, name.ConnectionID) (argv.Contract, string, error) {
	if b.panics {
		panic("a fault")
	}
	return argv.Contract{}, "", errors.New("a fault")
}

func TestManifestAndPolicyMayNotBothDeclare(t *testing.T) {
	p := mustParse(t, head+declaredCommands+freezeRule)
	c := p.file.Declared[must(name.ParseConnectorKey("tool"))][must(name.ParseCommand("issue.view"))].Command
	source := fakeContracts{"tool@1": {Command: "tool", Commands: []argv.Command{c}}}
	d := p.Decide(toolRequest("issue.view"), source)
	require.False(t, d.Allowed)
	require.ErrorIs(t, d.Err, surface.ErrTwice)
	findings := p.Lint(source)
	require.True(t, slices.ContainsFunc(findings, func(f Finding) bool {
		return f.Level == LevelError && strings.HasPrefix(f.String(), "policy.yaml:8:3: error: the manifest of tool declares its commands")
	}), "%v", findings)
}

func TestArgumentLimits(t *testing.T) {
	text := head + declaredCommands + freezeRule
	r := toolRequest("issue.list", "--repo", "acme/site")
	for limits, want := range map[string]argv.Fault{
		"{arguments: 3}": "", "{arguments: 2}": argv.FaultTooMany,
		"{argument_bytes: 28B}": "", "{argument_bytes: 27B}": argv.FaultTooLarge,
	} {
		for _, p := range []*Policy{mustParse(t, text+"    limits: "+limits+"\n"), mustParse(t, text+"limits: "+limits+"\n")} {
			d := p.Decide(r, toolSource())
			require.Equal(t, want == "", d.Allowed, limits)
			if want != "" {
				var refused *argv.Error
				require.ErrorAs(t, d.Err, &refused)
				require.Equal(t, want, refused.Kind)
			}
		}
	}
}

func TestDecideFromManyGoroutines(t *testing.T) {
	p := mustParse(t, head+declaredCommands+freezeRule)
	var wg sync.WaitGroup
	results := make([]Decision, 16)
	for i := range results {
		wg.Go(func() { results[i] = p.Decide(toolRequest("issue.list", "--repo", "acme/site"), toolSource()) })
	}
	wg.Wait()
	for _, d := range results {
		require.True(t, d.Allowed)
	}
}

func TestReasonNames(t *testing.T) {
	require.Equal(t, "INTERNAL", Reason(200).Code())
	require.Equal(t, "internal", Decision{}.Reason.String())
	var names []string
	for r := ReasonInternal; r <= ReasonFrozen; r++ {
		names = append(names, r.Code())
	}
	slices.Sort(names)
	require.Equal(t, file.Codes(), slices.Compact(names))
}
