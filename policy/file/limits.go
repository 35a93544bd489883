package file

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
)

// Unlimited is the value of a byte limit for which the file says "unlimited".
const Unlimited int64 = -1

// Kill is the Detached of an operation that a lost link ends at once.
const Kill time.Duration = -1

// The limits that hold where the file says nothing.
const (
	defaultOperations = 128
	defaultPerPeer    = 32
	defaultStarts     = 600
	defaultDenials    = 3
	defaultStdin      = 1 << 20
	defaultStdout     = 64 << 20
	defaultStderr     = 16 << 20
	defaultRun        = 2 * time.Minute
	defaultDetached   = time.Minute
	maxRun            = 24 * time.Hour
	maxDetached       = time.Hour
	minMemory         = 16 << 20
)

// Limits bound one operation, or (the first four) the gateway. No field of a
// Limits that this package returns is zero, but for those that say so.
type Limits struct {
	// OperationsPerPeer and Operations run at the same moment; StartsPerMinute is
	// per peer. These and Denials are those of the gateway, and 0 in the Limits of a Decision.
	OperationsPerPeer int
	Operations        int
	StartsPerMinute   int
	// Denials of one peer, close to each other, have it refused for a while.
	Denials int
	// Stdin, Stdout and Stderr are bytes, or Unlimited. Stdin is 0 in a Decision
	// for a command that reads none, and Unlimited in those of the gateway if the file
	// does not lower what commands declare.
	Stdin  int64
	Stdout int64
	Stderr int64
	// Run bounds the time of an operation; 0 in those of the gateway if the file does
	// not lower what commands declare.
	Run time.Duration
	// Detached is how long an operation goes on without a caller, or Kill.
	Detached time.Duration
	// Processes bounds the processes and threads of an operation at the same
	// moment; Memory is bytes, of one process and, where the machine has a delegated
	// cgroup, of all together. 0 means no bound.
	Processes int
	Memory    int64
	// Arguments and ArgumentBytes bound the rendered argv; each argument counts
	// with the byte that ends it.
	Arguments     int
	ArgumentBytes int
}

