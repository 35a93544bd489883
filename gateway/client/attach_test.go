package client

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

const elsewhere = "operation-elsewhere-1"

// attached is a script that answers as to an Attach.
func attached(firsts chan<- *protocol.Attach, out uint64, frames ...protocol.Frame) func(*served) {
	return func(v *served) {
		a, _ := v.first.(*protocol.Attach)
		firsts <- a
		answer := acceptedFrame()
		answer.Attached, answer.Token, answer.Stdout = true, nil, out
		if v.send(answer) && v.send(frames...) {
			v.acked()
		}
	}
}

func TestAttachFollowsToTheEnd(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		f.lease.NotBefore, f.lease.IssuedAt = time.Now().Add(-2*time.Hour), time.Now().Add(-2*time.Hour)
		f.lease.NotAfter = time.Now().Add(-time.Hour) // it need not be valid any more
		c := f.dial(t)
		firsts := make(chan *protocol.Attach, 1)
		f.then(attached(firsts, 0, stdout(0, "all of it"), &protocol.Exit{Stdout: 9, Status: 7}))
		cmd := c.Attach(t.Context(), elsewhere)
		out, err := cmd.Output()
		require.Equal(t, 7, ExitStatus(err))
		require.Equal(t, "all of it", string(out))
		require.Equal(t, &protocol.Attach{
			Issuer: f.lease.Issuer, Invocation: f.lease.Invocation, Operation: must(name.ParseOperationID(elsewhere)),
		}, <-firsts, "without a token")
		require.Equal(t, uint64(9), cmd.Exit().Stdout)
		require.Empty(t, f.seen(), "nothing is started")
	})
}

func TestAttachMissesNothingSilently(t *testing.T) {
	for tail, status := range map[bool]int{false: 255, true: 7} {
		f := newFixture(overTCP)
		c := f.dial(t)
		firsts := make(chan *protocol.Attach, 1)
		f.then(attached(firsts, 5, stdout(5, "tail"), &protocol.Exit{Stdout: 9, Status: 7}))
		cmd := c.Attach(t.Context(), elsewhere)
		cmd.Tail = tail
		_, err := cmd.Output()
		require.Equal(t, status, ExitStatus(err), "tail: %v", tail)
		require.Equal(t, 7, cmd.Exit().Status)
	}
}

// What is lost after the attach is missed with Tail as well.
func TestAttachAgainAfterALostLink(t *testing.T) {
	for again, status := range map[uint64]int{4: 0, 6: 255} {
		f := newFixture(overTCP)
		c := f.dial(t)
		firsts := make(chan *protocol.Attach, 2)
		f.then(func(v *served) {
			a := acceptedFrame()
			a.Attached, a.Token = true, nil
			v.send(a, stdout(0, "some"))
			hangsUp(v)
		}, attached(firsts, again, stdout(again, "rest"[again-4:]), &protocol.Exit{Stdout: 8}))
		cmd := c.Attach(t.Context(), elsewhere)
		cmd.Tail = true
		out, err := cmd.Output()
		require.Equal(t, status, ExitStatus(err))
		require.Equal(t, uint64(4), (<-firsts).Stdout, "with what it has")
		if status == 0 {
			require.Equal(t, "somerest", string(out))
		}
	}
}

func TestAttachIsRefused(t *testing.T) {
	f := newFixture(overTCP)
	f.config.Wait = 300 * time.Millisecond
	c := f.dial(t)
	for code, status := range map[protocol.Code]int{
		protocol.CodeOperationUnknown: 126, protocol.CodeLeaseRevoked: 126, protocol.CodeOutcomeUnknown: 255,
		protocol.CodeNotStarted: 126, protocol.CodeCancelled: 130,
	} {
		f.then(resets, refuses(code, 0)) // the link may break before the answer
		require.Equal(t, status, ExitStatus(c.Attach(t.Context(), elsewhere).Run()), code.String())
	}
	for range 20 {
		f.then(refuses(protocol.CodeBusy, 20*time.Millisecond))
	}
	require.Equal(t, 75, ExitStatus(c.Attach(t.Context(), elsewhere).Run()), "another follows it")

	cmd := c.Attach(t.Context(), elsewhere)
	cmd.Stdin = strings.NewReader("no")
	require.ErrorIs(t, cmd.Start(), errFollowed)
	require.Equal(t, 125, ExitStatus(c.Attach(t.Context(), "short").Run()))
}

func TestAttachLeavesWithoutACancel(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	f.then(func(v *served) {
		a := acceptedFrame()
		a.Attached = true
		v.send(a)
		_, _ = v.Reader.Read() // until the caller leaves
		_ = v.Reset()
	})
	ctx, leave := context.WithCancel(t.Context())
	cmd := c.Attach(ctx, elsewhere)
	require.NoError(t, cmd.Start())
	leave()
	err := cmd.Wait()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, f.questions(), "it goes on")
}

func TestAttachNeedsTheHoldersLease(t *testing.T) {
	f := newFixture(overTCP)
	f.lease.Holder = f.lease.Issuer
	c := f.dial(t)
	err := c.Attach(t.Context(), elsewhere).Run()
	require.ErrorContains(t, err, "use lease")
	require.Equal(t, 125, ExitStatus(err))
}
