package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
)

// fakeLedger is a size that grows, and a signature that says so.
type fakeLedger struct {
	mu     sync.Mutex
	size   uint64
	signed int
	err    error
	events []string
}

func (f *fakeLedger) grow(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size += n
}

func (f *fakeLedger) Sign() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signed++
	return fmt.Appendf(nil, "origin\n%d\nroot\n", f.size), f.err
}

func (f *fakeLedger) Size() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

func (f *fakeLedger) Event(e ledger.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size++
	f.events = append(f.events, e.Name+" "+e.Facts["where"]+e.Facts["problem"])
}

func (f *fakeLedger) config(places ...Place) KeeperConfig {
	return KeeperConfig{Sign: f.Sign, Size: f.Size, Event: f.Event, Places: places, Key: "key"}
}

// fakePlace is a second place that can be made to fail, or to wait.
type fakePlace struct {
	mu   sync.Mutex
	kept []uint64
	err  error
	wait chan struct{} // nil: at once
	deaf bool          // it does not listen to its context
}

func (p *fakePlace) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *fakePlace) sizes() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]uint64(nil), p.kept...)
}

func (p *fakePlace) place(name string) Place {
	return Place{Name: name, Keep: func(ctx context.Context, signed []byte) error {
		if p.wait != nil {
			select {
			case <-p.wait:
			case <-ctx.Done():
				if !p.deaf {
					return context.Cause(ctx)
				}
				<-p.wait
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil {
			p.kept = append(p.kept, sizeOf(signed))
		}
		return p.err
	}}
}

func TestKeeperKeepsWhatIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := &fakeLedger{size: 3}, &fakePlace{}
		k := NewKeeper(l.config(p.place("here")))
		synctest.Wait()
		require.Equal(t, []uint64{3}, p.sizes(), "at once")
		require.Equal(t, []string{"checkpoint.kept here"}, l.events)
		time.Sleep(keepEvery + time.Second)
		synctest.Wait()
		require.Equal(t, []uint64{3, 4}, p.sizes(), "with the record of the first, which is news")
		time.Sleep(10 * keepEvery)
		synctest.Wait()
		require.Equal(t, []uint64{3, 4}, p.sizes(), "nothing is recorded, so nothing is signed")
		require.Equal(t, 2, l.signed)
		l.grow(5)
		time.Sleep(keepEvery)
		synctest.Wait()
		require.Equal(t, []uint64{3, 4, 9}, p.sizes())
		require.Equal(t, uint64(9), k.Newest().Records)
		require.Equal(t, uint64(9), k.Places()[0].Records)
		require.Equal(t, "key", k.Key())
		l.grow(1)
		require.NoError(t, k.Close())
		require.Equal(t, []uint64{3, 4, 9, 10}, p.sizes(), "the last one")
		require.NoError(t, k.Close())
		_, err := k.Now(t.Context())
		require.ErrorIs(t, err, os.ErrClosed)
		require.Len(t, l.events, 1)
	})
}

// A place that is stuck holds nothing up, and gets the newest when it is not.
func TestKeeperStuckPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, good, stuck := &fakeLedger{size: 1}, &fakePlace{}, &fakePlace{wait: make(chan struct{}), deaf: true}
		var log bytes.Buffer
		c := l.config(good.place("good"), stuck.place("stuck"))
		c.Log = zerolog.New(&log).Level(zerolog.InfoLevel)
		k := NewKeeper(c)
		time.Sleep(keepEvery / 2)
		for range 10 {
			l.grow(1)
			time.Sleep(keepEvery)
		}
		synctest.Wait()
		require.Greater(t, len(good.sizes()), 9)
		require.Empty(t, stuck.sizes())
		now, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		got, err := k.Now(now)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(begun), "who asks waits as long as it wants to")
		require.Equal(t, "it does not return", k.Places()[1].Problem)
		require.Equal(t, []string{"checkpoint.kept good", "degraded stuckit does not return"}, l.events, "said once")
		require.Contains(t, log.String(), "checkpoints are not kept")

		close(stuck.wait)
		synctest.Wait()
		require.Equal(t, got.Records, stuck.sizes()[1], "the first, and then the newest")
		require.Len(t, stuck.sizes(), 2)
		require.Empty(t, k.Places()[1].Problem)
		require.Equal(t, "recovered stuck", l.events[2])
		require.NoError(t, k.Close())
	})
}

