package localhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
)

// MaxReceipts bounds the receipts that a host remembers.
const MaxReceipts = 256

// State is what Reconcile made of one release and connection.
type State string

// The states of a receipt.
const (
	StatePublished State = "published" // a new route, under a new generation
	StateKept      State = "kept"      // the route was current already
	StateRetired   State = "retired"   // the route is no longer wanted
	StateDisabled  State = "disabled"  // the owner disabled the connection
	StateFailed    State = "failed"    // see Err
)

// Receipt is what Reconcile did with one release and connection.
type Receipt struct {
	// Identity lacks the generation unless a route was published, kept or
	// retired. Connection is zero where the connections could not be read.
	Identity route.Identity
	State    State
	// Missing names the declared secrets that have no value; they block nothing.
	Missing []string
	// Err is for the owner alone: it can hold paths.
	Err error
	At  time.Time
}

// Reconcile makes the routes of the given Connectors, or of all if none is given,
// equal to what is installed: every release × its enabled connections is one
// route. An unchanged route keeps its generation; a changed one is replaced, the
// candidate first; what is gone is retired. A Connector without a connection gets
// the default one. Missing secrets or a missing login do not matter here.
//
// It returns one receipt for each release and connection, sorted by identity,
// and the joined errors of those that failed; the others are done all the same.
// Connectors are worked on in parallel, each in its lane.
func (h *Host) Reconcile(ctx context.Context, keys ...name.ConnectorKey) ([]Receipt, error) {
	settled := h.routes.Settle(ctx) // what an earlier retirement left
	if len(keys) > 0 {
		return h.reconcileSome(ctx, keys, settled)
	}
	leave, err := h.lanes.enterAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("reconcile: %w", err)
	}
	defer leave()
	byKey, err := h.installed()
	if err != nil {
		return nil, errors.Join(err, settled)
	}
	for _, d := range h.current() {
		if _, ok := byKey[d.Identity.Connector]; !ok {
			byKey[d.Identity.Connector] = nil
		}
	}
	var mu sync.Mutex
	var receipts []Receipt
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxLanes)
	for key, releases := range byKey {
		slots <- struct{}{}
		wg.Go(func() {
			done := h.reconcile(ctx, key, releases)
			mu.Lock()
			receipts = append(receipts, done...)
			mu.Unlock()
			<-slots
		})
	}
	wg.Wait()
	return h.record(receipts, settled)
}

func (h *Host) reconcileSome(ctx context.Context, keys []name.ConnectorKey, settled error) ([]Receipt, error) {
	var receipts []Receipt
	for _, key := range keys {
		done, err := h.reconcileOne(ctx, key)
		if err != nil {
			return nil, errors.Join(err, settled)
		}
		receipts = append(receipts, done...)
	}
	return h.record(receipts, settled)
}

func (h *Host) reconcileOne(ctx context.Context, key name.ConnectorKey) ([]Receipt, error) {
	leave, err := h.lanes.enter(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reconcile %s: %w", key, err)
	}
	defer leave()
	byKey, err := h.installed() // read inside the lane, so that it is never stale
	if err != nil {
		return nil, err
	}
	return h.reconcile(ctx, key, byKey[key]), nil
}

func (h *Host) installed() (map[name.ConnectorKey][]install.Release, error) {
	all, err := h.cfg.Store.Releases()
	if err != nil {
		return nil, fmt.Errorf("reconcile: read releases: %w", err)
	}
	byKey := make(map[name.ConnectorKey][]install.Release)
	for _, r := range all {
		byKey[r.Manifest.Key] = append(byKey[r.Manifest.Key], r)
	}
	return byKey, nil
}

func (h *Host) current() []route.Descriptor {
	_, all := h.routes.Snapshot()
	return all
}

// reconcile does one Connector; its lane is held.
func (h *Host) reconcile(ctx context.Context, key name.ConnectorKey, releases []install.Release) []Receipt {
	var accounts []*connection.Connection
	if len(releases) > 0 {
		var err error
		if accounts, err = h.cfg.Connections.Ensure(key); err != nil {
			return []Receipt{h.failed(route.Identity{Connector: key}, err)}
		}
	}
	var receipts []Receipt
	wanted := make(map[route.Query]bool)
	for _, r := range releases {
		for _, c := range accounts {
			receipt := h.publish(ctx, r, c)
			if receipt.State == StatePublished || receipt.State == StateKept {
				wanted[place(receipt.Identity)] = true
			}
			receipts = append(receipts, receipt)
		}
	}
	for _, d := range h.current() {
		if d.Identity.Connector == key && !wanted[place(d.Identity)] {
			receipts = append(receipts, h.retire(ctx, d.Identity))
		}
	}
	return receipts
}

// place is where an identity is looked up.
func place(id route.Identity) route.Query {
	return route.Query{Connector: id.Connector, Version: id.Version, Connection: id.Connection}
}

