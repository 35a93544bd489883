package metrics

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on a free port.
func serve(t *testing.T, m *Metrics) *Server {
	t.Helper()
	a, err := ParseAddress("127.0.0.1:0")
	require.NoError(t, err)
	s, err := Serve(t.Context(), a, m)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func get(t *testing.T, s *Server, method, path, host string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address().String()+path, nil)
	require.NoError(t, err)
	if host != "" {
		r.Host = host
	}
	a, err := c.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(b)
}

// scrape parses what the server says, as Prometheus does.
func scrape(t *testing.T, s *Server) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	status, body := get(t, s, http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusOK, status)
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	return families, body
}

// series are those of lend, with their labels and without their values.
func series(families map[string]*dto.MetricFamily) (out []string) {
	for name, f := range families {
		if !strings.HasPrefix(name, "lend_") {
			continue
		}
		for _, m := range f.GetMetric() {
			s := name
			for _, l := range m.GetLabel() {
				s += "," + l.GetName() + "=" + l.GetValue()
			}
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	m := New(Config{Version: "v1", Sample: func() Sample { return Sample{} }})
	s := serve(t, m)
	families, _ := scrape(t, s)
	before := series(families)
	for code := range 2000 { // numbers that no code has, too
		m.Refused(protocol.Code(code))
		m.Ended(protocol.Exit{Code: protocol.Code(code)})
	}
	for _, e := range append(events(), "evil\n{peer=\"x\"}", "", strings.Repeat("x", 1<<16)) {
		m.Event(e)
	}
	m.Admitted(time.Hour)
	m.Recorded(-time.Second)
	families, body := scrape(t, s)
	require.Equal(t, before, series(families), "what happens makes no series")
	require.NotContains(t, body, "evil")
	require.Less(t, len(before), 128, "few enough to read")
	labels := map[string]bool{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				labels[l.GetName()] = true
			}
		}
	}
	require.Equal(t, map[string]bool{
		"code": true, "stage": true, "stream": true, "event": true, "transport": true, "state": true,
		"version": true, "go": true,
	}, labels)
}

func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	require.Contains(t, families, name)
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if slices.Equal(have, labels) {
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	require.Fail(t, "no such series", "%s %v", name, labels)
	return 0
}

func TestCounts(t *testing.T) {
	t.Parallel()
	m := New(Config{Sample: func() Sample {
		return Sample{
			Running: 1, Kept: 2, KeptBytes: 3, TCP: 4, QUIC: 5, Other: 6, Streams: 7, TurnedAway: 8, Penalized: 9,
			Routes: 10, Busy: 11, Idle: 12, Policy: PolicyLastGood, LedgerFailed: true, Lockdown: true, RevocationsFailed: true,
		}
	}})
	m.Admitted(time.Millisecond)
	m.Recorded(time.Millisecond)
	m.Refused(protocol.CodeBusy)
	m.Refused(protocol.CodeOK) // no refusal: what it is is not known
	m.Ended(protocol.Exit{Code: protocol.CodeTimeout, Stdin: 1, Stdout: 2, Stderr: 3, Duration: time.Second})
	m.Event("policy.rejected")
	m.Event("nobody.knows")
	f, _ := scrape(t, serve(t, m))
	for series, want := range map[string]float64{
		"lend_operations_admitted_total": 1, "lend_operation_start_seconds": 1, "lend_operation_run_seconds": 1, "lend_ledger_record_seconds": 1,
		"lend_refusals_total code=BUSY stage=gateway": 1, "lend_refusals_total code=INTERNAL stage=gateway": 1, "lend_refusals_total code=DENIED stage=lease": 0,
		"lend_operations_ended_total code=TIMEOUT": 1, "lend_operations_ended_total code=OK": 0,
		"lend_operation_bytes_total stream=stdin": 1, "lend_operation_bytes_total stream=stdout": 2, "lend_operation_bytes_total stream=stderr": 3,
		"lend_events_total event=policy.rejected": 1, "lend_events_total event=other": 1,
		"lend_operations_running": 1, "lend_operations_kept": 2, "lend_kept_bytes": 3,
		"lend_connections transport=tcp": 4, "lend_connections transport=quic": 5, "lend_connections transport=other": 6, "lend_streams": 7,
		"lend_connections_refused_total": 8, "lend_peers_penalized": 9, "lend_routes": 10,
		"lend_supervisors state=busy": 11, "lend_supervisors state=idle": 12, "lend_ledger_failed": 1, "lend_lockdown": 1, "lend_revocations_failed": 1,
		"lend_policy_state state=last_good": 1, "lend_policy_state state=in_force": 0, "lend_policy_state state=missing": 0,
	} {
		part := strings.Fields(series)
		require.InDelta(t, want, value(t, f, part[0], part[1:]...), 0, series)
	}
	require.Contains(t, f, "go_goroutines")
	require.Contains(t, f, "process_open_fds")
}

