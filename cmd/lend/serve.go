package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/gateway/early"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/pairing"
	"github.com/lendcli/lend/gateway/policyfile"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/uninstall"
	"github.com/lendcli/lend/policy"
)

const defaultPort = 5363

// What is kept of the ledger, unless it still protects from a second run.
const (
	keepFor   = 400 * 24 * time.Hour
	keepBytes = 512 << 20 // the index in memory is about a third of it
)

type serveFlags struct {
	listen, announce []string
	policy, level    string
	cgroup, metrics  string
	checkpoints      checkpointFlags
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "run the gateway in the foreground",
		Long: `Serve what the policy lends until the program is stopped. It listens on loopback
and on the addresses of the local network, port 5363 of TCP and UDP, unless
--listen says otherwise; --announce is what peers should dial instead. A policy
that has errors, or whose tests fail, is not served.

A changed policy is taken up within about a second: running commands that it no
longer allows are ended. One that has errors, or whose tests fail, is not: the
last good one stays, and "lend status" says why. While the file is missing, new
work is denied. SIGHUP has it looked at again at once. Connectors, secrets and
settings are taken up while it runs, too. When it is ready, stdout says so, with
its addresses. Log lines, in JSON, go to stderr. ^C and SIGTERM end it.

With a delegated cgroup each operation runs in one of its own, which bounds its
processes and its memory as a whole, and ends it for certain. "auto" takes the
cgroup of this program, if it is there alone and may divide it (a systemd
service with Delegate=yes); "lend status" shows what holds.

A checkpoint signs the record up to a moment. With --checkpoint-file or
--checkpoint-command each is kept in a second place too, at most a minute after
something was recorded: "lend audit verify" finds what was changed before it. A
place that does not work is shown by "lend status", and holds nothing up.

With --metrics what the gateway does is counted, and shown to Prometheus at
http://ADDRESS/metrics, on a loopback address only. It names no peer, no
Connector and no argument.`,
		Example: `  lend serve
  lend serve --listen /ip4/0.0.0.0/tcp/5363 \
    --listen /ip4/0.0.0.0/udp/5363/quic-v1
  lend serve --metrics 127.0.0.1:9464
  lend serve --announce /dns4/lend.example.org/tcp/5363`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.listen, "listen", nil, "an address to listen on: /ip4/…/tcp/PORT or /ip4/…/udp/PORT/quic-v1")
	fl.StringArrayVar(&f.announce, "announce", nil, "an address that peers are told instead of those listened on")
	fl.StringVar(&f.policy, "policy", "", "another policy file than this machine's")
	fl.StringVar(&f.level, "log", "info", "the least level to log: debug, info, warn or error")
	fl.StringVar(&f.metrics, "metrics", "", "show metrics for Prometheus at this loopback address and port; absent: no")
	fl.StringVar(&f.checkpoints.file, "checkpoint-file", "", "keep the newest signed checkpoint of the record in this file too, and the key beside it")
	fl.StringArrayVar(&f.checkpoints.command, "checkpoint-command", nil, "give each checkpoint to this program, on standard input; again for each of its arguments")
	fl.StringVar(&f.cgroup, "cgroup", "auto", "the delegated cgroup (version 2) in which each operation gets its own: a directory, auto or none")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	level, err := zerolog.ParseLevel(f.level)
	if err != nil || level < zerolog.DebugLevel || level > zerolog.ErrorLevel {
		return usagef("--log info", "--log: want debug, info, warn or error")
	}
	log := newLog(a.err, level)
	if err := process.Harden(); err != nil {
		return fmt.Errorf("keep other processes out of this one's memory: %w", err)
	}
	s, err := a.startServing(ctx, f, log)
	if err != nil {
		return err
	}
	if err := a.showServing(s); err != nil {
		return joinClose(err, s.close)
	}
	untilDone(ctx, s.policy)
	a.stopSignals() // a second signal ends the program at once
	return s.close()
}

// showServing says on stdout that peers may come, and where.
func (a *app) showServing(s *serving) error {
	r := struct {
		SchemaVersion int      `json:"schemaVersion"`
		PeerID        string   `json:"peerId"`
		Addresses     []string `json:"addresses"`
		Metrics       string   `json:"metrics,omitempty"`
	}{jsonSchema, s.node.ID().String(), []string{}, s.counters.url()}
	for _, m := range s.node.Addrs() {
		r.Addresses = append(r.Addresses, m.String())
	}
	return a.show(r, func() error {
		return a.say("serving as %s\n%s", r.PeerID, strings.Join(r.Addresses, "\n"))
	})
}

// serving is a gateway with everything that it stands on.
type serving struct {
	file    string
	started time.Time
	loaded  *policy.Policy
	ledger  *ledger.Ledger // nil if it is lost or corrupt
	locked  error          // why
	revoked *revocations.Store
	cancels *early.Cancels
	side    *ownersSide
	node    *gateway.Node
	policy  *policyfile.Watcher
	keeper  *audit.Keeper // nil without a ledger
	admin   *admin.Server

	watching *watching
	counters counters
	desk     *pairing.Desk
}

