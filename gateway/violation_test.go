package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// TestViolationsArePunished as what is denied is: who breaks the protocol may not try
// on.
func TestViolationsArePunished(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withPolicy(limited("denials: 1", "stdout: 1MiB")))
			d := w.dial(w.agent, transport)
			s := d.stream(protocol.RunID)
			_, err := s.Write([]byte{3, 0xff, 0xff, 0xff})
			require.NoError(t, err)
			f, err := protocol.NewReader(s, protocol.Caller).Read()
			require.NoError(t, err)
			require.IsType(t, &protocol.Refused{}, f)
			require.Equal(t, protocol.CodeProtocolViolation, f.(*protocol.Refused).Code)
			d.run(w.start(w.lease(), "exit", "--code=0")).wantRefused(protocol.CodeRateLimited)
			require.Zero(t, w.host.Starts.Load())
		})
	}
}
