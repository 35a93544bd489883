package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
)

func TestMetricsAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, "%s", errs)
	for title, c := range map[string]struct{ address, want string }{
		"every-address": {"0.0.0.0:9464", "only this machine"},
		"six":           {"[::]:9464", "only this machine"},
		"the-network":   {"192.0.2.1:9464", "only this machine"},
		"a-name":        {"example.org:9464", "not an address"},
		"no-port":       {"127.0.0.1", "not an address"},
		"a-port":        {"9464", "not an address"},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errs := lend(t, dir, "serve", "--listen", "/ip4/127.0.0.1/tcp/0", "--metrics", c.address)
			require.Equal(t, 2, code, "%s", errs)
			require.Empty(t, out)
			require.Contains(t, errs, c.want)
			require.Contains(t, errs, "lend: hint: --metrics 127.0.0.1:9464")
		})
	}
}

// TestServeShowsMetrics runs a gateway with metrics, asks for them, and finds them in
// its status.
func TestServeShowsMetrics(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, "%s", errs)
	r, w := io.Pipe()
	done := make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		done <- run(ctx, newApp([]string{"serve", "--json", "--listen", "/ip4/127.0.0.1/tcp/0", "--metrics", "localhost:0", "--dir", dir}, nil, w, io.Discard))
	}()
	var said struct{ Metrics string }
	require.NoError(t, json.NewDecoder(bufio.NewReader(r)).Decode(&said))
	go func() { _, _ = io.Copy(io.Discard, r) }() // ends with the pipe
	require.Regexp(t, `^http://127\.0\.0\.1:[0-9]+/metrics$`, said.Metrics)

	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	a, err := c.Get(said.Metrics)
	require.NoError(t, err)
	body, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	require.Contains(t, string(body), "\nlend_policy_state{state=\"in_force\"} 1\n")
	require.Contains(t, string(body), "\nlend_build_info{")

	shown := func() string {
		a, err := c.Get(said.Metrics)
		require.NoError(t, err)
		defer func() { _ = a.Body.Close() }()
		b, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return string(b)
	}
	policy, err := os.ReadFile(filepath.Join(dir, "policy.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("policy: 2\n"), 0o600))
	require.Eventually(t, func() bool { return strings.Contains(shown(), `lend_policy_state{state="last_good"} 1`) }, 20*time.Second, 50*time.Millisecond)
	require.Contains(t, shown(), `lend_events_total{event="policy.rejected"} 1`)
	require.NoError(t, os.Remove(filepath.Join(dir, "policy.yaml")))
	require.Eventually(t, func() bool { return strings.Contains(shown(), `lend_policy_state{state="missing"} 1`) }, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), policy, 0o600))
	require.Eventually(t, func() bool { return strings.Contains(shown(), `lend_policy_state{state="in_force"} 1`) }, 20*time.Second, 50*time.Millisecond)
	require.Contains(t, shown(), "\nlend_lockdown 0\n")
	code, _, errs = lend(t, dir, "lockdown")
	require.Zero(t, code, "%s", errs)
	require.Eventually(t, func() bool { return strings.Contains(shown(), "\nlend_lockdown 1\n") }, 20*time.Second, 50*time.Millisecond)
	code, _, errs = lend(t, dir, "unlock")
	require.Zero(t, code, "%s", errs)
	require.Eventually(t, func() bool { return strings.Contains(shown(), "\nlend_lockdown 0\n") }, 20*time.Second, 50*time.Millisecond)

	status, err := admin.NewClient(filepath.Join(dir, "run", "admin.sock")).Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, said.Metrics, status.Metrics)
	code, out, _ := lend(t, dir, "status")
	require.Zero(t, code)
	require.Contains(t, out, said.Metrics)

	stop()
	require.Zero(t, <-done)
	require.NoError(t, w.Close())
	_, err = c.Get(said.Metrics) //nolint:bodyclose // nobody is there
	require.Error(t, err)
}
