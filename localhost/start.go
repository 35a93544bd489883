package localhost

import (
	"context"
	"fmt"
	"slices"

	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
)

// Start runs one authorised call under a pinned route: in the root of the
// workspace that r names, or in a private directory that is removed when the
// process has been closed, with all that was written there. Paths of the call
// must lie in the workspace. The errors are those of StartCLI. The caller must
// Close the process.
func (h *Host) Start(ctx context.Context, r route.StartRequest) (route.Process, error) {
	return h.Prepare(ctx, r).Start(ctx)
}

// Prepare readies what Start would start: it checks the route, the workspace and the
// release, and makes the private directories, while the caller does something else.
// Nothing runs before the result is started, and whatever is wrong is told then. The
// caller must Start or Drop it; retirement of the route drops it too.
func (h *Host) Prepare(ctx context.Context, r route.StartRequest) route.Prepared {
	p, err := h.ready(ctx, r)
	return &preparedCall{host: h, identity: r.Identity, pending: p, err: err}
}

func (h *Host) ready(ctx context.Context, r route.StartRequest) (route.Prepared, error) {
	// Before anything is looked at on disk; the registry decides.
	if d, err := h.routes.Resolve(place(r.Identity)); err != nil || d.Identity != r.Identity {
		return nil, route.ErrIdentityMismatch
	}
	dir, args, err := h.directory(r)
	if err != nil {
		return nil, err
	}
	return h.routes.Prepare(ctx, StartCLIRequest{
		Identity:         r.Identity,
		WorkingDirectory: dir,
		Arguments:        args,
		Environment:      r.Call.Environment,
		Limits:           r.Limits,
		Stdin:            r.Stdin,
	})
}

// preparedCall is one call that is being readied, or why it cannot be.
type preparedCall struct {
	host     *Host
	identity route.Identity
	pending  route.Prepared
	err      error
}

// Start starts it, once.
func (p *preparedCall) Start(ctx context.Context) (process route.Process, err error) {
	if err = p.err; err == nil {
		process, err = p.pending.Start(ctx)
	}
	if err != nil {
		p.host.refused(p.identity, err)
		return nil, fmt.Errorf("start: %w", err)
	}
	return process, nil
}

// Drop gives it up.
func (p *preparedCall) Drop() {
	if p.err == nil {
		p.pending.Drop()
	}
}

// LoginSpec returns what runs the CLI's own login for the current route that q
// names: the manifest's login arguments and nothing else, in the connection's
// home. It is for a terminal on this machine; the environment holds secrets, so
// hand it to the start and to nothing else. ErrInvalid means that the CLI has no
// login.
func (h *Host) LoginSpec(q route.Query) (process.Spec, error) {
	d, err := h.routes.Resolve(q)
	if err != nil {
		return process.Spec{}, fmt.Errorf("login: %w", err)
	}
	h.mu.Lock()
	l := h.live[place(d.Identity)]
	h.mu.Unlock()
	if l == nil || l.login == nil {
		return process.Spec{}, fmt.Errorf("login: the connector has none: %w", route.ErrInvalid)
	}
	spec, _, err := l.spec(StartCLIRequest{WorkingDirectory: l.account.Home(), Arguments: l.login.Arguments, Stdin: true})
	if err != nil {
		return process.Spec{}, fmt.Errorf("login: %w", err)
	}
	if i := slices.Index(spec.Env, "TERM=dumb"); i >= 0 {
		spec.Env[i] = "TERM=xterm" // prompts need more than the default of a start
	}
	return spec, nil
}

// directory returns where the call runs, "" for a private directory, and with which
// arguments.
func (h *Host) directory(r route.StartRequest) (dir string, args []string, err error) {
	switch {
	case r.Workspace != "":
		return h.workspace(r.Workspace, r.Place, r.Call)
	case len(r.Call.Paths) > 0:
		return "", nil, fmt.Errorf("a path needs a workspace: %w", route.ErrInvalid)
	}
	return "", r.Call.Arguments, nil
}
