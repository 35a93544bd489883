//go:build linux

package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// opsBackend has operations that a test changes.
type opsBackend struct {
	fakeBackend
	mu        sync.Mutex
	ops, old  []Operation
	cancelled []string
}

func (f *opsBackend) set(ops ...Operation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops = ops
}

func (f *opsBackend) Operations(_ context.Context, all bool) (Operations, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ops := append([]Operation{}, f.ops...)
	if all {
		ops = append(append([]Operation{}, f.old...), ops...)
	}
	return Operations{SchemaVersion: SchemaVersion, Operations: ops, More: !all && len(f.old) > 0}, f.err
}

func (f *opsBackend) Cancel(_ context.Context, o Operation, now bool) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, fmt.Sprint(o.Peer, " ", o.ID, " ", now))
	return o.Running(), nil
}

func someOperation(peer, id, state string) Operation {
	return Operation{ID: id, State: state, Peer: "12D3" + peer, PeerName: peer, Invocation: "inv-" + peer, Connector: "fx"}
}

func TestOperationsAreListedAndFound(t *testing.T) {
	b := &opsBackend{old: []Operation{someOperation("laptop", "op-ancient-0000000", StateUnknown)}}
	b.set(someOperation("laptop", "op-aaaa-0000000001", StateRunning), someOperation("laptop", "op-aaab-0000000002", StateEnded),
		someOperation("server", "op-aaab-0000000002", StateRunning), someOperation("server", "op-aaab-00000000021", StateEnded))
	_, path := serve(t, b)
	c := NewClient(path)
	got, err := c.Operations(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, got.Operations, 4)
	require.True(t, got.More)
	got, err = c.Operations(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, got.Operations, 5)

	for what, q := range map[string]Which{
		"beginning": {ID: "op-aaaa"}, "whole": {ID: "op-aaaa-0000000001"}, "old": {ID: "op-anc"},
		"by-name": {ID: "op-aaab-0000000002", Peer: "server"}, "by-id": {ID: "op-aaab-0000000002", Peer: "12D3laptop"},
		"by-invocation": {ID: "op-aaab-0000000002", Invocation: "inv-laptop"}, "longer": {ID: "op-aaab-00000000021"},
	} {
		one, err := c.Operation(t.Context(), q)
		require.NoError(t, err, what)
		require.True(t, strings.HasPrefix(one.Operation.ID, q.ID), what)
		require.False(t, one.Cancelled)
	}
	for _, id := range []string{"op-zzzz", "../status", "a/b", "\x1b[31m", "%2e%2e", strings.Repeat("x", 5000)} {
		_, err = c.Operation(t.Context(), Which{ID: id})
		require.ErrorIs(t, err, ErrNoOperation, "%q", id)
		require.NotContains(t, err.Error(), "\x1b")
	}
	_, err = c.Operation(t.Context(), Which{ID: "op-aaab"})
	require.ErrorIs(t, err, ErrAmbiguous)
	require.ErrorContains(t, err, "op-aaab-00000000021 of 12D3server in invocation inv-server")
	_, err = c.Cancel(t.Context(), Which{ID: "op-aaab-0000000002"}, false)
	require.ErrorIs(t, err, ErrAmbiguous, "a whole ID of two peers")
	require.Empty(t, b.cancelled)
}

func TestOwnerCancels(t *testing.T) {
	b := &opsBackend{}
	b.set(someOperation("laptop", "op-aaaa-0000000001", StateRunning), someOperation("laptop", "op-bbbb-0000000001", StateEnded))
	_, path := serve(t, b)
	c := NewClient(path)
	got, err := c.Cancel(t.Context(), Which{ID: "op-a"}, false)
	require.NoError(t, err)
	require.True(t, got.Cancelled)
	got, err = c.Cancel(t.Context(), Which{ID: "op-b", Peer: "laptop"}, true)
	require.NoError(t, err)
	require.False(t, got.Cancelled)
	require.Equal(t, []string{"12D3laptop op-aaaa-0000000001 false", "12D3laptop op-bbbb-0000000001 true"}, b.cancelled)
	_, err = c.Cancel(t.Context(), Which{ID: "op-c"}, true)
	require.ErrorIs(t, err, ErrNoOperation)
	answer, err := c.open(t.Context(), http.MethodGet, "/v1/operations/op-a/cancel")
	require.ErrorContains(t, err, "the gateway answers", "a question changes nothing")
	require.Nil(t, answer)
}

