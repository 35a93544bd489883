package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// copied is a copy of the ledger as it is, in a directory of its own.
func (b *book) copied() string {
	b.tb.Helper()
	dir := filepath.Join(b.tb.TempDir(), "copy")
	require.NoError(b.tb, os.CopyFS(dir, os.DirFS(b.dir)))
	require.NoError(b.tb, os.Chmod(dir, 0o700))
	for _, e := range must(os.ReadDir(dir)) {
		require.NoError(b.tb, os.Chmod(filepath.Join(dir, e.Name()), 0o600))
	}
	return dir
}

// ops writes n operations.
func (b *book) ops(tag string, n int) {
	b.tb.Helper()
	for i := range n {
		b.end(b.start(fmt.Sprintf("op-%s-%016d", tag, i), "{}"), 0)
	}
}

// keep gives the checkpoint of now to a place that knows nothing of earlier ones, as
// after a restart.
func (b *book) keep(path string) error {
	b.tb.Helper()
	return File(path, b.VerifierKey(), b.dir).Keep(b.tb.Context(), must(b.Checkpoint()))
}

// setBack keeps a checkpoint and returns an older copy of the ledger, opened.
func setBack(t *testing.T) (path, kept string, old *book) {
	t.Helper()
	b := newBook(t)
	b.ops("first", 3)
	require.NoError(t, b.Close())
	old = &book{tb: t, dir: b.copied(), now: b.now.Add(time.Hour)}
	b.open()
	b.ops("lost", 4)
	path = filepath.Join(t.TempDir(), "kept")
	require.NoError(t, b.keep(path))
	old.open()
	return path, readFile(t, path), old
}

// A ledger that was set back does not take the place of what proves it, however far it
// grows, before its first checkpoint or after, and after restarts.
func TestFileAfterARollback(t *testing.T) {
	t.Parallel()
	t.Run("seen while it is smaller", func(t *testing.T) {
		t.Parallel()
		path, kept, old := setBack(t)
		place := File(path, old.VerifierKey(), old.dir)
		require.ErrorIs(t, place.Keep(t.Context(), must(old.Checkpoint())), ErrRolledBack)
		for i := range 4 { // over the size that is kept, by one record at a time
			r := old.start(fmt.Sprintf("op-grown-%016d", i), "{}")
			require.ErrorIs(t, place.Keep(t.Context(), must(old.Checkpoint())), ErrRolledBack)
			old.end(r, 0)
			require.ErrorIs(t, place.Keep(t.Context(), must(old.Checkpoint())), ErrRolledBack)
		}
		old.ops("more", 20)
		require.ErrorIs(t, place.Keep(t.Context(), must(old.Checkpoint())), ErrRolledBack)
		require.Equal(t, kept, readFile(t, path))
	})
	t.Run("outgrown before its first checkpoint", func(t *testing.T) {
		t.Parallel()
		path, kept, old := setBack(t)
		old.ops("grown", 20)
		for range 2 {
			err := old.keep(path)
			require.ErrorIs(t, err, ErrRolledBack)
			require.ErrorContains(t, err, "lend audit verify --checkpoint "+path+", then move it and its .key away")
			require.NoError(t, old.Close())
			old.open()
		}
		old.fill("later")
		require.ErrorIs(t, old.keep(path), ErrRolledBack, "in a later segment")
		require.Equal(t, kept, readFile(t, path))
		v, err := Verify(old.dir, []Kept{must(ReadKept(path))})
		require.NoError(t, err)
		require.False(t, v.OK, "it still proves it")
		require.Zero(t, *v.Index)

		require.NoError(t, os.Rename(path, path+".old")) // the owner's way out
		require.NoError(t, old.keep(path))
		old.ops("after", 2)
		require.NoError(t, old.keep(path))
	})
	t.Run("in the keeper", func(t *testing.T) {
		t.Parallel()
		path, kept, old := setBack(t)
		old.ops("grown", 20)
		for run := range 2 {
			var events []ledger.Event
			k := NewKeeper(KeeperConfig{
				Sign: old.Checkpoint, Size: old.Size, Key: old.VerifierKey(), Places: []Place{File(path, old.VerifierKey(), old.dir)},
				Event: func(e ledger.Event) { events = append(events, e); _ = old.Event(e) },
			})
			for i := range 3 {
				_, err := k.Now(t.Context())
				require.NoError(t, err, "the ledger's own goes on")
				old.ops(fmt.Sprintf("run%d%d", run, i), 2)
				require.Contains(t, k.Places()[0].Problem, "was the ledger set back?")
			}
			require.ErrorContains(t, k.Close(), "was the ledger set back?")
			require.Len(t, events, 1, "once in each run")
			require.Equal(t, "degraded", events[0].Name)
			require.Contains(t, events[0].Facts["problem"], "was the ledger set back?")
		}
		require.Equal(t, kept, readFile(t, path))
	})
}

