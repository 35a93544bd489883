package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// small is a ledger after a crash: one operation ended, one running, one refusal.
func small(t *testing.T, closed bool) (dir string, log, point []byte) {
	t.Helper()
	dir = ledgerDir(t)
	l := mustOpen(t, dir)
	require.NoError(t, begin(t, l, testClaim(t, 1)).End(End{State: StateEnded, Status: 7}))
	begin(t, l, testClaim(t, 2))
	require.NoError(t, l.Refuse(Refusal{Reason: "LEASE_EXPIRED"}))
	if closed {
		require.NoError(t, l.Close())
	} else {
		l.crash(t)
	}
	log, err := os.ReadFile(filepath.Join(dir, logFile))
	require.NoError(t, err)
	point, err = os.ReadFile(filepath.Join(dir, "checkpoint"))
	require.NoError(t, err)
	return dir, log, point
}

func restore(t *testing.T, dir string, log, point []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, logFile), log, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), point, 0o600))
}

// ends returns the offsets at which the records of a ledger end.
func ends(t *testing.T, dir string) (out []int64) {
	t.Helper()
	_, err := chain.Walk(dir, func(f segment.Frame) error { out = append(out, frameEnd(f)); return nil })
	require.NoError(t, err)
	return out
}

// A cut at any byte is repaired once, and what was whole before it is known; a cut
// below a signed checkpoint is not accepted. spec: LEDGER-13, LEDGER-14, LEDGER-16
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir, log, point := small(t, false)
	at := ends(t, dir)
	require.Len(t, at, 5)
	for cut := range int64(len(log)) {
		restore(t, dir, log[:cut], point)
		l, err := Open(Config{Dir: dir, Now: testNow})
		if cut < at[0] {
			require.ErrorIs(t, err, ErrCorrupt, "cut at %d", cut)
			continue
		}
		require.NoError(t, err, "cut at %d", cut)
		want := map[int]State{1: StateNone, 2: StateNone}
		whole := at[0]
		for i, state := range []struct {
			op    int
			state State
		}{{1, StateUnknown}, {1, StateEnded}, {2, StateUnknown}, {3, StateNone}} {
			if cut >= at[i+1] {
				want[state.op], whole = state.state, at[i+1]
			}
		}
		require.Equal(t, cut-whole, l.Recovery().TornTail, "cut at %d", cut)
		for op, state := range want {
			require.Equal(t, state, stateOf(t, l, testClaim(t, op)), "cut at %d, operation %d", cut, op)
		}
		l.crash(t)
		repaired := 0
		require.NoError(t, Walk(dir, func(e Entry) error {
			if e.Event != nil && e.Event.Name == "ledger.repaired" {
				repaired++
			}
			return nil
		}))
		require.Equal(t, cut != whole, repaired == 1, "recorded once: cut at %d", cut)
	}
}

// spec: LEDGER-16
func TestCutBelowCheckpoint(t *testing.T) {
	t.Parallel()
	dir, log, point := small(t, true)
	for cut := range int64(len(log)) {
		restore(t, dir, log[:cut], point)
		_, err := Open(Config{Dir: dir, Now: testNow})
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", cut)
	}
}

// No single changed byte is taken for a torn tail, which would free an ID whose
// operation ran. spec: LEDGER-13
func TestFlipEveryByte(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		dir, log, point := small(t, closed)
		for at := range log {
			for _, flip := range []byte{1 << (at % 8), 0xff, log[at]} {
				if flip == 0 || closed && flip == 0xff {
					continue
				}
				bad := append([]byte(nil), log...)
				bad[at] ^= flip
				restore(t, dir, bad, point)
				_, err := Open(Config{Dir: dir, Now: testNow})
				require.ErrorIs(t, err, ErrCorrupt, "byte %d ^ %#x", at, flip)
			}
		}
	}
}

// spec: LEDGER-16
func TestFlipCheckpointAndKeys(t *testing.T) {
	t.Parallel()
	dir, _, _ := small(t, true)
	for _, file := range []string{"checkpoint", "checkpoint.key"} {
		good, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		for at := range good {
			bad := append([]byte(nil), good...)
			bad[at] ^= 1
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), bad, 0o600))
			_, err := Open(Config{Dir: dir, Now: testNow})
			require.ErrorIs(t, err, ErrCorrupt, "%s: byte %d", file, at)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), good, 0o600))
	}
	require.NoError(t, mustOpen(t, dir).Close())
}

// reference is the ledger in a few lines: what must be true whatever happens.
type reference struct {
	ops     map[int]*refOp
	started int
}

type refOp struct {
	digest byte
	state  State
	endAt  int64 // where its End begins in the file
	res    *Reservation
	end    End
}

func (r *reference) expect(op int, digest byte) State {
	o := r.ops[op]
	switch {
	case o == nil:
		return StateNone
	case o.digest != digest:
		return StateConflict
	default:
		return o.state
	}
}

