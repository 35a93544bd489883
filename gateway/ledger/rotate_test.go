package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

// clock is a wall clock that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// tiny is a ledger whose segments hold a handful of records.
func tiny(dir string, c *clock) Config {
	return Config{Dir: dir, Now: c.now, segmentBytes: 3000}
}

func openWith(tb testing.TB, c Config) *Ledger {
	tb.Helper()
	l, err := Open(c)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// of is a claim of an operation in an invocation of its own number.
func of(tb testing.TB, invocation, n int) Claim {
	tb.Helper()
	c := testClaim(tb, n)
	c.Invocation = must(name.ParseInvocationID(fmt.Sprintf("run-%06d", invocation)))
	c.Lease = [16]byte{1, byte(invocation), byte(invocation >> 8)}
	return c
}

// run begins and ends an operation whose lease lasts an hour.
func run(tb testing.TB, l *Ledger, c Claim) {
	tb.Helper()
	out, err := l.Reserve(c)
	require.NoError(tb, err)
	require.Equal(tb, StateNone, out.State)
	s := testStart()
	s.LeaseNotAfter = l.now().Add(time.Hour)
	require.NoError(tb, out.Reservation.Start(context.Background(), s))
	require.NoError(tb, out.Reservation.End(End{State: StateEnded, Status: 7}))
}

func segments(tb testing.TB, dir string) []uint64 {
	tb.Helper()
	firsts, err := folder.Segments(dir)
	require.NoError(tb, err)
	return firsts
}

func glob(tb testing.TB, dir, pattern string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(tb, err)
	return files
}

// spec: LEDGER-28, LEDGER-29, LEDGER-32
func TestRotation(t *testing.T) {
	t.Parallel()
	dir, c := ledgerDir(t), &clock{at: testTime}
	l := openWith(t, tiny(dir, c))
	long := begin(t, l, of(t, 0, 999)) // over several segments
	const n = 60
	for i := range n {
		run(t, l, of(t, i/10, i))
		if i == 30 {
			require.NoError(t, long.End(End{State: StateEnded, Status: 9}))
		}
	}
	check := func(l *Ledger) {
		for i := range n {
			out, err := l.Reserve(of(t, i/10, i))
			require.NoError(t, err)
			require.Equal(t, StateEnded, out.State)
			require.Equal(t, 7, out.End.Status)
			require.Equal(t, of(t, i/10, i).Key, out.Start.Key)
		}
		require.Equal(t, 9, must(l.Lookup(of(t, 0, 999).Key)).End.Status)
		require.Equal(t, StateConflict, stateOf(t, l, testConflict(of(t, 0, 1))))
		require.Equal(t, 11, l.Operations(testPeer(t, 1), of(t, 0, 0).Lease))
		frozen, ok, err := l.Frozen(testPeer(t, 1), of(t, 0, 0).Invocation, testPeer(t, 2))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, of(t, 0, 0).Frozen, frozen)
	}
	check(l)
	firsts := segments(t, dir)
	require.Greater(t, len(firsts), 5)
	records := l.log.tree.Size()
	l.crash(t)

	l = openWith(t, tiny(dir, c))
	require.Equal(t, Recovery{Records: records}, l.Recovery(), "nothing was read again")
	check(l)
	l.crash(t)
	before := make(map[string][]byte)
	for _, f := range glob(t, dir, "*.index") {
		before[f] = must(os.ReadFile(f))
		require.NoError(t, os.Remove(f))
	}
	require.Len(t, before, len(firsts)-1)
	l = openWith(t, tiny(dir, c))
	require.Equal(t, Recovery{Records: records, Rebuilt: len(firsts) - 1}, l.Recovery())
	check(l)
	for f, b := range before {
		require.Equal(t, b, must(os.ReadFile(f)), "made again, the same")
	}
	point, err := l.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	report, err := Verify(dir, point)
	require.NoError(t, err)
	require.Equal(t, []uint64{0, records, records, n + 1, n + 1}, []uint64{report.From, report.Records, report.Covered, report.Starts, report.Ends})
	require.Equal(t, len(firsts), report.Segments)
	next := uint64(0)
	require.NoError(t, Walk(dir, func(e Entry) error {
		require.Equal(t, next, e.Index)
		next++
		return nil
	}))
	require.Equal(t, records, next)
	stop := errors.New("stop")
	require.ErrorIs(t, Walk(dir, func(Entry) error { return stop }), stop)
}

func testConflict(c Claim) Claim {
	c.Digest[0]++
	return c
}

