package localhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
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
	StateDraining  State = "draining"  // another version is: nothing starts of it, what runs ends by itself
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
	// Summary is what may be said about it, whether it has a route or not; nil for
	// what was retired, or could not be looked at.
	Summary *Summary
	// Blocked is why a route that is current can start nothing now; nil: it can. For
	// the owner alone.
	Blocked error
	// Err is for the owner alone: it can hold paths.
	Err error
	At  time.Time
}

// Reconcile makes the routes of the given Connectors, or of all if none is given,
// equal to what is installed: every release × its enabled connections is one
// route. An unchanged route keeps its generation; a changed one is replaced, the
// candidate first; what is gone is retired. Of a release that an update has replaced
// nothing starts any more, and what runs ends by itself. A Connector without a connection gets
// the default one. Missing secrets or a missing login do not matter here.
//
// A release that cannot be read has no route, whatever it had, and no part in what becomes
// of the others: its receipt is StateFailed, with an Err that is an *install.Damage and
// without a connection.
//
// What the owner has disabled, or is removing, has no route; nor has anything of a
// Connector whose intent cannot be read. A route whose connection can start nothing
// now, such as one with locked secrets, is published and says so in its receipt.
// What an earlier retirement could not close is tried again, Connector by Connector.
//
// It returns one receipt for each release and connection, sorted by identity,
// and the joined errors of those that failed; the others are done all the same.
// Connectors are worked on in parallel, each in its lane.
func (h *Host) Reconcile(ctx context.Context, keys ...name.ConnectorKey) ([]Receipt, error) {
	if len(keys) > 0 {
		return h.reconcileSome(ctx, keys)
	}
	leave, err := h.lanes.enterAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("reconcile: %w", err)
	}
	defer leave()
	byKey, err := h.installed()
	if err != nil {
		return nil, err
	}
	for _, key := range h.known() {
		if _, ok := byKey[key]; !ok {
			byKey[key] = found{}
		}
	}
	var mu sync.Mutex
	var receipts []Receipt
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxLanes)
	for key, of := range byKey {
		slots <- struct{}{}
		wg.Go(func() {
			done := h.reconcile(ctx, key, of)
			mu.Lock()
			receipts = append(receipts, done...)
			mu.Unlock()
			<-slots
		})
	}
	wg.Wait()
	return h.record(receipts)
}

func (h *Host) reconcileSome(ctx context.Context, keys []name.ConnectorKey) ([]Receipt, error) {
	var receipts []Receipt
	for _, key := range keys {
		done, err := h.reconcileOne(ctx, key)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, done...)
	}
	return h.record(receipts)
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

func (h *Host) current() []route.Descriptor {
	_, all := h.routes.Snapshot()
	return all
}