// lose is a power cut: ends from this offset on are gone.
func (r *reference) lose(from int64) {
	for op, o := range r.ops {
		switch {
		case o.state == StatePending:
			delete(r.ops, op)
		case o.state == StateRunning, o.endAt >= from:
			o.state, o.end = StateUnknown, End{State: StateUnknown, At: testTime}
			o.endAt = -1
		}
		o.res = nil
	}
}

// spec: LEDGER-14, LEDGER-15, LEDGER-17, LEDGER-18
func TestModel(t *testing.T) {
	t.Parallel()
	top, runs := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		dir := filepath.Join(top, strconv.Itoa(runs))
		l, err := Open(Config{Dir: dir, Now: testNow})
		require.NoError(rt, err)
		ref := &reference{ops: make(map[int]*refOp)}
		claim := func(op int, digest byte) Claim {
			c := testClaim(t, op)
			c.Digest = [32]byte{digest}
			return c
		}
		check := func() {
			for op := range 4 {
				for digest := range byte(2) {
					out, err := l.Reserve(claim(op, digest))
					require.NoError(rt, err)
					require.Equal(rt, ref.expect(op, digest), out.State)
					if out.Reservation != nil {
						out.Reservation.Release()
					}
					if out.End != nil {
						require.Equal(rt, &ref.ops[op].end, out.End)
					}
				}
			}
		}
		step := func() {
			op, digest := rapid.IntRange(0, 3).Draw(rt, "op"), rapid.ByteRange(0, 1).Draw(rt, "digest")
			o := ref.ops[op]
			switch action := rapid.SampledFrom([]string{"reserve", "start", "release", "end", "note", "reopen", "kill", "cut"}).Draw(rt, "action"); action {
			case "reserve":
				out, err := l.Reserve(claim(op, digest))
				require.NoError(rt, err)
				require.Equal(rt, ref.expect(op, digest), out.State)
				if out.State == StateNone {
					ref.ops[op] = &refOp{digest: digest, state: StatePending, res: out.Reservation}
				}
			case "start":
				if o != nil && o.state == StatePending {
					require.NoError(rt, o.res.Start(context.Background(), testStart()))
					o.state = StateRunning
					ref.started++
				}
			case "release":
				if o != nil && o.state == StatePending {
					o.res.Release()
					delete(ref.ops, op)
				}
			case "end":
				if o != nil && o.state == StateRunning {
					o.end = End{
						State: rapid.SampledFrom([]State{StateEnded, StateNotStarted}).Draw(rt, "how"), At: testTime,
						Status: rapid.IntRange(0, 255).Draw(rt, "status"), Stdout: rapid.Uint64().Draw(rt, "stdout"),
					}
					o.endAt, o.state = l.log.size, o.end.State
					require.NoError(rt, o.res.End(o.end))
				}
			case "note":
				require.NoError(rt, l.Event(Event{Name: "note", Facts: map[string]string{"text": fmt.Sprint(op)}}))
			case "reopen":
				require.NoError(rt, l.Close())
				ref.lose(1 << 62)
				l, err = Open(Config{Dir: dir, Now: testNow})
				require.NoError(rt, err)
			default:
				synced, size := l.log.synced, l.log.size
				l.crash(t)
				if action == "cut" && size > synced {
					ref.lose(tear(rt, filepath.Join(dir, logFile), synced, size))
				} else {
					ref.lose(1 << 62)
				}
				l, err = Open(Config{Dir: dir, Now: testNow})
				require.NoError(rt, err)
			}
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			step()
		}
		check()
		require.NoError(rt, l.Close())
		report, err := Verify(dir)
		require.NoError(rt, err)
		require.Equal(rt, uint64(ref.started), report.Starts, "no second start, none lost")
	})
}

// tear does to bytes that were not durable what a power cut may do: the file is
// short, or a sector of it is zero. It returns from where on records are lost.
func tear(rt *rapid.T, file string, synced, size int64) int64 {
	at := rapid.Int64Range(synced, size-1).Draw(rt, "at")
	from, to := max(synced, at/512*512), min(size, at/512*512+512)
	if rapid.Bool().Draw(rt, "short") || to-from < 2 {
		require.NoError(rt, os.Truncate(file, at))
		return lastWhole(rt, file, at)
	}
	b, err := os.ReadFile(file)
	require.NoError(rt, err)
	clear(b[from:to])
	require.NoError(rt, os.WriteFile(file, b, 0o600))
	return lastWhole(rt, file, from)
}

// lastWhole is where the record begins that holds the byte at off.
func lastWhole(rt *rapid.T, file string, off int64) int64 {
	last := int64(0)
	_, err := chain.Walk(filepath.Dir(file), func(f segment.Frame) error {
		if frameEnd(f) > off {
			return errors.New("stop")
		}
		last = frameEnd(f)
		return nil
	})
	_ = err
	return last
}

