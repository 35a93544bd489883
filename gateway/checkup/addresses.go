package checkup

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/multiformats/go-multiaddr"

	look "github.com/lendcli/lend/localhost/checkup"
)

const dialTime = 2 * time.Second

// addresses dials what the running gateway tells its peers, as far as that can be
// done from here: TCP at an address of this machine.
func (k *checks) addresses(ctx context.Context) []look.Row {
	s, no := k.running(ctx)
	if no != nil {
		return []look.Row{k.free(ctx, *no)}
	}
	var rows []look.Row
	tried, beyond := 0, 0
	for _, text := range s.Addresses {
		a, err := parseAddress(text)
		if err != nil {
			rows = append(rows, look.Row{Subject: text, Status: look.Fail, Detail: "it is not an address", Fix: "lend serve --announce"})
			continue
		}
		if !a.ip.IsLoopback() {
			beyond++
		}
		if !a.tcp || !ofThisMachine(a.ip) {
			continue
		}
		tried++
		if err := dial(ctx, netip.AddrPortFrom(a.ip, a.port).String()); err != nil {
			rows = append(rows, look.Row{Subject: text, Status: look.Fail, Detail: "it does not answer: " + err.Error(), Fix: "lend status"})
		}
	}
	switch {
	case len(rows) > 0:
	case len(s.Addresses) == 0:
		rows = append(rows, look.Row{Status: look.Fail, Detail: "the gateway has none", Fix: "lend serve --listen"})
	case beyond == 0:
		rows = append(rows, look.Row{Status: look.Warn, Detail: "all are loopback: only this machine can dial them", Fix: "lend serve --listen, or --announce"})
	default:
		rows = append(rows, look.Row{Status: look.Pass, Detail: fmt.Sprintf("%d of %d can be tried from here, and answer", tried, len(s.Addresses))})
	}
	return rows
}

// free looks whether a gateway could listen.
func (k *checks) free(ctx context.Context, no look.Row) look.Row {
	if k.Port == 0 || no.Fix == "" {
		return no
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(k.Port)))
	if err != nil {
		return look.Row{Status: look.Warn, Detail: fmt.Sprintf("port %d is taken by another program", k.Port), Fix: "lend serve --listen /ip4/0.0.0.0/tcp/PORT"}
	}
	if err := l.Close(); err != nil {
		return failed(err, "")
	}
	return no
}

func dial(ctx context.Context, at string) error {
	c, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	return c.Close()
}

// address is what an IP multiaddress says; a name has no ip.
type address struct {
	ip   netip.Addr
	port uint16
	tcp  bool
}

func parseAddress(text string) (a address, err error) {
	m, err := multiaddr.NewMultiaddr(text)
	if err != nil {
		return a, err
	}
	for _, c := range m {
		switch c.Protocol().Code {
		case multiaddr.P_IP4, multiaddr.P_IP6:
			if a.ip, err = netip.ParseAddr(c.Value()); err != nil {
				return a, err
			}
		case multiaddr.P_TCP, multiaddr.P_UDP:
			n, err := strconv.ParseUint(c.Value(), 10, 16)
			if err != nil {
				return a, err
			}
			a.port, a.tcp = uint16(n), c.Protocol().Code == multiaddr.P_TCP
		}
	}
	return a, nil
}

func ofThisMachine(ip netip.Addr) bool {
	if !ip.IsValid() {
		return false
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip.AsSlice()) {
			return true
		}
	}
	return false
}
