package gateway

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"io"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// watched is a world whose verifier and revocations are counted, and refuse all on
// demand.
type watched struct {
	*world
	leases, revocations atomic.Int64

	distrust, revoke atomic.Bool
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{world: newWorld(t, withPolicy(limited("denials: 10000", "stdout: 1MiB")))}
	issuers, revoked := w.node.verifier.Issuers, w.node.verifier.Revoked
	w.node.verifier.Issuers = func(id name.PeerID) (lease.IssuerRule, bool) {
		w.leases.Add(1)
		if w.distrust.Load() {
			return lease.IssuerRule{}, false
		}
		return issuers(id)
	}
	w.node.verifier.Revoked = checker(func(s lease.Subject) bool {
		w.revocations.Add(1)
		return w.revoke.Load() || revoked.Revoked(s)
	})
	return w
}

type checker func(lease.Subject) bool

func (c checker) Revoked(s lease.Subject) bool { return c(s) }

// entry points that peers reach: each proves that it asks, and what it answers when the
// lease is no good, when it is revoked, and when another peer asks.
var peersWays = map[string]func(t *testing.T, w *watched, d, stranger *dialer){
	"run: Start": func(_ *testing.T, w *watched, d, stranger *dialer) {
		l := w.lease()
		w.mustAsk("lease", func() { d.run(w.start(l, "exit", "--code=0")).finish() })
		w.refusing(&w.distrust, func() { d.run(w.start(l, "exit", "--code=0")).wantRefused(protocol.CodeDenied) })
		w.refusing(&w.revoke, func() { d.run(w.start(l, "exit", "--code=0")).wantRefused(protocol.CodeLeaseRevoked) })
		stranger.run(w.start(l, "exit", "--code=0")).wantRefused(protocol.CodeDenied)
	},
	"run: Attach": func(_ *testing.T, w *watched, d, stranger *dialer) {
		l := w.lease()
		running, over := w.start(l, "sleep"), w.start(l, "exit", "--code=0")
		r := d.run(running).answer()
		d.run(over).finish()
		for _, s := range []*protocol.Start{running, over} {
			w.mustAsk("revocation", func() { _ = d.run(w.attach(s, r.accepted.Token, 0)).answer().stream.Reset() })
			w.refusing(&w.revoke, func() { d.run(w.attach(s, r.accepted.Token, 0)).wantRefused(protocol.CodeLeaseRevoked) })
			stranger.run(w.attach(s, r.accepted.Token, 0)).wantRefused(protocol.CodeOperationUnknown)
		}
		w.cancel(d, running)
	},
	"control: CancelRequest": func(t *testing.T, w *watched, d, stranger *dialer) {
		t.Helper()
		l := w.lease()
		running, never := w.start(l, "sleep"), w.start(l, "sleep")
		r := d.run(running).answer()
		require.Equal(t, protocol.CodeOperationUnknown, w.cancel(stranger, running).(*protocol.Refused).Code)
		require.Equal(t, protocol.CodeDenied, w.cancel(stranger, never, l).(*protocol.Refused).Code)
		w.refusing(&w.distrust, func() {
			require.Equal(t, protocol.CodeDenied, w.cancel(d, never, l).(*protocol.Refused).Code)
		})
		w.refusing(&w.revoke, func() {
			require.Equal(t, protocol.CodeLeaseRevoked, w.cancel(d, never, l).(*protocol.Refused).Code)
		})
		require.Zero(t, w.node.live.early.Len(), "nothing was remembered")
		w.mustAsk("lease", func() { w.cancel(d, never, l) })
		w.cancel(d, running) // one's own, that runs: no authority but the key
		_ = r.stream.Reset()
	},
	"control: StatusRequest": func(t *testing.T, w *watched, d, stranger *dialer) {
		t.Helper()
		l := w.lease()
		running, over := w.start(l, "sleep"), w.start(l, "exit", "--code=0")
		r := d.run(running).answer()
		d.run(over).finish()
		for _, s := range []*protocol.Start{running, over} {
			w.mustAsk("revocation", func() {
				require.IsType(t, &protocol.StatusReply{}, w.control(d, &protocol.StatusRequest{OperationKey: w.key(s)}))
			})
			w.refusing(&w.revoke, func() {
				require.Equal(t, protocol.CodeLeaseRevoked, w.control(d, &protocol.StatusRequest{OperationKey: w.key(s)}).(*protocol.Refused).Code)
			})
			require.Equal(t, protocol.CodeOperationUnknown, w.control(stranger, &protocol.StatusRequest{OperationKey: w.key(s)}).(*protocol.Refused).Code)
		}
		w.cancel(d, running)
		_ = r.stream.Reset()
	},
	"control: RevokeRequest": func(t *testing.T, w *watched, d, _ *dialer) {
		t.Helper() // a signature is its authority: TestRevokeOverTheWire has the table
		require.IsType(t, &protocol.Refused{}, w.control(d, &protocol.RevokeRequest{Envelope: []byte("nobody signed this")}))
	},
	"catalog": func(t *testing.T, w *watched, d, stranger *dialer) {
		t.Helper()
		l := w.lease()
		var refused *protocol.Refusal
		w.mustAsk("lease", func() { require.Len(t, must(d.catalogue(l)), 7) })
		w.refusing(&w.distrust, func() {
			_, err := d.catalogue(l)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, protocol.CodeDenied, refused.Code)
		})
		w.refusing(&w.revoke, func() {
			_, err := d.catalogue(l)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, protocol.CodeLeaseRevoked, refused.Code)
		})
		_, err := stranger.catalogue(l)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.CodeDenied, refused.Code)
	},
	"method Try": func(t *testing.T, w *watched, _, _ *dialer) {
		t.Helper() // lend connector try, and whoever embeds a gateway
		l := w.lease()
		try := func(holder name.PeerID) error {
			_, err := w.node.Try(t.Context(), holder, w.start(l, "exit", "--code=0"), nil, nil, nil)
			return err
		}
		code := func(err error) protocol.Code {
			var refused *protocol.Refusal
			require.ErrorAs(t, err, &refused)
			return refused.Code
		}
		w.mustAsk("lease", func() { require.NoError(t, try(w.agent.id)) })
		w.refusing(&w.distrust, func() { require.Equal(t, protocol.CodeDenied, code(try(w.agent.id))) })
		w.refusing(&w.revoke, func() { require.Equal(t, protocol.CodeLeaseRevoked, code(try(w.agent.id))) })
		require.Equal(t, protocol.CodeDenied, code(try(w.gateway.id)))
	},
}

