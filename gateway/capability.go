package gateway

import (
	"context"
	"errors"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// capability is the right to start one command once: for one holder in one
// invocation of one issuer, under one pinned route and one frozen grant. Only
// admit.go makes one, and starts what was prepared by it after the durable record; the
// start port accepts nothing else.
type capability struct {
	issuer     name.PeerID
	invocation name.InvocationID
	holder     name.PeerID
	operation  name.OperationID
	route      route.Identity
	frozen     []byte
	call       argv.Call
	workspace  name.Label
	place      string // of the workspace
	limits     route.Limits
	stdin      bool
}

var (
	errNoCapability    = errors.New("start without a capability")
	errNothingPrepared = errors.New("runtime has prepared nothing")
)

// startPort is the only way to a process.
type startPort struct{ runtime Runtime }

// prepare readies the one start that c is the right to. Nothing runs before Start of
// what it returns, which the caller must start or drop.
func (p startPort) prepare(ctx context.Context, c *capability) (route.Prepared, error) {
	if c == nil || c.holder.IsZero() || c.route == (route.Identity{}) || len(c.frozen) == 0 || !c.workspace.IsZero() && c.place == "" {
		return nil, errNoCapability
	}
	r := route.StartRequest{
		Identity:  c.route,
		Workspace: c.workspace.String(),
		Place:     c.place,
		Call:      c.call,
		Limits:    c.limits,
		Stdin:     c.stdin,
	}
	preparer, ok := p.runtime.(Preparer)
	if !ok {
		return unprepared{p.runtime, r}, nil
	}
	if ready := preparer.Prepare(ctx, r); ready != nil {
		return ready, nil
	}
	return nil, errNothingPrepared
}

// unprepared is a start of a Runtime that prepares nothing.
type unprepared struct {
	runtime Runtime
	request route.StartRequest
}

func (u unprepared) Start(ctx context.Context) (route.Process, error) {
	return u.runtime.Start(ctx, u.request)
}

func (unprepared) Drop() {}

// Runtime is what the gateway asks of an implementation host; *localhost.Host
// fulfils it, and so may an embedding product's own. It is used from several
// goroutines at once.
type Runtime interface {
	// Resolve returns the one current route that matches q. The errors are
	// route.ErrNotFound, route.ErrAmbiguous and route.ErrUnavailable. It does not
	// block and starts nothing.
	Resolve(q route.Query) (route.Descriptor, error)
	// Start runs one authorised call under the pinned route. Any identity that is
	// not exactly the current route's is route.ErrIdentityMismatch. If it returns
	// an error, no process runs and none will. ctx bounds the start, not the run;
	// the caller owns the process and must Close it.
	Start(ctx context.Context, r route.StartRequest) (route.Process, error)
}

// Preparer is a Runtime that readies a start while the gateway records it;
// *localhost.Host is one. If a Runtime is, the gateway does not call Start of it.
type Preparer interface {
	Runtime
	// Prepare readies what Start would start, and returns at once; nil denies. No
	// process runs before Start of the result, which is called at most once, has the
	// errors of Runtime's and tells of whatever cannot be readied. Where no process
	// comes of it, Drop is called, also after Start.
	Prepare(ctx context.Context, r route.StartRequest) route.Prepared
}

// contracts shows a Runtime's current routes to the policy.
type contracts struct{ runtime Runtime }

// Contract resolves the one route that matches.
func (c contracts) Contract(key name.ConnectorKey, version name.Version, connection name.ConnectionID) (argv.Contract, string, error) {
	d, err := c.runtime.Resolve(route.Query{Connector: key, Version: version, Connection: connection})
	if err != nil {
		return argv.Contract{}, "", err
	}
	return d.Contract, d.Identity.ContractHash, nil
}