// Gateway returns the limits of the whole gateway, defaults filled in.
func (f *File) Gateway() Limits {
	l := f.Limits
	return Limits{
		OperationsPerPeer: or(l.OperationsPerPeer, min(defaultPerPeer, or(l.Operations, defaultOperations))),
		Operations:        or(l.Operations, defaultOperations),
		StartsPerMinute:   or(l.StartsPerMinute, defaultStarts),
		Denials:           or(l.Denials, defaultDenials),
		Stdin:             or(l.Stdin, Unlimited),
		Stdout:            or(l.Stdout, defaultStdout),
		Stderr:            or(l.Stderr, defaultStderr),
		Run:               l.Run,
		Detached:          or(l.Detached, defaultDetached),
		Processes:         l.Processes,
		Memory:            l.Memory,
		Arguments:         or(l.Arguments, argv.MaxArguments),
		ArgumentBytes:     or(l.ArgumentBytes, argv.MaxTotal),
	}
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Operation returns the limits of one operation: what the command declares, lowered
// by the gateway's limits and by those of a rule.
func (f *File) Operation(contract argv.Contract, c argv.Command, rule Limits) Limits {
	g := f.Gateway()
	out := Limits{
		Stdout:        lower(g.Stdout, rule.Stdout),
		Stderr:        lower(g.Stderr, rule.Stderr),
		Detached:      lowerDetached(g.Detached, rule.Detached),
		Processes:     int(lower(int64(g.Processes), int64(rule.Processes))),
		Memory:        lower(g.Memory, rule.Memory),
		Run:           or(or(c.Timeout, contract.Timeout), defaultRun),
		Arguments:     int(lower(int64(g.Arguments), int64(rule.Arguments))),
		ArgumentBytes: int(lower(int64(g.ArgumentBytes), int64(rule.ArgumentBytes))),
	}
	out.Run = time.Duration(lower(lower(int64(out.Run), int64(g.Run)), int64(rule.Run)))
	if in := StdinOf(c); in != nil {
		out.Stdin = lower(lower(or(in.Stdin.MaxBytes, defaultStdin), g.Stdin), rule.Stdin)
	}
	return out
}

// lower returns the lower of two limits; 0 says nothing.
func lower(a, b int64) int64 {
	switch {
	case b == 0, b == Unlimited && a != 0:
		return a
	case a == 0, a == Unlimited:
		return b
	}
	return min(a, b)
}

// lowerDetached returns the lower of two graces; 0 says nothing, Kill is the lowest.
func lowerDetached(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// Both returns the lower of two limits of an operation, field by field.
func (l Limits) Both(m Limits) Limits {
	l.Stdin = lower(l.Stdin, m.Stdin)
	l.Stdout = lower(l.Stdout, m.Stdout)
	l.Stderr = lower(l.Stderr, m.Stderr)
	l.Run = time.Duration(lower(int64(l.Run), int64(m.Run)))
	l.Detached = lowerDetached(l.Detached, m.Detached)
	l.Processes = int(lower(int64(l.Processes), int64(m.Processes)))
	l.Memory = lower(l.Memory, m.Memory)
	l.Arguments = int(lower(int64(l.Arguments), int64(m.Arguments)))
	l.ArgumentBytes = int(lower(int64(l.ArgumentBytes), int64(m.ArgumentBytes)))
	return l
}

// StdinOf returns the parameter of a command that is said on standard input, nil if
// there is none.
func StdinOf(c argv.Command) *argv.Parameter {
	for i := range c.Parameters {
		if c.Parameters[i].Stdin != nil {
			return &c.Parameters[i]
		}
	}
	return nil
}

func (l *loader) loadLimits(n *strict.Node) Limits {
	bytes := func(key string) int64 {
		v, err := parseSize(n.Get(key).Str())
		if err != nil {
			return 0
		}
		return v
	}
	out := Limits{
		OperationsPerPeer: n.Get("operations_per_peer").Integer(),
		Operations:        n.Get("operations").Integer(),
		StartsPerMinute:   n.Get("starts_per_minute").Integer(),
		Denials:           n.Get("denials").Integer(),
		Stdin:             bytes("stdin"),
		Stdout:            bytes("stdout"),
		Stderr:            bytes("stderr"),
		Run:               l.loadDuration(n.Get("run"), maxRun),
		Detached:          l.loadDetached(n.Get("on_disconnect")),
		Processes:         n.Get("processes").Integer(),
		Memory:            bytes("memory"),
		Arguments:         n.Get("arguments").Integer(),
		ArgumentBytes:     int(bytes("argument_bytes")),
	}
	if out.ArgumentBytes > argv.MaxTotal {
		l.Doc.Add(n.Get("argument_bytes"), strict.RuleMeaning, "argument_bytes is more than "+ShowSize(argv.MaxTotal), "")
	}
	if m := n.Get("memory"); m != nil && out.Memory != 0 && out.Memory < minMemory {
		l.Doc.Add(m, strict.RuleMeaning, "memory is less than "+ShowSize(minMemory)+", with which nothing starts", "")
	}
	return out
}

// loadDetached reads kill or {keep: 60s}.
func (l *loader) loadDetached(n *strict.Node) time.Duration {
	if n.Str() == onDisconnectKill {
		return Kill
	}
	return l.loadDuration(n.Get("keep"), maxDetached)
}

// checkLimits reports limits of the gateway that do not fit together.
func (l *loader) checkLimits(n *strict.Node) {
	if g := l.Gateway(); g.OperationsPerPeer > g.Operations {
		l.Doc.Add(n.Get("operations_per_peer"), strict.RuleMeaning, fmt.Sprintf("operations_per_peer (%d) is more than operations (%d)", g.OperationsPerPeer, g.Operations), "")
	}
}

// checkLowers reports limits of a rule that are higher than the gateway's.
func (l *loader) checkLowers(r *Rule, n *strict.Node) {
	g := l.Gateway()
	over := func(key string, of, bound int64, show func(int64) string) {
		if of != 0 && lower(of, bound) != of {
			l.Doc.Add(n.Get(key), strict.RuleMeaning, fmt.Sprintf("%s is more than the gateway's %s", key, show(bound)), "raise it in the limits of the file, and lower other rules")
		}
	}
	over("stdin", r.Limits.Stdin, g.Stdin, ShowSize)
	over("stdout", r.Limits.Stdout, g.Stdout, ShowSize)
	over("stderr", r.Limits.Stderr, g.Stderr, ShowSize)
	over("run", int64(r.Limits.Run), int64(g.Run), func(v int64) string { return ShowDuration(time.Duration(v)) })
	if of := r.Limits.Detached; of != 0 && of > g.Detached {
		l.Doc.Add(n.Get("on_disconnect"), strict.RuleMeaning, "on_disconnect keeps longer than the gateway: "+ShowDetached(g.Detached), "raise it in the limits of the file, and lower other rules")
	}
	over("processes", int64(r.Limits.Processes), int64(g.Processes), func(v int64) string { return strconv.FormatInt(v, 10) })
	over("memory", r.Limits.Memory, g.Memory, ShowSize)
	over("arguments", int64(r.Limits.Arguments), int64(g.Arguments), func(v int64) string { return strconv.FormatInt(v, 10) })
	over("argument_bytes", int64(r.Limits.ArgumentBytes), int64(g.ArgumentBytes), ShowSize)
}

// sizeUnits go from the largest on.
//
//nolint:gochecknoglobals // table
var sizeUnits = []struct {
	suffix string
	shift  int
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// parseSize reads "64MiB" or "unlimited".
func parseSize(s string) (int64, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			v, err := strconv.ParseInt(digits, 10, 32)
			return v << u.shift, err
		}
	}
	return 0, strconv.ErrSyntax
}

// ShowSize writes a byte limit for people: "64 MiB", or "unlimited".
func ShowSize(v int64) string {
	if v == Unlimited {
		return "unlimited"
	}
	for _, u := range sizeUnits {
		if v>>u.shift > 0 && v>>u.shift<<u.shift == v {
			return strconv.FormatInt(v>>u.shift, 10) + " " + u.suffix
		}
	}
	return strconv.FormatInt(v, 10) + " B"
}

// ShowDetached writes what a lost link does: "kill", or "keep 60s".
func ShowDetached(d time.Duration) string {
	if d == Kill {
		return onDisconnectKill
	}
	return "keep " + ShowDuration(d)
}

// ShowDuration writes 1h instead of 1h0m0s.
func ShowDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