// ownersWays are exported methods that no peer reaches, and that start nothing.
var ownersWays = map[string]string{
	"Addrs": "says where it listens", "ID": "says who it is", "Now": "says the time",
	"Status": "shows the owner what there is", "Operations": "shows the owner what there was",
	"Run": "waits, then closes", "Close": "ends everything", "Stop": "ends one operation",
	"Reload": "narrows what runs; what it widens still has to be admitted", "Suspend": "denies",
	"Recheck": "ends what may not go on", "Revoke": "takes back", "Record": "writes an event",
	"Receive": "lets peers in for pairing, which starts nothing; guests are served nothing else",
}

func (w *watched) mustAsk(what string, f func()) {
	w.t.Helper()
	count := &w.leases
	if what == "revocation" {
		count = &w.revocations
	}
	before := count.Load()
	f()
	require.Greater(w.t, count.Load(), before, "nobody asked about the %s", what)
}

// refusing runs f while everything is refused. Nothing may start.
func (w *watched) refusing(what *atomic.Bool, f func()) {
	w.t.Helper()
	starts := w.host.Starts.Load()
	what.Store(true)
	f()
	what.Store(false)
	require.Equal(w.t, starts, w.host.Starts.Load(), "something ran")
}

func (w *world) control(d *dialer, q protocol.ControlRequest) protocol.ControlReply {
	w.t.Helper()
	c := d.stream(protocol.ControlID)
	require.NoError(w.t, protocol.WriteControlRequest(c, q))
	reply, err := protocol.ReadControlReply(c)
	require.NoError(w.t, err)
	_ = c.Close()
	return reply
}

// calls are the calls of methods and functions in the package, by the function that
// they are in: "admit.go:begin" calls "start".
func calls(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, f := range sources(t) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					callee := types.ExprString(n.Fun)
					out[callee] = append(out[callee], fn.Name.Name)
				case *ast.CaseClause:
					for _, e := range n.List {
						out["case "+types.ExprString(e)] = append(out["case "+types.ExprString(e)], fn.Name.Name)
					}
				}
				return true
			})
		}
	}
	return out
}

