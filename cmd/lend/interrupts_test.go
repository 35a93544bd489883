package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
)

// unsignalled are interrupts that no signal reaches.
func unsignalled() *interrupts {
	return &interrupts{in: make(chan os.Signal, enough), done: make(chan struct{}), finished: make(chan struct{}), settled: make(chan struct{})}
}

func TestSignalsBeforeThereIsAnythingToDo(t *testing.T) {
	s := unsignalled()
	go s.watch()
	s.in <- os.Interrupt
	s.in <- os.Interrupt
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.n == 2
	}, 30*time.Second, time.Millisecond)
	require.True(t, s.came())
	var did []int
	s.do(func(n int) { did = append(did, n) })
	require.Equal(t, []int{1, 2}, did, "what came early is not lost")
	s.do(nil)
	s.settle(func() int { return 130 })
	require.Equal(t, 130, s.finish())
}

func TestTheEndIsToldOnce(t *testing.T) {
	s := unsignalled()
	var told atomic.Int32
	s.settle(func() int { told.Add(1); return 0 })
	_, first := s.claim()
	_, second := s.claim()
	require.True(t, first)
	require.False(t, second)
	s.leave() // returns: the end is being told
	require.Zero(t, told.Load())
}

func TestResultOfARunThatWasLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	a := newApp(nil, os.Stdin, os.Stdout, new(discard))
	status := a.tell(runFlags{result: file}, &client.Cmd{OperationID: "op-of-the-tests-0001"}, leftBehind(), time.Now())
	require.Equal(t, 255, status)
	var r result
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	require.Equal(t, "unknown", r.Ran)
	require.Equal(t, "OUTCOME_UNKNOWN", r.Code)
	require.Equal(t, "op-of-the-tests-0001", r.OperationID)
	require.Equal(t, 255, r.ExitStatus)

	status = a.tell(runFlags{result: file}, nil, leftEarly(), time.Now())
	require.Equal(t, 130, status)
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	r = result{}
	require.NoError(t, json.Unmarshal(b, &r))
	require.Equal(t, codeNotSent, r.Code)
	require.Equal(t, "no", r.Ran)
}

type discard struct{}

func (*discard) Write(b []byte) (int, error) { return len(b), nil }

func TestAttachSpeaksOfItself(t *testing.T) {
	a := newApp(nil, os.Stdin, os.Stdout, new(discard))
	f := runFlags{op: "op-of-the-tests-0001", lease: "l.lease"}
	busy := &client.RefusedError{Code: 500}
	err := a.attachError(t.Context(), f, busy)
	r, people := a.report(f, nil, err, time.Now())
	require.Equal(t, 75, r.ExitStatus)
	require.Contains(t, hintOf(people), "lend ops attach --wait")
	require.NotContains(t, hintOf(people), "lend run")
	require.NotContains(t, r.Advice, "lend run")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = a.attachError(ctx, f, errors.New("start: interrupt signal received"))
	r, people = a.report(f, nil, err, time.Now())
	require.Equal(t, 130, r.ExitStatus)
	require.Contains(t, people.Error(), "left while waiting")
	require.Equal(t, "lend ops attach op-of-the-tests-0001 --lease l.lease", hintOf(people))
	ended := &client.EndedError{Code: 403}
	require.ErrorIs(t, a.attachError(ctx, f, ended), error(ended))
	require.NoError(t, a.attachError(ctx, f, nil))
}
