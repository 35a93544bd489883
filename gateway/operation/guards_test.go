package operation

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// The reader of a stream refuses most of what is refused here before it gets here; so
// it is asked without one.

// alone is an operation that nobody runs, with one attachment.
func alone(t *testing.T, input bool) (*Operation, *attachment) {
	t.Helper()
	o := New(Config{Token: make([]byte, protocol.TokenSize), Limits: unlimited(), Budget: NewBudget(1 << 20), OnEnd: func(protocol.Exit) {}})
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	o.in.pipe = w
	a := &attachment{Session: Session{Input: input}, failed: make(chan struct{})}
	o.current = a
	t.Cleanup(func() { o.dropInput(); o.Abandon() })
	return o, a
}

func TestInputThatNobodyMayGive(t *testing.T) {
	t.Parallel()
	o, a := alone(t, true)
	require.NoError(t, o.takeInput(a, []byte("abc")))
	require.Equal(t, errSupplanted, o.takeInput(&attachment{Session: a.Session}, []byte("x")))
	require.Equal(t, errUnwanted, o.endInput(a, 2), "fewer than came")
	require.Equal(t, errUnwanted, o.endInput(a, 4), "more than came")
	require.Equal(t, errSupplanted, o.endInput(&attachment{Session: a.Session}, 3))
	require.NoError(t, o.endInput(a, 3))
	require.Equal(t, errUnwanted, o.endInput(a, 3), "it has ended")
	require.Equal(t, errUnwanted, o.takeInput(a, []byte("x")), "it has ended")
	a.Attached = true
	require.NoError(t, o.endInput(a, 3), "who has attached could not know")

	o, a = alone(t, false)
	require.Equal(t, errUnwanted, o.takeInput(a, []byte("x")), "no token")
	require.Equal(t, errUnwanted, o.endInput(a, 0), "no token")

	o, a = alone(t, true)
	o.in.pipe = nil
	require.Equal(t, errUnwanted, o.takeInput(a, []byte("x")), "a command without input")
}

func TestAcknowledgementsBeyondTheOutput(t *testing.T) {
	t.Parallel()
	o, a := alone(t, false)
	o.out[0].end, o.out[1].end, a.next = 5, 7, [2]uint64{5, 7}
	require.Equal(t, errUnwanted, o.acked(a, &protocol.Ack{Stdout: 6}))
	require.Equal(t, errUnwanted, o.acked(a, &protocol.Ack{Stderr: 8}))
	require.Equal(t, errSupplanted, o.acked(&attachment{}, &protocol.Ack{}))
}

func TestOutputThatNobodyTakes(t *testing.T) {
	t.Parallel()
	for title, change := range map[string]func(*Operation){
		"sealed": func(o *Operation) { o.sealed = true }, "gone": func(o *Operation) { o.out[0].gone = true },
	} {
		o, _ := alone(t, false)
		change(o)
		p := o.cfg.Budget.pool.Get()
		require.False(t, o.keep(&o.out[0], p, 5), title)
		require.Empty(t, o.out[0].chunks, title)
		require.Zero(t, o.cfg.Budget.Used(), title)
	}
}

func TestAttachBeyondTheErrorOutput(t *testing.T) {
	t.Parallel()
	h := start(t, Config{}, false, func(c *fakehost.Child) route.Exit { return sleeper(c) })
	for _, f := range []first{{attach: true, stdout: 1}, {attach: true, stderr: 1}} {
		require.ErrorIs(t, h.dial(f).result(), ErrBeyond)
	}
}