// publish makes the route of one release and connection current, unless it is.
func (h *Host) publish(ctx context.Context, r install.Release, c *connection.Connection) Receipt {
	id := route.Identity{
		Connection: c.ID(), Connector: r.Manifest.Key, Version: r.Manifest.Version,
		ReleaseDigest: r.Digest, ContractHash: r.ContractHash,
	}
	config, err := c.Config()
	if err != nil {
		return h.failed(id, err)
	}
	if config.Disabled {
		return h.receipt(id, StateDisabled, nil, nil)
	}
	declared := connection.DeclaredBy(r.Manifest)
	missing, err := c.Missing(declared)
	if err != nil {
		return h.failed(id, err)
	}
	if kept, ok := h.keep(id); ok {
		return h.receipt(kept, StateKept, missing, nil)
	}
	if err := context.Cause(ctx); err != nil {
		return h.failed(id, err)
	}
	launch, err := h.prepare(r)
	if err != nil {
		return h.failed(id, err)
	}
	l := &launcher{
		host: h, release: launch, account: c, declared: declared,
		variables: r.Contract.Environment, command: r.Contract.Command, login: r.Manifest.Login,
	}
	d, err := h.commit(ctx, route.Descriptor{Identity: id, DisplayName: r.Manifest.DisplayName, Contract: r.Contract}, l)
	if d.Identity.Generation.Number == 0 {
		return h.failed(id, errors.Join(err, launch.close()))
	}
	return h.receipt(d.Identity, StatePublished, missing, err)
}

func (h *Host) commit(ctx context.Context, d route.Descriptor, l *launcher) (route.Descriptor, error) {
	ctx, cancel := closing(ctx)
	defer cancel()
	d, err := h.routes.Commit(ctx, d, l)
	if d.Identity.Generation.Number != 0 {
		h.mu.Lock()
		h.live[place(d.Identity)] = l
		h.mu.Unlock()
	}
	return d, err
}

// keep returns the identity of the current route if it is what id wants, and its
// files are still those that were verified.
func (h *Host) keep(id route.Identity) (route.Identity, bool) {
	d, err := h.routes.Resolve(place(id))
	if err != nil {
		return route.Identity{}, false
	}
	id.Generation = d.Identity.Generation
	h.mu.Lock()
	l := h.live[place(id)]
	h.mu.Unlock()
	return id, id == d.Identity && l != nil && l.release.verify() == nil
}

func (h *Host) retire(ctx context.Context, id route.Identity) Receipt {
	ctx, cancel := closing(ctx)
	defer cancel()
	err := h.routes.Remove(ctx, id)
	h.mu.Lock()
	delete(h.live, place(id))
	h.mu.Unlock()
	return h.receipt(id, StateRetired, nil, err)
}

// closing bounds how long processes of a retired route are waited for. The
// caller's cancellation does not stop it half way.
func closing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
}

func (h *Host) failed(id route.Identity, err error) Receipt {
	return h.receipt(id, StateFailed, nil, err)
}

func (h *Host) receipt(id route.Identity, s State, missing []string, err error) Receipt {
	return Receipt{Identity: id, State: s, Missing: missing, Err: err, At: h.cfg.Now()}
}

// record remembers and logs the receipts, and joins their errors.
func (h *Host) record(receipts []Receipt, err error) ([]Receipt, error) {
	slices.SortStableFunc(receipts, func(a, b Receipt) int {
		x, y := a.Identity, b.Identity
		return cmp.Or(
			cmp.Compare(x.Connector.String(), y.Connector.String()),
			cmp.Compare(x.Version.String(), y.Version.String()),
			cmp.Compare(x.Connection.String(), y.Connection.String()),
		)
	})
	errs := []error{err}
	for _, r := range receipts {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("reconcile %s@%s of %q: %w", r.Identity.Connector, r.Identity.Version, r.Identity.Connection, r.Err))
		}
		h.log(r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receipts = append(h.receipts, receipts...)
	if extra := len(h.receipts) - MaxReceipts; extra > 0 {
		h.receipts = slices.Clone(h.receipts[extra:])
	}
	return receipts, errors.Join(errs...)
}

func (h *Host) log(r Receipt) {
	level := zerolog.InfoLevel
	switch {
	case r.Err != nil:
		level = zerolog.ErrorLevel
	case r.State == StateKept:
		level = zerolog.DebugLevel
	}
	h.cfg.Log.WithLevel(level).Err(r.Err).Str("connector", r.Identity.Connector.String()).Str("version", r.Identity.Version.String()).
		Str("connection", r.Identity.Connection.String()).Str("state", string(r.State)).
		Strs("missing", r.Missing).Msg("route reconciled")
}

// Receipts returns the newest receipts, oldest first, 256 at most.
func (h *Host) Receipts() []Receipt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.receipts)
}
