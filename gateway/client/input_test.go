package client

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// afterCancel is a script that ends as it is told once it was cancelled.
func (f *fixture) afterCancel(exit *protocol.Exit) {
	stop := make(chan struct{}, 8)
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		stop <- struct{}{}
		return &protocol.CancelReply{State: protocol.OperationRunning}
	})
	f.then(func(v *served) {
		v.send(acceptedFrame())
		select {
		case <-stop:
		case <-time.After(20 * time.Second):
		}
		v.send(exit)
		v.acked()
	})
}

// Input that cannot be read cancels the command, and is what is said of the end, unless
// the command has ended by itself.
func TestInputThatCannotBeRead(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		dir, err := os.Open(t.TempDir())
		require.NoError(t, err)
		defer func() { require.NoError(t, dir.Close()) }()
		for _, tc := range []struct {
			exit   protocol.Exit
			text   string
			status int
		}{
			{protocol.Exit{Code: protocol.CodeCancelled, Signal: "SIGTERM"}, "standard input: read: is a directory; the command was cancelled", 255},
			{protocol.Exit{Code: protocol.CodeTimeout}, "standard input: read: is a directory; ended: TIMEOUT: the command ran longer than is allowed", 255},
			{protocol.Exit{Code: protocol.CodeNotStarted}, "standard input: read: is a directory; nothing ran", 125},
			{protocol.Exit{Status: 3}, "the command exited with status 3", 3},
			{protocol.Exit{}, "", 0},
		} {
			f.afterCancel(&tc.exit)
			cmd := list(c)
			cmd.Stdin = dir
			err := cmd.Run()
			require.Equal(t, tc.status, ExitStatus(err))
			if tc.status < 100 {
				if tc.text != "" {
					require.EqualError(t, err, tc.text)
				}
				continue
			}
			require.EqualError(t, err, tc.text)
			require.ErrorIs(t, err, syscall.EISDIR)
			var unread *InputError
			require.ErrorAs(t, err, &unread)
			require.Error(t, unread.End)
			require.Equal(t, tc.exit.Code, cmd.Exit().Code, "the end is there")
		}
	})
}

// Input of a file travels with the request: what cannot be read then is found out before
// or after something was sent, and never looks like the end of the input.
func TestEarlyInputThatCannotBeRead(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	for range 5 {
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		f.mu.Lock()
		f.script = nil
		f.mu.Unlock()
		f.afterCancel(&protocol.Exit{Code: protocol.CodeCancelled})
		cmd := list(c)
		cmd.Stdin = file
		err = cmd.Run()
		require.ErrorIs(t, err, syscall.EBADF)
		require.ErrorContains(t, err, "standard input: read: bad file descriptor")
		var unread *InputError
		require.ErrorAs(t, err, &unread)
		require.Equal(t, map[bool]int{true: 255, false: 125}[unread.Ran()], ExitStatus(err))
		require.NoError(t, file.Close())
	}
}

// When the end is not known either, both are said.
func TestInputThatCannotBeReadAndNoEnd(t *testing.T) {
	f := newFixture(overTCP)
	f.config.Wait = -1
	c := f.dial(t)
	stop := make(chan struct{}, 8)
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		stop <- struct{}{}
		return &protocol.CancelReply{State: protocol.OperationRunning}
	})
	f.then(func(v *served) {
		a := acceptedFrame()
		a.Limits.Detached = 0
		v.send(a)
		select {
		case <-stop:
		case <-time.After(20 * time.Second):
		}
		_ = v.Reset()
	})
	cmd := list(c)
	cmd.Stdin = errReader{errors.New("disk on fire")}
	err := cmd.Run()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorContains(t, err, "standard input: disk on fire; ended: OUTCOME_UNKNOWN")
	require.Equal(t, 255, ExitStatus(err))
}

// Whoever leaves before the end knows whether anything may run: until the link is there,
// nothing does.
func TestAsked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		cmd := list(c)
		require.False(t, cmd.Asked())
		read := make(chan bool, 1)
		f.then(func(v *served) {
			read <- cmd.Asked()
			exits(&protocol.Exit{})(v)
		})
		require.NoError(t, cmd.Run())
		require.True(t, <-read, "the gateway has it")
		require.True(t, cmd.Asked())
	})
	f := newFixture(overTCP)
	f.config.Wait = -1
	c := f.dial(t)
	f.close()
	cmd := list(c)
	require.ErrorIs(t, cmd.Run(), ErrUnreachable)
	require.False(t, cmd.Asked(), "nobody was there")
}