// forge writes a ledger whose frames are in order, whatever its records say.
func forge(t *testing.T, dir string, payloads ...[]byte) {
	t.Helper()
	var b []byte
	for i, p := range payloads {
		b = segment.AppendFrame(b, p, uint64(i), 0)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, logFile), b, 0o600))
}

// Records that fit their checksums, but not each other, open nothing.
// spec: LEDGER-15, LEDGER-16, LEDGER-26
func TestForgedRecords(t *testing.T) {
	t.Parallel()
	dir, _, point := small(t, false)
	var good [][]byte
	_, err := chain.Walk(dir, func(f segment.Frame) error { good = append(good, append([]byte(nil), f.Payload...)); return nil })
	require.NoError(t, err)
	require.Len(t, good, 5) // segment, start 1, end 1, start 2, refusal
	edited := append([]byte(nil), good[0]...)
	edited[2] ^= 1 // its time
	unknown := append([]byte{99}, good[4][1:]...)
	short := good[1][:len(good[1])-1]
	for label, c := range map[string]struct {
		payloads [][]byte
		says     string
	}{
		"second-start":      {[][]byte{good[0], good[1], good[2], good[1]}, "record 3 at offset 0: a second start"},
		"second-start-soon": {[][]byte{good[0], good[1], good[1]}, "record 2 at offset 0: a second start"},
		"end-without-start": {[][]byte{good[0], good[2]}, "record 1 at offset 0: an end without a start"},
		"end-twice":         {[][]byte{good[0], good[1], good[2], good[2]}, "record 3 at offset 0: an end without a start"},
		"segment-twice":     {[][]byte{good[0], good[0]}, "record 1 at offset 0: the record of a segment is not where it belongs"},
		"no-segment":        {[][]byte{good[1]}, "record 0 at offset 0"},
		"unknown-kind":      {[][]byte{good[0], unknown}, "record 1 at offset 0: "},
		"cut-start":         {[][]byte{good[0], short}, "record 1 at offset 0: malformed record"},
		"edited-segment":    {[][]byte{edited, good[1]}, "record 0 at offset 0"},
	} {
		t.Run(label, func(t *testing.T) {
			forge(t, dir, c.payloads...)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), point, 0o600))
			_, err := Open(Config{Dir: dir, Now: testNow})
			require.ErrorIs(t, err, ErrCorrupt)
			require.Contains(t, atZero(err.Error()), c.says)
			_, err = Verify(dir)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Contains(t, atZero(err.Error()), c.says)
		})
	}
	forge(t, dir, good...)
	require.NoError(t, mustOpen(t, dir).Close(), "the forger is right about good records")
}

func atZero(s string) string {
	return regexp.MustCompile(`at offset \d+`).ReplaceAllString(s, "at offset 0")
}

// spec: LEDGER-8, LEDGER-16, LEDGER-26
func TestEditBelowCheckpoint(t *testing.T) {
	t.Parallel()
	dir, _, _ := small(t, true)
	var payloads [][]byte
	_, err := chain.Walk(dir, func(f segment.Frame) error {
		payloads = append(payloads, replaced(f.Payload, "issue.list", "issue.kill"))
		return nil
	})
	require.NoError(t, err)
	forge(t, dir, payloads...)
	_, err = Open(Config{Dir: dir, Now: testNow})
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = Verify(dir)
	require.ErrorContains(t, err, "the checkpoint of the directory, of 5 records, does not fit: one of the records 0 to 4 was changed")
}

// A checkpoint that fits, but is signed with a key that was put in place of the
// ledger's own.
//
// spec: LEDGER-16
func TestOtherKey(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	begin(t, l, testClaim(t, 1))
	skey, _, err := note.GenerateKey(rand.Reader, segment.Origin(l.ID()))
	require.NoError(t, err)
	signer, err := note.NewSigner(skey)
	require.NoError(t, err)
	point, err := segment.SignCheckpoint(l.ID(), &l.log.tree, signer)
	require.NoError(t, err)
	l.crash(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), point, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint.key"), []byte(skey+"\n"), 0o600))
	_, err = Open(Config{Dir: dir, Now: testNow})
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "does not fit the keys")
	_, err = Verify(dir)
	require.ErrorContains(t, err, "was not signed by this ledger's key")
}

// What Open read may only have been in the cache of a system that then went down.
func TestOpenMakesWhatItReadDurable(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	require.NoError(t, begin(t, l, testClaim(t, 1)).End(End{State: StateEnded}))
	require.Less(t, l.log.synced, l.log.size)
	l.crash(t)
	l, f := openFaulty(t, dir)
	require.Equal(t, l.log.size, l.log.synced)
	f.set(func() { require.Equal(t, l.log.size, f.durable) })
	require.NoError(t, l.Close())
}
