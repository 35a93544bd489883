package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// countingBook counts what admission asks of the ledger.
type countingBook struct {
	book
	asked atomic.Int64
	fail  atomic.Pointer[error]
	panic atomic.Bool
}

func (b *countingBook) Reserve(c ledger.Claim) (ledger.Outcome, error) {
	b.asked.Add(1)
	if err := b.fail.Load(); err != nil {
		return ledger.Outcome{}, *err
	}
	if b.panic.Load() {
		panic("ledger")
	}
	return b.book.Reserve(c)
}

func (b *countingBook) Lookup(k ledger.Key) (ledger.Outcome, error) {
	b.asked.Add(1)
	return b.book.Lookup(k)
}

func (b *countingBook) Frozen(i name.PeerID, v name.InvocationID, h name.PeerID) ([]byte, bool, error) {
	b.asked.Add(1)
	return b.book.Frozen(i, v, h)
}

func (b *countingBook) Digest(parts ...[]byte) [32]byte {
	b.asked.Add(1)
	return b.book.Digest(parts...)
}

// count puts a countingBook between the node and its ledger. No stream may be
// open yet.
func (w *world) count() *countingBook {
	b := &countingBook{book: w.node.ledger}
	w.node.ledger = b
	return b
}

// spec: REFUSE-3, START-5
func TestBadLeasesGetOneAnswerAndNothingIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, withPolicy(limited("denials: 10000", "stdout: 1MiB")))
			b := w.count()
			d := w.dial(w.agent, transport)
			flipped := w.lease()
			flipped[len(flipped)-1] ^= 1
			bad := map[string][]byte{
				"garbage":        []byte("not a lease"),
				"flipped":        flipped,
				"untrusted":      w.seal(newIdentity(t)),
				"other-holder":   w.lease(func(l *lease.Lease) { l.Holder = newIdentity(t).id }),
				"other-gateway":  w.lease(func(l *lease.Lease) { l.Gateway = newIdentity(t).id }),
				"own-signature":  w.seal(w.agent),
				"another-record": w.otherRecord(),
			}
			var want []byte
			for label, chain := range bad {
				for _, s := range []*protocol.Start{w.start(chain, "print"), w.start(chain, "no-such-command", "--made-up=1")} {
					got := d.raw(encode(t, s))
					require.NotEmpty(t, got, label)
					if want == nil {
						want = got
					}
					require.Equal(t, want, got, "%s: the answers are the same bytes", label)
				}
			}
			r := d.run(w.start([]byte("x"), "print"))
			r.wantRefused(protocol.CodeDenied)
			require.Zero(t, b.asked.Load(), "the ledger was asked")
			require.Zero(t, w.host.Resolves.Load(), "a route was looked at")
			require.Zero(t, w.host.Starts.Load())
		})
	}
}

// otherRecord is a signed envelope of another kind by the trusted issuer.
func (w *world) otherRecord() []byte {
	b := w.lease()
	for i := range b { // the payload type follows the key
		if b[i] == 0x12 && i > 30 {
			b[i+2] ^= 0x20
			break
		}
	}
	return b
}

// encode is a frame with its length.
func encode(t *testing.T, f protocol.Frame) []byte {
	t.Helper()
	var b strings.Builder
	require.NoError(t, protocol.NewWriter(&b).WriteFrame(f))
	return []byte(b.String())
}

