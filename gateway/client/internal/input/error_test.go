package input

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

func TestError(t *testing.T) {
	t.Parallel()
	read := &fs.PathError{Op: "read", Path: "/secret/name", Err: syscall.EISDIR}
	for want, e := range map[string]struct {
		end error
		ran bool
	}{
		"standard input: read: is a directory":                                                                           {nil, false},
		"standard input: read: is a directory; the command was cancelled":                                                {&protocol.Ended{Code: protocol.CodeCancelled}, true},
		"standard input: read: is a directory; nothing ran":                                                              {&protocol.Refusal{Code: protocol.CodeCancelled}, false},
		"standard input: read: is a directory; ended: OUTCOME_UNKNOWN: the command was started and its end is not known": {&protocol.Ended{Code: protocol.CodeOutcomeUnknown}, true},
	} {
		err := &Error{Err: read, End: e.end}
		require.EqualError(t, err, want)
		require.Equal(t, e.ran, err.Ran(), want)
		require.ErrorIs(t, err, syscall.EISDIR)
		if e.end != nil {
			require.ErrorIs(t, err, e.end)
		}
	}
	require.EqualError(t, &Error{Err: errors.New("vault is sealed")}, "standard input: vault is sealed")
}

func TestInMemory(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	for want, all := range map[bool][]io.Reader{
		true:  {new(bytes.Buffer), bytes.NewReader(nil), strings.NewReader(""), file},
		false: {nil, r, dir, io.MultiReader(strings.NewReader(""))},
	} {
		for _, in := range all {
			require.Equal(t, want, InMemory(in), "%T", in)
		}
	}
}

// A Read that can be interrupted is, and is waited for.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	file, _, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	pipe, w := io.Pipe()
	for _, in := range []io.Reader{file, pipe} {
		done, failed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer close(done)
			_, err := in.Read(make([]byte, 1))
			failed <- err
		}()
		Interrupt(in, done)
		select {
		case err := <-failed:
			require.Error(t, err)
		case <-time.After(30 * time.Second):
			require.Fail(t, "it reads on", "%T", in)
		}
	}
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, ErrOver)
	Interrupt(io.MultiReader(strings.NewReader("")), make(chan struct{})) // nobody waits for what cannot be
}
