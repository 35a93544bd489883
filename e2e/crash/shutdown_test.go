//go:build linux

package crash

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// A gateway that is asked to end tells every caller, leaves nothing behind, and says
// the same when it is back; who was not attached can ask then.
func TestShutdown(t *testing.T) { overEach(t, shutdown) }

func shutdown(t *testing.T, transport string) { //nolint:thelper // the test itself
	w := newWorld(t, transport)
	const callers = 8
	var all sync.WaitGroup
	var mu sync.Mutex
	told := map[protocol.Code]int{}
	c := w.client()
	id := func(i int) string { return fmt.Sprintf("shutdown-%010d", i) }
	for i := range callers {
		all.Go(func() {
			cmd := c.Command(t.Context(), "fx", "once", id(i), "0", "600000")
			cmd.OperationID = id(i)
			err := cmd.Run()
			var ended *client.EndedError
			if !errors.As(err, &ended) {
				t.Errorf("%s: %v", id(i), err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			told[ended.Code]++
		})
	}
	gone := w.command(w.caller, "run", "--lease", w.armor, "--op", id(callers), "fx", "once", id(callers), "0", "600000")
	require.NoError(t, gone.Start())
	require.True(t, until(patience, func() bool { return len(w.starts()) == callers+1 }))
	require.NoError(t, gone.Process.Kill())
	_ = gone.Wait()

	began := time.Now()
	require.NoError(t, w.gateway.cmd.Process.Signal(syscall.SIGTERM))
	<-w.gateway.ended
	require.Less(t, time.Since(began), 16*time.Second)
	require.True(t, w.gateway.cmd.ProcessState.Success(), "%s", w.gateway.log)
	all.Wait()
	require.Equal(t, map[protocol.Code]int{protocol.CodeShuttingDown: callers}, told)
	require.Empty(t, w.orphans())
	report, err := ledger.Verify(filepath.Join(w.owner, "ledger"))
	require.NoError(t, err)
	require.Equal(t, uint64(callers+1), report.Ends)
	require.Zero(t, report.Running)

	w.serve()
	for i := range callers + 1 {
		reply, err := c.Status(t.Context(), protocol.OperationKey{
			Issuer: w.file.Lease.Issuer, Invocation: w.file.Lease.Invocation, Operation: operationID(t, id(i)),
		})
		require.NoError(t, err)
		require.Equal(t, protocol.CodeShuttingDown, reply.Exit.Code)
		cmd := c.Command(t.Context(), "fx", "once", id(i), "0", "600000")
		cmd.OperationID = id(i)
		require.Error(t, cmd.Run(), "it does not run again")
	}
	for what, n := range w.starts() {
		require.Equal(t, 1, n, what)
	}
}

func operationID(t *testing.T, s string) name.OperationID {
	t.Helper()
	id, err := name.ParseOperationID(s)
	require.NoError(t, err)
	return id
}
