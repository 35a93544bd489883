package gateway

import (
	"context"

	"github.com/lendcli/lend/localhost/route"
)

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