// A snapshot that is not exactly the one of its segment costs a reading, no more.
// spec: LEDGER-32
func TestDamagedSnapshots(t *testing.T) {
	t.Parallel()
	dir, c := ledgerDir(t), &clock{at: testTime}
	l := openWith(t, tiny(dir, c))
	for i := range 30 {
		run(t, l, of(t, i, i))
	}
	l.crash(t)
	files := glob(t, dir, "*.index")
	good, other := must(os.ReadFile(files[1])), must(os.ReadFile(files[2]))
	bad := map[string][]byte{"empty": {}, "of-another-segment": other, "longer": append(slices.Clone(good), 0)}
	for at := 0; at < len(good); at += 7 {
		flipped := slices.Clone(good)
		flipped[at] ^= 1 << (at % 8)
		bad[fmt.Sprint("flip-", at)], bad[fmt.Sprint("cut-", at)] = flipped, good[:at]
	}
	for label, b := range bad {
		require.NoError(t, os.WriteFile(files[1], b, 0o600))
		l, err := Open(tiny(dir, c))
		require.NoError(t, err, label)
		require.Equal(t, 1, l.Recovery().Rebuilt, label)
		require.Equal(t, StateEnded, stateOf(t, l, of(t, 9, 9)))
		l.crash(t)
		require.Equal(t, good, must(os.ReadFile(files[1])), label)
	}
}

// What is missing, damaged or out of order among the segments opens nothing.
// spec: LEDGER-16, LEDGER-29
func TestDamagedChain(t *testing.T) {
	t.Parallel()
	dir, c := ledgerDir(t), &clock{at: testTime}
	l := openWith(t, tiny(dir, c))
	for i := range 40 {
		run(t, l, of(t, i, i))
	}
	require.NoError(t, l.Close())
	good := make(map[string][]byte)
	for _, f := range glob(t, dir, "*") {
		good[f] = must(os.ReadFile(f))
	}
	logs := glob(t, dir, "*.log")
	require.Greater(t, len(logs), 4)
	noIndex := func() {
		for _, f := range glob(t, dir, "*.index") {
			require.NoError(t, os.Remove(f))
		}
	}
	flip := func(at int) {
		b := slices.Clone(good[logs[1]])
		b[at] ^= 1
		require.NoError(t, os.WriteFile(logs[1], b, 0o600))
	}
	newest := logs[len(logs)-1]
	for label, change := range map[string]func(){
		"oldest-gone":  func() { require.NoError(t, os.Remove(logs[0])) },
		"one-gone":     func() { require.NoError(t, os.Remove(logs[2])) },
		"newest-gone":  func() { require.NoError(t, os.Remove(newest)) },
		"one-cut":      func() { require.NoError(t, os.WriteFile(logs[1], good[logs[1]][:len(good[logs[1]])-1], 0o600)) },
		"one-empty":    func() { require.NoError(t, os.WriteFile(logs[1], nil, 0o600)) },
		"newest-empty": func() { require.NoError(t, os.WriteFile(newest, nil, 0o600)) },
		"one-longer": func() {
			require.NoError(t, os.WriteFile(logs[1], append(slices.Clone(good[logs[1]]), 0), 0o600))
		},
		"swapped": func() {
			require.NoError(t, os.WriteFile(logs[1], good[logs[2]], 0o600))
		},
		"first-record": func() { flip(100) },
		"flip":         func() { noIndex(); flip(len(good[logs[1]]) / 2) },
		"old-checkpoint": func() {
			h, err := chain.ReadHead(dir, segments(t, dir)[2])
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), h.Segment.Point, 0o600))
		},
		"unknown-segment": func() {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "00000000000000099999.log"), nil, 0o600))
		},
	} {
		change()
		_, err := Open(tiny(dir, c))
		require.ErrorIs(t, err, ErrCorrupt, label)
		if label != "old-checkpoint" { // Verify has it from the segments
			_, err = Verify(dir)
			require.ErrorIs(t, err, ErrCorrupt, label)
		}
		for f, b := range good {
			require.NoError(t, os.WriteFile(f, b, 0o600))
		}
		_ = os.Remove(filepath.Join(dir, "00000000000000099999.log"))
	}
	// Behind a snapshot, damage is found by Verify and by whoever reads it.
	flip(len(good[logs[1]]) / 2)
	l = openWith(t, tiny(dir, c))
	_, err := Verify(dir)
	require.ErrorIs(t, err, ErrCorrupt)
	corrupt := 0
	for i := range 40 {
		if _, err := l.Reserve(of(t, i, i)); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			corrupt++
		}
	}
	require.Equal(t, 1, corrupt)
}

