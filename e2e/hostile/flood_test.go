package hostile

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// assault is what one peer does until ctx is done. Errors do not matter to it.
type assault func(ctx context.Context, g *target, who identity, transport string)

func long() bool { return os.Getenv("LEND_TEST_LONG") == "1" }

func assaults() map[string]assault {
	return map[string]assault{
		"streams that negotiate nothing": held(func(d *dialer, ctx context.Context) (network.Stream, error) {
			s, err := d.host.Network().NewStream(ctx, d.to)
			if err == nil {
				_, _ = s.Write([]byte{19})
			}
			return s, err
		}),
		"streams that say nothing": held(func(d *dialer, ctx context.Context) (network.Stream, error) {
			return d.stream(ctx, protocol.RunID)
		}),
		"starts that trickle": held(func(d *dialer, ctx context.Context) (network.Stream, error) {
			s, err := d.stream(ctx, protocol.RunID)
			if err == nil {
				_, _ = s.Write(binary.AppendUvarint(nil, protocol.MaxStart))
				for range 20 {
					_, _ = s.Write(make([]byte, 1+rand.IntN(4<<10)))
				}
			}
			return s, err
		}),
		"resets": often(func(d *dialer, ctx context.Context, _ []byte) {
			if s, err := d.stream(ctx, protocol.RunID); err == nil {
				_, _ = s.Write([]byte{1})
				_ = s.Reset()
			}
		}),
		"frame bombs": often(func(d *dialer, ctx context.Context, _ []byte) {
			for _, b := range [][]byte{
				{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
				{0xff, 0xff, 0x7f},
				{0},
				{0x80, 0},
				append(binary.AppendUvarint(nil, protocol.MaxStart), make([]byte, protocol.MaxStart)...),
				{5, 0x0a, 0xff, 0xff, 0xff, 0x7f},
				{3, 0x82, 0x40, 0},
			} {
				for _, id := range []string{protocol.RunID, protocol.ControlID, protocol.CatalogID} {
					if s, err := d.stream(ctx, id); err == nil {
						_, _ = s.Write(b)
						_ = s.CloseWrite()
						_ = s.SetReadDeadline(time.Now().Add(time.Second))
						_, _ = s.Read(make([]byte, 1<<10))
						_ = s.Close()
					}
				}
			}
		}),
		"catalogues": often(func(d *dialer, ctx context.Context, l []byte) {
			if s, err := d.stream(ctx, protocol.CatalogID); err == nil {
				_ = protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{l}})
				_, _ = protocol.ReadCatalog(s)
				_ = s.Close()
			}
		}),
		"cancels of nothing": often(func(d *dialer, ctx context.Context, l []byte) {
			if s, err := d.stream(ctx, protocol.ControlID); err == nil {
				q := &protocol.CancelRequest{Lease: [][]byte{l}}
				q.Invocation, q.Operation = must(name.ParseInvocationID("task")), newOperation()
				q.Issuer = ctx.Value(issuerKey{}).(name.PeerID)
				_ = protocol.WriteControlRequest(s, q)
				_, _ = protocol.ReadControlReply(s)
				_ = s.Close()
			}
		}),
		"forged leases": often(func(d *dialer, ctx context.Context, l []byte) {
			l = slices.Clone(l)
			l[len(l)-1-rand.IntN(32)] ^= 1 << rand.IntN(8)
			s := start(l, "print", "--size=1")
			s.Lease = append(s.Lease, l, l)
			_, _ = d.run(ctx, s)
		}),
		"starts beyond the rate": often(func(d *dialer, ctx context.Context, l []byte) {
			_, _ = d.run(ctx, start(l, "print", "--size=100"))
		}),
		"starts that fail": often(func(d *dialer, ctx context.Context, l []byte) {
			_, _ = d.run(ctx, start(l, "fail"))
		}),
		"ends that nobody acknowledges": often(func(d *dialer, ctx context.Context, l []byte) {
			if s, err := d.stream(ctx, protocol.RunID); err == nil {
				_ = protocol.NewWriter(s).WriteFrame(start(l, "print", "--size=3000000"))
				_, _ = s.Read(make([]byte, 1))
				_ = s.Reset()
			}
		}),
		"input byte by byte": func(ctx context.Context, g *target, who identity, transport string) {
			d, err := g.dial(who, transport)
			if err != nil {
				return
			}
			l := g.lease(who)
			var all sync.WaitGroup
			defer all.Wait()
			for range 8 {
				all.Go(func() {
					s, err := d.stream(ctx, protocol.RunID)
					if err != nil {
						return
					}
					defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
					w := protocol.NewWriter(s)
					_ = w.WriteFrame(start(l, "deaf"))
					_, _ = s.Read(make([]byte, 1))
					for offset := uint64(0); ctx.Err() == nil; {
						var b []byte
						for range 4000 {
							f := []byte{0, 0x1a, 0, 0x10}
							f = binary.AppendUvarint(f, offset)
							if offset == 0 {
								f = f[:3]
							}
							f = append(f, 0x1a, 1, 'x')
							f[2] = byte(len(f) - 3)
							f[0] = byte(len(f) - 1)
							b = append(b, f...)
							offset++
						}
						if _, err := s.Write(b); err != nil {
							return
						}
					}
				})
			}
		},
		"lies about what came": often(func(d *dialer, ctx context.Context, l []byte) {
			s, err := d.stream(ctx, protocol.RunID)
			if err != nil {
				return
			}
			w := protocol.NewWriter(s)
			_ = w.WriteFrame(start(l, "cat"))
			switch rand.IntN(5) {
			case 0:
				_ = w.WriteFrame(&protocol.Ack{Stdout: 1 << 60})
			case 1:
				_ = w.WriteFrame(&protocol.ExitAck{})
			case 2:
				_ = w.WriteFrame(&protocol.StdinEnd{Total: 7})
			case 3:
				_ = w.WriteFrame(&protocol.Data{Offset: 1 << 62, Payload: []byte{1}})
			case 4:
				_ = w.WriteFrame(&protocol.Attach{Issuer: d.who.id, Invocation: must(name.ParseInvocationID("task")), Operation: newOperation()})
			}
			_ = s.SetReadDeadline(time.Now().Add(time.Second))
			for b := make([]byte, 1<<10); err == nil; {
				_, err = s.Read(b)
			}
			_ = s.Reset()
		}),
		"attaches to one operation": func(ctx context.Context, g *target, who identity, transport string) {
			d, err := g.dial(who, transport)
			if err != nil {
				return
			}
			s := start(g.lease(who), "sleep")
			var all sync.WaitGroup
			defer all.Wait()
			for range 32 {
				all.Go(func() {
					for ctx.Err() == nil {
						inner, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Millisecond)
						_, _ = d.run(inner, s)
						cancel()
					}
				})
			}
		},
		"strangers": func(ctx context.Context, g *target, _ identity, transport string) {
			most := 60
			if long() {
				most = 500
			}
			for i := 0; ctx.Err() == nil && i < most; i++ {
				d, err := g.dial(newIdentity(), transport)
				if err != nil {
					continue
				}
				for range 50 {
					if _, err := d.host.Network().NewStream(ctx, d.to); err != nil {
						break
					}
				}
			}
		},
		"connections that say nothing": func(ctx context.Context, g *target, _ identity, _ string) {
			for _, a := range g.addrs {
				port, err := a.ValueForProtocol(6)
				if err != nil {
					continue
				}
				for range 300 {
					if c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil {
						defer c.Close()
					}
				}
			}
			<-ctx.Done()
		},
	}
}

