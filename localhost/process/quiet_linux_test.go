package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIdleSupervisorSleeps: what has nothing to do wakes nobody, not even its own
// monitor, which would look 30 times in this while.
func TestIdleSupervisorSleeps(t *testing.T) {
	const while, most = 300 * time.Millisecond, 5
	tr := transport(t, Config{Idle: 1})
	warm(t, tr, 1)
	require.NoError(t, start(t, tr, spec(marker(t), "exit", "0")).Close())
	warm(t, tr, 1)
	tr.backend.mu.Lock()
	pid := tr.backend.idle[0].pid
	tr.backend.mu.Unlock()
	require.Eventually(t, func() bool {
		before := switches(t, pid)
		<-time.After(while)
		return switches(t, pid)-before <= most
	}, patience, time.Millisecond)
}

// switches counts how often the threads of a process have gone to sleep.
func switches(t *testing.T, pid int) (sum int) {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		_, after, found := bytes.Cut(b, []byte("\nvoluntary_ctxt_switches:"))
		require.True(t, found)
		line, _, _ := bytes.Cut(after, []byte("\n"))
		n, err := strconv.Atoi(string(bytes.TrimSpace(line)))
		require.NoError(t, err)
		sum += n
	}
	return sum
}
