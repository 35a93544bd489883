package sim

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
)

// tcpShape is short, with input and both outputs in several frames.
var tcpShape = shape{name: "tcp", size: 5000, step: 1000, pause: 5}

// tcpRun is one run through a proxy that cuts at point, and what it came to.
func (w *world) tcpRun(id int, secure libp2p.Option, point *cutPoint) (p *proxy, r result, err error) {
	na, err := manet.ToNetAddr(stripPeer(w.life.node.Addrs()[0]))
	if err != nil {
		return nil, r, err
	}
	p = newProxy(w.t, na.String(), point)
	defer p.close()
	h, err := libp2p.New(libp2p.Identity(agentKey.priv), libp2p.NoListenAddrs, libp2p.Transport(tcp.NewTCPTransport), secure,
		libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(), libp2p.DisableRelay(), libp2p.Ping(false),
		libp2p.DisableIdentifyAddressDiscovery())
	if err != nil {
		return p, r, err
	}
	defer func() { _ = h.Close() }()
	f := w.lease()
	at := must(manet.FromNetAddr(p.listener.Addr()))
	f.Addresses = []string{at.String()}
	c, err := client.New(client.Config{Host: h, Leases: client.Static(f), Grease: -1, Now: now})
	if err != nil {
		return p, r, err
	}
	defer func() { _ = c.Close() }()
	run := plan{shape: tcpShape, code: 7}
	r = run.run(&caller{Client: c}, fmt.Sprintf("operation-%06d", id), id)
	starts := w.record.count(id)
	err = run.honest(r, starts)
	if err == nil {
		err = run.complete(r) // a cut heals
	}
	return p, r, err
}

func stripPeer(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	bare, _ := multiaddr.SplitLast(a)
	return bare
}

// TestCutTCP cuts the connection at each record of a short run, and inside it.
// LEND_TEST_FULL=1 tries all of them; by default it is one in so many.
func TestCutTCP(t *testing.T) {
	t.Parallel()
	full := os.Getenv("LEND_TEST_FULL") == "1"
	for label, secure := range map[string]libp2p.Option{
		"noise": libp2p.Security(noise.ID, noise.New), "tls": libp2p.Security(libp2ptls.ID, libp2ptls.New),
	} {
		t.Run(label, func(t *testing.T) {
			w := newWorld(t, nil, "/ip4/127.0.0.1/tcp/0")
			p, r, err := w.tcpRun(1, secure, nil)
			require.NoError(t, err)
			require.NoError(t, plan{shape: tcpShape, code: 7}.complete(r))
			began, every := time.Now(), 16
			if full {
				every = 1
			}
			var points []cutPoint
			n := int(began.UnixNano() % 16)
			for direction := range p.records {
				for record := range int(p.records[direction].Load()) + 1 {
					for where := range wheres {
						if n++; n%every == 0 {
							points = append(points, cutPoint{direction, record, where})
						}
					}
				}
			}
			cuts, errs := w.cutAt(points, secure)
			require.Positive(t, cuts, "nothing was cut")
			for _, err := range errs {
				t.Error(err)
			}
			dir := w.finish()
			all, err := readLedger(dir)
			require.NoError(t, err)
			for op, n := range all.starts {
				require.Equal(t, 1, n, op)
				require.Len(t, all.ends[op], 1, op)
			}
			require.Empty(t, w.record.bad)
			t.Logf("%d and %d records, %d points, %d cuts, %d starts; %s", p.records[up].Load(), p.records[down].Load(),
				len(points), cuts, len(all.starts), time.Since(began).Round(time.Millisecond))
		})
	}
}

// tcpBudget is the real time for the points of one secure channel.
const tcpBudget = 28 * time.Second

// cutAt makes one run for each point, a few at once.
func (w *world) cutAt(points []cutPoint, secure libp2p.Option) (cuts int, errs []error) {
	var mu sync.Mutex // guards the results
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				p, r, err := w.tcpRun(2+i, secure, &points[i])
				mu.Lock()
				if p != nil && p.cut.Load() {
					cuts++
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("cut at %+v: %w", points[i], errors.Join(err, r.err)))
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for i := range points {
		if time.Since(began) > tcpBudget {
			w.t.Logf("a busy machine: %d points are left", len(points)-i)
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return cuts, errs
}
