package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

// TestCallerThatIsKilled: its operation goes on, and the same ID joins it instead
// of running the command again.
func TestCallerThatIsKilled(t *testing.T) {
	s := serve(t)
	for transport, part := range transports() {
		t.Run(transport, func(t *testing.T) {
			before := s.starts()
			op, f := "op-of-the-killed-"+transport, over(s.file, part)
			text, err := lease.Armor(f.Chain, f.Addresses, lease.AddressRule{AllowLocal: true})
			require.NoError(t, err)
			file := t.TempDir() + "/lease"
			require.NoError(t, os.WriteFile(file, text, 0o600))
			run := s.command(s.vars["CALLER"], "run", "--lease", file, "--op", op, "fx", "sleep")
			require.NoError(t, run.Start())
			require.True(t, until(patience, func() bool { return s.starts() == before+1 }))
			require.NoError(t, run.Process.Kill())
			require.Error(t, run.Wait())

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := s.client("CALLER", f).Command(ctx, "fx", "sleep")
			cmd.OperationID = op
			require.NoError(t, cmd.Start(), "it joins what runs")
			require.Equal(t, before+1, s.starts())
			cancel()
			err = cmd.Wait()
			require.Equal(t, 130, client.ExitStatus(err))
			require.Equal(t, protocol.CodeCancelled, cmd.Exit().Code)

			again := s.client("CALLER", f).Command(t.Context(), "fx", "sleep")
			again.OperationID = op
			require.Equal(t, 130, client.ExitStatus(again.Run()), "the end is on record")
			require.Equal(t, before+1, s.starts())
		})
	}
}

// TestManyAtOnce runs many operations of one caller side by side.
func TestManyAtOnce(t *testing.T) {
	s := serve(t)
	for transport, part := range transports() {
		t.Run(transport, func(t *testing.T) {
			c := s.client("CALLER", over(s.file, part), func(c *client.Config) { c.Wait = time.Minute })
			ends := make(chan error)
			const n = 40 // more than the lease allows at once
			for range n {
				go func() {
					out, err := c.Command(t.Context(), "fx", "print", "100000").Output()
					if err == nil && string(out) != string(expected(100000)) {
						err = context.DeadlineExceeded
					}
					ends <- err
				}()
			}
			for range n {
				require.NoError(t, <-ends)
			}
		})
	}
}
