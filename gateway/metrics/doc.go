// Package metrics counts what a gateway does, for Prometheus.
//
// A Metrics implements gateway.Observer: the gateway tells it of each admission,
// refusal, end and event. What is a state and not a count (running operations,
// connections, kept bytes) is asked for when somebody scrapes: see Sample. Serve
// shows all of it at /metrics on a loopback address.
//
// Invariants:
//   - Every label has a closed set of values, which this program knows before the
//     first peer connects, and every series exists from the start. No peer, no
//     invocation, Connector, command, argument or other text from outside is a
//     label or a value. So the number of series is a constant.
//   - The registry is this package's own. What libraries put into the global one is
//     not shown.
//   - Counting never blocks, and takes no lock that a scrape holds.
//
// The table of the metrics is in docs/metrics.md.
package metrics
