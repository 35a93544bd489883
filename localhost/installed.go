package localhost

import (
	"context"
	"fmt"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
)

// found is what is installed of one Connector: its releases, and what of it cannot be
// read.
type found struct {
	releases []install.Release
	damaged  []*install.Damage
}

// installed reads what is installed, by Connector. What cannot be read is its own
// Connector's; what is named like none has no route, and is left alone.
func (h *Host) installed() (map[name.ConnectorKey]found, error) {
	all, damaged, err := h.cfg.Store.Releases()
	if err != nil {
		return nil, fmt.Errorf("reconcile: read releases: %w", err)
	}
	byKey := make(map[name.ConnectorKey]found)
	for _, r := range all {
		of := byKey[r.Manifest.Key]
		of.releases = append(of.releases, r)
		byKey[r.Manifest.Key] = of
	}
	for _, d := range damaged {
		key, _ := d.Of()
		if key.IsZero() {
			h.cfg.Log.Warn().Str("problem", name.Show(d.Error())).Msg("something in the store is no connector")
			continue
		}
		of := byKey[key]
		of.damaged = append(of.damaged, d)
		byKey[key] = of
	}
	return byKey, nil
}

// wantedOf leaves out what is being removed.
func (f found) wantedOf(want intent.Intent) (out found) {
	for _, r := range f.releases {
		if !want.Removes(r.Manifest.Version) {
			out.releases = append(out.releases, r)
		}
	}
	for _, d := range f.damaged {
		if _, version := d.Of(); version.IsZero() || !want.Removes(version) {
			out.damaged = append(out.damaged, d)
		}
	}
	return out
}

// accounts are the connections of a Connector of which something is installed. Where
// all of it is damaged none is made.
func (h *Host) accounts(key name.ConnectorKey, of found) ([]*connection.Connection, error) {
	switch {
	case len(of.releases) > 0:
		return h.cfg.Connections.Ensure(key)
	case len(of.damaged) > 0:
		return h.cfg.Connections.List(key)
	}
	return nil, nil
}

// spared are the routes of releases that the system cannot read just now, for want of
// memory or descriptors. They may be whole: what the owner still wants of them stays, and
// each start verifies it.
func (h *Host) spared(of found, want intent.Intent, accounts []*connection.Connection) map[route.Query]bool {
	out := make(map[route.Query]bool)
	for _, d := range of.damaged {
		key, version := d.Of()
		for _, r := range h.current() {
			id := r.Identity
			if d.Passing() && id.Connector == key && (version.IsZero() || id.Version == version) &&
				want.Wants(id.Version) && enabled(accounts, id) {
				out[place(id)] = true
			}
		}
	}
	return out
}

// damaged are the receipts of what is damaged.
func (h *Host) damaged(of found) (receipts []Receipt) {
	for _, d := range of.damaged {
		key, version := d.Of()
		receipts = append(receipts, h.failed(route.Identity{Connector: key, Version: version}, d))
	}
	return receipts
}

// ReconcileRelease is Reconcile of one Connector for who needs one release of it: only
// what keeps that from having routes is an error, not what is wrong with another version.
func (h *Host) ReconcileRelease(ctx context.Context, key name.ConnectorKey, version name.Version) error {
	receipts, err := h.Reconcile(ctx, key)
	for _, r := range receipts {
		if r.Err != nil && r.State == StateFailed && (r.Identity.Version.IsZero() || r.Identity.Version == version) {
			return fmt.Errorf("reconcile %s %s: %w", key, version, r.Err)
		}
	}
	if len(receipts) == 0 {
		return err
	}
	return nil
}
