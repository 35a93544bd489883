package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/metrics"
	"github.com/lendcli/lend/gateway/policyfile"
)

// counters are the metrics of a gateway; the zero value is none.
type counters struct {
	address netip.AddrPort
	counts  *metrics.Metrics
	server  *metrics.Server
}

// newCounters counts for what is to be served at address; "" is none.
func newCounters(address string, sample func() metrics.Sample) (counters, error) {
	if address == "" {
		return counters{}, nil
	}
	a, err := metrics.ParseAddress(address)
	if errors.Is(err, metrics.ErrNotLoopback) {
		return counters{}, usagef("--metrics 127.0.0.1:9464", "--metrics %q: only this machine may read them; forward the port, or run the collector here", address)
	}
	if err != nil {
		return counters{}, usagef("--metrics 127.0.0.1:9464", "--metrics %q: not an address and a port", address)
	}
	return counters{address: a, counts: metrics.New(metrics.Config{Version: buildVersion().Version, Sample: sample})}, nil
}

// observer is what the gateway tells; nil if nobody wants to know.
func (c *counters) observer() gateway.Observer {
	if c.counts == nil {
		return nil
	}
	return c.counts
}

// serve shows them.
func (c *counters) serve(ctx context.Context) (err error) {
	if c.counts == nil {
		return nil
	}
	if c.server, err = metrics.Serve(ctx, c.address, c.counts); err != nil {
		return hintf("--metrics 127.0.0.1:0", "%w", err)
	}
	return nil
}

// url is where they are; "" if nowhere.
func (c *counters) url() string {
	if c.server == nil {
		return ""
	}
	return "http://" + c.server.Address().String() + "/metrics"
}

func (c *counters) close() error {
	if c.server == nil {
		return nil
	}
	return c.server.Close()
}

// sample is how the gateway is now.
func (s *serving) sample() metrics.Sample {
	n := s.node.Status()
	out := metrics.Sample{
		Kept: len(n.Operations), KeptBytes: n.Memory, TCP: n.Links.TCP, QUIC: n.Links.QUIC, Other: n.Links.Other,
		Streams: n.Links.Streams, TurnedAway: n.Links.TurnedAway, Penalized: len(n.Penalties), LedgerFailed: n.LedgerErr != nil,
	}
	for i := range n.Operations {
		if !n.Operations[i].Ended {
			out.Running++
		}
	}
	_, routes := s.side.host.Routes().Snapshot()
	out.Routes = len(routes)
	out.Busy, out.Idle = s.side.transport.Supervisors()
	out.Lockdown = s.revoked.Lockdown() != nil
	out.RevocationsFailed = !out.Lockdown && s.revoked.Locked() != nil
	switch s.policy.Status().State {
	case policyfile.InForce:
		out.Policy = metrics.PolicyInForce
	case policyfile.LastGood:
		out.Policy = metrics.PolicyLastGood
	case policyfile.Missing:
	}
	return out
}
