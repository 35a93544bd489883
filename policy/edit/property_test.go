package edit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

var ids = map[string]string{
	"owner": "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4",
	"desk":  "12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ",
	"maria": "12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j",
	"agent": "12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71",
	"third": "12D3KooWKA9MX4vMqZocuA2swGUhZANTZJroEwgNHZEFrfvPhqx6",
}

// drawFile writes a policy at random, in styles at random.
func drawFile(t *rapid.T) string {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	some := func(label string, from ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID[string]).Draw(t, label)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "policy: 1%s\n", pick("comment", "", " # one", "\n\n# two"))
	fmt.Fprintf(&b, "issuers:\n  owner: {id: %s, connectors: any}\n  desk: {id: %s, connectors: [alpha]%s}\n", ids["owner"], ids["desk"], pick("holders", "", ", holders: any", ", holders: [maria]"))
	fmt.Fprintf(&b, "peers:\n  maria: %s # she\n  agent: %s\n\n  third: %s\n", ids["maria"], ids["agent"], ids["third"])
	fmt.Fprintf(&b, "groups: {team: [%s], all: [maria, agent, third]}\nallow:%s\n", strings.Join(some("team", "maria", "agent", "third"), ", "), pick("end", "", " # these"))
	dash := pick("pad", "", "  ", "    ")
	for n := range rapid.IntRange(1, 4).Draw(t, "rules") {
		pad := dash
		to := some("to", "maria", "agent", "third", "team", "all")
		if rapid.IntRange(0, 5).Draw(t, "holders of") == 0 {
			to = append(to, `"holders-of:desk"`)
		}
		issuers := pick("issuers", "", "", "issuers: [owner]", "issuers: [desk]")
		commands := some("commands", "get", "list", "put")
		switch rapid.IntRange(0, 3).Draw(t, "style") {
		case 0:
			fmt.Fprintf(&b, "%s- {name: r%d, to: [%s], connector: alpha, version: \"1\"", pad, n, strings.Join(to, ", "))
			if issuers != "" {
				b.WriteString(", " + issuers)
			}
			fmt.Fprintf(&b, ", commands: {%s: {}}}%s\n", strings.Join(commands, ": {}, "), pick("trailing", "", " # so"))
			continue
		case 1:
			fmt.Fprintf(&b, "%s# rule %d\n%s- name: r%d\n%s  to: [ %s ]  # who\n", pad, n, pad, n, pad, strings.Join(to, " , "))
		case 2:
			fmt.Fprintf(&b, "%s-%s\n%s  name: r%d\n%s  to:\n%s    -\n%s      %s\n", pad, pick("after the dash", "", " # a - b"), pad, n, pad, pad, pad, strings.Join(to, "\n"+pad+"    - # who\n"+pad+"      "))
		default:
			fmt.Fprintf(&b, "%s-   name: r%d\n%s    to:\n%s    - %s\n", pad, n, pad, pad, strings.Join(to, "\n"+pad+"    - "))
			pad += "  "
		}
		for _, line := range []string{issuers, "connector: alpha", `version: ["1"]`, "commands:"} {
			if line != "" {
				fmt.Fprintf(&b, "%s  %s\n", pad, line)
			}
		}
		for _, c := range commands {
			fmt.Fprintf(&b, "%s    %s: %s\n%s    # after %s\n", pad, c, pick("narrowing", "{}", "{repo: a}", "{repo: [a, b]} # these"), pad, c)
		}
	}
	return b.String()
}