// Pruned invocations start nothing more, whatever lease, clock or restart comes;
// what still protects stays. spec: LEDGER-30, LEDGER-31
func TestPruning(t *testing.T) {
	t.Parallel()
	dir, c := ledgerDir(t), &clock{at: testTime}
	cfg := tiny(dir, c)
	cfg.KeepBytes = 1
	l := openWith(t, cfg)
	const n = 20
	for i := range n {
		run(t, l, of(t, i, i))
	}
	point, err := l.Checkpoint()
	require.NoError(t, err)
	size := l.log.tree.Size()
	c.add(26*time.Hour - time.Minute) // the last lease ended less than 25 h ago
	for i := range n {
		run(t, l, of(t, 100+i, 100+i))
	}
	require.Zero(t, segments(t, dir)[0], "all protect")
	run(t, l, of(t, 15, 1000)) // a new lease for an old invocation
	running := begin(t, l, of(t, 18, 2000))
	c.add(2 * time.Minute)
	for i := range n {
		run(t, l, of(t, 200+i, 200+i))
	}
	from := segments(t, dir)[0]
	require.Positive(t, from)
	require.Equal(t, StateEnded, stateOf(t, l, of(t, 15, 15)), "renewed")
	require.Equal(t, StateRunning, stateOf(t, l, of(t, 18, 2000)))
	require.NoError(t, running.End(End{State: StateEnded}))

	c.add(26 * time.Hour)
	for i := range n {
		run(t, l, of(t, 300+i, 300+i))
	}
	require.Greater(t, segments(t, dir)[0], size)
	check := func(l *Ledger) {
		for i := range n {
			old := of(t, i, i)
			require.Equal(t, StateClosed, stateOf(t, l, old), "the same again")
			require.Equal(t, StateClosed, must(l.Lookup(old.Key)).State)
			require.Equal(t, StateClosed, stateOf(t, l, of(t, i, 5000+i)), "another operation")
			old.Lease, old.MaxOperations = [16]byte{77}, 1
			require.Equal(t, StateClosed, stateOf(t, l, old), "another lease")
			_, ok, err := l.Frozen(old.Issuer, old.Invocation, old.Holder)
			require.NoError(t, err)
			require.False(t, ok)
			if i != 15 && i != 18 { // their newer segment is kept
				require.Zero(t, l.Operations(old.Issuer, of(t, i, 0).Lease))
			}
			require.Equal(t, StateEnded, stateOf(t, l, of(t, 300+i, 300+i)))
		}
		require.Equal(t, StateNone, stateOf(t, l, of(t, 9000, 1)), "another invocation")
	}
	check(l)
	rows := len(l.views.places) + len(l.views.scopes) + len(l.views.operations)
	require.NoError(t, l.Close())
	c.add(-40 * time.Hour) // the clock was wrong
	l = openWith(t, cfg)
	check(l)
	require.Equal(t, rows, len(l.views.places)+len(l.views.scopes)+len(l.views.operations), "as if it had been read")
	require.NoError(t, l.Close())

	report, err := Verify(dir, point)
	require.NoError(t, err)
	require.Equal(t, segments(t, dir)[0], report.From)
	require.Equal(t, 1, report.Older)
	require.GreaterOrEqual(t, report.Closed, uint64(n))
	require.Equal(t, report.Records, report.Covered)

	closed := filepath.Join(dir, "closed")
	good := must(os.ReadFile(closed))
	for _, bad := range [][]byte{nil, good[:len(good)-1], append([]byte{^good[0]}, good[1:]...)} {
		require.NoError(t, os.WriteFile(closed, bad, 0o600))
		_, err := Open(cfg)
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = Verify(dir)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	require.NoError(t, os.Remove(closed))
	_, err = Open(cfg)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, os.WriteFile(closed, append(good, "more"...), 0o600))
	check(openWith(t, cfg))
}

// Opening prunes what became old meanwhile. spec: LEDGER-30
func TestPruningAtOpen(t *testing.T) {
	t.Parallel()
	dir, c := ledgerDir(t), &clock{at: testTime}
	cfg := tiny(dir, c)
	l := openWith(t, cfg)
	for i := range 20 {
		run(t, l, of(t, i, i))
	}
	require.NoError(t, l.Close())
	c.add(48 * time.Hour)
	cfg.KeepFor = 72 * time.Hour
	l = openWith(t, cfg)
	require.Zero(t, segments(t, dir)[0], "not old enough")
	require.NoError(t, l.Close())
	cfg.KeepFor = 24 * time.Hour
	l = openWith(t, cfg)
	require.Len(t, segments(t, dir), 2)
	require.Equal(t, StateClosed, stateOf(t, l, of(t, 0, 0)))
	require.NoError(t, l.Close())
	_, err := Verify(dir)
	require.NoError(t, err)
}

