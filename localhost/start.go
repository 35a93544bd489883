package localhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
)

// Start runs one authorised call under a pinned route: in the root of the
// workspace that r names, or in a private directory that is removed when the
// process has been closed, with all that was written there. Paths of the call
// must lie in the workspace. The errors are those of StartCLI. The caller must
// Close the process.
func (h *Host) Start(ctx context.Context, r route.StartRequest) (route.Process, error) {
	// Before anything is made on disk; StartCLI decides.
	if d, err := h.routes.Resolve(place(r.Identity)); err != nil || d.Identity != r.Identity {
		return nil, fmt.Errorf("start: %w", route.ErrIdentityMismatch)
	}
	dir, args, drop, err := h.directory(r)
	if err != nil {
		h.refused(r.Identity, err)
		return nil, fmt.Errorf("start: %w", err)
	}
	c, err := h.StartCLI(ctx, StartCLIRequest{
		Identity:         r.Identity,
		WorkingDirectory: dir,
		Arguments:        args,
		Environment:      r.Call.Environment,
		Limits:           r.Limits,
		Stdin:            r.Stdin,
	})
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	return &operation{CLIConnection: c, drop: drop}, nil
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

// directory returns where the call runs, with which arguments, and what removes it
// afterwards.
func (h *Host) directory(r route.StartRequest) (dir string, args []string, drop func() error, err error) {
	if r.Workspace != "" {
		dir, args, err = h.workspace(r.Workspace, r.Place, r.Call)
		return dir, args, func() error { return nil }, err
	}
	if len(r.Call.Paths) > 0 {
		return "", nil, nil, fmt.Errorf("a path needs a workspace: %w", route.ErrInvalid)
	}
	if dir, err = h.operations.Make(); err != nil {
		return "", nil, nil, unavailable("make working directory", err)
	}
	return dir, r.Call.Arguments, func() error { return h.operations.Remove(dir) }, nil
}

// operation is a running CLI with the directory that is dropped after it.
type operation struct {
	*CLIConnection
	drop func() error

	once sync.Once
	err  error
}

// Close closes the process and then drops its directory. A process that could
// not be closed keeps its directory, which goes with the host.
func (o *operation) Close() error {
	o.once.Do(func() {
		if o.err = o.CLIConnection.Close(); o.err == nil {
			o.err = o.drop()
		}
	})
	return o.err
}