// What is kept may show something only once the place answers again: that is told
// though the place had another problem before.
func TestKeeperTellsARollbackAfterAnotherProblem(t *testing.T) {
	t.Parallel()
	l, p := &fakeLedger{size: 1}, &fakePlace{}
	k := NewKeeper(l.config(p.place("here")))
	p.set(fmt.Errorf("no disk"))
	l.grow(1)
	must(k.Now(t.Context()))
	for range 2 {
		p.set(ErrRolledBack)
		l.grow(1)
		must(k.Now(t.Context()))
	}
	require.Contains(t, k.Places()[0].Problem, "set back")
	p.set(fmt.Errorf("no disk"))
	must(k.Now(t.Context()))
	p.set(nil)
	must(k.Now(t.Context()))
	require.NoError(t, k.Close())
	got := l.events
	if got[0] == "checkpoint.kept here" { // before it failed
		got = got[1:]
	}
	require.Equal(t, []string{"degraded hereno disk", "degraded here" + ErrRolledBack.Error(), "recovered here"}, got)
}

// A ledger that grows over several files, with restarts, and prunes has its checkpoints
// kept as ever.
func TestFileOfALedgerThatGrowsAndPrunes(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	path := filepath.Join(t.TempDir(), "kept")
	place := File(path, b.VerifierKey(), b.dir) // all the time
	never := filepath.Join(t.TempDir(), "never")
	require.NoError(t, b.keep(never))
	verifier := must(note.NewVerifier(b.VerifierKey()))
	point := func() segment.Checkpoint { return must(segment.OpenCheckpoint(must(b.Checkpoint()), verifier)) }
	early, first := &chain.Past{Dir: b.dir}, point()
	b.ops("early", 1)
	require.NoError(t, early.Contains(t.Context(), first, point(), verifier))
	keep := func() {
		t.Helper()
		require.NoError(t, place.Keep(t.Context(), must(b.Checkpoint())))
		require.Contains(t, readFile(t, path), fmt.Sprintf("\n%d\n", b.Size()))
	}
	for i := range 3 {
		b.fill(fmt.Sprint(i))
		keep()
		b.ops(fmt.Sprintf("s%d", i), 3)
		keep()
	}
	b.ops("unseen", 3)
	b.fill("u")
	require.NoError(t, b.keep(path), "a restart, a whole segment later")
	old := readFile(t, never)
	require.NoError(t, b.keep(never), "all segments later")
	keep()

	require.NoError(t, os.WriteFile(never, []byte(old), 0o600))
	before := b.segments()
	require.NoError(t, b.Close())
	b.now = b.now.Add(48 * time.Hour)
	l, err := ledger.Open(ledger.Config{Dir: b.dir, Now: func() time.Time { return b.now }, KeepBytes: 1})
	require.NoError(t, err)
	b.Ledger = l
	t.Cleanup(func() { _ = l.Close() })
	require.Less(t, b.segments(), before)
	keep()
	require.NoError(t, b.Event(ledger.Event{Name: "one"}))
	require.NoError(t, b.keep(path), "after a restart")
	require.NoError(t, b.Event(ledger.Event{Name: "two"}))
	keep()

	// What is older than all that is left cannot be compared: it stays, and that is said.
	err = b.keep(never)
	require.ErrorIs(t, err, chain.ErrPruned)
	require.NotErrorIs(t, err, ErrRolledBack)
	require.ErrorIs(t, early.Contains(t.Context(), first, point(), verifier), chain.ErrPruned, "where it was going on")
	require.Equal(t, old, readFile(t, never))
	v, err := Verify(b.dir, []Kept{must(ReadKept(never))})
	require.NoError(t, err)
	require.True(t, v.OK)
	require.Equal(t, 1, v.Older)
}

