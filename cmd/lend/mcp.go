package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/gateway/client/mcp"
	"github.com/lendcli/lend/gateway/client/mcp/loopback"
	"github.com/lendcli/lend/gateway/client/mcp/watch"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/protocol/name"
)

type mcpFlags struct {
	run        runFlags
	leases     []string
	listen     string
	bearerFile string
	maxOutput  int
	atOnce     int
	level      string
}

func (a *app) mcpCommand() *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{
		Use:   "mcp",
		Short: "show lent commands to an agent as tools (MCP)",
		Long: `Serve the Model Context Protocol: each command that is lent is a tool, with the
catalogue's description and input schema. There is no tool that takes a command
line. The leases are read as by lend run; --lease may be given several times,
for leases of one invocation, also of several gateways. A lease file is read
again when it changes, so one that was renewed in its place is used. With
$LEND_SESSION the broker has them, and a lease that is accepted later is there
too.

Without --listen one client is served over standard input and output, which
carry nothing else; log lines go to stderr. With it, clients connect over HTTP
on a loopback address and say a bearer, which is printed once, or written to the
file of --bearer-file (mode 0600, removed at the end). It is of no use any more
when the last lease has ended, and then lend mcp ends too.

A call is cancelled when its client cancels it or leaves. docs/mcp.md tells how
to configure an agent.`,
		Example: `  lend mcp --lease laptop-github.lease
  LEND_LEASE_FILE=l.lease lend mcp --max-output 20000
  lend mcp --lease l.lease --listen 127.0.0.1:0 --bearer-file bearer`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.leases, "lease", nil, "a lease file; - reads standard input, only with --listen")
	fl.IntVar(&f.run.leaseFD, "lease-fd", -1, "read the lease from this file descriptor")
	fl.StringArrayVar(&f.run.addresses, "address", nil, "an address of the gateway beside those of the lease")
	fl.Var(atLeastNone(&f.run.wait, 10*time.Second), "wait", "how long to wait when the gateway is busy, or its link is lost; 0 does not")
	fl.StringVar(&f.listen, "listen", "", "serve HTTP here: 127.0.0.1:PORT or [::1]:PORT; port 0 takes a free one")
	fl.StringVar(&f.bearerFile, "bearer-file", "", "write the bearer to this file instead of printing it")
	fl.IntVar(&f.maxOutput, "max-output", 64<<10, "how many bytes of each output a result shows, at most 4194304")
	fl.IntVar(&f.atOnce, "at-once", 8, "how many commands run at once")
	fl.StringVar(&f.level, "log", "warn", "the least level to log: debug, info, warn or error")
	return c
}

func (a *app) mcp(ctx context.Context, f mcpFlags) error {
	if err := replaceable("--bearer-file", f.bearerFile); err != nil {
		return err
	}
	if f.listen == "" {
		a.json = false // standard output is the protocol's
	}
	level, err := zerolog.ParseLevel(f.level)
	switch {
	case err != nil || level < zerolog.DebugLevel || level > zerolog.ErrorLevel:
		return usagef("--log warn", "--log: want debug, info, warn or error")
	case f.bearerFile != "" && f.listen == "":
		return usagef("lend mcp --listen 127.0.0.1:0 --bearer-file FILE", "--bearer-file: there is a bearer only with --listen")
	case f.maxOutput < 1 || f.maxOutput > 4<<20:
		return usagef("--max-output 65536", "--max-output: want 1 to 4194304")
	case f.atOnce < 1 || f.atOnce > 256:
		return usagef("--at-once 8", "--at-once: want 1 to 256")
	}
	if err := process.Harden(); err != nil {
		return fmt.Errorf("keep other processes out of this one's memory: %w", err)
	}
	signal.Ignore(syscall.SIGPIPE) // a client that has left is no reason to leave what it has called
	lenders, invocation, err := a.lenders(ctx, f)
	if err != nil {
		return err
	}
	log := newLog(a.err, level)
	s, err := mcp.New(ctx, mcp.Config{
		Lenders: lenders, Local: newOwnConnectors(a), Version: buildVersion().Version, MaxOutput: f.maxOutput, AtOnce: f.atOnce, Log: log,
	})
	if errors.Is(err, mcp.ErrOver) {
		return hintf("ask whoever issued the lease for a new one", "nothing is lent any more: the lease has expired or was revoked, or the session is closed")
	}
	if err != nil {
		return err
	}
	if f.listen != "" {
		return joinClose(a.mcpHTTP(ctx, f, s, invocation, log), s.Close)
	}
	in, ok := a.in.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(a.in)
	}
	defer context.AfterFunc(ctx, a.stopSignals)() // a second signal ends the program at once
	return joinClose(s.Serve(ctx, in, a.out), s.Close)
}

