package dial

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// Only two codes of the other end, for the whole connection, say that nothing was read.
func TestUntaken(t *testing.T) {
	t.Parallel()
	conn := func(code network.ConnErrorCode, remote bool) error {
		return fmt.Errorf("read: %w", &network.ConnError{ErrorCode: code, Remote: remote})
	}
	for title, c := range map[string]struct {
		err  error
		want []error
	}{
		"gated":           {conn(network.ConnGated, true), []error{ErrUnreachable, ErrNotAdmitted}},
		"too-many":        {conn(network.ConnResourceLimitExceeded, true), []error{ErrUnreachable, ErrHungUp, ErrLost}},
		"closed-here":     {conn(network.ConnGated, false), nil},
		"another-code":    {conn(network.ConnShutdown, true), nil},
		"no-code":         {conn(network.ConnNoError, true), nil},
		"stream-alone":    {&network.StreamError{ErrorCode: network.StreamErrorCode(network.ConnGated), Remote: true}, nil},
		"hung-up":         {errors.New("connection reset by peer"), nil},
		"nothing-happens": {nil, nil},
	} {
		got := untaken(c.err)
		for _, e := range []error{ErrUnreachable, ErrNotAdmitted, ErrHungUp, ErrLost, ErrNotGateway} {
			wanted := false
			for _, w := range c.want {
				wanted = wanted || w == e //nolint:errorlint // the very error
			}
			require.Equal(t, wanted, errors.Is(got, e), "%s: %v", title, e)
		}
		require.ErrorIs(t, got, c.err, title)
	}
}

// written is a stream whose writer learns of a reset, and whose reader only of our own.
type written struct {
	network.Stream
	write, read error
}

func (w *written) Write([]byte) (int, error) { return 0, w.write }
func (w *written) Read([]byte) (int, error)  { return 0, w.read }

// A writer that is told first must not hide it from the reader. spec: CODE-4
func TestAResetThatOnlyTheWriterWasTold(t *testing.T) {
	t.Parallel()
	reset := func(code network.StreamErrorCode, remote bool) error {
		return fmt.Errorf("stream: %w", &network.StreamError{ErrorCode: code, Remote: remote})
	}
	denied, local := reset(protocol.ResetBase+network.StreamErrorCode(protocol.CodeDenied), true), reset(0, false)
	other := reset(protocol.ResetBase+network.StreamErrorCode(protocol.CodeInternal), true)
	for title, c := range map[string]struct{ write, read, want error }{
		"told":           {denied, local, denied},
		"other-number":   {reset(7, true), local, local},
		"ours":           {local, local, local},
		"read-says-more": {denied, other, other},
		"in-good-order":  {denied, io.EOF, io.EOF},
		"nothing":        {denied, nil, nil},
	} {
		for _, said := range []bool{false, true} {
			for _, heard := range []bool{false, true} {
				if !heard && c.read == nil {
					continue
				}
				s := &Stream{Stream: &written{write: c.write, read: c.read}, hello: hello("/x"), said: said, heard: heard}
				_, err := s.Write([]byte("x"))
				require.Equal(t, c.write, err, title)
				_, err = s.Write([]byte("y"))
				require.Equal(t, c.write, err, title)
				_, err = s.Read(make([]byte, 1))
				require.Equal(t, c.want, err, title)
			}
		}
	}
}

// spec: CODE-3, CODE-4
func TestRefused(t *testing.T) {
	t.Parallel()
	denied := protocol.ResetBase + network.StreamErrorCode(protocol.CodeDenied)
	for title, c := range map[string]struct {
		err  error
		want protocol.Code
	}{
		"denied":     {&network.StreamError{ErrorCode: denied, Remote: true}, protocol.CodeDenied},
		"here":       {&network.StreamError{ErrorCode: denied}, 0},
		"less":       {&network.StreamError{ErrorCode: network.StreamErrorCode(protocol.CodeDenied), Remote: true}, 0},
		"more":       {&network.StreamError{ErrorCode: denied + 0x10000, Remote: true}, 0},
		"ends-too":   {&network.StreamError{ErrorCode: denied - 100 + network.StreamErrorCode(protocol.CodeInternal), Remote: true}, 0},
		"only-ends":  {&network.StreamError{ErrorCode: denied - 100 + network.StreamErrorCode(protocol.CodeTimeout), Remote: true}, 0},
		"ok":         {&network.StreamError{ErrorCode: denied - 100, Remote: true}, 0},
		"unknown":    {&network.StreamError{ErrorCode: denied - 100 + 9999, Remote: true}, 0},
		"connection": {&network.ConnError{ErrorCode: network.ConnErrorCode(denied), Remote: true}, 0},
		"other":      {io.EOF, 0},
	} {
		got := Refused(c.err)
		var refused *protocol.Refusal
		if c.want == 0 {
			require.Equal(t, c.err, got, title)
			continue
		}
		require.ErrorAs(t, got, &refused, title)
		require.Equal(t, c.want, refused.Code, title)
		require.ErrorIs(t, got, c.err, title)
	}
	require.NoError(t, Refused(nil))
}
