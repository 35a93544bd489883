package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	dialTimeout  = 20 * time.Second
	maxAddresses = 16 // of one name that are tried
	httpsPort    = "443"
)

// dial connects to an address of the host that was looked at, and to no other.
func (c *Client) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil || port != httpsPort {
		return nil, fmt.Errorf("%w: only port %s is dialled", ErrRefused, httpsPort)
	}
	addresses, err := c.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var errs error
	for _, a := range addresses[:min(len(addresses), maxAddresses)] {
		conn, err := c.connect(ctx, network, netip.AddrPortFrom(a, 443))
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, fmt.Errorf("dial: %w", errs)
}

// resolve looks a name up. One address that is not public refuses all: which of them a
// machine takes is chance.
func (c *Client) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil, fmt.Errorf("%w: an address instead of a name", ErrRefused)
	}
	lookup := c.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	addresses, err := lookup(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%w: the name has no address", ErrRefused)
	}
	for _, a := range addresses {
		if !Public(a) {
			return nil, fmt.Errorf("%w: the name leads to %s, which is not public", ErrRefused, a.Unmap())
		}
	}
	return addresses, nil
}

func (c *Client) connect(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error) {
	if c.connectTo != nil {
		return c.connectTo(ctx, network, at)
	}
	d := &net.Dialer{Timeout: dialTimeout, Control: checkSocket}
	return d.DialContext(ctx, network, at.String())
}

// checkSocket is asked with the address that the system is about to connect to.
func checkSocket(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !Public(at.Addr()) {
		return fmt.Errorf("%w: the address is not public", ErrRefused)
	}
	return nil
}
