package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// PolicyState says which policy decides. The zero value is PolicyMissing, under
// which everything is denied.
type PolicyState uint8

// The states of the policy.
const (
	PolicyMissing  PolicyState = iota // there is none: all new work is denied
	PolicyInForce                     // the file as it is
	PolicyLastGood                    // the file is bad; what it was before holds
)

// policyStates are their labels, in their order.
func policyStates() []string { return []string{"missing", "in_force", "last_good"} }

// Sample is how a gateway is at one moment.
type Sample struct {
	// Running counts operations that have not ended; Kept those whose input, output
	// or end is kept for a caller, and KeptBytes what that takes.
	Running, Kept int
	KeptBytes     int64
	// TCP, QUIC and Other count connections by transport, and Streams those of all.
	TCP, QUIC, Other int
	Streams          int
	// TurnedAway counts connections that were refused before any frame, ever.
	TurnedAway uint64
	// Penalized counts peers that are refused for a while.
	Penalized int
	// Routes counts what can be started.
	Routes int
	// Busy and Idle count supervisors.
	Busy, Idle int
	Policy     PolicyState
	// LedgerFailed: nothing is admitted, since nothing can be recorded.
	LedgerFailed bool
	// Lockdown: the owner denies everything. RevocationsFailed: what was revoked
	// cannot be read, so everything is.
	Lockdown, RevocationsFailed bool
}

// sampler is the collector of one Sample a scrape.
type sampler struct {
	mu    sync.Mutex // held while a sample is taken
	take  func() Sample
	state map[string]*prometheus.Desc
}

func newSampler(take func() Sample) *sampler {
	if take == nil {
		take = func() Sample { return Sample{} }
	}
	s := &sampler{take: take, state: map[string]*prometheus.Desc{}}
	for _, d := range []struct{ name, help, label string }{
		{"operations_running", "Operations that have not ended.", ""},
		{"operations_kept", "Operations of which something is kept for a caller, running or ended.", ""},
		{"kept_bytes", "Input and output that is kept for callers.", ""},
		{"connections", "Connections of peers.", "transport"},
		{"streams", "Streams of peers.", ""},
		{"connections_refused_total", "Connections that were refused before any frame, since the policy does not admit the peer.", ""},
		{"peers_penalized", "Peers that are refused for a while; new strangers count as one.", ""},
		{"routes", "Connectors that can be started.", ""},
		{"supervisors", "Processes that start commands, by what they do.", "state"},
		{"policy_state", "1 for the state of the policy file that holds.", "state"},
		{"ledger_failed", "1 while nothing is admitted because nothing can be recorded.", ""},
		{"lockdown", "1 while the owner denies everything.", ""},
		{"revocations_failed", "1 while everything is revoked, because what was revoked cannot be read.", ""},
	} {
		var labels []string
		if d.label != "" {
			labels = []string{d.label}
		}
		s.state[d.name] = prometheus.NewDesc("lend_"+d.name, d.help, labels, nil)
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *sampler) Describe(to chan<- *prometheus.Desc) {
	for _, d := range s.state {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *sampler) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	v := s.take()
	s.mu.Unlock()
	send := func(kind prometheus.ValueType, name string, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(s.state[name], kind, value, labels...)
	}
	gauge := func(name string, value int, labels ...string) {
		send(prometheus.GaugeValue, name, float64(value), labels...)
	}
	gauge("operations_running", v.Running)
	gauge("operations_kept", v.Kept)
	send(prometheus.GaugeValue, "kept_bytes", float64(v.KeptBytes))
	gauge("connections", v.TCP, "tcp")
	gauge("connections", v.QUIC, "quic")
	gauge("connections", v.Other, "other")
	gauge("streams", v.Streams)
	send(prometheus.CounterValue, "connections_refused_total", float64(v.TurnedAway))
	gauge("peers_penalized", v.Penalized)
	gauge("routes", v.Routes)
	gauge("supervisors", v.Busy, "busy")
	gauge("supervisors", v.Idle, "idle")
	for i, name := range policyStates() {
		gauge("policy_state", one(int(v.Policy) == i), name)
	}
	gauge("ledger_failed", one(v.LedgerFailed))
	gauge("lockdown", one(v.Lockdown))
	gauge("revocations_failed", one(v.RevocationsFailed))
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