func (a *app) mcpHTTP(ctx context.Context, f mcpFlags, s *mcp.Server, invocation string, log zerolog.Logger) (err error) {
	e, err := loopback.Listen(ctx, f.listen, log)
	if errors.Is(err, loopback.ErrNotLoopback) {
		return usagef("lend mcp --listen 127.0.0.1:0", "--listen: %w", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, e.Close) }()
	bearer, _, err := e.Open(s, s.Done())
	if err != nil {
		return err
	}
	r := struct {
		SchemaVersion int    `json:"schemaVersion"`
		URL           string `json:"url"`
		Invocation    string `json:"invocation,omitempty"`
		Bearer        string `json:"bearer,omitempty"`
		BearerFile    string `json:"bearerFile,omitempty"`
	}{jsonSchema, e.URL() + mcp.Path, invocation, bearer, f.bearerFile}
	if f.bearerFile != "" {
		r.Bearer = ""
		if err := replaceFile("--bearer-file", f.bearerFile, []byte(bearer+"\n")); err != nil {
			return fmt.Errorf("write the bearer: %w", err)
		}
		defer func() {
			if rerr := os.Remove(f.bearerFile); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}()
	}
	err = a.show(r, func() error {
		if r.Bearer == "" {
			return a.say("mcp on %s\nbearer in %s", r.URL, r.BearerFile)
		}
		return a.say("mcp on %s\nbearer %s", r.URL, r.Bearer)
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
		a.note("lend: nothing is lent any more; the bearer is revoked")
	}
	a.stopSignals() // a second signal ends the program at once
	return nil
}

// lenders finds the leases as lend run does, and what each is of.
func (a *app) lenders(ctx context.Context, f mcpFlags) (out []mcp.Lender, invocation string, err error) {
	sources, err := a.leaseSources(f)
	if err != nil {
		return nil, "", err
	}
	if len(sources) == 0 {
		text, at, ok := socket.SplitSession(os.Getenv(sessionVariable))
		if !ok {
			return nil, "", usagef("lend mcp --lease FILE", "there is no lease: ask the owner for one, with the ID that lend id prints")
		}
		return []mcp.Lender{mcp.NewSession(text, at)}, "", nil
	}
	p, err := a.paths()
	if err != nil {
		return nil, "", err
	}
	key, err := loadIdentity(p)
	if err != nil {
		return nil, "", err
	}
	addresses, err := parseAddresses("--address", f.run.addresses)
	if err != nil {
		return nil, "", err
	}
	if f.run.wait <= 0 {
		f.run.wait = -1
	}
	defer func() {
		if err != nil {
			for _, l := range out {
				err = joinClose(err, l.Close)
			}
		}
	}()
	var first name.InvocationID
	for _, source := range sources {
		c, err := client.New(client.Config{Key: key, Leases: source.leases, Addresses: withoutPeer(addresses), Wait: f.run.wait})
		if err != nil {
			return out, "", err
		}
		l, i, err := mcp.NewLease(ctx, c)
		if err != nil {
			return out, "", joinClose(advised(err), c.Close)
		}
		if source.path != "" {
			l = mcp.Watched(l, func(ctx context.Context, changed func()) error { return watch.File(ctx, source.path, changed) })
		}
		out = append(out, l)
		if first.IsZero() {
			first = i
		}
		if i != first {
			return out, "", usagef("start a lend mcp for each invocation", "the leases are of several invocations")
		}
	}
	return out, first.String(), nil
}

// leaseSource is where a lease comes from.
type leaseSource struct {
	leases client.LeaseSource
	path   string // of the file that may have a newer one
}

// leaseSources reads each lease once; those in files are read again whenever they are
// needed.
func (a *app) leaseSources(f mcpFlags) ([]leaseSource, error) {
	if len(f.leases) == 0 && f.run.leaseFD < 0 && os.Getenv("LEND_LEASE_FILE") == "" && os.Getenv("LEND_LEASE") == "" {
		return nil, nil
	}
	if len(f.leases) == 0 && f.run.leaseFD < 0 && os.Getenv("LEND_LEASE_FILE") != "" {
		f.leases = []string{os.Getenv("LEND_LEASE_FILE")}
	}
	if len(f.leases) > 0 && f.run.leaseFD >= 0 {
		return nil, usagef("", "--lease and --lease-fd are two leases; give one")
	}
	if len(f.leases) == 0 {
		file, err := a.findLease(f.run)
		return []leaseSource{{leases: client.Static(file)}}, err
	}
	var out []leaseSource
	for _, path := range f.leases {
		if path == "-" && f.listen == "" {
			return nil, usagef("--lease-fd 3 3< FILE", "standard input cannot be both the lease and the protocol")
		}
		file, err := a.readLease(path)
		if err != nil {
			return nil, err
		}
		if len(file.Addresses) == 0 && len(f.run.addresses) == 0 {
			return nil, usagef("lend mcp --address /ip4/192.0.2.1/tcp/5363", "the lease holds no address of the gateway")
		}
		if path == "-" {
			out = append(out, leaseSource{leases: client.Static(file)})
			continue
		}
		out = append(out, leaseSource{a.followLease(path, file), path})
	}
	return out, nil
}

// followLease gives what is in a lease file now, or the last lease that was there.
func (a *app) followLease(path string, last lease.File) client.LeaseSource {
	var mu sync.Mutex // guards last
	return func(context.Context) (lease.File, error) {
		mu.Lock()
		defer mu.Unlock()
		if f, err := a.readLease(path); err == nil {
			last = f
		}
		return last, nil
	}
}
