package client

import (
	"context"
	"errors"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Attach prepares to follow an operation that this holder started elsewhere, in the
// invocation of the current lease, which may have expired. Start, Wait and Output
// work as for a command, with the output that the gateway still has; see Cmd.Tail.
// It sends no input. While another stream follows the operation, the gateway says
// BUSY, which is waited for. When ctx is done the operation goes on, and the outcome
// is unknown; Cmd.Cancel stops it.
func (c *Client) Attach(ctx context.Context, operation string) *Cmd {
	return &Cmd{OperationID: operation, ctx: ctx, client: c, follows: true}
}

var errFollowed = errors.New("attach: an operation that was started has its input and arguments")

func (c *Cmd) prepareAttach() (*operation, error) {
	if c.Stdin != nil || c.Connector != "" || c.Name != "" || len(c.Args) > 0 {
		return nil, errFollowed
	}
	id, err := name.ParseOperationID(c.OperationID)
	if err != nil {
		return nil, err
	}
	f, to, err := c.client.pastLease(c.ctx)
	if err != nil {
		return nil, err
	}
	o := c.operation(&protocol.Start{Operation: id, Lease: f.Chain}, &f.Lease, to)
	o.follows, o.tail = true, c.Tail
	return o, nil
}

// first is the frame that asks for the operation.
func (o *operation) first() protocol.Frame {
	if !o.follows {
		return o.start
	}
	return &protocol.Attach{Issuer: o.key.Issuer, Invocation: o.key.Invocation, Operation: o.key.Operation}
}