// spec: START-4
func TestPreciseRefusals(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d := w.dial(w.agent, transport)
			good := w.lease()
			old := w.lease(func(l *lease.Lease) {
				l.IssuedAt, l.NotBefore, l.NotAfter = l.IssuedAt.Add(-time.Hour), l.NotBefore.Add(-time.Hour), l.NotBefore.Add(-time.Minute)
			})
			early := w.lease(func(l *lease.Lease) { l.NotBefore = l.NotBefore.Add(5 * time.Minute) })
			long := w.lease(func(l *lease.Lease) { l.NotAfter = l.NotAfter.Add(2 * time.Hour) })
			before := w.lease(func(l *lease.Lease) { l.IssuedAt = l.IssuedAt.Add(-time.Minute) })
			wider := w.lease(func(l *lease.Lease) {
				l.Grants[0].Commands = append(l.Grants[0].Commands, must(name.ParseCommand("delete")))
			})
			version := w.start(good, "print")
			version.Version = must(name.ParseVersion("2.0.0"))
			connector := w.start(good, "print")
			connector.Connector = must(name.ParseConnectorKey("other"))
			noInput := w.start(good, "cat")
			noInput.Stdin = false
			input := w.start(good, "print")
			input.Stdin = true

			for label, c := range map[string]struct {
				start *protocol.Start
				want  protocol.Code
			}{
				"expired":            {w.start(old, "print"), protocol.CodeLeaseExpired},
				"not-yet":            {w.start(early, "print"), protocol.CodeLeaseNotYetValid},
				"too-long":           {w.start(long, "print"), protocol.CodeLeaseTooLong},
				"before-the-ledger":  {w.start(before, "print"), protocol.CodeLeaseTooOld},
				"connector":          {connector, protocol.CodeConnectorUnknown},
				"version":            {version, protocol.CodeVersionUnknown},
				"command":            {w.start(good, "remove"), protocol.CodeCommandUnknown},
				"not-in-the-policy":  {w.start(wider, "delete"), protocol.CodeCommandUnknown},
				"undeclared-flag":    {w.start(good, "print", "--output=/etc/passwd"), protocol.CodeArgumentRejected},
				"short-flag":         {w.start(good, "print", "-o=/etc/passwd"), protocol.CodeArgumentRejected},
				"cluster":            {w.start(good, "print", "-abc"), protocol.CodeArgumentRejected},
				"file-reference":     {w.start(good, "print", "--size", "@file"), protocol.CodeArgumentRejected},
				"positional":         {w.start(good, "print", "x"), protocol.CodeArgumentRejected},
				"input-not-wanted":   {input, protocol.CodeInputRejected},
				"input-missing":      {noInput, protocol.CodeInputRejected},
				"control-characters": {w.start(good, "print", "--size=1\x1b"), protocol.CodeArgumentRejected},
			} {
				t.Run(label, func(t *testing.T) { d.run(c.start).wantRefused(c.want) })
			}
			require.Zero(t, w.host.Starts.Load(), "nothing ran")

			w.revokeAll()
			d.run(w.start(good, "print")).wantRefused(protocol.CodeLeaseRevoked)
		})
	}
}

// What is wrong with the input is said: both cases have one code.
func TestRefusedInputSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	without := w.start(w.lease(), "cat")
	without.Stdin = false
	_, err := w.node.admit(caller{holder: w.agent.id}, without)
	require.Equal(t, "the command needs standard input", refuse(err).Public)
	with := w.start(w.lease(), "print")
	with.Stdin = true
	_, err = w.node.admit(caller{holder: w.agent.id}, with)
	require.Equal(t, protocol.CodeInputRejected, refuse(err).Code)
	require.Empty(t, refuse(err).Public, "the code's own text is right")
}

func TestRefusalLeavesTheIDFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "print", "--size=x")
	d.run(s).wantRefused(protocol.CodeArgumentRejected)
	s.Arguments = []string{"--size=3"}
	require.Equal(t, protocol.CodeOK, d.run(s).finish().Code)
}

func TestPinsOfTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "tcp")
	l := w.lease(func(l *lease.Lease) {
		l.Grants[0].Commands = []name.Command{must(name.ParseCommand("print"))}
		l.Grants[0].Pins = map[name.Parameter][]string{must(name.ParseParameter("size")): {"5"}}
	})
	d.run(w.start(l, "print", "--size=6")).wantRefused(protocol.CodeArgumentRejected)
	d.run(w.start(l, "print")).wantRefused(protocol.CodeArgumentRejected)
	require.Equal(t, uint64(5), d.run(w.start(l, "print", "--size", "5")).finish().Stdout)
}

func TestViolationsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, withPolicy(limited("denials: 10000", "stdout: 1MiB")))
			d, l := w.dial(w.agent, transport), w.lease()
			start := encode(t, w.start(l, "print"))
			_, n := binary.Uvarint(start)
			body := start[n:]
			inner, m := protowire.ConsumeBytes(body[1:])
			require.Positive(t, m)
			with := func(number protowire.Number, value string) []byte {
				b := protowire.AppendString(protowire.AppendTag(append([]byte{}, inner...), number, protowire.BytesType), value)
				frame := protowire.AppendBytes(body[:1:1], b)
				return append(protowire.AppendVarint(nil, uint64(len(frame))), frame...)
			}
			raw := map[string][]byte{
				"path":        with(20, "/bin/sh"),
				"environment": with(21, "PATH=/tmp"),
				"digest":      with(22, strings.Repeat("0", 64)),
				"generation":  with(23, "1"),
				"too-long":    protowire.AppendVarint(nil, protocol.MaxStart+1),
				"not-first":   encode(t, &protocol.ExitAck{}),
				"garbage":     {3, 0xff, 0xff, 0xff},
				"257-args":    w.crowd(body, inner, 257),
			}
			for label, b := range raw {
				t.Run(label, func(t *testing.T) {
					s := d.stream(protocol.RunID)
					_, err := s.Write(b)
					require.NoError(t, err)
					f, err := protocol.NewReader(s, protocol.Caller).Read()
					require.NoError(t, err)
					require.IsType(t, &protocol.Refused{}, f)
					require.Equal(t, protocol.CodeProtocolViolation, f.(*protocol.Refused).Code)
					_ = s.Close()
				})
			}
			require.Zero(t, w.host.Starts.Load())
		})
	}
}

// crowd is a Start with n more arguments.
func (w *world) crowd(body, inner []byte, n int) []byte {
	b := append([]byte{}, inner...)
	for range n {
		b = protowire.AppendString(protowire.AppendTag(b, 6, protowire.BytesType), "x")
	}
	frame := protowire.AppendBytes(body[:1:1], b)
	return append(protowire.AppendVarint(nil, uint64(len(frame))), frame...)
}

func TestLimitsAreAnsweredBeforeAnythingResets(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, withPolicy(strings.Replace(basicPolicy, "allow:", "limits: {operations: 4, operations_per_peer: 4}\nallow:", 1)))
			d, l := w.dial(w.agent, transport), w.lease()
			var running []*remote
			for range 4 {
				running = append(running, d.run(w.start(l, "sleep")).answer())
			}
			for range 40 {
				r := d.run(w.start(l, "sleep")).wantRefused(protocol.CodeBusy)
				require.Positive(t, r.RetryAfter)
			}
			for _, r := range running {
				_ = r.stream.Reset()
			}
		})
	}
}

func TestStartsPerMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(strings.Replace(basicPolicy, "allow:", "limits: {starts_per_minute: 3}\nallow:", 1)))
	d, l := w.dial(w.agent, "tcp"), w.lease()
	for range 3 {
		d.run(w.start(l, "exit", "--code=0")).finish()
	}
	require.Positive(t, d.run(w.start(l, "exit", "--code=0")).wantRefused(protocol.CodeRateLimited).RetryAfter)
}

func TestLimitsOfTheLease(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d := w.dial(w.agent, transport)
			l := w.lease(func(l *lease.Lease) { l.MaxConcurrent, l.MaxOperations = 1, 3 })
			r := d.run(w.start(l, "sleep")).answer()
			first := w.start(l, "exit", "--code=1")
			d.run(first).wantRefused(protocol.CodeLeaseAtOnce)
			_ = r.stream.Reset()
			eventually(t, func() bool { return w.node.Status().Operations[0].Attached == false })
			w.node.live.all()[0].op.Cancel(1)
			eventually(t, func() bool { return w.host.Running.Load() == 0 })
			d.run(first).finish()
			d.run(w.start(l, "exit", "--code=1")).finish()
			d.run(w.start(l, "exit", "--code=1")).wantRefused(protocol.CodeLeaseExhausted)
			d.run(first).finish() // what was started before is still answered
		})
	}
}