// Starts do not wait for a place that is stuck, nor do checkpoints of the ledger's own.
func TestStartsDoNotWaitForAPlace(t *testing.T) {
	t.Parallel()
	b, stuck := newBook(t), &fakePlace{wait: make(chan struct{}), deaf: true}
	k := NewKeeper(KeeperConfig{
		Sign: b.Checkpoint, Size: b.Size, Key: b.VerifierKey(), Places: []Place{stuck.place("stuck")},
		Every: time.Millisecond, Patience: time.Millisecond, Event: func(e ledger.Event) { _ = b.Event(e) },
	})
	for n := 0; k.Places()[0].Problem == "" || n < 100; n++ {
		b.end(b.start(fmt.Sprintf("op-%016d", n), "{}"), 0)
	}
	require.Empty(t, stuck.sizes())
	require.Positive(t, k.Newest().Records)
	close(stuck.wait)
	require.NoError(t, k.Close())
	require.Equal(t, k.Newest().Records, stuck.sizes()[len(stuck.sizes())-1])
	v, err := Verify(b.dir, []Kept{{Name: "kept", Note: []byte(k.Newest().Signed)}})
	require.NoError(t, err)
	require.True(t, v.OK, v.Problem)
	require.Zero(t, v.NotCovered, "nothing is recorded after the last one")
}

func TestKeeperPlaceThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := &fakeLedger{size: 1}, &fakePlace{err: errors.New("disk \x1b[2J gone")}
		k := NewKeeper(l.config(p.place("here")))
		time.Sleep(5*keepEvery + keepEvery/2)
		synctest.Wait()
		require.Equal(t, []string{`degraded here"disk \x1b[2J gone"`}, l.events, "once, and escaped")
		st := k.Places()[0]
		require.Zero(t, st.Records)
		require.Equal(t, 5*keepEvery+keepEvery/2, time.Since(st.Since))
		c, err := k.Now(t.Context())
		require.NoError(t, err, "there is one all the same")
		require.Equal(t, uint64(2), c.Records)
		p.set(nil)
		time.Sleep(keepEvery)
		synctest.Wait()
		require.Equal(t, []uint64{2}, p.sizes(), "it is tried again, though nothing is new")
		p.set(errors.New("again"))
		l.grow(1)
		require.ErrorContains(t, k.Close(), "keep the last checkpoint in here: again")
	})
}

// A place that never returns is left behind, and said.
func TestKeeperClosesInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := &fakeLedger{size: 1}, &fakePlace{wait: make(chan struct{}), deaf: true}
		k := NewKeeper(l.config(p.place("here")))
		synctest.Wait()
		begun := time.Now()
		require.ErrorIs(t, k.Close(), errStuck)
		require.LessOrEqual(t, time.Since(begun), lastBudget+time.Second)
		close(p.wait)
		k.keepers.Wait()
	})
	synctest.Test(t, func(t *testing.T) { // one that listens is ended
		l, p := &fakeLedger{size: 1}, &fakePlace{wait: make(chan struct{})}
		k := NewKeeper(l.config(p.place("here")))
		require.ErrorContains(t, k.Close(), "keep the last checkpoint in here: context canceled")
	})
}

func TestKeeperWithoutSignature(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := &fakeLedger{size: 1, err: errors.New("full")}, &fakePlace{}
		var log bytes.Buffer
		c := l.config(p.place("here"))
		c.Log = zerolog.New(&log)
		k := NewKeeper(c)
		synctest.Wait()
		require.Contains(t, log.String(), "no checkpoint of the ledger")
		_, err := k.Now(t.Context())
		require.ErrorContains(t, err, "make checkpoint: full")
		require.ErrorContains(t, k.Close(), "full")
		require.Empty(t, p.sizes())
		require.Zero(t, sizeOf([]byte("x")))
	})
}

func TestFile(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "lend.checkpoint")
	place := File(path, b.VerifierKey(), b.dir)
	require.Equal(t, "file "+path, place.Name)
	keep := func() error { return place.Keep(t.Context(), must(b.Checkpoint())) }
	require.NoError(t, keep())
	first := readFile(t, path)
	require.Equal(t, b.VerifierKey()+"\n", readFile(t, path+".key"))
	info := must(os.Stat(path))
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, keep(), "the same again")
	b.end(b.start("op-0000000000000001", "{}"), 0)
	older := must(b.Checkpoint())
	require.NoError(t, keep())
	require.NotEqual(t, first, readFile(t, path))
	b.end(b.start("op-0000000000000002", "{}"), 0)
	require.NoError(t, keep())
	newest := readFile(t, path)
	require.Len(t, must(os.ReadDir(dir)), 2, "nothing else is left there")

	// What is there is not replaced by what is not later, or not of this ledger.
	require.ErrorIs(t, place.Keep(t.Context(), older), ErrRolledBack)
	other := newBook(t)
	require.ErrorIs(t, File(path, other.VerifierKey(), other.dir).Keep(t.Context(), must(other.Checkpoint())), ErrOtherLedger)
	require.Error(t, place.Keep(t.Context(), must(other.Checkpoint())))
	require.Error(t, place.Keep(t.Context(), []byte("garbage")))
	require.Error(t, File(path, "no key", b.dir).Keep(t.Context(), older))
	require.Equal(t, newest, readFile(t, path))
	require.NoError(t, os.WriteFile(path, []byte("somebody else's file\n"), 0o600))
	require.ErrorIs(t, keep(), ErrOtherLedger)
	require.Equal(t, "somebody else's file\n", readFile(t, path))
	require.NoError(t, os.Remove(path))
	require.NoError(t, keep())

	// A key alone is enough to know that it was another ledger's.
	alone := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.WriteFile(alone+".key", []byte(other.VerifierKey()), 0o600))
	require.ErrorIs(t, File(alone, b.VerifierKey(), b.dir).Keep(t.Context(), must(b.Checkpoint())), ErrOtherLedger)
	require.NoFileExists(t, alone)

	require.Error(t, File(filepath.Join(dir, "none", "x"), b.VerifierKey(), b.dir).Keep(t.Context(), older))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	require.Error(t, File(filepath.Join(dir, "dir"), b.VerifierKey(), b.dir).Keep(t.Context(), older))
}

