package localhost

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
)

// start is one start that is ready, with the private directories of its operation; it
// implements route.Starter.
type start struct {
	host *Host
	spec process.Spec
	room string // to be dropped after the process; "" if it has none
}

// furnish gives the start directories of its own: a copy of the connection's, unless
// the owner shares those, and one to run in, unless a workspace is that. A home that
// cannot be copied starts nothing.
func (s *start) furnish(ctx context.Context, account *connection.Connection, shared bool) error {
	if shared && s.spec.Dir != "" {
		return nil
	}
	if shared {
		dir, err := s.host.operations.Make()
		if err != nil {
			return unavailable("make working directory", err)
		}
		s.spec.Dir, s.room = dir, dir
		return nil
	}
	own, err := s.host.operations.Home(ctx, account)
	if err != nil {
		return unavailable("make home", err)
	}
	s.room = filepath.Dir(own.Home)
	s.spec.Env = account.Dirs().Rebase(s.spec.Env, own)
	if s.spec.Dir == "" {
		s.spec.Dir = own.Work
	}
	return nil
}

// Start hands the start to the transport. If that fails, the directories are dropped.
func (s *start) Start(ctx context.Context) (route.Process, error) {
	p, err := s.host.cfg.Transport.Start(ctx, s.spec)
	if err != nil {
		s.Drop()
		return nil, unavailable("start process", err)
	}
	return &inRoom{Process: p, leave: s.Drop}, nil
}

// Drop drops the directories. What cannot be removed goes with the host.
func (s *start) Drop() {
	if s.room == "" {
		return
	}
	if err := s.host.operations.Remove(s.room); err != nil {
		s.host.cfg.Log.Warn().Err(err).Msg("private directory is left")
	}
}

// inRoom is a process with private directories.
type inRoom struct {
	route.Process
	leave func()
	once  sync.Once
}

// Close closes the process and then drops its directories. A process that could not
// be closed keeps them.
func (p *inRoom) Close() error {
	if err := p.Process.Close(); err != nil {
		return err
	}
	p.once.Do(p.leave)
	return nil
}
