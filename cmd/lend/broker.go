package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/gateway/client/broker/shims"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/gateway/client/broker/stdio"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

const (
	sessionVariable = "LEND_SESSION"
	hintAccept      = `eval "$(lend lease accept FILE)"`
)

func (a *app) brokerCommand() *cobra.Command {
	var level string
	var wait time.Duration
	c := &cobra.Command{
		Use:   "broker",
		Short: "keep leases and warm connections for shims and lend run",
		Long: `Run the broker in the foreground: it keeps the leases that lend lease accept
gives it, in memory alone, and a connection to each of their gateways, which it
dials anew when it is lost. Shims (lend shim) and lend run use it over a private
socket that only this user can reach.

What one invocation may use is a session, with a random handle that lend lease
accept prints as $LEND_SESSION; it ends with its last lease, with lend broker
close, or with the broker, and what runs in it is cancelled then. When it is
ready, stdout says so. Log lines, in JSON, go to stderr. ^C and SIGTERM end it.`,
		Example: `  lend broker
  lend broker --log debug
  lend broker status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.broker(cmd.Context(), level, wait) },
	}
	c.Flags().StringVar(&level, "log", "info", "the least level to log: debug, info, warn or error")
	c.Flags().Var(atLeastNone(&wait, 10*time.Second), "wait", "how long a shim waits when a gateway is busy, or its link is lost; 0 does not")
	c.AddCommand(a.brokerStatusCommand(), a.brokerCloseCommand())
	return c
}

func (a *app) broker(ctx context.Context, logLevel string, wait time.Duration) error {
	level, err := zerolog.ParseLevel(logLevel)
	if err != nil || level < zerolog.DebugLevel || level > zerolog.ErrorLevel {
		return usagef("--log info", "--log: want debug, info, warn or error")
	}
	p, err := a.paths()
	if err != nil {
		return err
	}
	key, err := loadIdentity(p)
	if err != nil {
		return err
	}
	if err := p.makePrivate(); err != nil {
		return err
	}
	if err := process.Harden(); err != nil {
		return fmt.Errorf("keep other processes out of this one's memory: %w", err)
	}
	stdio.Detach()
	if wait <= 0 {
		wait = -1
	}
	b, err := broker.New(broker.Config{
		Key: key, Shims: shims.New(p.shims()).Lookup, Local: newOwnConnectors(a), Report: told, Help: tellLent, Progress: showProgress,
		Wait: wait, Log: newLog(a.err, level),
	})
	if err != nil {
		return err
	}
	s, err := socket.Listen(ctx, p.broker(), b, newLog(a.err, level))
	if errors.Is(err, socket.ErrInUse) {
		err = hintf("lend broker status", "another broker serves this directory")
	}
	if err != nil {
		return joinClose(err, b.Close)
	}
	r := struct {
		SchemaVersion int    `json:"schemaVersion"`
		Holder        string `json:"holder"`
		Socket        string `json:"socket"`
	}{jsonSchema, b.Holder().String(), p.broker()}
	err = a.show(r, func() error { return a.say("broker for %s\n%s", r.Holder, r.Socket) })
	if err == nil {
		<-ctx.Done()
	}
	a.stopSignals() // a second signal ends the program at once
	return joinClose(err, s.Close, b.Close)
}

// told is what a caller of the broker is told of the end of its call.
func told(cmd *client.Cmd, err error, took time.Duration) wire.Exit {
	status := client.ExitStatus(err)
	r := resultOf(cmd, err, status, took)
	e := wire.Exit{Status: byte(status)}
	e.Detail, _ = json.Marshal(r) // it holds nothing that could fail
	people := advised(forPeople(err))
	var not *native.NotOneError
	switch {
	case errors.As(err, &not):
		e.Message, e.Hint = not.Error(), "lend catalog says what each takes"
	case errors.Is(err, broker.ErrNoSession):
		e.Message, e.Hint = err.Error(), hintAccept
	case errors.Is(err, shims.ErrNone), errors.Is(err, shims.ErrForeign):
		e.Message, e.Hint = err.Error(), "lend shim list"
	case people != nil:
		e.Message, e.Hint = people.Error(), hintOf(people)
		if r.Ran == "unknown" && r.OperationID != "" {
			e.Message += " (operation " + r.OperationID + ")"
		}
	}
	e.Message, e.Hint = harmless(e.Message), harmless(e.Hint)
	return e
}

func (a *app) brokerStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "show the sessions that the running broker keeps, and their leases",
		Long:    "List the sessions of the running broker: the leases of each, until when, and\nwhether there is a connection to the gateway. It shows no lease and no handle.\nOf very many leases it lists what one answer holds, and counts the others.\nExit status 1: none runs.",
		Example: "  lend broker status\n  lend broker status --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			answer, err := a.askBroker(cmd.Context(), p.broker(), socket.Question{Do: socket.DoStatus})
			if err != nil {
				return err
			}
			return a.show(struct {
				SchemaVersion int `json:"schemaVersion"`
				*broker.Status
			}{jsonSchema, answer.Status}, func() error { return a.printSessions(answer.Status) })
		},
	}
}

func (a *app) printSessions(s *broker.Status) error {
	if len(s.Sessions) == 0 {
		a.note("lend: the broker has no session; next: %s", hintAccept)
		return nil
	}
	rows := [][]string{{"INVOCATION", "LEASE", "GATEWAY", "CONNECTORS", "UNTIL", "CONNECTED"}}
	for _, session := range s.Sessions {
		for _, l := range session.Leases {
			connected := "no"
			if l.Connected {
				connected = "yes"
			}
			rows = append(rows, []string{session.Invocation, l.ID, l.Gateway, strings.Join(l.Connectors, ","), l.NotAfter.Format(time.RFC3339), connected})
		}
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if s.More > 0 {
		a.note("lend: and %d more, which do not fit into one answer", s.More)
	}
	return nil
}

func (a *app) brokerCloseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "close",
		Short:   "end the session in $LEND_SESSION: its invocation has ended",
		Long:    "Have the broker forget the leases of the session in $LEND_SESSION, and cancel\nwhat runs in it. Its handle is of no use after that.",
		Example: "  lend broker close",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, path, ok := socket.SplitSession(os.Getenv(sessionVariable))
			if !ok {
				return usagef(hintAccept, "$LEND_SESSION names no session")
			}
			if _, err := a.askBroker(cmd.Context(), path, socket.Question{Do: socket.DoClose, Session: text}); err != nil {
				return err
			}
			return a.show(struct {
				SchemaVersion int  `json:"schemaVersion"`
				Closed        bool `json:"closed"`
			}{jsonSchema, true}, func() error { return nil })
		},
	}
}

func (a *app) askBroker(ctx context.Context, path string, q socket.Question) (socket.Answer, error) {
	answer, err := socket.Ask(ctx, path, q)
	if errors.Is(err, socket.ErrNotRunning) {
		return answer, &hinted{err, "lend broker"}
	}
	return answer, err
}

func (a *app) leaseAcceptCommand() *cobra.Command {
	var join bool
	c := &cobra.Command{
		Use:   "accept FILE",
		Short: "give a lease to the broker, for shims and lend run",
		Long: `Give a lease to the running broker, which keeps it in memory until it expires.
What is printed is for a shell to take over: $LEND_SESSION, the handle of what
this invocation may use, and a $PATH that begins with the shims. Leases from the
same issuer for the same invocation share a session; --join puts one of another
issuer, for the same invocation, into the session of $LEND_SESSION. FILE - is
standard input.`,
		Example: `  eval "$(lend lease accept laptop-github.lease)"
  lend lease accept --join server-stripe.lease >/dev/null
  lend lease accept - --json < laptop-github.lease`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.acceptLease(cmd.Context(), args[0], join) },
	}
	c.Flags().BoolVar(&join, "join", false, "put it into the session of $LEND_SESSION, whose invocation must be the same")
	return c
}

func (a *app) acceptLease(ctx context.Context, path string, join bool) error {
	file, err := a.readLease(path)
	if err != nil {
		return err
	}
	p, err := a.paths()
	if err != nil {
		return err
	}
	text, err := lease.Armor(file.Chain, file.Addresses, lease.AddressRule{AllowLocal: true})
	if err != nil {
		return &usageError{err: err}
	}
	at, q := p.broker(), socket.Question{Do: socket.DoAccept, Lease: string(text)}
	if join {
		var ok bool
		if q.Session, at, ok = socket.SplitSession(os.Getenv(sessionVariable)); !ok {
			return usagef(hintAccept, "--join: $LEND_SESSION names no session")
		}
	}
	answer, err := a.askBroker(ctx, at, q)
	if err != nil {
		return err
	}
	session, bin := socket.JoinSession(answer.Session, at), shims.New(p.shims()).Bin()
	return a.show(struct {
		SchemaVersion int       `json:"schemaVersion"`
		Session       string    `json:"session"`
		Path          string    `json:"path"`
		Invocation    string    `json:"invocation"`
		NotAfter      time.Time `json:"notAfter"`
	}{jsonSchema, session, bin, file.Lease.Invocation.String(), file.Lease.NotAfter}, func() error {
		if err := a.say("export %s=%s", sessionVariable, quoteWord(session)); err != nil {
			return err
		}
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if dir == bin {
				return nil
			}
		}
		return a.say(`export PATH=%s:"$PATH"`, quoteWord(bin))
	})
}

// mostOwn is how many commands of the caller's own Connectors run at once.
const mostOwn = 4

// ownConnectors runs what is installed here for the authority "caller": as a peer of
// this machine's own policy, through the same frames, admission and grammar.
type ownConnectors struct {
	app   *app
	turns chan struct{}
}

func newOwnConnectors(a *app) *ownConnectors {
	return &ownConnectors{a, make(chan struct{}, mostOwn)}
}

var _ broker.Local = (*ownConnectors)(nil)

// Catalog implements broker.Local: what this machine's policy lets this machine run.
func (o *ownConnectors) Catalog(_ context.Context, key name.ConnectorKey) ([]protocol.CatalogEntry, error) {
	p, err := o.app.paths()
	if err != nil {
		return nil, err
	}
	pol, err := loadPolicy(p.policy())
	if err != nil {
		return nil, err
	}
	contracts, err := o.app.installedContracts()
	if err != nil {
		return nil, err
	}
	self, err := o.self(p)
	if err != nil {
		return nil, err
	}
	owner, err := ownerOf(p)
	if err != nil {
		return nil, err
	}
	var targets []policy.Target
	for _, text := range pol.Targets(contracts) {
		k, command, err := parseTarget(text)
		if err != nil || k != key {
			continue
		}
		version, err := o.app.chooseVersion(key, "")
		if err != nil {
			return nil, err
		}
		targets = append(targets, policy.Target{Connector: key, Version: version, Command: command})
	}
	var out []protocol.CatalogEntry
	seen := map[policy.Target]bool{}
	for _, s := range pol.Freeze(owner, self, time.Now(), targets, contracts) {
		if seen[s.Target()] {
			continue
		}
		seen[s.Target()] = true
		schema, err := s.InputSchema(nil)
		if err != nil {
			return nil, err
		}
		e := protocol.CatalogEntry{Connector: key, Version: s.Target().Version, Command: s.Target().Command, InputSchema: schema}
		for _, q := range s.Command().Parameters {
			e.Stdin = e.Stdin || q.Stdin != nil
		}
		out = append(out, e)
	}
	return out, nil
}

func (o *ownConnectors) self(p paths) (name.PeerID, error) {
	key, err := loadIdentity(p)
	if err != nil {
		return name.PeerID{}, err
	}
	return peerID(key)
}

// Run implements broker.Local.
func (o *ownConnectors) Run(ctx context.Context, e protocol.CatalogEntry, args []string, s broker.Streams) error {
	select {
	case o.turns <- struct{}{}:
		defer func() { <-o.turns }()
	case <-ctx.Done():
		return fmt.Errorf("start: %w", context.Cause(ctx))
	}
	p, err := o.app.paths()
	if err != nil {
		return err
	}
	self, err := o.self(p)
	if err != nil {
		return err
	}
	child := newApp(nil, nil, s.Stdout, s.Stderr)
	child.dir, child.passphrase = o.app.dir, o.app.passphrase // a descriptor is read once
	return child.try(ctx, tryRequest{
		peer: self.String(), version: e.Version.String(), stdin: s.Stdin,
		args: append([]string{e.Connector.String(), e.Command.String()}, args...),
	})
}