// A checkpoint costs the records since the last one.
func TestPastGoesOn(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	verifier := must(note.NewVerifier(b.VerifierKey()))
	point := func() segment.Checkpoint { return must(segment.OpenCheckpoint(must(b.Checkpoint()), verifier)) }
	h := &chain.Past{Dir: b.dir}
	first := point()
	b.ops("a", 5)
	second := point()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Contains(ended, first, second, verifier), context.Canceled)
	require.NoError(t, h.Contains(t.Context(), first, second, verifier))
	require.NoError(t, h.Contains(t.Context(), first, second, verifier), "the file could not be written")
	log := filepath.Join(b.dir, fmt.Sprintf("%020d.log", 0))
	read := len(readFile(t, log))
	b.ops("b", 5)
	third := point()
	whole := []byte(readFile(t, log))
	hidden := append([]byte(nil), whole...)
	clear(hidden[read/2 : read]) // what was read is not read again
	require.NoError(t, os.WriteFile(log, hidden, 0o600))
	require.NoError(t, h.Contains(t.Context(), second, third, verifier))
	require.Error(t, (&chain.Past{Dir: b.dir}).Contains(t.Context(), second, third, verifier), "a restart reads it")
	require.NoError(t, os.WriteFile(log, whole, 0o600))

	// What is not there is no proof.
	b.ops("c", 1)
	fourth := point()
	fork := third
	fork.Root[0] ^= 1
	require.ErrorIs(t, h.Contains(t.Context(), fork, fourth, verifier), ErrRolledBack, "as large as what was read, and another")
	require.Error(t, (&chain.Past{}).Contains(t.Context(), third, fourth, verifier))
	require.ErrorIs(t, (&chain.Past{Dir: filepath.Join(b.dir, "none")}).Contains(t.Context(), third, fourth, verifier), os.ErrNotExist)
	more := fourth
	more.Size++
	require.ErrorIs(t, h.Contains(t.Context(), third, more, verifier), segment.ErrCorrupt)
	other := fourth
	other.Root[0] ^= 1
	require.ErrorIs(t, h.Contains(t.Context(), third, other, verifier), segment.ErrCorrupt, "signed, and not what the files have")
	require.NoError(t, h.Contains(t.Context(), third, fourth, verifier), "and then as ever")
	require.ErrorIs(t, h.Contains(t.Context(), fourth, third, verifier), ErrRolledBack)
}

// A ledger that was begun anew leaves the old one's checkpoint where it is.
func TestFileAfterAnAcceptedLoss(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.ops("a", 2)
	path := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, b.keep(path))
	kept := readFile(t, path)
	require.NoError(t, b.Close())
	require.NoError(t, os.Remove(filepath.Join(b.dir, fmt.Sprintf("%020d.log", 0))))
	must(ledger.AcceptLoss(ledger.Config{Dir: b.dir, Now: func() time.Time { return b.now }}))
	b.open()
	b.ops("b", 20)
	err := b.keep(path)
	require.ErrorIs(t, err, ErrOtherLedger)
	require.ErrorContains(t, err, "then move it and its .key away")
	require.NoError(t, os.Remove(path+".key"))
	require.ErrorIs(t, b.keep(path), ErrOtherLedger)
	require.Equal(t, kept, readFile(t, path))
	require.NoError(t, b.keep(path+".new"))
}

// A file that is no checkpoint, or not as it was signed, says nothing of the ledger.
func TestCheckpointThatIsNone(t *testing.T) {
	t.Parallel()
	b, other := newBook(t), newBook(t)
	b.ops("a", 2)
	good := string(must(b.Checkpoint()))
	edited := []byte(good)
	edited[len("lend/ledger/")+32+1]++ // its size
	path := filepath.Join(t.TempDir(), "kept")
	foreign := string(must(other.Checkpoint()))
	for text, want := range map[string]string{
		"": "not a checkpoint", "junk\n": "not a checkpoint", good[:40]: "not a checkpoint",
		"go.sum database tree\n1\nx\n\n— sum.golang.org Az3grkZhaXRo\n": "not a checkpoint",
		string(edited): "it was edited", good + "x": "not a checkpoint",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		for _, key := range []string{"", b.VerifierKey()} {
			_ = os.Remove(path + ".key")
			if key != "" {
				require.NoError(t, os.WriteFile(path+".key", []byte(key+"\n"), 0o600))
			}
			k, err := ReadKept(path)
			if err == nil { // only the ledger has the key
				require.Empty(t, key)
				_, err = Verify(b.dir, []Kept{k})
			}
			require.ErrorContains(t, err, want, "%q", text)
			require.ErrorContains(t, err, "checkpoint "+path)
		}
	}
	require.NoError(t, os.WriteFile(path, []byte(foreign), 0o600))
	_, err := ReadKept(path)
	require.ErrorContains(t, err, "it was signed with another key than "+path+".key has")
	for _, key := range []string{"", "nonsense"} {
		require.NoError(t, os.WriteFile(path+".key", []byte(key), 0o600))
		_, err = ReadKept(path)
		require.ErrorContains(t, err, path+".key is not the key of a ledger")
	}
	require.NoError(t, os.Remove(path+".key"))
	v, err := Verify(b.dir, []Kept{must(ReadKept(path))})
	require.NoError(t, err)
	require.False(t, v.OK, "another ledger's, or this one was made anew")
	require.Contains(t, v.Problem, "checkpoint "+path+" was not signed by this ledger's key")

	// Of a copy as well.
	require.NoError(t, b.Close())
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "checkpoint"), edited, 0o600))
	_, err = ReadKept(b.dir)
	require.ErrorIs(t, err, errEdited)
}
