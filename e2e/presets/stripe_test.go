//go:build linux

package presets

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
)

const (
	stripeVersion = "1.52.0"
	stripeKey     = "rk_test_canary0123456789"
)

// installStripe gets the CLI from the registry: its packages have the program in them.
func installStripe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(context.Background(), "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "@stripe/cli@"+stripeVersion)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	program := filepath.Join(dir, "node_modules", "@stripe", "cli-linux-"+arch, "bin", "stripe")
	_, err = os.Stat(program)
	require.NoError(t, err)
	return program
}

func answerStripe(r request) (string, string) {
	return "application/json", `{"object":"list","data":[{"id":"cus_1","description":"lent"}],"has_more":false}`
}

func stripeSettings(s *service) map[string]string {
	return map[string]string{"HTTPS_PROXY": s.proxy, "SSL_CERT_FILE": s.ca, "STRIPE_CLI_TELEMETRY_OPTOUT": "1"}
}

var lentKinds = regexp.MustCompile(`^/v1/(balance|(balance_transactions|charges|coupons|credit_notes|customers|disputes|invoiceitems|invoices|payouts|prices|products|promotion_codes|refunds|subscription_schedules|subscriptions|tax_rates|transfers)(/[A-Za-z0-9_-]+)?)(\?[a-z_]+=[^&\[]*(&[a-z_]+=[^&\[]*)*)?$`)

func TestStripe(t *testing.T) {
	rig.Need(t, "npm")
	program := installStripe(t)
	s := serve(t, []string{"api.stripe.com", "r.stripe.com"}, answerStripe)
	l := lend(t, program, "stripe", stripeVersion, stripeSettings(s), [2]string{"STRIPE_API_KEY", stripeKey}, asItIs, "stripe")
	require.Contains(t, l.Lend(l.Owner, "policy", "check"), "caller may run stripe customers.list")
	calls := corpus(t, "stripe.txt")
	t.Run("flags", func(t *testing.T) {
		flags(t, l.declared(t), func(arguments []string) string { return alone(t, program, nil, append(arguments, "--help")...) })
	})
	t.Run("calls", func(t *testing.T) {
		for _, c := range calls {
			if c.code != "" {
				continue
			}
			status, stdout, stderr := l.run(t, c)
			require.Zero(t, status, "%s: %s", c.at, stderr)
			require.Contains(t, stdout, "lent")
			require.NotContains(t, stdout+stderr, "canary", c.at)
			asked := s.taken()
			require.Len(t, asked, 1, c.at)
			r := asked[0]
			require.Equal(t, "api.stripe.com GET Bearer "+stripeKey, r.host+" "+r.method+" "+r.authorization)
			require.Regexp(t, lentKinds, r.path, c.at)
			require.True(t, strings.HasPrefix(r.path, "/v1/"+c.argv[0]), c.at)
		}
	})
	t.Run("tricks", func(t *testing.T) { l.refused(t, calls, func() int { return len(s.taken()) }) })
}

// Each trick is one: stripe by itself does what the preset is there to refuse.
func TestTricksOfStripe(t *testing.T) {
	rig.Need(t, "npm")
	program := installStripe(t)
	s := serve(t, []string{"api.stripe.com", "r.stripe.com"}, answerStripe)
	env := []string{"STRIPE_API_KEY=" + stripeKey}
	for n, v := range stripeSettings(s) {
		env = append(env, n+"="+v)
	}
	for path, args := range map[string][]string{
		"/v1/payment_intents": {"customers", "retrieve", "../payment_intents"},
		"/v1/charges":         {"customers", "retrieve", "cus_1/../../charges"},
		"/v1/charges?expand[]=data.payment_intent":   {"charges", "list", "--expand", "data.payment_intent"},
		"/v1/customers?expand[]=data.default_source": {"customers", "list", "-d", "expand[]=data.default_source"},
		"/v1/events":                  {"get", "/v1/events"},
		"/v1/payment_intents?limit=1": {"payment_intents", "list", "--limit", "1"},
	} {
		out := alone(t, program, env, args...)
		asked := s.taken()
		require.Len(t, asked, 1, "%q: %s", args, out)
		require.Equal(t, path, strings.ReplaceAll(strings.ReplaceAll(asked[0].path, "%5B", "["), "%5D", "]"))
	}
}