// An edit gives or takes what it says, for that peer alone: every request is decided
// as before but for those of the peer and its commands.
func TestEditsDoNothingElse(t *testing.T) {
	made, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawFile(t)
		before, err := policy.Parse("p", []byte(text))
		if err != nil {
			t.Skip("not a policy")
		}
		pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
		verb, peer := pick("verb", "deny", "deny", "allow"), pick("peer", "maria", "agent", "third")
		commands := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"get", "list", "put"}), 1, 3, rapid.ID[string]).Draw(t, "commands")
		line := verb + " to=" + peer + " alpha " + strings.Join(commands, " ")
		r, err := run(line, []byte(text))
		var refusal *RefusedError
		if errors.Is(err, ErrNothing) || errors.As(err, &refusal) {
			refused++
			if refusal != nil && (strings.Contains(refusal.Text, "could not be") || strings.Contains(refusal.Text, "cannot be") || strings.Contains(refusal.Text, "more than what was asked")) {
				t.Fatalf("%s: %s\n%s", line, refusal.Text, text)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, text)
		}
		made++
		for _, issuer := range []string{"owner", "desk"} {
			for _, who := range []string{"maria", "agent", "third"} {
				for _, c := range []string{"get", "list", "put"} {
					for _, repo := range []string{"a", "b", "c"} {
						q := policy.Request{
							Issuer: must(name.ParsePeerID(ids[issuer])), Peer: must(name.ParsePeerID(ids[who])), Connector: must(name.ParseConnectorKey("alpha")),
							Version: must(name.ParseVersion("1")), Command: must(name.ParseCommand(c)), Arguments: []string{"--repo", repo}, Now: time.Now(),
						}
						was, is := before.Decide(q, source{}).Allowed, r.Policy.Decide(q, source{}).Allowed
						want := was
						if who == peer && strings.Contains(" "+strings.Join(commands, " ")+" ", " "+c+" ") {
							i, _ := before.Issuer(q.Issuer)
							want = verb == "allow" && i.MayName(q.Peer)
						}
						if is != want {
							t.Fatalf("%s: %s %s %s under %s: %v, want %v\n%s\n---\n%s", line, who, c, repo, issuer, is, want, text, r.Text)
						}
					}
				}
			}
		}
	})
	require.Greater(t, made, 30, "%d were refused", refused)
	t.Logf("%d edits, %d refused", made, refused)
}

// Who is dismissed may run nothing that an issuer does not lend to strangers, and nobody
// else has less or more than before.
func TestDismissDoesNothingElse(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawFile(t)
		before, err := policy.Parse("p", []byte(text))
		if err != nil {
			t.Skip("not a policy")
		}
		peer := rapid.SampledFrom([]string{"maria", "agent", "third"}).Draw(t, "peer")
		r, err := run("dismiss to="+peer, []byte(text))
		var refusal *RefusedError
		if errors.As(err, &refusal) && strings.Contains(refusal.Text, "alone") {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", peer, err, text)
		}
		made++
		if _, known := r.Policy.Peers()[must(name.ParseLabel(peer))]; known || strings.Contains(string(r.Text), ids[peer]) {
			t.Fatalf("%s is still there\n%s", peer, r.Text)
		}
		for _, issuer := range []string{"owner", "desk"} {
			for _, who := range []string{"maria", "agent", "third"} {
				for _, c := range []string{"get", "list", "put"} {
					for _, repo := range []string{"a", "b"} {
						q := policy.Request{
							Issuer: must(name.ParsePeerID(ids[issuer])), Peer: must(name.ParsePeerID(ids[who])), Connector: must(name.ParseConnectorKey("alpha")),
							Version: must(name.ParseVersion("1")), Command: must(name.ParseCommand(c)), Arguments: []string{"--repo", repo}, Now: time.Now(),
						}
						was, is := before.Decide(q, source{}).Allowed, r.Policy.Decide(q, source{}).Allowed
						i, _ := r.Policy.Issuer(q.Issuer)
						if who == peer && is && !i.HoldersAny || who != peer && is != was {
							t.Fatalf("without %s, %s %s %s under %s: %v, was %v\n%s\n---\n%s", peer, who, c, repo, issuer, is, was, text, r.Text)
						}
					}
				}
			}
		}
	})
	require.Greater(t, made, 30)
}