// The same size with another root is a ledger that went another way.
func TestFileOfAFork(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	require.NoError(t, b.Close())
	fork := &book{tb: t, dir: filepath.Join(t.TempDir(), "fork"), now: b.now.Add(time.Hour)}
	require.NoError(t, os.CopyFS(fork.dir, os.DirFS(b.dir)))
	require.NoError(t, os.Chmod(fork.dir, 0o700))
	for _, e := range must(os.ReadDir(fork.dir)) {
		require.NoError(t, os.Chmod(filepath.Join(fork.dir, e.Name()), 0o600))
	}
	b.open()
	fork.open()
	b.start("op-0000000000000001", "{}")
	fork.start("op-0000000000000002", "{}")
	path := filepath.Join(t.TempDir(), "kept")
	place := File(path, b.VerifierKey(), b.dir)
	require.NoError(t, place.Keep(t.Context(), must(b.Checkpoint())))
	require.Equal(t, b.Size(), fork.Size())
	require.ErrorIs(t, place.Keep(t.Context(), must(fork.Checkpoint())), ErrRolledBack)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.end(b.start("op-0000000000000001", "{}"), 0)
	path := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, File(path, b.VerifierKey(), b.dir).Keep(t.Context(), must(b.Checkpoint())))
	require.NoError(t, b.Refuse(ledger.Refusal{Reason: "DENIED"}))
	require.NoError(t, b.Event(ledger.Event{Name: "lockdown.on"}))
	b.start("op-0000000000000002", "{}")
	require.NoError(t, b.Close())

	kept := must(ReadKept(path))
	require.Equal(t, b.VerifierKey(), kept.Key)
	v, err := Verify(b.dir, []Kept{kept})
	require.NoError(t, err)
	require.Equal(t, Verdict{
		SchemaVersion: 1, OK: true, Directory: b.dir, Ledger: v.Ledger, Key: b.VerifierKey(), Begun: b.now, Root: v.Root,
		Records: 6, Segments: 1, Covered: 6, KeptElsewhere: 3, NotCovered: 3, Starts: 2, Ends: 1, Refusals: 1, Events: 1, Running: 1,
	}, v)
	v, err = Verify(b.dir, nil)
	require.NoError(t, err)
	require.True(t, v.OK)
	require.Equal(t, uint64(6), v.NotCovered)

	// The checkpoint of another copy of the ledger is one from outside too.
	own := must(ReadKept(b.dir))
	v, err = Verify(b.dir, []Kept{own, kept})
	require.NoError(t, err)
	require.Zero(t, v.NotCovered)

	other := newBook(t)
	v, err = Verify(b.dir, []Kept{{Name: "--key", Key: other.VerifierKey()}})
	require.NoError(t, err)
	require.False(t, v.OK)
	require.Zero(t, *v.Index)
	require.Contains(t, v.Problem, "the ledger has another key than --key")

	log := filepath.Join(b.dir, fmt.Sprintf("%020d.log", 0))
	whole := []byte(readFile(t, log))
	require.NoError(t, os.WriteFile(log, bytes.Replace(whole, []byte("lockdown.on"), []byte("lockdown.of"), 1), 0o600))
	v, err = Verify(b.dir, []Kept{kept})
	require.NoError(t, err)
	require.False(t, v.OK)
	require.Equal(t, uint64(4), *v.Index)
	require.Equal(t, "checksum", v.Problem)
	require.Equal(t, uint64(3), v.KeptElsewhere)

	_, err = Verify(filepath.Join(b.dir, "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	v, err = Verify(t.TempDir(), nil)
	require.NoError(t, err)
	require.Equal(t, "there is no record", v.Problem)
	_, err = Verify(b.dir, make([]Kept, MaxCheckpoints+1))
	require.Error(t, err)
	for _, bad := range []string{filepath.Join(b.dir, "none"), t.TempDir(), os.DevNull, log} {
		if bad == log {
			require.NoError(t, os.WriteFile(log, make([]byte, 5000), 0o600))
		}
		_, err = ReadKept(bad)
		require.Error(t, err, bad)
	}
}
