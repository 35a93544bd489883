package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/observe"
	"github.com/lendcli/lend/localhost/probe"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/signature"
)

// lookTime bounds how long a status waits for the disk.
const lookTime = 2 * time.Second

// watching looks at the Connectors beside the gateway, which knows nothing of it.
type watching struct {
	routes   *route.Registry
	prober   *probe.Prober
	observer *observe.Observer
}

func newWatching(store string, publishers *signature.File, host *localhost.Host, log zerolog.Logger) *watching {
	return &watching{
		routes:   host.Routes(),
		prober:   probe.New(probe.Config{Routes: host.Routes(), Starter: host, Log: log}),
		observer: observe.New(observe.Config{Store: store, Publishers: publishers, Routes: host.Routes(), Receipts: receiptsOf(host)}),
	}
}

// close ends the probe that runs. It comes before the host's.
func (w *watching) close() error {
	w.prober.Close()
	w.observer.Close()
	return nil
}

func receiptsOf(host *localhost.Host) func() []observe.Receipt {
	return func() (out []observe.Receipt) {
		for _, r := range host.Receipts() {
			out = append(out, observe.Receipt{Identity: r.Identity, State: string(r.State), Problem: r.Err != nil, At: r.At})
		}
		return out
	}
}

// look is the newest snapshot, and looks at the disk if it answers in time.
func (w *watching) look(ctx context.Context) observe.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if s, err := w.observer.Refresh(ctx); err == nil {
		return s
	}
	return w.observer.Now()
}

// show adds to a status what its routes are called, whether they are ready, and what
// is so of the Connectors.
func (w *watching) show(ctx context.Context, out *admin.Status, routes []route.Descriptor) {
	aliases := make(map[string]route.Hint)
	for _, h := range route.Hints(routes) {
		aliases[h.Connector.String()] = h
	}
	for i := range out.Routes {
		r := &out.Routes[i] // in the order of the routes
		h := aliases[r.Connector]
		r.DisplayName, r.Aliases = h.DisplayName, h.Aliases
		w.readiness(r, routes[i])
	}
	s := w.look(ctx)
	out.RoutesRevision, _ = w.routes.Snapshot()
	out.ObservedRevision, out.Observed = s.Revision, []admin.Observed{}
	for _, c := range s.Connections {
		out.Observed = append(out.Observed, observedShown(c))
	}
	if s.Problem != "" {
		out.Warnings = append(out.Warnings, "the installed connectors cannot be looked at: "+s.Problem)
	}
}

// readiness adds what the probe of a route found. What blocks a start is told first.
func (w *watching) readiness(r *admin.Route, d route.Descriptor) {
	found := w.prober.Of(d)
	r.Readiness, r.ReadinessReason = string(found.State), string(found.Reason)
	if !found.At.IsZero() {
		r.ProbedAt = &found.At
	}
	if !r.Ready || found.State == probe.Ready || found.Reason == probe.NoProbe {
		return
	}
	r.Ready = found.State != probe.NotReady
	r.Reason = found.String()
	if r.Ready {
		r.Reason = "readiness " + r.Reason
	}
}

func observedShown(c observe.Connection) admin.Observed {
	o := admin.Observed{
		Connector: c.Connector.String(), Version: c.Version.String(), Connection: c.Connection.String(),
		Installed: string(c.Installed), InstalledReason: string(c.Reason), Digest: c.Digest,
		RouteDigest: c.Route.ReleaseDigest, Generation: c.Route.Generation.Number, Outdated: c.Outdated(),
		Starting: c.Starting, Running: c.Running, Leaving: c.Leaving, Draining: c.Draining,
		Reconciled: c.Receipt.State, ReconcileFailed: c.Receipt.Problem,
	}
	if !c.Receipt.At.IsZero() {
		o.ReconciledAt = &c.Receipt.At
	}
	return o
}

// observedRows are what a person should know of the Connectors beside their routes.
func observedRows(s admin.Status) (rows [][]string) {
	for _, o := range s.Observed {
		if text := observedText(o); text != "" {
			where := strings.TrimSpace(o.Connector + " " + o.Version)
			if o.Connection != "" {
				where += " (" + o.Connection + ")"
			}
			rows = append(rows, []string{"observed", where + ": " + text})
		}
	}
	return rows
}

// observedText is empty if all is as it should be: installed, current, and nothing
// left of routes before.
func observedText(o admin.Observed) string {
	var all []string
	switch {
	case o.InstalledReason == string(inspect.Superseded) && o.Draining > 0:
	case o.Installed != string(inspect.Present):
		all = append(all, installedText(o.Installed, o.InstalledReason))
	case o.Outdated:
		all = append(all, "the disk has another release than the route")
	case o.Generation == 0 && o.ReconcileFailed:
		all = append(all, "no route; the log says why")
	case o.Generation == 0 && o.Reconciled == string(localhost.StateDisabled):
		all = append(all, "disabled")
	case o.Generation == 0:
		all = append(all, "no route")
	}
	if o.Draining > 0 {
		all = append(all, fmt.Sprintf("draining, replaced by an update; operations that still run: %d", o.Draining))
	}
	if closing := o.Leaving - o.Draining; closing > 0 {
		all = append(all, fmt.Sprintf("still running of a route that is gone: %d", closing))
	}
	return strings.Join(all, ", ")
}

func installedText(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + " (" + reason + ")"
}

// shownLive is what a running gateway says of one release.
type shownLive struct {
	Serving  bool             `json:"serving"` // a gateway runs
	Routes   []admin.Route    `json:"routes"`
	Observed []admin.Observed `json:"observed"`
}

// live asks the running gateway, if there is one.
func (a *app) live(ctx context.Context, key, version string) (shownLive, error) {
	out := shownLive{Routes: []admin.Route{}, Observed: []admin.Observed{}}
	p, err := a.paths()
	if err != nil {
		return out, err
	}
	s, err := admin.NewClient(p.socket).Status(ctx)
	if errors.Is(err, admin.ErrNotRunning) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Serving = true
	for _, r := range s.Routes {
		if r.Connector == key && r.Version == version {
			out.Routes = append(out.Routes, r)
		}
	}
	for _, o := range s.Observed {
		if o.Connector == key && o.Version == version {
			out.Observed = append(out.Observed, o)
		}
	}
	return out, nil
}

// rows say whether each connection is ready, and since when that is known.
func (l shownLive) rows() (rows [][]string) {
	if !l.Serving {
		return [][]string{{"readiness", "unknown: no gateway is running"}}
	}
	for _, r := range l.Routes {
		text := r.Readiness
		switch {
		case r.Reason != "":
			text = strings.TrimPrefix(r.Reason, "readiness ")
		case r.ReadinessReason == string(probe.NoProbe):
			text = "unknown: it declares no probe"
		}
		if r.ProbedAt != nil {
			text += ", probed " + r.ProbedAt.Format(time.RFC3339)
		}
		rows = append(rows, []string{"readiness", r.Connection + ": " + text})
	}
	for _, o := range l.Observed {
		text := fmt.Sprintf("%s: generation %d, %d running", o.Connection, o.Generation, o.Running)
		if o.Generation == 0 {
			text = strings.TrimPrefix(o.Connection+": ", ": ") + observedText(o)
		} else if more := observedText(o); more != "" {
			text += ", " + more
		}
		rows = append(rows, []string{"observed", text})
	}
	return rows
}