func (a *app) startServing(ctx context.Context, f serveFlags, log zerolog.Logger) (s *serving, err error) {
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	key, err := loadIdentity(p)
	if err != nil {
		return nil, err
	}
	s = &serving{file: f.policy, started: time.Now()}
	if s.file == "" {
		s.file = p.policy()
	}
	s.file = absolute(s.file)
	defer func() {
		if err != nil {
			err, s = joinClose(err, s.close), nil
		}
	}()
	if s.loaded, err = a.servablePolicy(s.file); err != nil {
		return s, err
	}
	listen, announce, err := addresses(f)
	if err == nil {
		err = f.checkpoints.check(p.ledger())
	}
	if err != nil {
		return s, err
	}
	if s.counters, err = newCounters(f.metrics, s.sample); err != nil {
		return s, err
	}
	owner, err := ownerOf(p)
	if err != nil {
		return s, err
	}
	if s.ledger, err = openLedger(p.ledger()); lockedBy(err) {
		s.locked = err
		log.Error().Err(err).Msg("the gateway is locked")
		a.note("the gateway is %s", lockedText(err))
	} else if err != nil {
		return s, err
	}
	s.revoked = openRevocations(p) // no other gateway has it now
	if why := s.revoked.Locked(); why != nil {
		log.Error().Err(why).Msg("everything is denied")
		a.note("everything is denied: %v; next: lend unlock --help", why)
	}
	if s.cancels, err = early.Open(p.cancels()); err != nil {
		return s, err
	}
	tree, err := openCgroup(f.cgroup, log)
	if err != nil {
		return s, err
	}
	if s.side, err = a.openOwnersSideIn(tree, p, s.loaded, log); err != nil {
		return s, err
	}
	if _, err := uninstall.Resume(ctx, uninstall.Config{Store: s.side.store, Connections: s.side.root, Withdraw: a.removeLocalShims}); err != nil {
		log.Error().Err(err).Msg("some connectors are not wholly removed")
	}
	if _, err := s.side.host.Reconcile(ctx); err != nil { // it logs each route
		log.Error().Err(err).Msg("some connectors have no route")
	}
	why := secretsLocked(s.side.store, s.side.root)
	if text := lockedSecretsText(why); text != "" {
		log.Warn().Err(why).Msg("secrets are locked")
		a.note("%s", text)
	}
	s.watching = newWatching(p.store(), p.publishers(), s.side.host, log)
	if s.node, err = gateway.New(gateway.Config{
		Key: key, Listen: listen, Announce: announce, Policy: s.loaded, Runtime: s.side.host,
		Ledger: s.ledger, Locked: s.locked, Revocations: s.revoked, Cancels: s.cancels, Owner: owner, Log: log,
		Observer: s.counters.observer(),
	}); err != nil {
		return s, err
	}
	s.desk = pairing.NewDesk(s.node)
	s.policy = a.follow(s, log)
	if err := s.counters.serve(ctx); err != nil {
		return s, err
	}
	s.keepCheckpoints(f.checkpoints, log)
	s.admin, err = admin.Listen(ctx, p.socket, s, log)
	if errors.Is(err, admin.ErrInUse) {
		return s, hintf("lend status", "another gateway serves this directory")
	}
	return s, err
}

// servablePolicy loads a policy that has no errors and whose tests pass.
func (a *app) servablePolicy(file string) (*policy.Policy, error) {
	p, err := loadPolicy(file) // once: what is judged is what is served
	if err != nil {
		return nil, err
	}
	r, err := a.reportOn(file, p)
	if err != nil {
		return nil, err
	}
	if !r.OK {
		for _, f := range r.Findings {
			if f.Level == policy.LevelError {
				a.note("%s: %s: %s", f.Position, f.Level, f.Message)
			}
		}
		a.noteFailedTests(r.Tests)
		return nil, usagef("lend policy check", "%s: the policy has errors, so it is not served", file)
	}
	return p, nil
}

// lockPatience is how long a ledger that another process has is asked for again: a
// child that a killed gateway was about to start has its lock until it has become
// another program.
const lockPatience = time.Second

func openLedger(dir string) (*ledger.Ledger, error) {
	l, err := ledger.Open(ledger.Config{Dir: dir, KeepFor: keepFor, KeepBytes: keepBytes})
	for end := time.Now().Add(lockPatience); errors.Is(err, ledger.ErrLocked) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		l, err = ledger.Open(ledger.Config{Dir: dir, KeepFor: keepFor, KeepBytes: keepBytes})
	}
	if errors.Is(err, ledger.ErrLocked) {
		return nil, hintf("lend status", "another gateway has the ledger of this directory")
	}
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return l, nil
}

