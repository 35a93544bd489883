package localhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
	"github.com/rs/zerolog"
)

// closeTimeout bounds how long Close and the retirement of a route wait for
// processes to end.
const closeTimeout = 5 * time.Second

// Store is what the host needs of the installed releases; *install.Store is one.
type Store interface {
	// Releases returns what is installed, and apart from it what cannot be read.
	Releases() ([]install.Release, []*install.Damage, error)
	Launch(r install.Release) (*install.Launch, error)
	// Superseded tells whether an update has replaced this release.
	Superseded(key name.ConnectorKey, version name.Version, digest string) bool
}

// Transport starts processes; *process.Transport is one. An error means that
// nothing ran; when ctx is done it gives up if it still can.
type Transport interface {
	Start(ctx context.Context, s process.Spec) (route.Process, error)
}

// Config is what a Host is made of. It must not be changed after New.
type Config struct {
	Store     Store
	Transport Transport
	// Connections is the opened directory of the accounts.
	Connections *connection.Root
	// Workspaces maps the name of an owner's workspace to its absolute directory;
	// nil, or false, means that there is none. It is called for every start that
	// names one, concurrently.
	Workspaces func(name string) (path string, ok bool)
	// Private lists more absolute directories that no workspace may hold or lie in,
	// beside that of the connections: those of keys, policy and records. Missing ones
	// are ignored.
	Private []string
	// Log gets what the owner would care about; the zero value is silent.
	Log zerolog.Logger
	// Now is the clock of receipts; nil means time.Now.
	Now func() time.Time
}

// Host is the implementation host of one boot. All methods are safe for
// concurrent use. The owner must Close it.
type Host struct {
	cfg        Config
	routes     *route.Registry
	operations *connection.Operations
	lanes      *lanes
	prepare    func(install.Release) (prepared, error) // launch, except in tests

	mu       sync.Mutex
	live     map[route.Query]*launcher              // of the current routes, by place; guarded by mu
	receipts []Receipt                              // newest last; guarded by mu
	several  map[name.ConnectorKey]bool             // whether it has more than one connection, with routes or not; missing if not known; guarded by mu
	left     map[name.ConnectorKey][]route.Identity // retired, but not closed; guarded by mu
}

// New makes a host without routes: call Reconcile next. It removes the operation
// directories of hosts that are no longer alive, and touches those of no other.
func New(cfg Config) (*Host, error) {
	if cfg.Store == nil || cfg.Transport == nil || cfg.Connections == nil {
		return nil, errors.New("make host: store, transport or connections missing")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	routes := route.NewRegistry()
	operations, err := cfg.Connections.Operations(routes.Epoch(), func(err error) {
		cfg.Log.Warn().Err(err).Msg("private directory is left")
	})
	if err != nil {
		return nil, fmt.Errorf("make host: %w", err)
	}
	if err := operations.Left(); err != nil {
		cfg.Log.Warn().Err(err).Msg("directories of dead operations are left")
	}
	h := &Host{
		cfg: cfg, routes: routes, operations: operations, lanes: newLanes(),
		live: make(map[route.Query]*launcher), several: make(map[name.ConnectorKey]bool),
		left: make(map[name.ConnectorKey][]route.Identity),
	}
	h.prepare = h.launch
	return h, nil
}

// Resolve returns the one current route that matches q, or route.ErrNotFound or
// route.ErrAmbiguous. A query that names no connection is ambiguous as long as the
// Connector has several connections, whether they have routes or not: one that is
// disabled, or cannot be read, never hands what it was asked to another account. It is
// also ambiguous where nobody can tell how many there are.
func (h *Host) Resolve(q route.Query) (route.Descriptor, error) {
	d, err := h.routes.Resolve(q)
	if err != nil || !q.Connection.IsZero() {
		return d, err
	}
	h.mu.Lock()
	several, known := h.several[q.Connector]
	h.mu.Unlock()
	if !known {
		all, err := h.cfg.Connections.Names(q.Connector)
		if err != nil {
			return route.Descriptor{}, fmt.Errorf("the connections of %s cannot be counted: %w: %w", q.Connector, route.ErrAmbiguous, err)
		}
		several = len(all) > 1
	}
	if several {
		return route.Descriptor{}, route.ErrAmbiguous
	}
	return d, nil
}

// Routes returns the registry, for watching and for listing.
func (h *Host) Routes() *route.Registry { return h.routes }

// Close fences all routes, ends all processes, lets go of the releases and then
// removes the operation directories. It waits 5 seconds at most for processes;
// what is left then is an error, and Close may be called again.
func (h *Host) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := h.routes.Close(ctx); err != nil {
		return fmt.Errorf("close host: %w", err)
	}
	return h.operations.Close()
}
