package dial

import (
	"errors"
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"
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
