package review

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/name"
)

const asked = `policy: 1
issuers:
  owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: any, holders: [maria, agent]}
  desk: {id: 12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ, connectors: [tool], holders: any, until: "2026-12-31"}
peers:
  maria: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j
  agent: 12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71
groups: {team: [maria, agent]}
commands:
  tool:
    list: {arguments: [list], parameters: {repo: {flag: --repo, enum: [a, b], required: true}, tag: {flag: --tag, repeat: 2, pattern: "[a-z]+"}}}
    show: {arguments: [show]}
allow:
  - {name: team lists a, to: [team], issuers: [owner], connector: tool, version: ["1", "2"], commands: {list: {repo: a}}}
  - {name: maria lists, to: [maria], connector: tool, version: "1", commands: {list: {tag: {forbidden: true}}}, limits: {run: 5s}}
  - {name: the desk lists b, to: ["holders-of:desk"], connector: tool, version: "1", commands: {list: {repo: b}}}
`

func TestWhoCan(t *testing.T) {
	f, err := file.Parse("policy.yaml", []byte(asked))
	require.NoError(t, err)
	early, late := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, command, version, values string
		now                            time.Time
		want                           []string
	}{
		{"everybody", "list", "", "", early, []string{"agent owner 1,2 14", "maria desk,owner 1 15", "maria owner 1,2 14", "whoever desk names desk 1 16"}},
		{"one version", "list", "2", "", early, []string{"agent owner 2 14", "maria owner 2 14"}},
		{"after the desk's last day", "list", "1", "", late, []string{"agent owner 1 14", "maria owner 1 15", "maria owner 1 14"}},
		{"one value", "list", "1", "repo=b", early, []string{"maria desk,owner 1 15", "whoever desk names desk 1 16"}},
		{"a list", "list", "1", "tag=x,y", late, []string{"agent owner 1 14", "maria owner 1 14"}},
		{"too many", "list", "1", "tag=x,y,z", late, nil},
		{"a value that nothing accepts", "list", "1", "tag=-x", late, nil},
		{"two values of one", "list", "1", "repo=a,b", late, nil},
		{"no such parameter", "list", "1", "color=red", late, nil},
		{"nobody", "show", "", "", early, nil},
		{"unknown", "drop", "", "", early, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := Question{Connector: must(name.ParseConnectorKey("tool")), Command: must(name.ParseCommand(c.command)), Now: c.now}
			if c.version != "" {
				q.Version = must(name.ParseVersion(c.version))
			}
			if key, values, ok := strings.Cut(c.values, "="); ok {
				q.Values = map[name.Parameter][]string{must(name.ParseParameter(key)): strings.Split(values, ",")}
			}
			var got []string
			for _, h := range WhoCan(f, nil, q) {
				require.Equal(t, h.PeerID.IsZero(), strings.HasPrefix(h.Peer, "whoever"))
				require.NotEmpty(t, h.What)
				got = append(got, fmt.Sprintf("%s %s %s %d", h.Peer, strings.Join(h.Issuers, ","), strings.Join(h.Versions, ","), h.Position.Line))
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Equal(t, []string{"tool/list", "tool/show"}, Targets(f, nil))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