// known names the Connectors that have a route, or had one that is not closed yet.
func (h *Host) known() (all []name.ConnectorKey) {
	for _, d := range h.current() {
		all = append(all, d.Identity.Connector)
	}
	for _, id := range h.routes.Draining() {
		all = append(all, id.Connector)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(all, maps.Keys(h.left))
}

// reconcile does one Connector; its lane is held.
func (h *Host) reconcile(ctx context.Context, key name.ConnectorKey, of found) []Receipt {
	receipts := h.settle(ctx, key)
	want, err := h.cfg.Connections.Intent(key).Read()
	if err != nil { // not understood, so not permitted
		return append(append(receipts, h.failed(route.Identity{Connector: key}, err)), h.retireBut(ctx, key, nil, func(route.Identity) bool { return false })...)
	}
	of = of.wantedOf(want)
	accounts, err := h.accounts(key, of)
	h.mu.Lock()
	h.several[key] = len(accounts) > 1
	if err != nil {
		delete(h.several, key) // what has a route stays, and nobody knows beside what
	}
	h.mu.Unlock()
	if err != nil {
		return append(receipts, h.failed(route.Identity{Connector: key}, err))
	}
	wanted := h.spared(of, want, accounts)
	receipts = append(receipts, h.damaged(of)...)
	for _, r := range of.releases {
		for _, c := range accounts {
			receipt := h.publish(ctx, r, c, want)
			if receipt.State == StatePublished || receipt.State == StateKept {
				wanted[place(receipt.Identity)] = true
			}
			receipts = append(receipts, receipt)
		}
	}
	return append(receipts, h.retireBut(ctx, key, wanted, func(id route.Identity) bool {
		return enabled(accounts, id) && !want.Disabled && !want.Removes(id.Version) &&
			h.cfg.Store.Superseded(id.Connector, id.Version, id.ReleaseDigest)
	})...)
}

// retireBut retires the routes of a Connector that are not wanted. Of one that may
// drain nothing is ended.
func (h *Host) retireBut(ctx context.Context, key name.ConnectorKey, wanted map[route.Query]bool, drains func(route.Identity) bool) (receipts []Receipt) {
	for _, d := range h.current() {
		switch id := d.Identity; {
		case id.Connector != key || wanted[place(id)]:
		case drains(id):
			receipts = append(receipts, h.drain(id))
		default:
			receipts = append(receipts, h.retire(ctx, id))
		}
	}
	for _, id := range h.routes.Draining() {
		if id.Connector == key && !wanted[place(id)] && !drains(id) {
			receipts = append(receipts, h.retire(ctx, id))
		}
	}
	return receipts
}

// enabled tells whether the connection of id is there, and not disabled.
func enabled(accounts []*connection.Connection, id route.Identity) bool {
	at := slices.IndexFunc(accounts, func(c *connection.Connection) bool { return c.ID() == id.Connection })
	if at < 0 {
		return false
	}
	config, err := accounts[at].Config()
	return err == nil && !config.Disabled
}

// drain takes a route away without ending what it runs.
func (h *Host) drain(id route.Identity) Receipt {
	h.routes.Drain(id)
	h.mu.Lock()
	delete(h.live, place(id))
	h.mu.Unlock()
	return h.receipt(id, StateDraining, nil, nil)
}

// settle tries again to close what is left of retired routes.
func (h *Host) settle(ctx context.Context, key name.ConnectorKey) (receipts []Receipt) {
	h.mu.Lock()
	left := slices.Clone(h.left[key])
	h.mu.Unlock()
	for _, id := range left {
		receipts = append(receipts, h.retire(ctx, id))
	}
	return receipts
}

// leave notes whether something of a retired route is left.
func (h *Host) leave(id route.Identity, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.left[id.Connector], func(other route.Identity) bool { return other == id })
	if err != nil {
		left = append(left, id)
	}
	if len(left) == 0 {
		delete(h.left, id.Connector)
		return
	}
	h.left[id.Connector] = left
}

// place is where an identity is looked up.
func place(id route.Identity) route.Query {
	return route.Query{Connector: id.Connector, Version: id.Version, Connection: id.Connection}
}

// publish makes the route of one release and connection current, unless it is.
func (h *Host) publish(ctx context.Context, r install.Release, c *connection.Connection, want intent.Intent) Receipt {
	id := route.Identity{
		Connection: c.ID(), Connector: r.Manifest.Key, Version: r.Manifest.Version,
		ReleaseDigest: r.Digest, ContractHash: r.ContractHash,
	}
	receipt := h.route(ctx, id, r, c, want)
	receipt.Summary = summarize(r, receipt)
	return receipt
}

func (h *Host) route(ctx context.Context, id route.Identity, r install.Release, c *connection.Connection, want intent.Intent) Receipt {
	config, err := c.Config()
	if err != nil {
		return h.failed(id, err)
	}
	if config.Disabled || want.Disabled {
		return h.receipt(id, StateDisabled, nil, nil)
	}
	declared := connection.DeclaredBy(r.Manifest)
	missing, err := c.Missing(declared)
	if err != nil {
		return h.failed(id, err)
	}
	if kept, ok := h.keep(id); ok {
		return h.serving(kept, StateKept, missing, nil)
	}
	if err := context.Cause(ctx); err != nil {
		return h.failed(id, err)
	}
	launch, err := h.prepare(r)
	if err != nil {
		return h.failed(id, err)
	}
	l := &launcher{
		host: h, release: launch, account: c, declared: declared, version: r.Manifest.Version,
		variables: r.Contract.Environment, command: r.Contract.Command, login: r.Manifest.Login,
	}
	d, err := h.commit(ctx, described(id, r), l)
	if d.Identity.Generation.Number == 0 {
		return h.failed(id, errors.Join(err, launch.close()))
	}
	return h.serving(d.Identity, StatePublished, missing, err)
}

