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
// admit.go makes one, after the durable record; the start port accepts nothing
// else.
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

var errNoCapability = errors.New("start without a capability")

// startPort is the only way to a process.
type startPort struct{ runtime Runtime }

func (p startPort) start(ctx context.Context, c *capability) (route.Process, error) {
	if c == nil || c.holder.IsZero() || c.route == (route.Identity{}) || len(c.frozen) == 0 || !c.workspace.IsZero() && c.place == "" {
		return nil, errNoCapability
	}
	return p.runtime.Start(ctx, route.StartRequest{
		Identity:  c.route,
		Workspace: c.workspace.String(),
		Place:     c.place,
		Call:      c.call,
		Limits:    c.limits,
		Stdin:     c.stdin,
	})
}

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