// world ends at a step: everything after it fails, and what was done stays.
type world struct {
	mu   sync.Mutex
	at   int // step that fails; 0 never
	once error
	n    int
	log  []string
}

var errEnd = errors.New("the world ended")

func (w *world) step(what, base string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.log = append(w.log, what+" "+base)
	switch {
	case w.once != nil && w.n == w.at:
		return w.once
	case w.once == nil && w.at > 0 && w.n >= w.at:
		return errEnd
	}
	return nil
}

// stepped is a segment whose changes are steps.
type stepped struct {
	folder.File
	w *world
}

func (s stepped) WriteAt(b []byte, off int64) (int, error) {
	if err := s.w.step("write", "active"); err != nil {
		n, _ := s.File.WriteAt(b[:len(b)/3], off) // some of it
		return n, err
	}
	return s.File.WriteAt(b, off)
}

func (s stepped) Datasync() error {
	if err := s.w.step("sync", "active"); err != nil {
		return err
	}
	return s.File.Datasync()
}

func (s stepped) Truncate(size int64) error {
	if err := s.w.step("cut", "active"); err != nil {
		return err
	}
	return s.File.Truncate(size)
}

func (w *world) in(c Config) Config {
	c.step = w.step
	c.openFile = func(dir string, first uint64, flag int) (folder.File, error) {
		f, err := folder.Open(dir, first, flag)
		return stepped{f, w}, err
	}
	return c
}

// told is what the caller of a ledger was told of each operation.
type told map[int]State

// workload rotates and prunes: two generations of invocations, 30 h apart.
func workload(t *testing.T, l *Ledger, c *clock, was told) {
	t.Helper()
	for i := range 24 {
		if i == 12 {
			c.add(30 * time.Hour)
		}
		out, err := l.Reserve(of(t, i, i))
		if err != nil || out.State != StateNone {
			continue
		}
		s := testStart()
		s.LeaseNotAfter = l.now().Add(time.Hour)
		err = out.Reservation.Start(t.Context(), s)
		switch {
		case err == nil:
			was[i] = StateRunning
		case errors.Is(err, ErrFailed):
			was[i] = StatePending // it may be recorded
		}
		if err == nil && out.Reservation.End(End{State: StateEnded}) == nil {
			was[i] = StateEnded
		}
	}
}

// holds checks that nothing is forgotten that somebody was told.
func holds(t *testing.T, l *Ledger, was told, label string) {
	t.Helper()
	for i, state := range was {
		got := stateOf(t, l, of(t, i, i))
		switch {
		case got == StateClosed:
			require.Less(t, i, 12, label)
			continue
		case state == StatePending:
			require.Contains(t, []State{StateNone, StateUnknown}, got, label)
		case state == StateRunning:
			require.Contains(t, []State{StateUnknown, StateEnded}, got, label)
		default:
			require.Equal(t, state, got, "%s: operation %d", label, i)
		}
	}
}

// The process is killed at every change that rotation, snapshots and pruning make
// to the directory, and once more at every change that the next Open makes.
// spec: LEDGER-28, LEDGER-30, LEDGER-31, LEDGER-32
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	full := &world{}
	play := func(w *world, dir string) (Config, told) {
		c, was := &clock{at: testTime}, told{}
		cfg := tiny(dir, c)
		cfg.KeepBytes = 1
		l, err := Open(w.in(cfg))
		if err != nil {
			require.ErrorIs(t, err, errEnd)
			return cfg, was
		}
		workload(t, l, c, was)
		l.crash(t)
		return cfg, was
	}
	_, was := play(full, ledgerDir(t))
	require.Len(t, was, 24)
	text := strings.Join(full.log, "\n")
	for _, step := range []string{"rename 00000000000000000020.index", "rename 00000000000000000020.log", "remove 00000000000000000000.log", "cut closed"} {
		require.Contains(t, text, step)
	}
	top := t.TempDir()
	for at := 1; at <= full.n; at++ {
		label := fmt.Sprintf("step %d: %s", at, full.log[at-1])
		dir := filepath.Join(top, fmt.Sprint(at))
		cfg, was := play(&world{at: at}, dir)
		second := &world{at: 1 + at%5}
		if l, err := Open(second.in(cfg)); err == nil {
			holds(t, l, was, label)
			l.crash(t)
		}
		l, err := Open(cfg)
		require.NoError(t, err, label)
		holds(t, l, was, label)
		require.NoError(t, l.Close())
		_, err = Verify(dir)
		require.NoError(t, err, label)
	}
}