// TestEveryEntryHasARow finds what a peer, or a program that embeds the gateway, can
// call, and wants a row of the tables for it.
func TestEveryEntryHasARow(t *testing.T) {
	t.Parallel()
	found := calls(t)
	have := map[string]bool{}
	// The handlers, and the requests that they tell apart.
	var handlers []string
	for callee, in := range found {
		switch callee {
		case "h.SetStreamHandler":
			require.Len(t, in, 3, "a protocol without a row")
		case "n.host.SetStreamHandler":
			require.Equal(t, []string{"Receive"}, in, "a protocol without a row")
		}
		for _, fn := range in {
			if kind, ok := strings.CutPrefix(callee, "case *protocol."); ok && (fn == "run" || fn == "control" || fn == "catalog") {
				have[fn+": "+kind] = true
			}
		}
	}
	for _, f := range sources(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && types.ExprString(c.Fun) == "n.handler" {
				handlers = append(handlers, types.ExprString(c.Args[0]))
			}
			return true
		})
	}
	slices.Sort(handlers)
	require.Equal(t, []string{"n.catalog", "n.control", "n.receive(r, serve)", "n.run", "n.run"}, handlers,
		"the second n.run is Try's")
	have["catalog"] = true
	// The exported methods.
	node := reflect.TypeFor[*Node]()
	for i := range node.NumMethod() {
		if m := node.Method(i).Name; ownersWays[m] == "" {
			have["method "+m] = true
		}
	}
	for m := range ownersWays {
		_, ok := node.MethodByName(m)
		require.True(t, ok, "%s is gone", m)
	}
	require.Equal(t, slices.Sorted(maps.Keys(peersWays)), slices.Sorted(maps.Keys(have)))

	// One way to a process, to a running operation's bytes, and to a recorded end.
	for callee, want := range map[string][]string{
		"n.admit":            {"serveStart"},
		"n.begin":            {"admit"},
		"n.port.prepare":     {"begin"},
		"start":              {"begin"},
		"ready.Start":        {"start"},
		"e.op.Run":           {"begin"},
		"e.op.Serve":         {"serveAttach"},
		"out.entry.op.Serve": {"serveStart"},
		"operation.Replay":   {"replay", "serveStart"},
		"n.serveStart":       {"run"},
		"n.serveAttach":      {"run"},
		"n.entries":          {"catalog"},
	} {
		slices.Sort(found[callee])
		require.Equal(t, want, found[callee], "who calls %s", callee)
	}
	for callee := range found {
		if strings.HasSuffix(callee, ".Serve") || strings.HasSuffix(callee, ".op.Run") {
			require.Contains(t, []string{"e.op.Run", "e.op.Serve", "out.entry.op.Serve"}, callee, "another way to an operation")
		}
	}
}

// TestOneAuthorizePath walks through every way, over both transports.
func TestOneAuthorizePath(t *testing.T) {
	t.Parallel()
	for title, prove := range peersWays {
		for _, transport := range transports() {
			t.Run(title+"/"+transport, func(t *testing.T) {
				t.Parallel()
				w := newWatched(t)
				other := newIdentity(t)
				w.node.Reload(w.parse(strings.Replace(limited("denials: 10000", "stdout: 1MiB"), "agent: AGENT", "agent: AGENT\n  other: "+other.id.String(), 1)))
				prove(t, w, w.dial(w.agent, transport), w.dial(other, transport))
				eventually(t, func() bool { return w.host.Running.Load() == 0 })
			})
		}
	}
}

// faultyBook is a ledger that fails where a test says.
type faultyBook struct {
	book
	at func(string) error
}

func (b faultyBook) Frozen(i name.PeerID, v name.InvocationID, h name.PeerID) ([]byte, bool, error) {
	if err := b.at("frozen"); err != nil {
		return nil, false, err
	}
	return b.book.Frozen(i, v, h)
}

func (b faultyBook) Digest(parts ...[]byte) [32]byte {
	_ = b.at("digest")
	return b.book.Digest(parts...)
}

func (b faultyBook) Lookup(k ledger.Key) (ledger.Outcome, error) {
	if err := b.at("lookup"); err != nil {
		return ledger.Outcome{}, err
	}
	return b.book.Lookup(k)
}

func (b faultyBook) Reserve(c ledger.Claim) (out ledger.Outcome, err error) {
	if err := b.at("reserve"); err != nil {
		return ledger.Outcome{}, err
	}
	out, err = b.book.Reserve(c)
	if out.Reservation == nil {
		return out, err
	}
	defer func() {
		if recover() != nil { // the next step panics
			out.Reservation.Release()
			out.Reservation = nil
		}
	}()
	if b.at("record") != nil {
		out.Reservation.Release() // its Start fails
	}
	return out, err
}

// faultyRuntime is a host that fails where a test says.
type faultyRuntime struct {
	Runtime
	at func(string) error
}