// close ends in the reverse order of the start. It may be called on what is only
// partly there.
func (s *serving) close() error {
	closers := []func() error{s.counters.close}
	if s.admin != nil {
		closers = append(closers, s.admin.Close)
	}
	if s.policy != nil {
		closers = append(closers, s.policy.Close)
	}
	if s.node != nil {
		closers = append(closers, s.node.Close)
	}
	if s.keeper != nil { // its last checkpoint covers the ends
		closers = append(closers, s.closeKeeper)
	}
	if s.watching != nil {
		closers = append(closers, s.watching.close)
	}
	if s.side != nil {
		closers = append(closers, s.side.close)
	}
	if s.ledger != nil {
		closers = append(closers, s.ledger.Close)
	}
	return joinClose(nil, closers...)
}

// Status implements admin.Backend.
func (s *serving) Status(ctx context.Context) (admin.Status, error) {
	n := s.node.Status()
	out := admin.Status{
		SchemaVersion: admin.SchemaVersion, PeerID: n.ID.String(), Version: buildVersion().Version,
		ProcessID: os.Getpid(), Started: s.started, Addresses: []string{},
		Policy:  policyShown(s.file, n.PolicyDigest, s.policy.Status()),
		Metrics: s.counters.url(),
		Routes:  []admin.Route{}, Peers: []admin.Peer{}, Operations: []admin.Operation{},
	}
	if s.locked == nil {
		out.Ledger = s.ledgerShown()
	}
	switch {
	case s.locked != nil:
		out.Ledger.Failed = lockedText(s.locked)
	case n.LedgerErr != nil:
		out.Ledger.Failed = n.LedgerErr.Error()
	}
	for _, m := range n.Addresses {
		out.Addresses = append(out.Addresses, m.String())
	}
	_, routes := s.side.host.Routes().Snapshot()
	for _, d := range routes {
		r := routeShown(d.Identity)
		if why := s.side.host.Blocked(d.Identity); why != nil {
			r.Ready, r.Reason = false, notReady(why)
		}
		out.Routes = append(out.Routes, r)
	}
	s.watching.show(ctx, &out, routes)
	for _, p := range n.Peers {
		out.Peers = append(out.Peers, admin.Peer{Name: p.Label.String(), PeerID: p.ID.String(), Address: p.Address.String(), Operations: p.Operations})
	}
	for _, o := range n.Operations {
		out.Operations = append(out.Operations, operationShown(&o))
	}
	out.Limits = limitsShown(n, s.side.cgroup)
	if n.LedgerFull {
		out.Ledger.Full = true
		out.Warnings = append(out.Warnings, fullText)
	}
	if text := lockedSecretsText(secretsLocked(s.side.store, s.side.root)); text != "" {
		out.Warnings = append(out.Warnings, text)
	}
	out.Warnings = append(out.Warnings, s.side.unsetSecrets(routes)...)
	s.revocationsShown(&out)
	return out, nil
}

func routeShown(id route.Identity) admin.Route {
	return admin.Route{Connector: id.Connector.String(), Version: id.Version.String(), Connection: id.Connection.String(), Ready: true}
}

// notReady says on one line why a route can start nothing now.
func notReady(why error) string {
	return "not ready: " + strings.ReplaceAll(why.Error(), "\n", "; ")
}

func retiredShown(id route.Identity) admin.Route {
	r := routeShown(id)
	r.Ready = false
	return r
}

func addresses(f serveFlags) (listen, announce []multiaddr.Multiaddr, err error) {
	if listen, err = parseAddresses("--listen", f.listen); err != nil {
		return nil, nil, err
	}
	if announce, err = parseAddresses("--announce", f.announce); err != nil {
		return nil, nil, err
	}
	if len(listen) == 0 {
		listen, err = localAddresses()
	}
	return listen, announce, err
}

func parseAddresses(flag string, texts []string) ([]multiaddr.Multiaddr, error) {
	var out []multiaddr.Multiaddr
	for _, s := range texts {
		m, err := multiaddr.NewMultiaddr(s)
		if err != nil {
			return nil, usagef(flag+" /ip4/192.0.2.1/tcp/5363", "%s %q: not a multiaddr", flag, s)
		}
		out = append(out, m)
	}
	return out, nil
}

// localAddresses are loopback and the private addresses of this machine.
func localAddresses() ([]multiaddr.Multiaddr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var out []multiaddr.Multiaddr
	for _, addr := range all {
		n, ok := addr.(*net.IPNet)
		if !ok || !n.IP.IsLoopback() && !n.IP.IsPrivate() {
			continue
		}
		family := "ip6"
		if n.IP.To4() != nil {
			family = "ip4"
		}
		for _, rest := range []string{"tcp/%d", "udp/%d/quic-v1"} {
			m, err := multiaddr.NewMultiaddr(fmt.Sprintf("/%s/%s/"+rest, family, n.IP, defaultPort))
			if err == nil {
				out = append(out, m)
			}
		}
	}
	slices.SortFunc(out, func(a, b multiaddr.Multiaddr) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}
