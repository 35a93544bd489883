package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// ErrOver says that a lender lends nothing any more, and will not again: its lease has
// expired or was revoked, or its session was closed.
var ErrOver = errors.New("nothing is lent any more")

// Lender is where commands are lent from. Its methods are called from several goroutines.
type Lender interface {
	// Lent lists what may be run now. ErrOver ends the lender; after another error what
	// it said before is believed until it says something else.
	Lent(ctx context.Context) ([]Lent, error)
	// Run runs one command to its end, which a done ctx brings about.
	Run(ctx context.Context, r Run) Report
	// Close lets go of the lender. Nothing runs any more then.
	Close() error
}

// Lent is one command that may be run.
type Lent struct {
	Gateway name.PeerID
	Entry   protocol.CatalogEntry
	// Until is when that certainly ends; zero if it is not known.
	Until time.Time
}

// Run is one run of a command.
type Run struct {
	Lent Lent
	// Args are canonical, as a caller types them.
	Args []string
	// Stdin may be nil: there is none.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// leased is a lender with a lease, or a source of them.
type leased struct {
	client     *client.Client
	invocation name.InvocationID
	gateway    name.PeerID
}

// NewLease makes a lender of a client's leases. The present one must be usable, and the
// next ones of the same gateway and invocation. The lender's Close closes the client.
// Errors are those of client.Client.Lease.
func NewLease(ctx context.Context, c *client.Client) (Lender, name.InvocationID, error) {
	f, err := c.Lease(ctx)
	if err != nil {
		return nil, name.InvocationID{}, fmt.Errorf("new lender: %w", err)
	}
	return &leased{c, f.Lease.Invocation, f.Lease.Gateway}, f.Lease.Invocation, nil
}

var errOtherLease = errors.New("the lease is of another gateway or invocation now")

// current is the lease of now, which must be one of the same scope.
func (l *leased) current(ctx context.Context) (lease.File, error) {
	f, err := l.client.Lease(ctx)
	if err == nil && (f.Lease.Invocation != l.invocation || f.Lease.Gateway != l.gateway) {
		err = errOtherLease
	}
	return f, err
}

// Lent implements Lender with the gateway's catalogue.
func (l *leased) Lent(ctx context.Context) ([]Lent, error) {
	var entries []protocol.CatalogEntry
	f, err := l.current(ctx)
	if err == nil {
		entries, err = l.client.Catalog(ctx)
	}
	if isOver(err) {
		return nil, fmt.Errorf("%w: %w", ErrOver, err)
	}
	if err != nil {
		return nil, err
	}
	out := make([]Lent, 0, len(entries))
	for _, e := range entries {
		out = append(out, Lent{Gateway: l.gateway, Entry: e, Until: f.Lease.NotAfter})
	}
	return out, nil
}

// isOver tells errors after which the same lease is of no use.
func isOver(err error) bool {
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		switch refused.Code {
		case protocol.CodeLeaseExpired, protocol.CodeLeaseRevoked, protocol.CodeLeaseExhausted, protocol.CodeInvocationClosed:
			return true
		default:
			return false
		}
	}
	var bad *lease.Error
	return errors.Is(err, errOtherLease) || errors.As(err, &bad) && bad.Reason == lease.ReasonExpired
}

// Run implements Lender.
func (l *leased) Run(ctx context.Context, r Run) Report {
	if _, err := l.current(ctx); err != nil {
		return reportOf(err, nil)
	}
	e := r.Lent.Entry
	cmd := l.client.Command(ctx, e.Connector.String(), e.Command.String(), r.Args...)
	cmd.Version, cmd.Stdin, cmd.Stdout, cmd.Stderr = e.Version.String(), r.Stdin, r.Stdout, r.Stderr
	return reportOf(cmd.Run(), cmd)
}

// Close implements Lender.
func (l *leased) Close() error { return l.client.Close() }
