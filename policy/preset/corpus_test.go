package preset

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

// call is one line of a corpus.
type call struct {
	at, command, code string
	args, argv        []string
}

func corpus(t testing.TB, file string) (out []call) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if strings.HasPrefix(line, "#") {
			continue
		}
		c := call{at: file + ":" + strconv.Itoa(n)}
		w := words(t, c.at, line)
		switch w[0] {
		case "accept":
			i := slices.Index(w, "=>")
			require.Positive(t, i, c.at)
			c.command, c.args, c.argv = w[1], w[2:i], w[i+1:]
		case "reject":
			c.code, c.command, c.args = w[1], w[2], w[3:]
		default:
			require.Fail(t, "not a case", c.at)
		}
		out = append(out, c)
	}
	return out
}

func words(t testing.TB, at, line string) (out []string) {
	t.Helper()
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		prefix, err := strconv.QuotedPrefix(line)
		if err != nil || line[0] != '"' {
			prefix, line, _ = strings.Cut(line, " ")
			out = append(out, prefix)
			continue
		}
		line = line[len(prefix):]
		word, err := strconv.Unquote(prefix)
		require.NoError(t, err, at)
		out = append(out, word)
	}
	return out
}

// world is a preset with the policy that it makes for its examples.
type world struct {
	preset Preset
	policy *policy.Policy
	calls  []call
}

func (w world) decide(command string, args []string) policy.Decision {
	n, err := name.ParseCommand(command)
	if err != nil {
		return policy.Decision{}
	}
	return w.policy.Decide(policy.Request{
		Issuer: must(name.ParsePeerID(ownerID)), Peer: must(name.ParsePeerID(laptopID)), Connector: w.preset.Connector,
		Version: w.preset.Versions[0], Command: n, Arguments: args, Now: time.Unix(1_800_000_000, 0),
	}, bare{w.preset.CLI})
}

func worlds(t *testing.T) map[string]world {
	t.Helper()
	out := map[string]world{}
	for _, p := range all(t) {
		w := world{preset: p}
		v := full(p)
		if p.Name == "stripe" {
			f, err := p.Render(v)
			require.NoError(t, err)
			out["stripe-account"] = world{p, load(t, f), corpus(t, "stripe-account.txt")}
			v.Set = nil
		}
		f, err := p.Render(v)
		require.NoError(t, err)
		w.policy, w.calls = load(t, f), corpus(t, p.Name+".txt")
		out[p.Name] = w
	}
	return out
}

func TestCorpus(t *testing.T) {
	most := map[string]int{"gh": 100, "stripe": 60, "lark": 50, "stripe-account": 6}
	for title, w := range worlds(t) {
		t.Run(title, func(t *testing.T) {
			tricks, used := 0, map[string]bool{}
			for _, c := range w.calls {
				d := w.decide(c.command, c.args)
				if c.code == "" {
					require.True(t, d.Allowed, "%s: %v", c.at, d.Err)
					require.Equal(t, c.argv, d.Call.Arguments, c.at)
					require.Empty(t, d.Call.Environment)
					require.Nil(t, d.Call.Stdin)
					used[c.command] = true
					continue
				}
				tricks++
				require.False(t, d.Allowed, "%s: %q", c.at, d.Call.Arguments)
				require.Equal(t, c.code, d.Reason.Code(), "%s: %v", c.at, d.Err)
			}
			require.GreaterOrEqual(t, tricks, most[title])
			if title == "gh" || title == "lark" {
				for _, n := range w.preset.Commands {
					require.True(t, used[n], "no call of %s in the corpus", n)
				}
			}
		})
	}
}

