package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// fork makes two ledgers of one birth and one key, whose records differ in nothing
// but their digests.
func fork(t *testing.T) (a, b Config) {
	t.Helper()
	c := &clock{at: testTime}
	a, b = tiny(ledgerDir(t), c), tiny(ledgerDir(t), c)
	l := openWith(t, a)
	l.crash(t)
	require.NoError(t, os.CopyFS(b.Dir, os.DirFS(a.Dir)))
	require.NoError(t, os.Chmod(b.Dir, 0o700))
	for _, f := range glob(t, b.Dir, "*") {
		require.NoError(t, os.Chmod(f, 0o600))
	}
	for i, cfg := range []Config{a, b} {
		l := openWith(t, cfg)
		for n := range 30 {
			claim := of(t, n, n)
			claim.Digest[0] = byte(i)
			run(t, l, claim)
		}
		l.crash(t)
	}
	return a, b
}

// Files that are good in themselves, of another past of the same ledger.
// spec: LEDGER-29, LEDGER-31, LEDGER-32
func TestForkedFiles(t *testing.T) {
	t.Parallel()
	a, b := fork(t)
	const first = "00000000000000000000"
	index := must(os.ReadFile(filepath.Join(b.Dir, first+".index")))
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, first+".index"), index, 0o600))
	l := openWith(t, a)
	require.Equal(t, 1, l.Recovery().Rebuilt, "a snapshot of another root")
	l.crash(t)

	good := must(os.ReadFile(filepath.Join(a.Dir, first+".log")))
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, first+".log"), must(os.ReadFile(filepath.Join(b.Dir, first+".log"))), 0o600))
	_, err := Verify(a.Dir)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, os.Remove(filepath.Join(a.Dir, first+".index")))
	_, err = Open(a)
	require.ErrorIs(t, err, ErrCorrupt, "a segment of another root")
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, first+".log"), good, 0o600))

	a.KeepBytes = 1
	later := &clock{at: testTime.Add(48 * time.Hour)}
	a.Now = later.now
	l = openWith(t, a)
	n := len(l.views.closed)
	require.NotZero(t, n)
	require.NoError(t, l.Close())
	other := make([]folder.Hash, n)
	for i := range other {
		other[i] = folder.Hash{0, byte(i)}
	}
	frames, _ := chain.AppendClosed(other, 0, segment.Tree{})
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "closed"), frames, 0o600))
	_, err = Open(a)
	require.ErrorIs(t, err, ErrCorrupt, "other hashes")
	_, err = Verify(a.Dir)
	require.ErrorIs(t, err, ErrCorrupt)
}

// A start without a grant is the first of nothing. spec: LEDGER-20
func TestFirstStartHasTheGrant(t *testing.T) {
	t.Parallel()
	dir, _, point := small(t, false)
	var payloads [][]byte
	require.NoError(t, Walk(dir, func(e Entry) error {
		if e.Start != nil {
			e.Start.Frozen = nil
			payloads = append(payloads, e.Start.Encode())
		}
		return nil
	}))
	head := must(os.ReadFile(filepath.Join(dir, logFile)))
	first, err := segment.ReadFrame(readerAt(head), 0)
	require.NoError(t, err)
	forge(t, dir, append([][]byte{first}, payloads...)...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), point, 0o600))
	_, err = Open(Config{Dir: dir, Now: testNow})
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "record 1")
}

type readerAt []byte

func (r readerAt) ReadAt(b []byte, off int64) (int, error) { return copy(b, r[off:]), nil }

// Between the choice of what is pruned and the rename that does it, nothing starts in
// an invocation that is about to be closed; if the rename fails, it may again.
// spec: LEDGER-30, LEDGER-31
func TestNothingSlipsIntoAPruning(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		c := &clock{at: testTime}
		cfg := tiny(ledgerDir(t), c)
		cfg.KeepBytes = 1
		var l *Ledger
		var during []State
		cfg.step = func(what, base string) error {
			if what != "create" || base != "closed" {
				return nil
			}
			out, err := l.Reserve(of(t, 0, 7000))
			require.NoError(t, err)
			during = append(during, out.State)
			require.Equal(t, StateEnded, must(l.Lookup(of(t, 0, 0).Key)).State, "its records are still there")
			if full {
				return errEnd
			}
			return nil
		}
		l = openWith(t, cfg)
		for i := range 12 {
			run(t, l, of(t, i, i))
		}
		c.add(30 * time.Hour)
		for i := 12; len(during) == 0; i++ {
			run(t, l, of(t, i, i))
		}
		require.Equal(t, []State{StateClosed}, during)
		if full {
			require.Equal(t, StateNone, stateOf(t, l, of(t, 0, 7000)))
			require.Equal(t, StateEnded, stateOf(t, l, of(t, 0, 0)))
		} else {
			require.Equal(t, StateClosed, stateOf(t, l, of(t, 0, 7000)))
			require.Equal(t, StateClosed, stateOf(t, l, of(t, 0, 0)))
		}
		require.NoError(t, l.Close())
		_, err := Verify(cfg.Dir)
		require.NoError(t, err)
	}
}