// described is what is published of a release.
func described(id route.Identity, r install.Release) route.Descriptor {
	d := route.Descriptor{Identity: id, DisplayName: r.Manifest.DisplayName, Aliases: r.Manifest.Aliases, Contract: r.Contract}
	if p := r.Manifest.CLI.Probe; p != nil {
		d.Probe = &route.Probe{Arguments: p.Arguments, Timeout: p.Timeout}
	}
	return d
}

// serving is the receipt of a route that is current.
func (h *Host) serving(id route.Identity, s State, missing []string, err error) Receipt {
	r := h.receipt(id, s, missing, err)
	r.Blocked = h.Blocked(id)
	return r
}

// Blocked says why the route with exactly this identity can start nothing now: its
// connection cannot be used, because its secrets are locked, for one. It is
// route.ErrIdentityMismatch if the route is not current, and nil if a start has
// nothing to fear but the release itself, which is verified when it starts. The
// error is for the owner alone. It reads, and opens, what a start would.
func (h *Host) Blocked(id route.Identity) error {
	h.mu.Lock()
	l := h.live[place(id)]
	h.mu.Unlock()
	if d, err := h.routes.Resolve(place(id)); err != nil || d.Identity != id || l == nil {
		return route.ErrIdentityMismatch
	}
	_, _, err := l.environment(nil)
	return err
}

// commit makes the candidate current, and then retires what it replaces.
func (h *Host) commit(ctx context.Context, d route.Descriptor, l *launcher) (route.Descriptor, error) {
	ctx, cancel := closing(ctx)
	defer cancel()
	old, oldErr := h.routes.Resolve(place(d.Identity))
	d, err := h.routes.Commit(ctx, d, l)
	if d.Identity.Generation.Number != 0 {
		h.mu.Lock()
		h.live[place(d.Identity)] = l
		h.mu.Unlock()
		if oldErr == nil {
			h.leave(old.Identity, err)
		}
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
	d, currentErr := h.routes.Resolve(place(id))
	err := h.routes.Remove(ctx, id)
	h.leave(id, err)
	if currentErr == nil && d.Identity == id { // not one that was retired before
		h.mu.Lock()
		delete(h.live, place(id))
		h.mu.Unlock()
	}
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
func (h *Host) record(receipts []Receipt) ([]Receipt, error) {
	slices.SortStableFunc(receipts, func(a, b Receipt) int {
		x, y := a.Identity, b.Identity
		return cmp.Or(
			cmp.Compare(x.Connector.String(), y.Connector.String()),
			cmp.Compare(x.Version.String(), y.Version.String()),
			cmp.Compare(x.Connection.String(), y.Connection.String()),
		)
	})
	var errs []error
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
	case r.Blocked != nil:
		level = zerolog.WarnLevel
	case r.State == StateKept:
		level = zerolog.DebugLevel
	}
	blocked := ""
	if r.Blocked != nil {
		blocked = r.Blocked.Error()
	}
	h.cfg.Log.WithLevel(level).Err(r.Err).Str("connector", r.Identity.Connector.String()).Str("version", r.Identity.Version.String()).
		Str("connection", r.Identity.Connection.String()).Str("state", string(r.State)).
		Strs("missing", r.Missing).Str("problem", name.Show(blocked)).Msg("route reconciled")
}

// Receipts returns the newest receipts, oldest first, 256 at most.
func (h *Host) Receipts() []Receipt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.receipts)
}