func (r faultyRuntime) Resolve(q route.Query) (route.Descriptor, error) {
	if err := r.at("policy"); err != nil {
		return route.Descriptor{}, err
	}
	return r.Runtime.Resolve(q)
}

func (r faultyRuntime) Start(ctx context.Context, s route.StartRequest) (route.Process, error) {
	if err := r.at("start"); err != nil {
		return nil, err
	}
	p, err := r.Runtime.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return faultyProcess{p, r.at}, nil
}

// Prepare implements Preparer.
func (r faultyRuntime) Prepare(_ context.Context, s route.StartRequest) route.Prepared {
	if r.at("prepare") != nil {
		return nil
	}
	return unprepared{r, s}
}

type faultyProcess struct {
	route.Process
	at func(string) error
}

func (p faultyProcess) Stdout() io.ReadCloser {
	_ = p.at("run") // of the operation, which never got it
	return p.Process.Stdout()
}

// TestFaultsAtEachStage: an error or a panic at any stage of admission denies, leaves
// no process, gives back the slot, the permit and the memory, and is recorded. Then the
// same operation runs, or is NOT_STARTED for ever if its record was durable.
func TestFaultsAtEachStage(t *testing.T) {
	t.Parallel()
	const durable = true
	boom := errors.New("a fault")
	for stage, want := range map[string]struct {
		err, panic protocol.Code // 0: there is no such fault
		durable    bool
	}{
		"lease":      {protocol.CodeDenied, protocol.CodeInternal, !durable},
		"revocation": {protocol.CodeLeaseRevoked, protocol.CodeInternal, !durable},
		"frozen":     {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"policy":     {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"digest":     {0, protocol.CodeInternal, !durable},
		"lookup":     {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"limits":     {0, protocol.CodeInternal, !durable},
		"permit":     {0, protocol.CodeInternal, !durable},
		"reserve":    {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"route":      {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"prepare":    {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"record":     {protocol.CodeInternal, protocol.CodeInternal, !durable},
		"recorded":   {0, protocol.CodeNotStarted, durable},
		"start":      {protocol.CodeNotStarted, protocol.CodeNotStarted, durable},
		"run":        {0, protocol.CodeNotStarted, durable},
	} {
		for kind, code := range map[string]protocol.Code{"error": want.err, "panic": want.panic} {
			if code == 0 {
				continue
			}
			for _, transport := range transports() {
				t.Run(stage+"/"+kind+"/"+transport, func(t *testing.T) {
					t.Parallel()
					var armed atomic.Bool
					at := func(here string) error {
						switch {
						case here != stage || !armed.Load():
							return nil
						case kind == "panic":
							panic("canary of a panic")
						}
						return boom
					}
					// One operation at a time, so that a slot which is not given back is noticed.
					w := newWorld(t, withPolicy(limited("denials: 10000, operations: 1, operations_per_peer: 1, starts_per_minute: 60000", "stdout: 1MiB")),
						func(_ *world, c *Config) { c.Observer = faultyObserver{nobody{}, at} })
					undo := w.inject(at, stage)
					d, l := w.dial(w.agent, transport), w.lease()
					var last *protocol.Start
					rounds := 1 + startsPerCore*runtime.NumCPU() // more than there are permits
					for range rounds {
						last = w.start(l, "exit", "--code=7")
						armed.Store(true)
						d.run(last).wantRefused(code)
						armed.Store(false)
						require.Empty(t, w.node.live.all(), "something is left")
					}
					undo()
					require.Zero(t, w.host.Running.Load(), "a process is left")
					require.Zero(t, w.node.budget.Used())
					if want.durable {
						d.run(last).wantRefused(protocol.CodeNotStarted)
						require.Equal(t, rounds, w.ends(ledger.StateNotStarted), "each has its end in the record")
					} else {
						require.Equal(t, 7, d.run(last).finish().Status, "the ID is free")
					}
					require.Equal(t, 7, d.run(w.start(l, "exit", "--code=7")).finish().Status, "the slot is free")
					require.Positive(t, w.refusedAs(code), "it is in the record")
				})
			}
		}
	}
}

func (l *live) publish(entries map[ledger.Key]*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = entries
}

// inject puts faults where at is asked. undo repairs what cannot be switched off.
func (w *world) inject(at func(string) error, stage string) (undo func()) {
	n := w.node
	issuers, revoked := n.verifier.Issuers, n.verifier.Revoked
	n.verifier.Issuers = func(id name.PeerID) (lease.IssuerRule, bool) {
		if at("lease") != nil {
			return lease.IssuerRule{}, false
		}
		return issuers(id)
	}
	n.verifier.Revoked = checker(func(s lease.Subject) bool { return at("revocation") != nil || revoked.Revoked(s) })
	n.ledger = faultyBook{n.ledger, at}
	host := faultyRuntime{w.host, at}
	n.contracts, n.port = contracts{host}, startPort{host}
	n.resolve = func(q route.Query) (route.Descriptor, error) {
		if err := at("route"); err != nil {
			return route.Descriptor{}, err
		}
		return w.host.Resolve(q)
	}
	permits := n.permits
	switch stage { // what has no seam is taken away
	case "limits":
		n.live.publish(nil) // adding to it panics
	case "permit":
		n.permits = nil
	}
	return func() {
		n.permits = permits
		n.live.publish(map[ledger.Key]*entry{})
	}
}

type faultyObserver struct {
	Observer
	at func(string) error
}

func (o faultyObserver) Recorded(d time.Duration) {
	_ = o.at("recorded")
	o.Observer.Recorded(d)
}

// ends counts ends of a state in the record, refusedAs refusals of a code.
func (w *world) ends(state ledger.State) (count int) {
	w.t.Helper()
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.End != nil && e.End.State == state {
			count++
		}
		return nil
	}))
	return count
}

func (w *world) refusedAs(code protocol.Code) (count int) {
	w.t.Helper()
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.Refusal != nil && e.Refusal.Reason == code.String() {
			count++
			if strings.Contains(e.Refusal.Detail, "canary") {
				return fmt.Errorf("what was panicked with is recorded: %s", e.Refusal.Detail)
			}
		}
		return nil
	}))
	return count
}

