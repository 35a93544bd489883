package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/localhost/process/cgroup"
	"github.com/lendcli/lend/policy"
)

// mostProcesses is above what any policy lets run at once, which has a code to say.
const mostProcesses = 2 * 4096

// openCgroup opens the delegated cgroup that --cgroup names. With auto there may be
// none: then, and with none, it is nil.
func openCgroup(flag string, log zerolog.Logger) (*cgroup.Tree, error) {
	dir := flag
	switch flag {
	case "none", "":
		return nil, nil
	case "auto":
		found, ok := cgroup.Detect()
		if !ok {
			return nil, nil
		}
		dir = found
	}
	t, err := cgroup.Open(dir, log)
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, cgroup.ErrInUse):
		return nil, hintf("lend status", "another gateway uses the cgroup %s", dir)
	case flag == "auto":
		return nil, nil // operations are bounded without
	}
	return nil, usagef("--cgroup none", "--cgroup %s: %w", dir, err)
}

// limitsShown lists every bound in force: those of the policy, then what is derived
// from them, then who waits.
func limitsShown(n gateway.Status, t *cgroup.Tree) []admin.Limit {
	l := n.Limits
	out := []admin.Limit{
		{Name: "operations", Value: fmt.Sprint(l.Operations)},
		{Name: "operations of a peer", Value: fmt.Sprint(l.OperationsPerPeer)},
		{Name: "starts of a peer", Value: fmt.Sprintf("%d a minute", l.StartsPerMinute)},
		{Name: "starts at the same moment", Value: fmt.Sprint(n.Starts)},
		{Name: "denials of a peer until it waits", Value: fmt.Sprint(l.Denials)},
		{Name: "standard input", Value: orDeclared(l.Stdin != policy.Unlimited, bytesShown(l.Stdin))},
		{Name: "standard output", Value: bytesShown(l.Stdout)},
		{Name: "standard error", Value: bytesShown(l.Stderr)},
		{Name: "run time", Value: orDeclared(l.Run > 0, l.Run.String())},
		{Name: "on disconnect", Value: detachedShown(l.Detached)},
		{Name: "processes of an operation", Value: orUnbound(l.Processes > 0, fmt.Sprintf("%d, threads included", l.Processes))},
		{Name: "memory of a process", Value: orUnbound(l.Memory > 0, bytesShown(l.Memory))},
		{Name: "arguments", Value: fmt.Sprintf("%d, %d bytes together", l.Arguments, l.ArgumentBytes)},
		{Name: "cgroup", Value: cgroupShown(t)},
		{Name: "streams of a peer", Value: fmt.Sprintf("%d, %s", n.Transport.StreamsPerPeer, bytesShown(n.Transport.MemoryPerPeer))},
		{Name: "streams of a stranger", Value: fmt.Sprintf("%d, %s", n.Transport.StreamsPerStranger, bytesShown(n.Transport.MemoryPerStranger))},
		{Name: "connections", Value: fmt.Sprintf("%d, %d of a peer", n.Transport.Conns, n.Transport.ConnsPerPeer)},
		{Name: "connections from an address", Value: fmt.Sprintf("%d, %d new ones a second", n.Transport.ConnsPerAddress, n.Transport.ConnsPerSecond)},
	}
	for _, p := range n.Penalties {
		who := p.Peer.String()
		if p.Peer.IsZero() {
			who = "new strangers"
		}
		out = append(out, admin.Limit{Name: "penalty", Value: who + " for " + p.Rest.Round(time.Second).String()})
	}
	return out
}

func bytesShown(n int64) string {
	if n == policy.Unlimited {
		return "unlimited"
	}
	return fmt.Sprintf("%d bytes", n)
}

func orDeclared(set bool, s string) string {
	if set {
		return s
	}
	return "as the command declares"
}

func orUnbound(set bool, s string) string {
	if set {
		return s
	}
	return "no bound"
}

func detachedShown(d time.Duration) string {
	if d == policy.Kill {
		return "kill"
	}
	return "keep " + d.String()
}

func cgroupShown(t *cgroup.Tree) string {
	if t == nil {
		return "none"
	}
	return t.Dir() + " (" + strings.Join(append(t.Controllers(), "kill"), ", ") + ")"
}
