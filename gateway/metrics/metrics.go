package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lendcli/lend/protocol"
)

// Config is what New needs.
type Config struct {
	// Version is this program's, for lend_build_info.
	Version string
	// Sample is called for each scrape, never twice at the same time. nil means a
	// gateway of which nothing is known: all zero.
	Sample func() Sample
}

// Metrics counts. Its methods are safe for concurrent use, never block and never
// fail; codes and events that it does not know count as INTERNAL and "other".
type Metrics struct {
	registry *prometheus.Registry
	admitted prometheus.Counter
	refused  map[protocol.Code]prometheus.Counter
	ended    map[protocol.Code]prometheus.Counter
	bytes    [3]prometheus.Counter // stdin, stdout, stderr
	events   map[string]prometheus.Counter
	start    prometheus.Histogram
	run      prometheus.Histogram
	record   prometheus.Histogram
}

// otherEvent is the label of an event that no constant of events names.
const otherEvent = "other"

// events are the names that the gateway gives to what it records.
func events() []string {
	return []string{
		"gateway.started", "gateway.stopped",
		"policy.loaded", "policy.rejected", "policy.missing", "policy.restored",
		"revocation.added", "lockdown.on", "lockdown.off",
		"peer.invited", "peer.paired", "peer.refused",
		"degraded", "recovered", "checkpoint.kept",
		otherEvent,
	}
}

// New returns a Metrics with every series at zero.
func New(c Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		admitted: counter("operations_admitted_total", "Operations for which a process was started."),
		refused:  map[protocol.Code]prometheus.Counter{}, ended: map[protocol.Code]prometheus.Counter{}, events: map[string]prometheus.Counter{},
		start:  histogram("operation_start_seconds", "From a whole Start frame to a running process.", prometheus.ExponentialBuckets(0.001, 2.5, 11)),
		run:    histogram("operation_run_seconds", "From the start of a process to its end.", prometheus.ExponentialBuckets(0.01, 4, 10)),
		record: histogram("ledger_record_seconds", "To make the record of a start durable.", prometheus.ExponentialBuckets(0.0001, 4, 9)),
	}
	refused := counters("refusals_total", "Requests that were refused: nothing ran.", "code", "stage")
	ended := counters("operations_ended_total", "Operations that ended, by why: OK is by itself.", "code")
	for code := protocol.CodeOK; code <= protocol.CodeInternal; code++ {
		if code.Stage() == "" {
			continue // a number that no code has
		}
		if code.CanRefuse() {
			m.refused[code] = refused.WithLabelValues(code.String(), string(code.Stage()))
		}
		if code.CanEnd() {
			m.ended[code] = ended.WithLabelValues(code.String())
		}
	}
	bytes := counters("operation_bytes_total", "Bytes of operations that have ended.", "stream")
	for s, name := range []string{"stdin", "stdout", "stderr"} {
		m.bytes[s] = bytes.WithLabelValues(name)
	}
	happened := counters("events_total", "What was recorded beside operations and refusals.", "event")
	for _, e := range events() {
		m.events[e] = happened.WithLabelValues(e)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "lend", Name: "build_info", Help: "1, with what runs.",
		ConstLabels: prometheus.Labels{"version": c.Version, "go": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.admitted, refused, ended, bytes, happened, m.start, m.run, m.record, build, newSampler(c.Sample),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Admitted counts an operation whose process runs; took is the time since its Start
// frame was read.
func (m *Metrics) Admitted(took time.Duration) {
	m.admitted.Inc()
	m.start.Observe(took.Seconds())
}

// Recorded counts a durable record of a start, and how long it took.
func (m *Metrics) Recorded(took time.Duration) { m.record.Observe(took.Seconds()) }

// Refused counts a refusal.
func (m *Metrics) Refused(c protocol.Code) { of(m.refused, c, protocol.CodeInternal).Inc() }

// Ended counts an end and the bytes of the operation.
func (m *Metrics) Ended(x protocol.Exit) {
	of(m.ended, x.Code, protocol.CodeInternal).Inc()
	m.run.Observe(x.Duration.Seconds())
	for s, n := range [...]uint64{x.Stdin, x.Stdout, x.Stderr} {
		m.bytes[s].Add(float64(n))
	}
}

// Event counts an event of the ledger.
func (m *Metrics) Event(name string) { of(m.events, name, otherEvent).Inc() }

func of[K comparable](from map[K]prometheus.Counter, key, other K) prometheus.Counter {
	if c, ok := from[key]; ok {
		return c
	}
	return from[other]
}

// handler answers scrapes, four at a time.
func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4, Timeout: answerTimeout, DisableCompression: true,
	})
}

// Names returns the names of the metrics of lend, sorted: those of the Go runtime
// and of the process are of the client library.
func (m *Metrics) Names() ([]string, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what
	}
	var out []string
	for _, f := range families {
		if n := f.GetName(); len(n) > 5 && n[:5] == "lend_" {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lend", Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lend", Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "lend", Name: name, Help: help, Buckets: buckets})
}