// A panic while a request other than a Start is served resets that stream and no more.
func TestPanicsOfOtherRequests(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			var armed atomic.Bool
			w.node.ledger = faultyBook{w.node.ledger, func(string) error {
				if armed.Load() {
					panic("ledger")
				}
				return nil
			}}
			d, l := w.dial(w.agent, transport), w.lease()
			s := w.start(l, "sleep")
			r := d.run(s).answer()
			armed.Store(true)
			c := d.stream(protocol.ControlID)
			require.NoError(t, protocol.WriteControlRequest(c, &protocol.StatusRequest{OperationKey: w.key(w.start(l, "sleep"))}))
			_, err := protocol.ReadControlReply(c)
			require.Error(t, err)
			_, err = d.catalogue(l)
			var refused *protocol.Refusal
			require.ErrorAs(t, err, &refused)
			require.Equal(t, protocol.CodeInternal, refused.Code)
			_, err = d.run(w.attach(w.start(l, "sleep"), nil, 0)).frames.Read()
			require.Error(t, err)
			armed.Store(false)
			eventually(t, func() bool { return w.refusedAs(protocol.CodeInternal) > 0 })
			w.cancel(d, s)
			require.Equal(t, protocol.CodeCancelled, r.finish().Code, "what ran, ran on")
		})
	}
}

// What cannot be judged any more is ended, and the sweeper lives on.
func TestPanicsWhileWorkIsJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	revoked := w.node.verifier.Revoked
	var armed atomic.Bool
	w.node.verifier.Revoked = checker(func(s lease.Subject) bool {
		if armed.Load() {
			panic("revocations")
		}
		return revoked.Revoked(s)
	})
	d, l := w.dial(w.agent, "tcp"), w.lease()
	r := d.run(w.start(l, "sleep")).answer()
	armed.Store(true)
	require.Equal(t, protocol.CodeInternal, r.finish().Code)
	armed.Store(false)
	d.run(w.start(l, "exit", "--code=0")).finish()
}

// The frozen grant of an invocation is a fault like any other if it cannot be read.
func TestFrozenGrantThatIsNone(t *testing.T) {
	t.Parallel()
	for title, stored := range map[string]string{"garbage": "x", "nothing": "", "null": "null", "empty": "[]", "another": `[{"surface":2}]`} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t)
			w.node.ledger = frozenBook{w.node.ledger, []byte(stored)}
			d := w.dial(w.agent, "tcp")
			r := d.run(w.start(w.lease(), "print")).answer()
			require.NotNil(t, r.refused)
			require.Zero(t, w.host.Starts.Load())
			shown, err := d.catalogue(w.lease())
			require.True(t, err != nil || len(shown) == 0)
		})
	}
}

type frozenBook struct {
	book
	grant []byte
}

func (b frozenBook) Frozen(name.PeerID, name.InvocationID, name.PeerID) ([]byte, bool, error) {
	return b.grant, true, nil
}
