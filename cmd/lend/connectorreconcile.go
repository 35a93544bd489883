package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// Reconcile implements admin.Backend. It is an error if nothing was looked at.
func (s *serving) Reconcile(ctx context.Context) (admin.Reconciled, error) {
	receipts, err := s.side.host.Reconcile(ctx)
	s.policy.Check() // its tests and its lint are about the Connectors
	if err != nil && len(receipts) == 0 {
		return admin.Reconciled{}, err
	}
	return reconciledShown(receipts, err), nil
}

// reconciledShown is what the receipts of one reconciliation, sorted by Connector, say.
func reconciledShown(receipts []localhost.Receipt, err error) admin.Reconciled {
	out := admin.Reconciled{
		SchemaVersion: admin.SchemaVersion, Published: []admin.Route{}, Retired: []admin.Route{}, Connectors: []admin.Outcome{},
	}
	for _, r := range receipts {
		shown := routeShown(r.Identity)
		if r.Blocked != nil {
			shown.Ready, shown.Reason = false, notReady(r.Blocked)
		}
		gone := retiredShown(r.Identity)
		if r.Err != nil {
			gone.Reason = strings.ReplaceAll(r.Err.Error(), "\n", "; ")
		}
		if n := len(out.Connectors); n == 0 || out.Connectors[n-1].Connector != gone.Connector {
			out.Connectors = append(out.Connectors, admin.Outcome{Connector: gone.Connector})
		}
		of := &out.Connectors[len(out.Connectors)-1]
		switch r.State {
		case localhost.StatePublished, localhost.StateKept:
			of.Current = append(of.Current, shown)
			if r.State == localhost.StatePublished {
				out.Published = append(out.Published, shown)
			}
			if r.Err != nil { // of the one that it replaces
				of.Left = append(of.Left, gone)
				out.Left = append(out.Left, retiredShown(r.Identity))
			}
		case localhost.StateRetired:
			out.Retired = append(out.Retired, retiredShown(r.Identity))
			if r.Err != nil {
				of.Left = append(of.Left, gone)
				out.Left = append(out.Left, retiredShown(r.Identity))
			}
		case localhost.StateDraining:
			out.Draining = append(out.Draining, gone)
		case localhost.StateFailed:
			of.Failed = append(of.Failed, gone)
			out.Failed = append(out.Failed, gone)
		case localhost.StateDisabled:
		}
	}
	if err != nil {
		out.Problems = strings.Split(err.Error(), "\n")
	}
	return out
}

// change is what a command has done on the disk, for the running gateway to take up.
type change struct {
	key        name.ConnectorKey
	version    name.Version // zero: of all versions
	connection string       // "": of all connections
	done       string       // a clause: what is so on the disk already
}

// means tells whether a route of the gateway's answer is one of the change.
func (c change) means(r admin.Route) bool {
	return (r.Version == "" || c.version.IsZero() || r.Version == c.version.String()) &&
		(r.Connection == "" || c.connection == "" || r.Connection == c.connection)
}

// reconcileRunning tells a running gateway of what is of no single Connector; without
// one there is nothing to do. What is wrong with a Connector is a note.
func (a *app) reconcileRunning(ctx context.Context) error {
	_, err := a.reconciled(ctx, change{done: "it is so on the disk"})
	return err
}

// takenUp has a running gateway take a change up, and fails unless it did. Without one
// the next one will.
func (a *app) takenUp(ctx context.Context, c change) error {
	o, err := a.reconciled(ctx, c)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(o.Failed, c.means); at >= 0 {
		return hintf(a.failedHint(c.key), "%s, but the running gateway has no route of it: %s", c.done, routeProblem(o.Failed[at]))
	}
	if at := slices.IndexFunc(o.Left, c.means); at >= 0 {
		return hintf("lend status, then the same command again", "%s, but something of what was before still runs: %s", c.done, routeProblem(o.Left[at]))
	}
	a.noteOutcome(o)
	return nil
}

