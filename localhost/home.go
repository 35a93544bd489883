package localhost

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
)

// startPrivately starts spec with directories of its own, a copy of the connection's,
// which are dropped when the process has been closed. A home that cannot be copied starts
// nothing.
func (l *launcher) startPrivately(ctx context.Context, spec process.Spec) (route.Process, error) {
	own, err := l.host.operations.Home(ctx, l.account)
	if err != nil {
		return nil, unavailable("make home", err)
	}
	drop := func() error { return l.host.operations.Remove(filepath.Dir(own.Home)) }
	spec.Env = l.account.Dirs().Rebase(spec.Env, own)
	p, err := l.start(ctx, spec)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	return &atHome{Process: p, drop: drop, host: l.host}, nil
}

func (l *launcher) start(ctx context.Context, spec process.Spec) (route.Process, error) {
	p, err := l.host.cfg.Transport.Start(ctx, spec)
	if err != nil {
		return nil, unavailable("start process", err)
	}
	return p, nil
}

// atHome is a process with private directories.
type atHome struct {
	route.Process
	drop func() error
	host *Host
	once sync.Once
}

// Close closes the process and then drops its directories. A process that could not
// be closed keeps them; what cannot be removed goes with the host.
func (a *atHome) Close() error {
	if err := a.Process.Close(); err != nil {
		return err
	}
	a.once.Do(func() {
		if err := a.drop(); err != nil {
			a.host.cfg.Log.Warn().Err(err).Msg("private home is left")
		}
	})
	return nil
}