type issuerKey struct{}

// held opens as many streams as it gets, and holds them.
func held(open func(*dialer, context.Context) (network.Stream, error)) assault {
	return func(ctx context.Context, g *target, who identity, transport string) {
		d, err := g.dial(who, transport)
		if err != nil {
			return
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for failed := 0; ctx.Err() == nil && failed < 100; {
					inner, cancel := context.WithTimeout(ctx, time.Second)
					if _, err := open(d, inner); err != nil {
						failed++
					}
					cancel()
				}
			})
		}
		all.Wait()
		<-ctx.Done()
	}
}

// often does one thing again and again, 16 at a time.
func often(do func(*dialer, context.Context, []byte)) assault {
	return func(ctx context.Context, g *target, who identity, transport string) {
		d, err := g.dial(who, transport)
		if err != nil {
			return
		}
		l := g.lease(who)
		ctx = context.WithValue(ctx, issuerKey{}, g.issuer.id)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for ctx.Err() == nil {
					do(d, ctx, l)
				}
			})
		}
		all.Wait()
	}
}

// served runs a command of the honest peer again and again, and returns how long
// the slowest took, from an open connection.
func (g *target) served(ctx context.Context, transport string) func() (slowest time.Duration, runs int) {
	g.t.Helper()
	d, l := g.mustDial(g.honest, transport), g.lease(g.honest)
	var worst, count atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			begun := time.Now()
			r, err := d.run(context.Background(), start(l, "print", "--size=1000"))
			for err == nil && r.refused != nil && r.refused.Code == protocol.CodeBusy && time.Since(begun) < patience {
				<-tick.C
				r, err = d.run(context.Background(), start(l, "print", "--size=1000"))
			}
			if err != nil || r.exit == nil || r.stdout != 1000 {
				g.t.Errorf("the honest peer is not served: %v %+v", err, r)
				return
			}
			worst.Store(max(worst.Load(), int64(time.Since(begun))))
			count.Add(1)
			<-tick.C
		}
	}()
	return func() (time.Duration, int) {
		<-done
		return time.Duration(worst.Load()), int(count.Load())
	}
}

