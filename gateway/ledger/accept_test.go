package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spec: LEDGER-33
func TestAcceptLoss(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   error
	}{
		"log-gone": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, logFile)))
		}, ErrLost},
		"log-damaged": {func(t *testing.T, dir string) {
			t.Helper()
			file := filepath.Join(dir, logFile)
			b := must(os.ReadFile(file))
			b[len(b)/2] ^= 1
			require.NoError(t, os.WriteFile(file, b, 0o600))
		}, ErrCorrupt},
		"key-gone": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, "digest.key")))
		}, ErrCorrupt},
		"unknown-file": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "7.log"), []byte("x"), 0o600))
		}, ErrCorrupt},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir, _, _ := small(t, true)
			later := Config{Dir: dir, Now: func() time.Time { return testTime.Add(time.Hour) }}
			_, err := AcceptLoss(later)
			require.ErrorIs(t, err, ErrIntact)
			c.damage(t, dir)
			_, err = Open(later)
			require.ErrorIs(t, err, c.want)
			old := make(map[string][]byte)
			for _, f := range glob(t, dir, "*") {
				if filepath.Base(f) != "reserve" {
					old[filepath.Base(f)] = must(os.ReadFile(f))
				}
			}
			aside, err := AcceptLoss(later)
			require.NoError(t, err)
			require.Len(t, aside, len(old))
			for _, n := range aside {
				was, _, _ := strings.Cut(n, ".2026")
				require.Equal(t, old[was], must(os.ReadFile(filepath.Join(dir, n))), "nothing is deleted")
			}
			_, err = AcceptLoss(later)
			require.ErrorIs(t, err, ErrIntact)
			l, err := Open(later)
			require.NoError(t, err)
			require.Equal(t, testTime.Add(time.Hour), l.Birth(), "older leases are refused")
			_, err = AcceptLoss(later)
			require.ErrorIs(t, err, ErrLocked)
			require.Equal(t, StateNone, stateOf(t, l, testClaim(t, 1)))
			require.NoError(t, l.Close())
			event := firstEvent(t, dir)
			require.Equal(t, "ledger.loss-accepted", event.Name)
			require.Equal(t, fmt.Sprint(len(old)), event.Facts["files"])
			require.Contains(t, aside, event.Facts["file.00"])
			require.Contains(t, event.Facts["why"], c.want.Error())
			_, err = Verify(dir)
			require.NoError(t, err)
		})
	}
	_, err := AcceptLoss(Config{Dir: ledgerDir(t)})
	require.ErrorIs(t, err, ErrIntact, "there was never one")
}

func firstEvent(t *testing.T, dir string) (out *Event) {
	t.Helper()
	require.NoError(t, Walk(dir, func(e Entry) error {
		if out == nil {
			out = e.Event
		}
		return nil
	}))
	require.NotNil(t, out)
	return out
}

// Killed anywhere, there is a ledger that is still lost or corrupt, or a new one
// that says what lies beside it. spec: LEDGER-33
func TestKillWhileLossIsAccepted(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		dir, log, _ := small(t, true)
		log[len(log)/2] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(dir, logFile), log, 0o600))
		w := &world{at: at}
		later := func() time.Time { return testTime.Add(time.Hour) }
		_, err := AcceptLoss(w.in(Config{Dir: dir, Now: later}))
		if w.n < at {
			require.NoError(t, err)
			require.Greater(t, at, 20)
			return
		}
		require.ErrorIs(t, err, errEnd)
		l, err := Open(Config{Dir: dir, Now: later})
		if err != nil {
			_, err = AcceptLoss(Config{Dir: dir, Now: later})
			require.NoError(t, err)
			l, err = Open(Config{Dir: dir, Now: later})
		}
		require.NoError(t, err)
		require.Equal(t, later(), l.Birth())
		require.NoError(t, l.Close())
		require.Equal(t, "ledger.loss-accepted", firstEvent(t, dir).Name)
		kept := glob(t, dir, "*"+logFile+"*.lost")
		require.Len(t, kept, 1)
		require.Equal(t, log, must(os.ReadFile(kept[0])))
	}
}