// harmful are words that no preset passes on, wherever they stand.
var harmful = []string{
	"--web", "-w", "--jq", "--jq=env", "-q", "-qenv", "--template={{.}}", "-t", "--search=repo:other/one", "-S", "--help", "--hostname=evil.example", "--log", "--log-failed", "--watch",
	"--repo=other/one", "-Rother/one", "--repo=evil.example/acme/site", "https://github.com/other/one/issues/1", "../../x", "..", "-", "--", "--foo", "@/etc/passwd", "file:///etc/passwd", "",
	"--expand=data.payment_intent", "-e", "-d", "-dx=1", "--data=x=1", "--api-key=sk", "--api-base=https://evil.example", "--stripe-account=acct_other0000", "--live", "--dry-run", "--show-headers", "-s=1",
	"--config=/etc/passwd", "--project-name=x", "--log-level=trace", "--as=bot", "--profile=x", "--user-id=ou_1", "--params={}", "--output=x", "--output", "--download-resources", "--page-all", "--filter-json=@x",
	"--chat-id=oc_other00000000", "--doc=https://acme.feishu.cn/docx/Other", "--base-token=Other", "--exec=id", "--editor=id", "--pager=id", "$(id)", "`id`", "; id", "a\x00b", "\u202ex", "\xff", "\n", "--repo\u00a0acme/site", "--repo=acme/site\n",
}

// Each accepted call with one such word put at any place is refused; "--" alone says
// nothing where no option follows.
func TestHarmfulWords(t *testing.T) {
	for title, w := range worlds(t) {
		n := 0
		for _, c := range w.calls {
			for _, word := range harmful {
				for at := 0; c.code == "" && at <= len(c.args); at++ {
					args := slices.Insert(slices.Clone(c.args), at, word)
					d := w.decide(c.command, args)
					n++
					if d.Allowed {
						require.Equal(t, "--", word, "%s: %s %q gives %q", title, c.at, args, d.Call.Arguments)
						require.Equal(t, c.argv, d.Call.Arguments)
						continue
					}
					require.Equal(t, "ARGUMENT_REJECTED", d.Reason.Code())
				}
			}
		}
		require.Greater(t, n, 500, title)
	}
}

// What pins a call cannot be left out or changed: each accepted call without its
// resource, or with another, is refused.
func TestPins(t *testing.T) {
	pins := map[string]map[string][]string{
		"gh":             {"acme/site": {"other/one", "evil.example/acme/site", "https://github.com/acme/site", "acme/site.git", "Acme/site", "acme/site "}},
		"stripe-account": {"acct_1AbCdEfGhIjKlMnO": {"acct_1AbCdEfGhIjKlMnP", "acct_other0000", "default"}},
		"lark": {
			"oc_0123456789abcdef": {"oc_0123456789abcdeg", "ou_0123456789abcdef"}, "DoxcnAbCdEfGhIjKlMnOp": {"https://acme.feishu.cn/docx/DoxcnAbCdEfGhIjKlMnOp", "Other"},
			"BascnAbCdEfGhIjKlMnOp": {"https://acme.feishu.cn/base/BascnAbCdEfGhIjKlMnOp", "Other"}, "tblAbCdEfGhIjKl": {"tblOther0000", "Orders"}, "primary": {"other@group.calendar.feishu.cn"},
		},
	}
	for title, w := range worlds(t) {
		for _, c := range w.calls {
			if c.code != "" || pins[title] == nil || c.command == "task.mine" {
				continue
			}
			found := 0
			for i, a := range c.args {
				flag, value, attached := strings.Cut(a, "=")
				if !attached {
					flag, value = "", a
				}
				for _, instead := range pins[title][value] {
					found++
					args := slices.Clone(c.args)
					args[i] = instead
					if attached {
						args[i] = flag + "=" + instead
					}
					require.Equal(t, "ARGUMENT_REJECTED", w.decide(c.command, args).Reason.Code(), "%s: %q", c.at, args)
				}
				if pins[title][value] == nil {
					continue
				}
				from := i
				if !attached && i > 0 && strings.HasPrefix(c.args[i-1], "-") && c.command != "repo.view" {
					from--
				}
				d := w.decide(c.command, slices.Delete(slices.Clone(c.args), from, i+1))
				require.False(t, d.Allowed, "%s without %s", c.at, a)
				require.Equal(t, "ARGUMENT_REJECTED", d.Reason.Code())
			}
			require.Positive(t, found, "%s has no pin", c.at)
		}
	}
}