func TestLedgerFailureStartsNothing(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			b := w.count()
			d, l := w.dial(w.agent, transport), w.lease()
			failed := error(ledger.ErrFailed)
			b.fail.Store(&failed)
			d.run(w.start(l, "print")).wantRefused(protocol.CodeGatewayLocked)
			full := error(ledger.ErrFull)
			b.fail.Store(&full)
			d.run(w.start(l, "print")).wantRefused(protocol.CodeBusy)
			unknown := errors.New("something else")
			b.fail.Store(&unknown)
			d.run(w.start(l, "print")).wantRefused(protocol.CodeInternal)
			require.Zero(t, w.host.Starts.Load())
			require.Empty(t, w.node.Status().Operations)
		})
	}
}

func TestPanicsDeny(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			b := w.count()
			d, l := w.dial(w.agent, transport), w.lease()
			b.panic.Store(true)
			s := w.start(l, "print", "--size=1")
			d.run(s).wantRefused(protocol.CodeInternal)
			b.panic.Store(false)
			require.Equal(t, protocol.CodeOK, d.run(s).finish().Code, "the ID was free")

			w.host.OnStart(func(context.Context, route.StartRequest) error { panic("host") })
			s = w.start(l, "print", "--size=1")
			d.run(s).wantRefused(protocol.CodeNotStarted)
			w.host.OnStart(nil)
			d.run(s).wantRefused(protocol.CodeNotStarted)
			require.Zero(t, w.host.Running.Load())
			require.Empty(t, w.node.Status().Operations)
		})
	}
}

func TestStartFailureIsReplayed(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			for _, err := range []error{route.ErrUnavailable, route.ErrIdentityMismatch, errors.New("exec: no such file")} {
				w.host.OnStart(func(context.Context, route.StartRequest) error { return err })
				s := w.start(l, "print")
				got := d.run(s).wantRefused(protocol.CodeNotStarted)
				require.NotContains(t, got.Public, "exec")
				k := w.key(s)
				known, lerr := w.ledger.Lookup(ledger.Key{Issuer: k.Issuer, Invocation: k.Invocation, Holder: w.agent.id, Operation: k.Operation})
				require.NoError(t, lerr)
				require.Contains(t, known.End.Detail, err.Error(), "the true reason is in the record")
				w.host.OnStart(nil)
				starts := w.host.Starts.Load()
				d.run(s).wantRefused(protocol.CodeNotStarted)
				d.run(w.attach(s, nil, 0)).wantRefused(protocol.CodeNotStarted)
				require.Equal(t, starts, w.host.Starts.Load(), "it is not tried again")
			}
		})
	}
}

func TestCancelBeforeTheProcess(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			entered := make(chan struct{})
			w.host.OnStart(func(ctx context.Context, _ route.StartRequest) error {
				close(entered)
				<-ctx.Done()
				return ctx.Err()
			})
			s := w.start(l, "sleep")
			r := d.run(s)
			<-entered
			require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, s))
			r.wantRefused(protocol.CodeCancelled)
			w.host.OnStart(nil)
			d.run(s).wantRefused(protocol.CodeCancelled)

			s = w.start(l, "sleep")
			require.IsType(t, &protocol.Refused{}, w.cancel(d, s), "without a lease nothing is remembered")
			ask := &protocol.StatusRequest{OperationKey: w.key(s)}
			require.Equal(t, protocol.CodeOperationUnknown, w.control(d, ask).(*protocol.Refused).Code)
			require.Equal(t, &protocol.CancelReply{State: protocol.OperationNotStarted}, w.cancel(d, s, l))
			require.Equal(t, &protocol.StatusReply{State: protocol.OperationNotStarted}, w.control(d, ask))
			d.run(s).wantRefused(protocol.CodeCancelled)
			require.Equal(t, &protocol.StatusReply{State: protocol.OperationNotStarted}, w.control(d, ask))
			require.Zero(t, w.host.Running.Load())
		})
	}
}

func TestOtherHoldersDoNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := newIdentity(t)
	w.node.Reload(w.parse(strings.Replace(basicPolicy, "agent: AGENT", "agent: AGENT\n  other: "+other.id.String(), 1)))
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	r := d.run(s).answer()
	o := w.dial(other, "quic")
	require.Equal(t, protocol.CodeOperationUnknown, w.cancel(o, s).(*protocol.Refused).Code)
	o.run(w.attach(s, r.accepted.Token, 0)).wantRefused(protocol.CodeOperationUnknown)
	o.run(s).wantRefused(protocol.CodeDenied)
	d.run(w.attach(s, make([]byte, protocol.TokenSize), 0)).wantRefused(protocol.CodeOperationUnknown)
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, s))
	require.Equal(t, protocol.CodeCancelled, r.finish().Code)
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationEnded}, w.cancel(d, s))
}

func TestRouteThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	w.host.Publish(descriptor())
	d.run(w.start(l, "print")).wantRefused(protocol.CodeRouteAmbiguous)
	w.host.Retire()
	d.run(w.start(l, "print")).wantRefused(protocol.CodeRouteUnavailable)
}

func TestFrozenGrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	d.run(w.start(l, "print", "--size=1")).finish()

	// The same version with another meaning: refused for this invocation.
	w.host.Retire()
	changed := descriptor()
	for i, c := range changed.Contract.Commands {
		if c.Name.String() == "print" {
			changed.Contract.Commands[i].Arguments = []string{"flood"}
		}
	}
	changed.Identity.ContractHash = "sha256:" + strings.Repeat("1", 64)
	w.host.Publish(changed)
	r := d.run(w.start(l, "print", "--size=1")).wantRefused(protocol.CodePolicyDenied)
	require.Contains(t, r.Public, "changed")

	// Another invocation is decided by what is current.
	fresh := w.lease(func(l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("task-2")) })
	other := d.run(w.start(fresh, "print", "--size=1"))
	other.until(func() bool { return len(other.stdout) > 1 })
	_ = other.stream.Reset()
}

func TestAdmissionLooksAtTheLedgerOnlyAfterTheLease(t *testing.T) {
	t.Parallel()
	// The counter counts: a good Start is seen by it.
	w := newWorld(t)
	b := w.count()
	w.dial(w.agent, "tcp").run(w.start(w.lease(), "exit", "--code=0")).finish()
	require.Positive(t, b.asked.Load())
	require.Positive(t, w.host.Resolves.Load())
}

func TestCapability(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []*capability{nil, {}, {holder: w.agent.id}} {
		_, err := w.node.port.prepare(context.Background(), c)
		require.ErrorIs(t, err, errNoCapability)
	}
	require.Zero(t, w.host.Starts.Load())
}

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	require.Equal(t, protocol.CodeOutcomeUnknown, refuse(&stateError{ledger.StateUnknown}).Code)
	for s := ledger.StateNone; s <= ledger.StateExhausted; s++ {
		require.True(t, stateCode(s).CanRefuse(), "%v", s)
	}
	for r := lease.ReasonNone; r <= lease.ReasonNoCommand; r++ {
		code := leaseCode(r)
		require.True(t, code.CanRefuse(), "%v", r)
		require.Equal(t, r.Precise(), code != protocol.CodeDenied, "%v", r)
	}
	require.Equal(t, protocol.CodeInternal, refuse(fmt.Errorf("anything")).Code)
	require.Equal(t, protocol.CodeTimeout, codeNamed("TIMEOUT"))
	require.Equal(t, protocol.CodeInternal, codeNamed("NO_SUCH"))
}
