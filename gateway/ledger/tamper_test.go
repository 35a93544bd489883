package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// evidence is a real ledger of several segments, and what was kept of it elsewhere.
type evidence struct {
	t       *testing.T
	dir     string
	files   map[string][]byte // all of them, as they were written
	older   map[string][]byte // a copy from when early was signed
	frames  []frameAt
	early   []byte // a checkpoint of the first records
	late    []byte // … and one of all
	earlyAt uint64
	key     string
	partial []byte // a checkpoint of the first three quarters, of what was forged last
}

type frameAt struct {
	file    string
	segment uint64
	index   uint64
	begin   int64
	end     int64
	payload []byte
}

func gatherEvidence(t *testing.T) *evidence {
	t.Helper()
	e := &evidence{t: t, dir: ledgerDir(t)}
	open := func() *Ledger {
		l, err := Open(Config{Dir: e.dir, Now: testNow, segmentBytes: 3000})
		require.NoError(t, err)
		return l
	}
	work := func(l *Ledger, from int) {
		for n := from; n < from+14; n++ {
			r := begin(t, l, testClaim(t, n))
			require.NoError(t, l.Refuse(Refusal{Reason: "POLICY_DENIED", Count: uint64(n), Peer: testPeer(t, 2)}))
			require.NoError(t, r.End(End{State: StateEnded, Status: n}))
			require.NoError(t, l.Event(Event{Name: "policy.loaded", Facts: map[string]string{"n": fmt.Sprint(n)}}))
		}
	}
	l := open()
	work(l, 0)
	require.NoError(t, l.Close())
	e.early, e.older, e.earlyAt = must(folder.ReadCheckpoint(e.dir)), e.read(), l.Size()
	l = open()
	work(l, 100)
	require.NoError(t, l.Close())
	e.late, e.files, e.key = must(folder.ReadCheckpoint(e.dir)), e.read(), l.VerifierKey()
	_, err := chain.Walk(e.dir, func(f segment.Frame) error {
		at := frameAt{index: f.Index, begin: f.Offset, end: frameEnd(f), payload: slices.Clone(f.Payload)}
		if n := len(e.frames); f.Offset == 0 {
			at.segment = f.Index
		} else {
			at.segment = e.frames[n-1].segment
		}
		at.file = fmt.Sprintf("%020d.log", at.segment)
		e.frames = append(e.frames, at)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(e.segments()), 3)
	r, err := e.verify()
	require.NoError(t, err)
	require.Equal(t, r.Records, r.Kept)
	return e
}

func (e *evidence) segments() (out []uint64) {
	for _, f := range e.frames {
		out = append(out, f.segment)
	}
	return slices.Compact(out)
}

func (e *evidence) read() map[string][]byte {
	out := map[string][]byte{}
	for _, entry := range must(os.ReadDir(e.dir)) {
		if entry.Name() != "reserve" {
			out[entry.Name()] = must(os.ReadFile(filepath.Join(e.dir, entry.Name())))
		}
	}
	return out
}

// put makes the directory hold exactly these files.
func (e *evidence) put(files map[string][]byte) {
	e.t.Helper()
	for _, entry := range must(os.ReadDir(e.dir)) {
		require.NoError(e.t, os.Remove(filepath.Join(e.dir, entry.Name())))
	}
	for n, b := range files {
		require.NoError(e.t, os.WriteFile(filepath.Join(e.dir, n), b, 0o600))
	}
}

// with is the ledger with one file changed.
func (e *evidence) with(file string, b []byte) map[string][]byte {
	out := map[string][]byte{}
	for n, old := range e.files {
		out[n] = old
	}
	if out[file] = b; b == nil {
		delete(out, file)
	}
	return out
}

func (e *evidence) verify() (chain.Report, error) {
	return chain.Verify(e.dir, []chain.Kept{{Name: "early", Note: e.early, Key: e.key}, {Name: "late", Note: e.late}})
}

// named wants a verification that fails, and names this record.
func (e *evidence) named(index uint64, what string) {
	e.t.Helper()
	_, err := e.verify()
	var damage *segment.DamageError
	require.ErrorAs(e.t, err, &damage, what)
	require.Equal(e.t, index, damage.Index, "%s: %v", what, err)
}

// spec: LEDGER-26, LEDGER-27
func TestTamperedFiles(t *testing.T) {
	t.Parallel()
	e := gatherEvidence(t)
	t.Run("byte-changed", func(t *testing.T) {
		step := 11
		if testing.Short() {
			step = 37
		}
		for _, f := range e.frames {
			for at := f.begin + int64(f.index)%int64(step); at < f.end; at += int64(step) {
				b := slices.Clone(e.files[f.file])
				b[at] ^= 1 << (at % 8)
				require.NoError(t, os.WriteFile(filepath.Join(e.dir, f.file), b, 0o600))
				e.named(f.index, fmt.Sprintf("byte %d of %s", at, f.file))
			}
			require.NoError(t, os.WriteFile(filepath.Join(e.dir, f.file), e.files[f.file], 0o600))
		}
	})
	t.Run("record-removed", func(t *testing.T) {
		for _, f := range e.frames {
			b := slices.Delete(slices.Clone(e.files[f.file]), int(f.begin), int(f.end))
			e.put(e.with(f.file, b))
			e.named(f.index, fmt.Sprintf("record %d removed", f.index))
		}
	})
	t.Run("records-swapped", func(t *testing.T) {
		for i, f := range e.frames[:len(e.frames)-1] {
			g := e.frames[i+1]
			if f.segment != g.segment {
				continue
			}
			b := e.files[f.file]
			b = slices.Concat(b[:f.begin], b[g.begin:g.end], b[f.begin:f.end], b[g.end:])
			e.put(e.with(f.file, b))
			e.named(f.index, fmt.Sprintf("records %d and %d swapped", f.index, g.index))
		}
	})
	t.Run("cut-at-each-record", func(t *testing.T) {
		for _, f := range e.frames {
			e.cut(f)
			e.named(f.index, fmt.Sprintf("cut before record %d", f.index))
		}
	})
	t.Run("segment-removed", func(t *testing.T) {
		for _, first := range e.segments() {
			e.put(e.with(fmt.Sprintf("%020d.log", first), nil))
			e.named(first, fmt.Sprintf("segment %d removed", first))
		}
	})
	t.Run("set-back", func(t *testing.T) {
		e.put(e.older)
		e.named(e.earlyAt, "an older copy of the whole directory")
		_, err := Verify(e.dir)
		require.NoError(t, err, "which is right in itself")
	})
	t.Run("made-again", func(t *testing.T) {
		other := gatherEvidence(t)
		e.put(other.files)
		e.named(0, "another ledger in its place")
		for label, kept := range map[string]chain.Kept{
			"the same ledger, or was made again": {Name: "the owner's note", Key: e.key},
			"not signed by this ledger's key":    {Name: "a checkpoint", Note: e.late},
		} {
			_, err := chain.Verify(e.dir, []chain.Kept{kept})
			require.ErrorContains(t, err, label)
		}
		r, err := Verify(e.dir)
		require.NoError(t, err, "which is right in itself")
		require.Zero(t, r.Kept)
	})
	t.Run("own-checkpoint", func(t *testing.T) {
		e.put(e.with("checkpoint", []byte("none\n")))
		e.named(0, "the ledger's own checkpoint")
	})
	e.put(e.files)
	_, err := e.verify()
	require.NoError(t, err)
}

// cut removes a record and all after it, and nothing else.
func (e *evidence) cut(f frameAt) {
	e.t.Helper()
	files := e.with(f.file, e.files[f.file][:f.begin])
	if f.begin == 0 {
		delete(files, f.file)
	}
	for n := range files {
		if strings.HasSuffix(n, ".log") && n > f.file {
			delete(files, n)
		}
	}
	e.put(files)
}

// forge makes a ledger of these records, by their indexes, that is right in every way,
// as who has its keys can. edited replaces some.
func (e *evidence) forge(order []int, edited map[int][]byte) {
	e.t.Helper()
	signer, err := note.NewSigner(strings.TrimSpace(string(e.files["checkpoint.key"])))
	require.NoError(e.t, err)
	files := map[string][]byte{}
	var tree segment.Tree
	var file string
	var all uint64
	var id [16]byte
	moved := map[uint64]uint64{}
	for i, was := range order {
		payload := e.frames[was].payload
		if edited[was] != nil {
			payload = edited[was]
		}
		moved[uint64(was)] = uint64(i)
		if end, of, err := record.DecodeEnd(payload); err == nil {
			payload = end.Encode(moved[of])
		}
		if record.IsSegment(payload) {
			seg := must(record.DecodeSegment(payload))
			id, file, seg.First = seg.ID, fmt.Sprintf("%020d.log", i), uint64(i)
			if i > 0 {
				seg.Base, seg.Edge, seg.Point = all, tree.Edge(), must(segment.SignCheckpoint(id, &tree, signer))
			}
			payload = seg.Encode(testTime)
		}
		frame := segment.AppendFrame(nil, payload, uint64(i), 0)
		files[file] = append(files[file], frame...)
		all += uint64(len(frame))
		tree.Add(payload)
		if i == len(order)*3/4 {
			e.partial = must(segment.SignCheckpoint(id, &tree, signer))
		}
	}
	files["checkpoint"] = must(segment.SignCheckpoint(id, &tree, signer))
	e.put(files)
	_, err = Verify(e.dir)
	require.NoError(e.t, err, "it is right in itself")
}

// Who has the keys too can make a ledger that is right in itself. Only a checkpoint
// that was kept elsewhere tells. spec: LEDGER-27
func TestForgedWithItsKeys(t *testing.T) {
	t.Parallel()
	e := gatherEvidence(t)
	var all []int
	for i := range e.frames {
		all = append(all, i)
	}
	e.forge(all, nil)
	_, err := e.verify()
	require.NoError(t, err, "the forger can make the true one")
	bound := func(index uint64) uint64 {
		if index < e.earlyAt {
			return 0
		}
		return e.earlyAt
	}
	kind := func(i int) byte { return e.frames[i].payload[0] }
	for i, f := range e.frames {
		if record.IsSegment(f.payload) {
			continue
		}
		edited := slices.Clone(f.payload)
		edited[2] ^= 1 // its time
		e.forge(all, map[int][]byte{i: edited})
		e.named(bound(f.index), fmt.Sprintf("record %d edited", i))

		e.forge(all[:i], nil)
		e.named(uint64(i), fmt.Sprintf("cut before record %d", i))

		if kind(i) == record.KindEvent || kind(i) == record.KindRefusal {
			e.forge(slices.Delete(slices.Clone(all), i, i+1), nil)
			if f.index < e.earlyAt {
				e.named(0, fmt.Sprintf("record %d removed", i))
			} else { // one is missing, and which cannot be seen
				e.named(uint64(len(all)-1), fmt.Sprintf("record %d removed", i))
				_, err := e.verify()
				require.ErrorContains(t, err, fmt.Sprintf("it says nothing of the records %d to %d", e.earlyAt, len(all)-2))
			}
		}
		if i+1 < len(all) && !record.IsSegment(e.frames[i+1].payload) && (kind(i) != record.KindStart || kind(i+1) == record.KindRefusal) {
			swapped := slices.Clone(all)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			e.forge(swapped, nil)
			e.named(bound(f.index), fmt.Sprintf("records %d and %d swapped", i, i+1))
		}
	}
	// The forger's own checkpoint proves nothing of what is before it.
	after := int(e.earlyAt) + 2
	edited := slices.Clone(e.frames[after].payload)
	edited[2] ^= 1
	e.forge(all, map[int][]byte{after: edited})
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "checkpoint"), e.partial, 0o600))
	e.named(e.earlyAt, "with a checkpoint of the forger's that fits, later")

	// What comes after the newest checkpoint is not covered.
	last := len(all) - 1
	made := Event{Name: "made.up"}.Encode(testTime)
	e.forge(append(slices.Clone(all), last), nil)
	r, err := e.verify()
	require.NoError(t, err)
	require.Equal(t, r.Records-1, r.Kept)
	e.forge(all, map[int][]byte{last: made})
	e.named(e.earlyAt, "the last record that is covered")
}
