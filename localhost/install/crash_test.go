package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKilledAtEveryStep builds these tests with the points at which a process may be
// killed, and runs those that kill.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1: it builds a test binary of its own and kills it some 35 times")
	}
	at := filepath.Join(t.TempDir(), "crash.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "failpoint", "-o", at, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.CommandContext(t.Context(), at, "-test.run", "^TestCrash(Update|Add|UpdateBack)$", "-test.v").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestCrashUpdate/superseded")
	require.NotContains(t, string(out), "--- SKIP")
}