// The disk is full at each change: nothing is lost, and if the ledger has to fail, it
// says so. spec: LEDGER-23, LEDGER-25, LEDGER-28
func TestFullDiskAtEveryStep(t *testing.T) {
	t.Parallel()
	full := &world{}
	top, total := t.TempDir(), 1
	failed := make(map[string]bool)
	for at := 0; at < total; at++ {
		w := &world{at: at, once: syscall.ENOSPC}
		if at == 0 {
			w = full
		}
		dir := filepath.Join(top, fmt.Sprint(at))
		c, was := &clock{at: testTime}, told{}
		cfg := tiny(dir, c)
		cfg.KeepBytes = 1
		l, err := Open(w.in(cfg))
		if err != nil {
			l = openWith(t, cfg)
		}
		workload(t, l, c, was)
		if l.Err() != nil {
			failed[w.log[at-1]] = true
		}
		holds(t, l, maps.Collect(func(yield func(int, State) bool) {
			for i, s := range was {
				if s == StateEnded && !yield(i, s) {
					return
				}
			}
		}), "alive")
		l.crash(t)
		l = openWith(t, cfg)
		holds(t, l, was, fmt.Sprint("full at ", at))
		require.NoError(t, l.Close())
		_, err = Verify(dir)
		require.NoError(t, err)
		total = max(total, full.n+1)
	}
	for step := range failed {
		require.Contains(t, []string{"sync .", "sync active", "cut active", "remove reserve"}, step)
	}
}

// A failed ledger is not built upon. spec: LEDGER-23
func TestFailedLedgerIsNotRotated(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l, f := openFaulty(t, dir)
	r := reserve(t, l, 1)
	f.set(func() { f.write, f.cut = short(f, syscall.ENOSPC), func(int64) error { return errEnd } })
	require.ErrorIs(t, r.Start(t.Context(), testStart()), ErrFailed)
	l.cfg.segmentBytes = 1
	require.NoError(t, l.rotateIfDue())
	require.Len(t, segments(t, dir), 1)
	require.ErrorIs(t, l.Close(), ErrFailed)
	mustOpen(t, dir)
}

// Without a descriptor for the new segment, the old one goes on. spec: LEDGER-28
func TestNoDescriptorForARotation(t *testing.T) {
	t.Parallel()
	c, refused := &clock{at: testTime}, 0
	cfg := tiny(ledgerDir(t), c)
	cfg.openFile = func(dir string, first uint64, flag int) (folder.File, error) {
		if first > 0 && refused == 0 {
			refused++
			return nil, syscall.EMFILE
		}
		return folder.Open(dir, first, flag)
	}
	l := openWith(t, cfg)
	for i := range 12 {
		run(t, l, of(t, i, i))
	}
	require.Equal(t, 1, refused)
	require.Len(t, segments(t, cfg.Dir), 1, "taken back")
	l.log.retryAt = 0
	run(t, l, of(t, 12, 12))
	require.Len(t, segments(t, cfg.Dir), 2)
	l.crash(t)
	l = openWith(t, cfg)
	require.Equal(t, StateEnded, stateOf(t, l, of(t, 3, 3)))
	require.NoError(t, l.Close())
	_, err := Verify(cfg.Dir)
	require.NoError(t, err)
}

// A record is read at any time while segments come and go.
func TestReadersWhileRotating(t *testing.T) {
	t.Parallel()
	dir, c := ledgerDir(t), &clock{at: testTime}
	cfg := tiny(dir, c)
	cfg.KeepBytes = 20_000
	l := openWith(t, cfg)
	run(t, l, of(t, 0, 0))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := l.Lookup(of(t, 0, 0).Key)
				if i == 0 {
					err = errors.Join(err, l.Walk(func(Entry) error { return nil }))
				}
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					errs[i] = err
					return
				}
			}
		})
	}
	for i := 1; i < 400; i++ {
		run(t, l, of(t, i, i))
		c.add(time.Hour)
	}
	close(stop)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, StateClosed, stateOf(t, l, of(t, 0, 0)))
	_, err := segment.ReadFrame(l.log.f, 0)
	require.NoError(t, err)
}
