package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// lent is one command that may be run, with how a command line of its CLI begins.
type lent struct {
	native.Line

	holding *holding // nil: the caller's own
}

func lentBy(h *holding, e protocol.CatalogEntry) lent {
	return lent{native.Line{Words: native.WordsOf(e), Entry: e}, h}
}

// Authorities of a call.
const (
	authorityOwner  = "owner"
	authorityCaller = "caller"
)

// lentOf lists what a session's leases allow of a Connector. If one of its gateways
// does not say, nobody knows which command is meant: that is an error.
func (s *session) lentOf(ctx context.Context, key name.ConnectorKey, again bool) ([]lent, error) {
	var out []lent
	granted := false
	for _, h := range s.all() {
		f := h.current()
		if !slices.ContainsFunc(f.Lease.Grants, func(g lease.Grant) bool { return g.Connector == key }) {
			continue
		}
		granted = true
		entries, err := h.catalog(ctx, again)
		if err != nil {
			return nil, &heldError{h, err}
		}
		for _, e := range entries {
			if e.Connector == key {
				out = addLent(out, lentBy(h, e))
			}
		}
	}
	if !granted {
		return nil, &client.RefusedError{Code: protocol.CodeConnectorUnknown}
	}
	return out, nil
}

// heldError is an error of one of a session's leases.
type heldError struct {
	holding *holding
	error
}

func (e *heldError) Unwrap() error { return e.error }

// addLent adds l. What two leases allow on the same gateway is one command: the lease
// that lives longer is used.
func addLent(all []lent, l lent) []lent {
	for i, o := range all {
		a, b := o.holding.current().Lease, l.holding.current().Lease
		if a.Gateway == b.Gateway && o.Entry.Version == l.Entry.Version && o.Entry.Command == l.Entry.Command {
			if b.NotAfter.After(a.NotAfter) {
				all[i] = l
			}
			return all
		}
	}
	return append(all, l)
}

// choose finds the one command that a command line means.
func choose(all []lent, key name.ConnectorKey, args []string) (lent, []string, error) {
	at, rest, err := native.Choose(linesOf(all), key, args)
	if err != nil {
		return lent{}, nil, err
	}
	return all[at], rest, nil
}

func linesOf(all []lent) []native.Line {
	out := make([]native.Line, 0, len(all))
	for _, l := range all {
		out = append(out, l.Line)
	}
	return out
}

// named finds the lease of a session that grants a command to lend run.
func (s *session) named(o *RunOptions) (*holding, error) {
	key, err := name.ParseConnectorKey(o.Connector)
	if err != nil {
		return nil, err
	}
	var found *holding
	granted := false
	for _, h := range s.all() {
		l := h.current().Lease
		if o.Gateway != "" && o.Gateway != l.Gateway.String() {
			continue
		}
		for _, g := range l.Grants {
			if g.Connector != key {
				continue
			}
			granted = true
			if o.Version != "" && g.Version.String() != o.Version ||
				!slices.ContainsFunc(g.Commands, func(c name.Command) bool { return c.String() == o.Command }) {
				continue
			}
			switch {
			case found == nil:
				found = h
			case found.current().Lease.Gateway != l.Gateway:
				return nil, fmt.Errorf("choose lease: several gateways lend %s", key)
			case l.NotAfter.After(found.current().Lease.NotAfter):
				found = h
			}
		}
	}
	switch {
	case found != nil:
		return found, nil
	case granted:
		return nil, &client.RefusedError{Code: protocol.CodeCommandUnknown}
	default:
		return nil, &client.RefusedError{Code: protocol.CodeConnectorUnknown}
	}
}
