package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const logFile = "00000000000000000000.log"

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func testNow() time.Time { return testTime }

func ledgerDir(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "ledger")
}

func mustOpen(tb testing.TB, dir string) *Ledger {
	tb.Helper()
	l, err := Open(Config{Dir: dir, Now: testNow})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// crash lets the files go as a killed process would: what was written stays, no
// checkpoint is signed.
func (l *Ledger) crash(tb testing.TB) {
	tb.Helper()
	l.mu.Lock()
	l.closed = true
	unlock := l.unlock
	l.unlock = nil
	l.mu.Unlock()
	require.NoError(tb, l.log.f.Close())
	require.NoError(tb, unlock())
}

func testPeer(tb testing.TB, n byte) name.PeerID {
	tb.Helper()
	key := make([]byte, 32)
	key[0], key[31] = n, 1
	p, err := name.PeerIDFromKey(key)
	require.NoError(tb, err)
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func testKey(tb testing.TB, n int) Key {
	tb.Helper()
	return Key{
		Issuer: testPeer(tb, 1), Holder: testPeer(tb, 2),
		Invocation: must(name.ParseInvocationID("run-1")),
		Operation:  must(name.ParseOperationID(fmt.Sprintf("operation-%08d", n))),
	}
}

func testClaim(tb testing.TB, n int) Claim {
	tb.Helper()
	return Claim{
		Key: testKey(tb, n), Digest: sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n))),
		Lease: [16]byte{1}, MaxOperations: 1 << 20, Frozen: []byte(`{"grant":1}`),
	}
}

func testStart() Start {
	return Start{
		LeaseNotAfter: testTime.Add(time.Hour), Connector: must(name.ParseConnectorKey("github")),
		Version: must(name.ParseVersion("2.40.1")), Command: must(name.ParseCommand("issue.list")),
		Identity: []byte("identity"), Audit: []byte("audit"),
	}
}

func begin(tb testing.TB, l *Ledger, c Claim) *Reservation {
	tb.Helper()
	out, err := l.Reserve(c)
	require.NoError(tb, err)
	require.Equal(tb, StateNone, out.State)
	require.NoError(tb, out.Reservation.Start(context.Background(), testStart()))
	return out.Reservation
}

func stateOf(tb testing.TB, l *Ledger, c Claim) State {
	tb.Helper()
	out, err := l.Reserve(c)
	require.NoError(tb, err)
	if out.Reservation != nil {
		out.Reservation.Release()
	}
	return out.State
}

func TestLifeOfAnOperation(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	require.True(t, l.Recovery().Created)
	require.Equal(t, testTime, l.Birth())
	c := testClaim(t, 1)

	out, err := l.Reserve(c)
	require.NoError(t, err)
	require.Equal(t, StateNone, out.State)
	require.Equal(t, c.Frozen, out.Reservation.Frozen())
	second, err := l.Reserve(c)
	require.NoError(t, err)
	require.Equal(t, StatePending, second.State)

	require.NoError(t, out.Reservation.Start(t.Context(), testStart()))
	<-second.Settled
	require.Equal(t, StateRunning, stateOf(t, l, c))
	other := c
	other.Digest[0]++
	require.Equal(t, StateConflict, stateOf(t, l, other))

	end := End{State: StateEnded, Status: 3, Stdout: 17, Duration: time.Second, Cause: "TIME_LIMIT", Signal: "SIGTERM", Forced: true}
	require.NoError(t, out.Reservation.End(end))
	require.ErrorIs(t, out.Reservation.End(end), errNotRunning)
	end.At = testTime
	for _, reopened := range []bool{false, true} {
		if reopened {
			require.NoError(t, l.Close())
			require.NoError(t, l.Close())
			l = mustOpen(t, dir)
			require.Equal(t, Recovery{Records: 3}, l.Recovery())
		}
		got, err := l.Reserve(c)
		require.NoError(t, err)
		require.Equal(t, StateEnded, got.State)
		require.Equal(t, &end, got.End)
		require.Equal(t, c.Key, got.Start.Key)
		require.Equal(t, []byte("identity"), got.Start.Identity)
		require.Equal(t, StateConflict, stateOf(t, l, other))
		looked, err := l.Lookup(c.Key)
		require.NoError(t, err)
		require.Equal(t, got, looked)
		frozen, ok, err := l.Frozen(c.Issuer, c.Invocation, c.Holder)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, c.Frozen, frozen)
		require.Equal(t, 1, l.Operations(c.Issuer, c.Lease))
	}
	report, err := Verify(dir)
	require.NoError(t, err)
	require.Equal(t, uint64(1), report.Starts)
	require.Equal(t, uint64(3), report.Covered)
}

// spec: LEDGER-15
func TestUnfinishedBecomesUnknownOnce(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	begin(t, l, testClaim(t, 1))
	require.NoError(t, begin(t, l, testClaim(t, 2)).End(End{State: StateEnded}))
	l.crash(t)

	for i := range 3 {
		l = mustOpen(t, dir)
		require.Equal(t, StateUnknown, stateOf(t, l, testClaim(t, 1)))
		require.Equal(t, StateEnded, stateOf(t, l, testClaim(t, 2)))
		require.Equal(t, uint64(5), l.Recovery().Records)
		if i == 0 {
			require.Equal(t, 1, l.Recovery().Unknown)
			l.crash(t)
			continue
		}
		require.Zero(t, l.Recovery().Unknown)
		require.NoError(t, l.Close())
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	_, err := Open(Config{Dir: dir})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, l.Close())
	require.NoError(t, mustOpen(t, dir).Close())
}

// frameEnd is where the frame after f begins.
func frameEnd(f segment.Frame) int64 { return f.Offset + segment.FrameSize(len(f.Payload)) }
