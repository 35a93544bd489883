package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) connectorTryCommand() *cobra.Command {
	var peer, version, stdin string
	c := &cobra.Command{
		Use:   "try --peer PEER KEY COMMAND [ARGUMENTS…]",
		Short: "run a shared command here, exactly as a peer would get it",
		Long: `Run a command of an installed Connector as PEER would get it: through the same
frames, lease, policy, argument grammar, record and supervisor, with this
machine's policy of now. Only the link is missing. The record is thrown away.
Exit statuses are those of lend run; with --json, what happened is the last line
of standard error.`,
		Example: `  lend connector try --peer laptop github issue.list --repo acme/site
  echo '{a: 1}' | lend connector try --peer laptop json5 format`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if peer == "" {
				return usagef("lend connector try --peer PEER KEY COMMAND", "--peer is missing")
			}
			in, err := a.inputFor(runFlags{stdin: stdin})
			if err != nil {
				return err
			}
			started := time.Now()
			signal.Ignore(syscall.SIGPIPE) // a reader that has enough (head -1) must end the command, not this program
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			err = a.try(ctx, tryRequest{peer, version, in, stdin == "auto", args})
			status := client.ExitStatus(err)
			r := resultOf(nil, err, status, time.Since(started))
			var explained *hinted
			if errors.As(err, &explained) {
				err = explained
			} else {
				err = forPeople(err)
			}
			a.tellBoth(r, err)
			if status != 0 {
				return &statusError{status}
			}
			return nil
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&peer, "peer", "", "the peer to be: a name of the policy or a peer ID (required)")
	f.StringVar(&version, "version", "", "the Connector's version (default: the only installed one)")
	f.StringVar(&stdin, "stdin", "auto", "send standard input: yes, no, or auto: if the command takes any")
	return c
}

func hintOf(err error) string {
	var usage *usageError
	var withHint *hinted
	switch {
	case errors.As(err, &usage):
		return usage.hint
	case errors.As(err, &withHint):
		return withHint.hint
	default:
		return ""
	}
}

type tryRequest struct {
	peer, version string
	stdin         io.Reader
	orNone        bool // start without input if the command takes none
	args          []string
}

func (a *app) try(ctx context.Context, r tryRequest) (err error) {
	p, err := a.paths()
	if err != nil {
		return err
	}
	pol, err := a.servablePolicy(p.policy())
	if err != nil {
		return err
	}
	holder, err := resolvePeer(pol, r.peer)
	if err != nil {
		return err
	}
	grant, err := a.composeGrant(issueFlags{version: r.version}, r.args[:2])
	if err != nil {
		return err
	}
	s := &serving{loaded: pol}
	dir, err := os.MkdirTemp("", "lend-try-")
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, s.close, func() error { return os.RemoveAll(dir) }) }()
	w, err := a.openTry(ctx, p, s, dir, grant)
	if err != nil {
		return err
	}
	chain, err := tryLease(p, holder, s.node.ID(), grant)
	if err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	op, err := name.ParseOperationID("try-" + hex.EncodeToString(id[:]))
	if err != nil {
		return err
	}
	start := &protocol.Start{
		Operation: op, Lease: chain, Connector: grant.Connector, Version: grant.Version, Command: grant.Commands[0],
		Arguments: r.args[2:], Stdin: r.stdin != nil,
	}
	out, errs := &watched{Writer: a.out, stream: protocol.Stdout}, &watched{Writer: a.err, stream: protocol.Stderr}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := &watchedInput{Reader: r.stdin, ctx: ctx, cancel: cancel}
	exit, err := s.node.Try(ctx, holder, start, in, out, errs)
	if start.Stdin && r.orNone && isRefusal(err, protocol.CodeInputRejected) {
		start.Stdin = false
		exit, err = s.node.Try(ctx, holder, start, nil, out, errs)
	}
	err = in.unread(tried(exit, err))
	if lost := cmp.Or(out.lost, errs.lost); lost != nil {
		lost.End = err
		return lost
	}
	for _, code := range []protocol.Code{protocol.CodeRouteUnavailable, protocol.CodeRouteAmbiguous, protocol.CodeNotStarted} {
		if isRefusal(err, code) {
			return s.side.explained(ctx, err, grant.Connector, grant.Version, w)
		}
	}
	return err
}

// witness is the host of a try, and remembers why it started nothing: a peer is not told.
type witness struct {
	*localhost.Host
	failed atomic.Pointer[failedStart] // the last one; nil: none did
}

type failedStart struct {
	connection name.ConnectionID
	err        error
}

// Prepare implements gateway.Preparer.
func (w *witness) Prepare(ctx context.Context, r route.StartRequest) route.Prepared {
	return &witnessed{w.Host.Prepare(ctx, r), w, r.Identity.Connection}
}

type witnessed struct {
	route.Prepared
	by         *witness
	connection name.ConnectionID
}

func (p *witnessed) Start(ctx context.Context) (route.Process, error) {
	process, err := p.Prepared.Start(ctx)
	if err != nil {
		p.by.failed.Store(&failedStart{p.connection, err})
	}
	return process, err
}

// openTry makes a gateway that nobody can reach, with a ledger that is thrown away.
func (a *app) openTry(ctx context.Context, p paths, s *serving, dir string, g lease.Grant) (*witness, error) {
	var err error
	if s.ledger, err = openLedger(filepath.Join(dir, "ledger")); err != nil {
		return nil, err
	}
	if s.side, err = a.openOwnersSide(p, s.loaded, zerolog.Nop()); err != nil {
		return nil, err
	}
	if err := s.side.host.ReconcileRelease(ctx, g.Connector, g.Version); err != nil {
		return nil, orHint(storeError(err), "lend doctor")
	}
	_, identity, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	w := &witness{Host: s.side.host}
	s.node, err = gateway.New(gateway.Config{
		Key: identity, Policy: s.loaded, Runtime: w, Ledger: s.ledger, Revocations: openRevocations(p),
	})
	return w, err
}

// tryLease is what the owner would sign for the peer, for that gateway.
func tryLease(p paths, holder, gateway name.PeerID, g lease.Grant) ([][]byte, error) {
	ownerKey, err := loadKey(p.ownerKey())
	if err != nil {
		return nil, err
	}
	owner, err := peerID(ownerKey)
	if err != nil {
		return nil, err
	}
	signer, err := crypto.UnmarshalEd25519PrivateKey(ownerKey)
	if err != nil {
		return nil, err
	}
	invocation, err := invocationOf("")
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond)
	envelope, err := lease.Seal(lease.Lease{
		ID: lease.NewID(), Issuer: owner, Holder: holder, Gateway: gateway, Invocation: invocation,
		Authority: lease.AuthorityOwner, Grants: []lease.Grant{g},
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(lease.DefaultLife), MaxOperations: 1, MaxConcurrent: 1, Purpose: "try",
	}, signer)
	if err != nil {
		return nil, fmt.Errorf("sign the lease: %w", err)
	}
	return [][]byte{envelope}, nil
}

// tried turns the end into the error that the client has for it.
func tried(exit protocol.Exit, err error) error {
	var refused *protocol.Refusal
	switch {
	case errors.As(err, &refused):
		return refused
	case err != nil:
		return &client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: err}
	case exit.Code != protocol.CodeOK:
		return &client.EndedError{Code: exit.Code}
	case exit.Signal != "" || exit.Status != 0:
		return &client.ExitError{Code: exit.Status, Signal: exit.Signal, Core: exit.Core}
	default:
		return nil
	}
}
