package revocations

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
)

// TestMain is also the process that TestKilled kills.
func TestMain(m *testing.M) {
	if file := os.Getenv("LEND_TEST_REVOKE_INTO"); file != "" {
		s := Open(file, file+".lockdown")
		for n := byte(1); n != 0; n++ {
			if _, err := s.Add(testTime, entryOf(n)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(lease.ID{n})
			if n == 20 {
				fmt.Println("locked", s.Lock(testTime, "killed"))
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What was answered before a kill holds after it.
// spec: REVOKE-13, REVOKE-16
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, after := range []int{1, 5, 20, 21, 40} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "revocations")
			require.NoError(t, Create(file))
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "LEND_TEST_REVOKE_INTO="+file)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			var said []string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if said = append(said, lines.Text()); len(said) == after {
					require.NoError(t, cmd.Process.Kill())
				}
			}
			require.Error(t, cmd.Wait())
			s := Open(file, file+".lockdown")
			for _, line := range said {
				if strings.HasPrefix(line, "locked") {
					require.Equal(t, "locked <nil>", line)
					require.NotNil(t, s.Lockdown())
				}
			}
			must(s.Unlock()) // it may be there before it is said
			require.NoError(t, s.Locked())
			for _, line := range said {
				if id, err := lease.ParseID(line); err == nil {
					require.True(t, s.Revoked(leaseOf(id[0])), line)
				}
			}
			require.GreaterOrEqual(t, len(said), after)
		})
	}
}