// TestLint asks the rules of Prometheus about names and texts.
func TestLint(t *testing.T) {
	t.Parallel()
	_, body := scrape(t, serve(t, New(Config{})))
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestDocumentNamesEveryMetric compares docs/metrics.md with what is shown.
func TestDocumentNamesEveryMetric(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	named := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(lend_[a-z_]+)").FindAllStringSubmatch(string(doc), -1) {
		named[row[1]] = true
	}
	f, _ := scrape(t, serve(t, New(Config{})))
	for name := range f {
		if strings.HasPrefix(name, "lend_") {
			require.True(t, named[name], "docs/metrics.md has no row for %s", name)
			delete(named, name)
		}
	}
	require.Empty(t, named, "docs/metrics.md has rows for what is not there")
	known := string(doc)
	for _, e := range events() {
		require.Contains(t, known, "`"+e+"`")
	}
	for _, used := range regexp.MustCompile(`lend_[a-z_]+[a-z]`).FindAllString(known, -1) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(used, "_bucket"), "_count"), "_sum")
		require.Contains(t, f, base, "an example uses a metric that is not there")
	}
}

func TestOnlyLoopback(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"127.0.0.1:9464": "127.0.0.1:9464", "127.1.2.3:1": "127.1.2.3:1", "[::1]:9464": "[::1]:9464", "localhost:9464": "127.0.0.1:9464",
		"[::ffff:127.0.0.1]:9464": "127.0.0.1:9464",
	} {
		a, err := ParseAddress(in)
		require.NoError(t, err, in)
		require.Equal(t, want, a.String())
	}
	for _, in := range []string{
		"0.0.0.0:9464", "[::]:9464", ":9464", "192.168.1.1:9464", "[fe80::1%lo]:9464", "[::ffff:10.0.0.1]:9464", "[::1%lo]:9464",
		"example.org:9464", "localhost", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "", "127.1:9464", "unix:/x",
	} {
		_, err := ParseAddress(in)
		require.Error(t, err, in)
	}
	_, err := ParseAddress("10.0.0.1:80")
	require.ErrorIs(t, err, ErrNotLoopback)
	for _, a := range []string{"0.0.0.0:0", "[::]:0"} {
		_, err := Serve(t.Context(), netip.MustParseAddrPort(a), New(Config{}))
		require.ErrorIs(t, err, ErrNotLoopback)
	}
	_, err = Serve(t.Context(), netip.AddrPort{}, New(Config{}))
	require.ErrorIs(t, err, ErrNotLoopback)
}

func TestWhatIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, New(Config{}))
	port := fmt.Sprint(s.Address().Port())
	for title, c := range map[string]struct {
		method, path, host string
		status             int
	}{
		"metrics":                  {http.MethodGet, "/metrics", "", http.StatusOK},
		"head":                     {http.MethodHead, "/metrics", "", http.StatusOK},
		"by-name":                  {http.MethodGet, "/metrics", "localhost:" + port, http.StatusOK},
		"through-a-forwarded-port": {http.MethodGet, "/metrics", "127.0.0.1:1", http.StatusOK},
		"six":                      {http.MethodGet, "/metrics", "[::1]:" + port, http.StatusOK},
		"six-without-a-port":       {http.MethodGet, "/metrics", "[::1]", http.StatusOK},
		"rebound-name":             {http.MethodGet, "/metrics", "evil.example:" + port, http.StatusMisdirectedRequest},
		"name-like-ours":           {http.MethodGet, "/metrics", "localhost.evil.example", http.StatusMisdirectedRequest},
		"another-number":           {http.MethodGet, "/metrics", "192.168.1.1:" + port, http.StatusMisdirectedRequest},
		"post":                     {http.MethodPost, "/metrics", "", http.StatusMethodNotAllowed},
		"root":                     {http.MethodGet, "/", "", http.StatusNotFound},
		"profiles":                 {http.MethodGet, "/debug/pprof/", "", http.StatusNotFound},
		"variables":                {http.MethodGet, "/debug/vars", "", http.StatusNotFound},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			status, body := get(t, s, c.method, c.path, c.host)
			require.Equal(t, c.status, status)
			if status != http.StatusOK {
				require.NotContains(t, body, "lend_")
				require.NotContains(t, body, "evil")
			}
		})
	}
}

func raw(t *testing.T, s *Server, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.Address().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = io.WriteString(c, request) // the server may hang up first
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, New(Config{}))
	require.Equal(t, "HTTP/1.1 200 OK", raw(t, s, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	require.Contains(t, raw(t, s, "GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 Bad Request", "a request says whom it is for")
	long := "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", maxHeader+8<<10) + "\r\n\r\n"
	require.Contains(t, []string{"HTTP/1.1 431 Request Header Fields Too Large", ""}, raw(t, s, long))
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, New(Config{}))
	var held []net.Conn
	for range maxConns {
		c, err := net.Dial("tcp", s.Address().String())
		require.NoError(t, err)
		held = append(held, c)
		_, err = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
	}
	late, err := net.Dial("tcp", s.Address().String())
	require.NoError(t, err)
	defer late.Close()
	_, err = io.WriteString(late, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, late.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = late.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits for room")
	require.NoError(t, held[0].Close())
	require.NoError(t, late.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = late.Read(make([]byte, 1))
	require.NoError(t, err)
	for _, c := range held[1:] {
		require.NoError(t, c.Close())
	}
}

func TestCloseEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	a, err := ParseAddress("[::1]:0")
	require.NoError(t, err)
	s, err := Serve(t.Context(), a, New(Config{}))
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	c, err := net.Dial("tcp", s.Address().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = Serve(t.Context(), s.Address(), New(Config{}))
	require.Error(t, err, "the address is taken")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}

// A sample that takes its time holds no counter, and a scrape that takes too long
// is answered with an error.
func TestSlowSampleBlocksNoCounter(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	m := New(Config{Sample: sync.OnceValue(func() Sample {
		close(entered)
		<-leave
		return Sample{}
	})})
	done := make(chan string, 1)
	s := serve(t, m)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Address().String()+"/metrics", nil)
		a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			done <- err.Error()
			return
		}
		defer a.Body.Close()
		var b bytes.Buffer
		_, _ = b.ReadFrom(a.Body)
		done <- a.Status
	}()
	<-entered
	for range 1000 {
		m.Admitted(time.Second)
		m.Refused(protocol.CodeBusy)
		m.Ended(protocol.Exit{})
		m.Event("degraded")
	}
	close(leave)
	require.Equal(t, "200 OK", <-done)
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	s := serve(t, m)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				m.Admitted(time.Second)
				m.Recorded(time.Second)
				m.Ended(protocol.Exit{Stdout: 2})
			}
		})
	}
	for range 5 {
		scrape(t, s)
	}
	all.Wait()
	f, _ := scrape(t, s)
	require.InDelta(t, 2000, value(t, f, "lend_operations_admitted_total"), 0)
	require.InDelta(t, 4000, value(t, f, "lend_operation_bytes_total", "stream=stdout"), 0)
}