// withstand lets each of what attack at the same time, and then looks whether all
// that it took is given back.
func (g *target) withstand(transport string, d time.Duration, what []assault) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), d)
	defer cancel()
	before := g.stats()
	result := g.served(ctx, transport)
	var all sync.WaitGroup
	for i, do := range what {
		all.Go(func() { do(ctx, g, g.hostile[i], transport) })
	}
	var most stats
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for ctx.Err() == nil {
		<-look.C
		s := g.stats()
		most.Goroutines, most.Files = max(most.Goroutines, s.Goroutines), max(most.Files, s.Files)
		most.Heap, most.Kept, most.Peak = max(most.Heap, s.Heap), max(most.Kept, s.Kept), max(most.Peak, s.Peak)
	}
	all.Wait()
	slowest, runs := result()
	g.hangUp()
	g.t.Logf("honest: %d runs, the slowest %v; at most %d goroutines, %d files, %d MiB in use, %d MiB of the system",
		runs, slowest.Round(time.Millisecond), most.Goroutines, most.Files, most.Heap>>20, most.Peak>>20)
	require.Positive(g.t, runs)
	require.Less(g.t, slowest, 15*time.Second)
	require.Less(g.t, most.Goroutines, 20_000)
	require.Less(g.t, most.Peak, uint64(1<<30)) // the budget, and 1.5 MiB for each that runs
	var s stats
	if !assert.Eventually(g.t, func() bool {
		s = g.stats()
		return s.Operations == 0 && s.Running == 0 && s.Kept == 0 && s.Peers == 0 &&
			s.Goroutines <= before.Goroutines+8 && s.Files <= before.Files+8
	}, patience, 100*time.Millisecond, "not all was given back") {
		g.t.Logf("before: %+v", before)
		g.t.Fatalf("after: %+v", s)
	}
	require.Empty(g.t, s.LedgerErr)
}

func named(only string) (out []assault) {
	all := assaults()
	for _, n := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(n, only) {
			out = append(out, all[n])
		}
	}
	return out
}

func TestAllAssaultsAtOnce(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			what := named("")
			g := attack(t, "", len(what))
			d := 1500 * time.Millisecond
			// The race detector makes each of the hundreds of writers that are ready at
			// once ten times as dear: what a peer waits for then is the two processors.
			if long() && !raceEnabled {
				d = 30 * time.Second
			}
			g.withstand(transport, d, what)
		})
	}
}

func TestEachAssaultByEight(t *testing.T) {
	if !long() {
		t.Skip("needs LEND_TEST_LONG=1: it takes minutes")
	}
	for _, n := range slices.Sorted(maps.Keys(assaults())) {
		for _, transport := range []string{"tcp", "quic"} {
			t.Run(strings.ReplaceAll(n, " ", "-")+"/"+transport, func(t *testing.T) {
				one := assaults()[n]
				g := attack(t, ", operations: 1024", 8)
				g.withstand(transport, 5*time.Second, slices.Repeat([]assault{one}, 8))
			})
		}
	}
}
