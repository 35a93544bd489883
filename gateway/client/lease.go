package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// LeaseSource gives the lease for the next operation; it may renew it. It is
// called from several goroutines.
type LeaseSource func(ctx context.Context) (lease.File, error)

// Static returns a source that always gives f.
func Static(f lease.File) LeaseSource {
	return func(context.Context) (lease.File, error) { return f, nil }
}

// Lease returns the lease that the next operation would use, opened. Nothing is sent. The
// error is that of the LeaseSource or a *lease.Error: it is not usable now, or not ours.
func (c *Client) Lease(ctx context.Context) (lease.File, error) {
	f, _, err := c.lease(ctx)
	if err == nil {
		f.Lease, err = lease.Open(f.Chain) // the caller's own
	}
	return f, err
}

// lease returns a lease that is usable now, with where its gateway is.
func (c *Client) lease(ctx context.Context) (lease.File, peer.AddrInfo, error) {
	f, to, err := c.pastLease(ctx)
	if err != nil {
		return f, to, err
	}
	if err := f.Lease.Usable(c.holder, name.PeerID{}, c.config.Now()); err != nil && !c.config.SkipLeaseCheck {
		return f, to, fmt.Errorf("use lease: %w", err)
	}
	return f, to, nil
}

// pastLease returns a lease that may have expired: it only says whose operations
// are meant, and where they are. spec: ATTACH-1
func (c *Client) pastLease(ctx context.Context) (lease.File, peer.AddrInfo, error) {
	f, err := c.config.Leases(ctx)
	if err != nil {
		return f, peer.AddrInfo{}, fmt.Errorf("get lease: %w", err)
	}
	if f.Lease, err = c.opened.open(f.Chain); err != nil {
		return f, peer.AddrInfo{}, fmt.Errorf("open lease: %w", err)
	}
	if f.Lease.Holder != c.holder && !c.config.SkipLeaseCheck {
		return f, peer.AddrInfo{}, fmt.Errorf("use lease: %w", f.Lease.Usable(c.holder, name.PeerID{}, c.config.Now()))
	}
	info, err := c.gateway(f)
	return f, info, err
}

// place is where the gateway of a lease is. It must not be changed.
type place struct {
	gateway   name.PeerID
	addresses []string // of the lease file
	info      peer.AddrInfo
}

// gateway returns where the gateway of f is. It remembers the last one: most clients have
// no other.
func (c *Client) gateway(f lease.File) (peer.AddrInfo, error) {
	if p := c.place.Load(); p != nil && p.gateway == f.Lease.Gateway && slices.Equal(p.addresses, f.Addresses) {
		return p.info, nil
	}
	info, err := c.locate(f)
	if err == nil {
		c.place.Store(&place{f.Lease.Gateway, slices.Clone(f.Addresses), info})
	}
	return info, err
}

// locate joins the addresses of the lease file with those of Config.
func (c *Client) locate(f lease.File) (peer.AddrInfo, error) {
	id, err := peer.Decode(f.Lease.Gateway.String())
	if err != nil {
		return peer.AddrInfo{}, fmt.Errorf("read gateway's ID: %w", err)
	}
	info := peer.AddrInfo{ID: id, Addrs: append([]multiaddr.Multiaddr{}, c.config.Addresses...)}
	for _, a := range f.Addresses {
		m, err := multiaddr.NewMultiaddr(a)
		if err != nil {
			return peer.AddrInfo{}, fmt.Errorf("read address of the lease: %w", err)
		}
		info.Addrs = append(info.Addrs, m)
	}
	for i, a := range info.Addrs {
		bare, last := peer.SplitAddr(a)
		if last != "" && last != id {
			return peer.AddrInfo{}, fmt.Errorf("address %s is of another gateway than the lease's", name.Quote(a.String()))
		}
		info.Addrs[i] = bare
	}
	return info, nil
}

// grant finds the version and looks whether the lease has the command, so that
// what cannot work is not sent. The error may be a *RefusedError.
func grant(l *lease.Lease, key name.ConnectorKey, version name.Version, command name.Command) (name.Version, error) {
	if version.IsZero() {
		for _, g := range l.Grants {
			switch {
			case g.Connector != key || g.Version == version:
			case version.IsZero():
				version = g.Version
			default:
				return name.Version{}, ErrVersions
			}
		}
	}
	_, err := l.Grant(key, version, command)
	var e *lease.Error
	if err == nil || !errors.As(err, &e) {
		return version, err
	}
	code := protocol.CodeCommandUnknown
	switch e.Reason {
	case lease.ReasonNoConnector:
		code = protocol.CodeConnectorUnknown
	case lease.ReasonNoVersion:
		code = protocol.CodeVersionUnknown
	default:
	}
	return version, &RefusedError{Code: code, Cause: err}
}