func TestWatchTellsWhatChanges(t *testing.T) {
	b := &opsBackend{}
	run := someOperation("laptop", "op-aaaa-0000000001", StateRunning)
	b.set(someOperation("laptop", "op-past-0000000001", StateEnded), run)
	s, path := serve(t, b)
	told := make(chan []Operation)
	watched := make(chan error, 1)
	go func() {
		watched <- NewClient(path).Watch(context.Background(), false, func(ops []Operation) error {
			told <- ops
			return nil
		})
	}()
	require.Equal(t, []Operation{run}, <-told, "first what runs")
	more, end := run, run
	more.Stdout = 7
	b.set(more)
	require.Equal(t, []Operation{more}, <-told)
	end.State = StateEnded
	quick := someOperation("laptop", "op-quick-000000001", StateEnded)
	b.set(end, quick)
	require.Equal(t, []Operation{end, quick}, <-told, "one that came and went is not missed")
	require.NoError(t, s.Close())
	require.NoError(t, <-watched, "the gateway's end is the end")
}

func TestWatchShowsWhatEndedIfAsked(t *testing.T) {
	b := &opsBackend{}
	past := someOperation("laptop", "op-past-0000000001", StateEnded)
	b.set(past)
	_, path := serve(t, b)
	enough := errors.New("enough")
	for all, want := range map[bool][]Operation{true: {past}, false: {}} {
		err := NewClient(path).Watch(t.Context(), all, func(ops []Operation) error {
			require.Equal(t, want, ops)
			return enough
		})
		require.ErrorIs(t, err, enough)
	}
}

func TestWatchersAreBounded(t *testing.T) {
	b := &opsBackend{}
	_, path := serve(t, b)
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{}, maxWatchers)
	var all sync.WaitGroup
	for range maxWatchers {
		all.Go(func() {
			err := NewClient(path).Watch(ctx, false, func([]Operation) error {
				began <- struct{}{}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("watch: %v", err)
			}
		})
	}
	for range maxWatchers {
		<-began
	}
	err := NewClient(path).Watch(t.Context(), false, func([]Operation) error { return nil })
	require.ErrorContains(t, err, "too many watch already")
	_, err = NewClient(path).Operations(t.Context(), false)
	require.NoError(t, err, "who asks once is served")
	stop()
	all.Wait()
	require.Eventually(t, func() bool { // the places are free again
		err := NewClient(path).Watch(t.Context(), false, func([]Operation) error { return errors.New("here") })
		return err != nil && err.Error() == "here"
	}, 10*time.Second, 10*time.Millisecond)
}

func TestWatchEndsWithTheGatewaysError(t *testing.T) {
	b := &opsBackend{fakeBackend: fakeBackend{err: errors.New("ledger failed")}}
	_, path := serve(t, b)
	_, err := NewClient(path).Operations(t.Context(), true)
	require.ErrorContains(t, err, "ledger failed")
	require.NoError(t, NewClient(path).Watch(t.Context(), true, func([]Operation) error { return nil }))
	_, err = NewClient("/nowhere/admin.sock").Operation(t.Context(), Which{ID: "op"})
	require.ErrorIs(t, err, ErrNotRunning)
	require.ErrorIs(t, NewClient("/nowhere/admin.sock").Watch(t.Context(), true, nil), ErrNotRunning)
}

func TestDescendantsGetNoOperations(t *testing.T) {
	l := &guardedListener{log: zerolog.Nop(), slots: make(chan struct{}, 1)}
	require.Error(t, l.admit(nil), "who is not a unix connection is nobody")
}
