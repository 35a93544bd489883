package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/policyfile"
	"github.com/lendcli/lend/policy"
)

// follow keeps a gateway's policy what the file says.
func (a *app) follow(s *serving, log zerolog.Logger) *policyfile.Watcher {
	return policyfile.New(policyfile.Config{
		File: s.file, Read: func() ([]byte, error) { return readPolicy(s.file) }, Contracts: a.installedContracts,
		Gateway: following{s.node, s.side}, InForce: s.loaded, Log: log,
	})
}

// following is a gateway, and the workspaces below it.
type following struct {
	*gateway.Node
	side *ownersSide
}

// Reload implements policyfile.Gateway.
func (f following) Reload(p *policy.Policy) {
	f.side.policy.Store(p)
	f.Node.Reload(p)
}

// untilDone has the policy looked at when the program is told to reload, until ctx is
// done.
func untilDone(ctx context.Context, w *policyfile.Watcher) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			w.Check()
		case <-ctx.Done():
			return
		}
	}
}

func policyShown(file, digest string, s policyfile.Status) admin.Policy {
	return admin.Policy{File: file, Digest: digest, Loaded: s.Loaded, State: s.State.String(), Problem: s.Problem, Since: s.Since}
}

// policyLine is loud about a file that is not in force.
func policyLine(p admin.Policy) string {
	since := p.Since.Format(time.RFC3339)
	switch p.State {
	case policyfile.InForce.String():
		return fmt.Sprintf("%s, %.12s, in force since %s", p.File, p.Digest, since)
	case policyfile.LastGood.String():
		return fmt.Sprintf("REJECTED since %s: %s; the last good one holds: %.12s", since, p.Problem, p.Digest)
	}
	return fmt.Sprintf("MISSING, NEW WORK IS DENIED since %s: %s", since, p.Problem)
}
