package client

import (
	"context"
	"fmt"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

// Revoke hands a signed revocation (revocation.Seal) to the gateway of the current
// lease, which may have expired and be anybody's: it only says where the gateway is.
// Whose key signed is what counts there, not who this Client is. When it returns
// without an error, the revocation is in force and kept; the same one may be sent
// again. A refusal is a *RefusedError.
func (c *Client) Revoke(ctx context.Context, envelope []byte) (*protocol.RevokeReply, error) {
	f, err := c.config.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("get lease: %w", err)
	}
	if f.Lease, err = lease.Open(f.Chain); err != nil {
		return nil, fmt.Errorf("open lease: %w", err)
	}
	to, err := c.gateway(f)
	if err != nil {
		return nil, err
	}
	return ask[*protocol.RevokeReply](ctx, c, to, &protocol.RevokeRequest{Envelope: envelope})
}
