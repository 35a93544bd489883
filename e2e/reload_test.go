package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// shownPolicy is what lend status says of the policy.
type shownPolicy struct {
	Policy struct{ Digest, State, Problem string }
}

// policyState waits until the gateway of a LEND_DIR says so; "in force" is about the
// file as it is now.
func (w *world) policyState(home, want string) error {
	var last string
	if !until(10*time.Second, func() bool {
		out, err := w.lend(home, "status", "--json")
		last = out
		var s shownPolicy
		if err != nil || json.Unmarshal([]byte(out), &s) != nil || s.Policy.State != want {
			return false
		}
		if want != "in force" {
			return true
		}
		b, err := os.ReadFile(filepath.Join(home, "policy.yaml"))
		sum := sha256.Sum256(b)
		return err == nil && hex.EncodeToString(sum[:]) == s.Policy.Digest
	}) {
		return fmt.Errorf("the policy is not %s: %s", want, last)
	}
	return nil
}

// policy DIR STATE: wait until the gateway of that LEND_DIR has its policy so.
func cmdPolicy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: policy DIR 'in force'|'last good'|missing")
	}
	w := &world{bin: ts.Getenv("BIN"), dir: ts.Getenv("WORK"), env: scriptEnv(ts)}
	ts.Check(w.policyState(ts.MkAbs(args[0]), args[1]))
}

// edit FILE OLD NEW: replace text that the file has, as an editor that renames.
func cmdEdit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	ts.Check(editFile(ts.MkAbs(args[0]), args[1], args[2]))
}

func editFile(file, from, to string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), from) {
		return fmt.Errorf("%s does not have %q", file, from)
	}
	if err := os.WriteFile(file+".new", []byte(strings.Replace(string(b), from, to, 1)), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// TestNarrowingActsWithinASecond: from the edit until the caller has the end, for a
// command that obeys and for one that must be killed.
func TestNarrowingActsWithinASecond(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the supervisor of Linux")
	}
	s := serve(t)
	file := filepath.Join(s.vars["OWNER"], "policy.yaml")
	c := s.client("CALLER", s.file)
	for _, command := range []string{"sleep", "deaf"} {
		var took time.Duration
		for range 3 { // of a busy machine, the best
			starts := lines(s.counter())
			cmd := c.Command(t.Context(), "fx", command)
			require.NoError(t, cmd.Start())
			require.True(t, until(patience, func() bool { return lines(s.counter()) > starts }))
			require.NoError(t, editFile(file, " "+command+": {},", ""))
			began := time.Now()
			require.Error(t, cmd.Wait())
			took = time.Since(began)
			t.Logf("%s ended %v after the edit", command, took.Round(time.Millisecond))
			require.NoError(t, editFile(file, " brief: {},", " brief: {}, "+command+": {},"))
			require.NoError(t, s.policyState(s.vars["OWNER"], "in force"))
			if took < time.Second {
				break
			}
		}
		if !raceEnabled {
			require.Less(t, took, time.Second, command)
		}
	}
}