// failedHint is what comes next when a Connector has no route.
func (a *app) failedHint(key name.ConnectorKey) string {
	var unknown *intent.DamagedError
	if root, err := a.connectionsHere(); err == nil {
		if _, err := root.Intent(key).Read(); errors.As(err, &unknown) {
			return unknown.Fix()
		}
		all, err := root.List(key)
		for _, c := range all {
			if _, bad := c.Config(); bad != nil {
				return checkup.ConfigFix(c, bad)
			}
			err = errors.Join(err, root.Sealed().Reachable(sealed.Place{Connector: key, Connection: c.ID()}))
		}
		if err != nil {
			return "lend doctor"
		}
	}
	return "lend connector verify " + key.String()
}

// retireRunning has a running gateway retire what is no longer wanted of a Connector.
// It fails while something of it still runs, or could start; without a gateway nothing
// does.
func (a *app) retireRunning(ctx context.Context, key name.ConnectorKey) error {
	return a.retired(ctx, change{key: key, done: "nothing of it starts any more"})
}

func (a *app) retired(ctx context.Context, c change) error {
	o, err := a.reconciled(ctx, c)
	if err != nil {
		return err
	}
	root, err := a.connectionsHere()
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(o.Current, func(r admin.Route) bool { return c.means(r) && !wanted(root, c.key, r) }); at >= 0 {
		return hintf("the same command again", "%s, but the running gateway still has its route: %s", c.done, routeProblem(o.Current[at]))
	}
	for _, left := range o.Left {
		if c.means(left) {
			return hintf("the same command again", "%s, but something of %s %s (%s) still runs", c.done, left.Connector, left.Version, left.Connection)
		}
	}
	a.noteOutcome(o)
	return nil
}

// wanted tells whether the owner wants this route: what cannot be read is not.
func wanted(root *connection.Root, key name.ConnectorKey, r admin.Route) bool {
	i, err := root.Intent(key).Read()
	version, parseErr := name.ParseVersion(r.Version)
	id, idErr := name.ParseConnectionID(r.Connection)
	if err != nil || parseErr != nil || idErr != nil || !i.Wants(version) {
		return false
	}
	account, err := root.Get(key, id)
	if err != nil {
		return false
	}
	config, err := account.Config()
	return err == nil && !config.Disabled
}

// reconciled has a running gateway reconcile, and returns what it made of the Connector;
// nothing without one. What is wrong with another Connector is a note, and that the
// gateway has not taken anything up an error.
func (a *app) reconciled(ctx context.Context, c change) (own admin.Outcome, err error) {
	p, err := a.paths()
	if err != nil {
		return own, err
	}
	r, err := admin.NewClient(p.socket).Reconcile(ctx)
	if errors.Is(err, admin.ErrNotRunning) {
		return own, nil
	}
	if err == nil && r.Connectors == nil && len(r.Problems) > 0 { // of an earlier version: nobody knows whose they are
		err = errors.New(name.Show(strings.Join(r.Problems, "; ")))
	}
	if err != nil {
		return own, hintf("lend status, then the same command again; or start lend serve anew",
			"%s, but the running gateway did not take it up, and goes on with what it had: %w", c.done, err)
	}
	for _, o := range r.Connectors {
		if o.Connector == c.key.String() {
			own = o
		} else {
			a.noteOutcome(o)
		}
	}
	return own, nil
}

// noteOutcome says what is wrong with a Connector that the command is not about.
func (a *app) noteOutcome(o admin.Outcome) {
	for _, f := range o.Failed {
		a.noteOnce("lend: nothing is lent of %s: %s; next: lend connector list", routeName(f), name.Show(f.Reason))
	}
	for _, l := range o.Left {
		a.noteOnce("lend: something of %s still runs: %s; next: lend status", routeName(l), name.Show(l.Reason))
	}
}

func routeProblem(r admin.Route) string {
	return routeName(r) + ": " + name.Show(cmp.Or(r.Reason, "it is current"))
}

// routeName says which route, as far as it is known.
func routeName(r admin.Route) string {
	text := strings.TrimSpace(r.Connector + " " + r.Version)
	if r.Connection != "" {
		text += fmt.Sprintf(" (%s)", r.Connection)
	}
	return text
}
