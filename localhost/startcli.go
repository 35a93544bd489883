package localhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// The types of StartCLI, so that its callers need not name the package route.
type (
	StartCLIRequest = route.StartCLIRequest
	CLIConnection   = route.CLIConnection
)

// StartCLI starts the CLI of the route that has exactly q.Identity, in an
// existing absolute directory, with q.Arguments after what the release itself
// puts first. The checks come in this order, each before anything is started:
//
//  1. form and bounds of the request: route.ErrInvalid
//  2. the host is open: route.ErrUnavailable
//  3. every field of the identity equals the current route's:
//     route.ErrIdentityMismatch
//  4. variables are those that the contract lists, and the directory is one:
//     route.ErrInvalid
//  5. the release is what was verified, the connection can be used, and the
//     route is not fenced meanwhile: route.ErrUnavailable, joined with the cause
//
// The CLI gets a copy of the connection's home and state and a temporary directory
// of its own, which are dropped when the connection has been closed, unless the
// owner shares those of the connection.
//
// An error means that nothing ran, and nothing will. When ctx is done before the
// transport has the start, StartCLI returns at once; afterwards the transport's
// answer counts, and a connection can be returned although ctx is done, or although
// its route was retired meanwhile (its Exit says so). The caller must Close the
// connection.
func (h *Host) StartCLI(ctx context.Context, q StartCLIRequest) (*CLIConnection, error) {
	c, err := h.routes.StartCLI(ctx, q)
	if err != nil {
		h.refused(q.Identity, err)
		return nil, fmt.Errorf("start cli: %w", err)
	}
	return c, nil
}

// refused says why a start failed: to the owner if it is the owner's affair, else
// to a developer. The error holds no argument, no value and no secret.
func (h *Host) refused(id route.Identity, err error) {
	level := zerolog.DebugLevel
	if errors.Is(err, route.ErrUnavailable) {
		level = zerolog.WarnLevel
	}
	h.cfg.Log.WithLevel(level).Str("connector", id.Connector.String()).Str("version", id.Version.String()).
		Str("connection", id.Connection.String()).Err(err).Msg("start refused")
}

// prepared is a release that is ready to start; see install.Launch.
type prepared struct {
	path          string
	prefix, env   []string
	verify, close func() error
	executable    func() process.Pin // what verify found at path; nil only in tests
}

func (h *Host) launch(r install.Release) (prepared, error) {
	l, err := h.cfg.Store.Launch(r)
	if err != nil {
		return prepared{}, err
	}
	return prepared{
		path: l.Path, prefix: l.Prefix, env: l.Env, verify: l.Verify, close: l.Close,
		executable: func() process.Pin { return process.Pin(l.Executable()) },
	}, nil
}

// launcher starts the CLI of one route; it implements route.Launcher.
type launcher struct {
	host      *Host
	release   prepared
	version   name.Version
	account   *connection.Connection
	declared  connection.Declared
	variables []string // that a request may set
	command   string   // the CLI's public name
	login     *manifest.Login
}

var _ route.Launcher = (*launcher)(nil)

// Prepare makes the process specification from the route alone, and its directories.
func (l *launcher) Prepare(ctx context.Context, q StartCLIRequest) (route.Starter, error) {
	spec, shared, err := l.spec(q)
	if err != nil {
		return nil, err
	}
	s := &start{host: l.host, spec: spec}
	if err := s.furnish(ctx, l.account, shared); err != nil {
		return nil, err
	}
	return s, nil
}

// spec checks what a request may choose, verifies the release, and says what runs, and
// whether in the connection's own directories.
func (l *launcher) spec(q StartCLIRequest) (_ process.Spec, shared bool, err error) {
	for _, v := range q.Environment {
		if !slices.Contains(l.variables, v.Name) {
			return process.Spec{}, false, fmt.Errorf("variable is not in the contract: %w", route.ErrInvalid)
		}
	}
	if q.WorkingDirectory != "" { // else it is made for this start
		if info, err := os.Lstat(q.WorkingDirectory); err != nil || !info.IsDir() {
			return process.Spec{}, false, fmt.Errorf("working directory does not exist: %w", route.ErrInvalid)
		}
	}
	env, shared, err := l.environment(q.Environment)
	if err != nil {
		return process.Spec{}, false, err
	}
	if err := l.release.verify(); err != nil {
		return process.Spec{}, false, unavailable("verify release", err)
	}
	var pin process.Pin
	if l.release.executable != nil {
		pin = l.release.executable()
	}
	return process.Spec{
		Path: l.release.path, Pin: pin,
		Args:  slices.Concat([]string{l.called()}, l.release.prefix, q.Arguments),
		Env:   env,
		Dir:   q.WorkingDirectory,
		Stdin: q.Stdin, Limits: q.Limits,
	}, shared, nil
}

// called is argv[0]. A native CLI gets its public name, which it may print. An
// interpreter gets its path, since some find their library by it.
func (l *launcher) called() string {
	if len(l.release.prefix) > 0 || l.command == "" {
		return l.release.path
	}
	return l.command
}

// environment refuses as soon as the owner no longer wants what it is for, before
// the route is retired.
func (l *launcher) environment(call []argv.Variable) (env []string, shared bool, err error) {
	want, err := l.host.cfg.Connections.Intent(l.account.Connector()).Read()
	if err != nil {
		return nil, false, unavailable("make environment", err)
	}
	if !want.Wants(l.version) {
		return nil, false, unavailable("make environment", connection.ErrDisabled)
	}
	config, err := l.account.Config()
	if err != nil {
		return nil, false, unavailable("make environment", err)
	}
	env, err = l.account.EnvironmentFor(config, l.declared, l.release.env, call)
	var bad *connection.CallError
	switch {
	case errors.As(err, &bad):
		return nil, false, fmt.Errorf("%w: %w", route.ErrInvalid, err)
	case err != nil:
		return nil, false, unavailable("make environment", err)
	}
	return env, config.SharedHome, nil
}

// Close lets go of the release, and of the copies of the home that wait: the owner may
// purge the connection next. The registry calls it when nothing runs.
func (l *launcher) Close() error {
	l.host.operations.Forget(l.account)
	return l.release.close()
}

// unavailable joins the cause, which is for the owner's log alone.
func unavailable(what string, cause error) error {
	return fmt.Errorf("%s: %w: %w", what, route.ErrUnavailable, cause)
}
