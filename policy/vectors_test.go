package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The vectors: a policy, the contracts of its Connectors, and requests with the
// answers. Every file must be one of the three, and no answer may be left out.
func TestVectors(t *testing.T) {
	for title, files := range archives(t, "testdata/decide") {
		t.Run(title, func(t *testing.T) {
			for f := range files {
				require.Contains(t, []string{"policy.yaml", "contracts.yaml", "requests.jsonl"}, f)
			}
			p := mustParse(t, string(files["policy.yaml"]))
			source := readContracts(t, files["contracts.yaml"])
			for _, a := range readAsked(t, files["requests.jsonl"]) {
				t.Run(a.Name, func(t *testing.T) { checkVector(t, p, source, a) })
			}
		})
	}
}

func checkVector(t *testing.T, p *Policy, source Contracts, a asked) {
	t.Helper()
	r := a.request(t, p)
	d := p.Decide(r, source)
	require.Contains(t, []string{"allow", "deny"}, a.Want)
	e := p.Explain(nil, r, source)
	require.Equal(t, d.Allowed, e.Allowed)
	require.NotEmpty(t, e.String())
	if a.Want == "deny" {
		require.False(t, d.Allowed, "allowed by %s: %q", d.Rule.Name, d.Call.Arguments)
		require.Equal(t, a.Code, d.Reason.Code(), "%v", d.Err)
		require.Empty(t, d.Call.Arguments)
		require.Nil(t, d.Surface)
		require.Equal(t, a.Code, e.Code)
		return
	}
	require.True(t, d.Allowed, "%s: %v", d.Reason, d.Err)
	require.Equal(t, a.Rule, d.Rule.Name)
	require.Equal(t, a.Argv, d.Call.Arguments)
	require.Equal(t, a.Connection, d.Connection.String())
	require.Equal(t, a.Workspace, d.Workspace.String())
	require.Equal(t, r.Connector, d.Surface.Target().Connector)
	if a.Stdout != 0 {
		require.Equal(t, a.Stdout, d.Limits.Stdout)
	}
	if a.In != 0 {
		require.Equal(t, a.In, d.Limits.Stdin)
		require.Equal(t, a.In, d.Call.Stdin.MaxBytes)
	}
	if a.Run_ != "" {
		want, err := time.ParseDuration(a.Run_)
		require.NoError(t, err)
		require.Equal(t, want, d.Limits.Run)
	}
	again, err := ParseSurface(d.Surface.Marshal())
	require.NoError(t, err)
	frozen := DecideFrozen([]*Surface{again}, r)
	require.True(t, frozen.Allowed)
	require.Equal(t, d.Call, frozen.Call)
	require.Equal(t, d.Limits, frozen.Limits)
	within := p.DecideWithin([]*Surface{again}, r, source)
	require.True(t, within.Allowed, within.Reason)
	require.Equal(t, d.Call, within.Call)
}
