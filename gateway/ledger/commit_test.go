package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// faulty is a segment whose calls can be made to fail, or to wait.
type faulty struct {
	folder.File
	mu      sync.Mutex
	write   func(b []byte, off int64) (int, error) // nil: the real one
	sync    func() error
	cut     func(size int64) error
	syncs   int
	durable int64 // size when the last sync began
}

func (f *faulty) WriteAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	write := f.write
	f.mu.Unlock()
	if write != nil {
		return write(b, off)
	}
	return f.File.WriteAt(b, off)
}

func (f *faulty) Datasync() error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.syncs++
	wait := f.sync
	f.mu.Unlock()
	if wait != nil {
		if err := wait(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.durable = max(f.durable, size)
	f.mu.Unlock()
	return f.File.Datasync()
}

func (f *faulty) Truncate(size int64) error {
	f.mu.Lock()
	cut := f.cut
	f.mu.Unlock()
	if cut != nil {
		return cut(size)
	}
	return f.File.Truncate(size)
}

func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func openFaulty(t *testing.T, dir string) (*Ledger, *faulty) {
	t.Helper()
	f := new(faulty) // of one segment
	l, err := Open(Config{Dir: dir, Now: testNow, segmentBytes: 1 << 40, openFile: func(dir string, first uint64, flag int) (folder.File, error) {
		var err error
		f.File, err = folder.Open(dir, first, flag)
		return f, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, f
}

func reserve(t *testing.T, l *Ledger, n int) *Reservation {
	t.Helper()
	out, err := l.Reserve(testClaim(t, n))
	require.NoError(t, err)
	require.Equal(t, StateNone, out.State)
	return out.Reservation
}

// await waits until the next group has n who wait.
func await(l *Ledger, n int) {
	for {
		l.mu.Lock()
		there := l.next != nil && l.next.waiters == n
		l.mu.Unlock()
		if there {
			return
		}
		runtime.Gosched()
	}
}

// Starts that arrive while another one is being made durable share the next sync,
// and each returns only when its own record is durable. spec: LEDGER-21
func TestStartsShareOneSync(t *testing.T) {
	t.Parallel()
	l, f := openFaulty(t, ledgerDir(t))
	entered, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.set(func() {
		f.syncs = 0
		f.sync = func() error {
			once.Do(func() { close(entered); <-gate })
			return nil
		}
	})
	const n = 20
	var wg sync.WaitGroup
	errs := make([]error, n+1)
	start := func(i int) {
		r := reserve(t, l, i)
		wg.Go(func() {
			errs[i] = r.Start(context.Background(), testStart())
			l.mu.Lock()
			at := l.views.places[r.op.hash].start
			l.mu.Unlock()
			f.set(func() {
				if f.durable <= at {
					errs[i] = errors.New("not durable")
				}
			})
		})
	}
	start(0)
	<-entered
	for i := 1; i <= n; i++ {
		start(i)
	}
	await(l, n)
	require.NoError(t, l.Event(Event{Name: "meanwhile"}), "an event does not wait")
	close(gate)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	f.set(func() { require.Equal(t, 2, f.syncs) })
	require.NoError(t, l.Close())
	require.Equal(t, Recovery{Records: n + 3 + n + 1, Unknown: n + 1}, mustOpen(t, l.cfg.Dir).Recovery())
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	var wg sync.WaitGroup
	errs := make(chan error, 16*20)
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				out, err := l.Reserve(testClaim(t, g*100+i))
				if err == nil {
					err = out.Reservation.Start(context.Background(), testStart())
				}
				if err == nil {
					err = out.Reservation.End(End{State: StateEnded, Status: i})
				}
				errs <- errors.Join(err, l.Refuse(Refusal{Reason: "BUSY"}))
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	point, err := l.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	report, err := Verify(dir, point)
	require.NoError(t, err)
	require.Equal(t, []uint64{320, 320, 320, 961}, []uint64{report.Starts, report.Ends, report.Refusals, report.Records})
	require.Equal(t, 0, mustOpen(t, dir).Recovery().Unknown)
}

// Fifty identical requests: one is new, the others wait for it.
func TestOneOfManyIsNew(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	var wg sync.WaitGroup
	states := make([][]State, 50)
	for i := range states {
		wg.Go(func() {
			for {
				out, err := l.Reserve(testClaim(t, 1))
				if err != nil {
					return
				}
				states[i] = append(states[i], out.State)
				switch out.State {
				case StateNone:
					if out.Reservation.Start(context.Background(), testStart()) != nil {
						return
					}
				case StatePending:
					<-out.Settled
				default:
					return
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(states...)
	require.Equal(t, 1, count(all, StateNone))
	require.Equal(t, 50, count(all, StateRunning))
}

func count(all []State, want State) (n int) {
	for _, s := range all {
		if s == want {
			n++
		}
	}
	return n
}

// spec: LEDGER-23
func TestFailedLedgerTakesNoStart(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for label, c := range map[string]struct {
		fault func(*faulty)
		after State // after Open
	}{
		"sync":        {func(f *faulty) { f.sync = func() error { return broken } }, StateUnknown},
		"write":       {func(f *faulty) { f.write = func([]byte, int64) (int, error) { return 0, broken } }, StateNone},
		"short-write": {func(f *faulty) { f.write = short(f, broken) }, StateNone},
		"cut": {func(f *faulty) {
			f.write, f.cut = short(f, syscall.ENOSPC), func(int64) error { return broken }
		}, StateNone},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir := ledgerDir(t)
			l, f := openFaulty(t, dir)
			running := begin(t, l, testClaim(t, 1))
			first, second := reserve(t, l, 2), reserve(t, l, 3)
			var waiting []Outcome
			for n := range 2 {
				out, err := l.Reserve(testClaim(t, n+2))
				require.NoError(t, err)
				waiting = append(waiting, out)
			}
			f.set(func() { c.fault(f) })
			require.ErrorIs(t, first.Start(t.Context(), testStart()), ErrFailed)
			f.set(func() { f.write, f.sync, f.cut = nil, nil, nil })
			require.ErrorIs(t, second.Start(t.Context(), testStart()), ErrFailed, "it does not come back by itself")
			for _, w := range waiting {
				<-w.Settled
			}
			_, err := l.Reserve(testClaim(t, 4))
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, l.Err(), ErrFailed)
			require.ErrorIs(t, l.Flush(), ErrFailed)
			require.Error(t, l.Event(Event{Name: "x"}))
			require.ErrorIs(t, running.End(End{State: StateEnded}), ErrFailed)
			require.Equal(t, StateEnded, must(l.Lookup(testKey(t, 1))).State, "known while the process lives")
			require.ErrorIs(t, l.Close(), ErrFailed)
			l = mustOpen(t, dir)
			require.Equal(t, StateUnknown, stateOf(t, l, testClaim(t, 1)))
			require.Equal(t, c.after, stateOf(t, l, testClaim(t, 2)))
			require.Equal(t, StateNone, stateOf(t, l, testClaim(t, 3)))
		})
	}
}

// short writes the first half, then fails.
func short(f *faulty, err error) func([]byte, int64) (int, error) {
	return func(b []byte, off int64) (int, error) {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
}

// On a full disk starts and refusals are refused, ends and events are kept in the
// reserve, and it goes on by itself once there is room. spec: LEDGER-24, LEDGER-25
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l, f := openFaulty(t, dir)
	running := begin(t, l, testClaim(t, 1))
	reservation := reserve(t, l, 2)
	reserveFile := filepath.Join(dir, "reserve")
	require.FileExists(t, reserveFile)
	// Full until the reserve is given back, and then there is room for ends.
	f.set(func() {
		f.write = func(b []byte, off int64) (int, error) {
			if _, err := os.Stat(reserveFile); err == nil {
				n, _ := f.File.WriteAt(b[:len(b)/2], off)
				return n, syscall.ENOSPC
			}
			return f.File.WriteAt(b, off)
		}
	})
	require.ErrorIs(t, reservation.Start(t.Context(), testStart()), ErrFull)
	require.NoFileExists(t, reserveFile)
	require.NoError(t, l.Err(), "not failed")
	require.NoError(t, running.End(End{State: StateEnded, Status: 9}))
	require.NoError(t, l.Event(Event{Name: "lockdown.on"}))
	require.NoError(t, l.Refuse(Refusal{Reason: "BUSY", Count: 40}))
	require.NoError(t, l.Refuse(Refusal{Reason: "BUSY"}))
	require.Equal(t, StateNone, stateOf(t, l, testClaim(t, 2)), "the ID is free again")

	// No start while the reserve cannot be had again: a directory is in its way.
	require.NoError(t, os.MkdirAll(filepath.Join(reserveFile, "x"), 0o700))
	f.set(func() { f.write = nil })
	require.ErrorIs(t, reserve(t, l, 2).Start(t.Context(), testStart()), ErrFull)
	require.NoError(t, os.RemoveAll(reserveFile))
	begin(t, l, testClaim(t, 2))
	require.FileExists(t, reserveFile)
	require.NoError(t, l.Close())

	l = mustOpen(t, dir)
	require.Equal(t, StateEnded, stateOf(t, l, testClaim(t, 1)))
	var names []string
	require.NoError(t, Walk(dir, func(e Entry) error {
		if e.Event != nil {
			names = append(names, e.Event.Name+" "+e.Event.Facts["records"]+" "+e.Event.Facts["refusals"])
		}
		return nil
	}))
	require.Equal(t, []string{"lockdown.on  ", "ledger.dropped 2 41"}, names, "with what was dropped while it could not be said")
}

// fullDisk is a disk without room until it is told otherwise: what the reserve held,
// and no more, is for who writes first.
type fullDisk struct {
	left atomic.Int64 // bytes
	dir  string
	f    *faulty
}

func fill(dir string, f *faulty) *fullDisk {
	d := &fullDisk{dir: dir, f: f}
	f.set(func() { f.write = d.write })
	return d
}

func (d *fullDisk) write(b []byte, off int64) (int, error) {
	if _, err := os.Stat(filepath.Join(d.dir, "reserve")); err == nil {
		return 0, syscall.ENOSPC
	}
	if d.left.Add(-int64(len(b))) < 0 {
		d.left.Add(int64(len(b)))
		return 0, syscall.ENOSPC
	}
	return d.f.File.WriteAt(b, off)
}

// openFull is a ledger with an operation that runs, on a disk that is full, as a start
// has found out. The room is what the reserve held.
func openFull(t *testing.T, room int64) (*Ledger, *fullDisk, *Reservation, func()) {
	t.Helper()
	dir := ledgerDir(t)
	l, f := openFaulty(t, dir)
	running := begin(t, l, testClaim(t, 1))
	require.NoError(t, l.Probe())
	d := fill(dir, f)
	d.left.Store(room)
	noRoom := atomic.Bool{}
	noRoom.Store(true)
	l.dir.Step = func(what, base string) error {
		if what == "write" && noRoom.Load() {
			return syscall.ENOSPC
		}
		return nil
	}
	require.ErrorIs(t, reserve(t, l, 2).Start(t.Context(), testStart()), ErrFull)
	return l, d, running, func() { noRoom.Store(false); f.set(func() { f.write = nil }) }
}

// eventsOf lists the events in a ledger's file.
func eventsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	require.NoError(t, Walk(dir, func(e Entry) error {
		if e.Event != nil {
			names = append(names, e.Event.Name)
			if n := e.Event.Facts["records"]; n != "" {
				names[len(names)-1] += " " + n
			}
		}
		return nil
	}))
	return names
}

// Events take their part of the reserve, and no more; then they wait in memory, and
// are written in their order as soon as there is room. spec: LEDGER-25
func TestEventsOnAFullDisk(t *testing.T) {
	t.Parallel()
	l, _, running, free := openFull(t, 1<<20)
	dir, last := l.cfg.Dir, ""
	var want []string
	for i := range maxEventsInReserve + maxHeld + 5 {
		last = fmt.Sprintf("event-%03d", i)
		want = append(want, last)
		require.NoError(t, l.Event(Event{Name: last}))
	}
	require.NoError(t, l.Refuse(Refusal{Reason: "BUSY"}))
	require.Equal(t, want[:maxEventsInReserve], eventsOf(t, dir))
	require.ErrorIs(t, l.Probe(), ErrFull)
	require.Equal(t, want[:maxEventsInReserve], eventsOf(t, dir), "looking for room gives them no more of the reserve")
	require.NoError(t, running.End(End{State: StateEnded}), "an end has room")
	free()
	require.NoError(t, l.Probe())
	require.Equal(t, append(want[:maxEventsInReserve+maxHeld:maxEventsInReserve+maxHeld], "ledger.dropped 6"), eventsOf(t, dir))
	require.NoError(t, reserve(t, l, 2).Start(t.Context(), testStart()))
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Probe(), os.ErrClosed)
	_, err := Verify(dir)
	require.NoError(t, err)
}

// Large events are bounded by their bytes. spec: LEDGER-25
func TestLargeEventsOnAFullDisk(t *testing.T) {
	t.Parallel()
	l, _, _, free := openFull(t, 1<<20)
	facts := map[string]string{}
	for i := range 30 {
		facts[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	for range 3 {
		require.NoError(t, l.Event(Event{Name: "large", Facts: facts}))
	}
	require.NoError(t, l.Event(Event{Name: "small"}))
	require.Equal(t, []string{"large", "large"}, eventsOf(t, l.cfg.Dir), "none passes another")
	for range 20 {
		require.NoError(t, l.Event(Event{Name: "large", Facts: facts}))
	}
	l.mu.Lock()
	require.LessOrEqual(t, l.heldBytes, maxHeldBytes)
	held := len(l.held)
	l.mu.Unlock()
	require.Less(t, held, 10)
	free()
	require.NoError(t, l.Close(), "what waits has room when it ends")
	got := eventsOf(t, l.cfg.Dir)
	require.Equal(t, []string{"large", "small", "large"}, got[2:5])
	require.Equal(t, fmt.Sprint("ledger.dropped ", 22-held), got[len(got)-1])
}

// When others have taken the room of the reserve, events wait, and the ledger has not
// failed. spec: LEDGER-25
func TestEventsWithoutTheRoomOfTheReserve(t *testing.T) {
	t.Parallel()
	l, d, running, free := openFull(t, 0)
	require.NoError(t, l.Event(Event{Name: "lockdown.on"}))
	require.NoError(t, l.Err())
	require.ErrorIs(t, l.Probe(), ErrFull)
	d.left.Store(200)
	require.NoError(t, running.End(End{State: StateEnded}))
	free()
	require.NoError(t, l.Probe())
	require.Equal(t, []string{"lockdown.on"}, eventsOf(t, l.cfg.Dir))
}

// The reserve alone is not room: what says that it goes on would use it up again.
// spec: LEDGER-25
func TestRoomForTheReserveOnly(t *testing.T) {
	t.Parallel()
	l, _, _, free := openFull(t, 1<<20)
	small := l.dir.Step
	l.dir.Step = func(what, base string) error {
		if base == "reserve.new" {
			return nil
		}
		return small(what, base)
	}
	for range 3 {
		require.ErrorIs(t, l.Probe(), ErrFull)
		require.NoFileExists(t, filepath.Join(l.cfg.Dir, "reserve"), "it is left to others")
	}
	free()
	require.NoError(t, l.Probe())
	require.NoFileExists(t, filepath.Join(l.cfg.Dir, "room.new"))
}

// spec: LEDGER-22
func TestRemovedFileIsNoticed(t *testing.T) {
	t.Parallel()
	for label, remove := range map[string]func(t *testing.T, file string){
		"removed": func(t *testing.T, file string) { t.Helper(); require.NoError(t, os.Remove(file)) },
		"replaced": func(t *testing.T, file string) {
			t.Helper()
			require.NoError(t, os.Rename(file, file+".old"))
			require.NoError(t, os.WriteFile(file, nil, 0o600))
		},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			l := mustOpen(t, ledgerDir(t))
			r := reserve(t, l, 1)
			remove(t, filepath.Join(l.cfg.Dir, logFile))
			require.ErrorIs(t, r.Start(t.Context(), testStart()), ErrFailed)
		})
	}
}

// An end waits until it is in the file: its caller is told next, and if the program
// is killed then, the record must say the same.
func TestEndIsInTheFile(t *testing.T) {
	t.Parallel()
	l, f := openFaulty(t, ledgerDir(t))
	running := begin(t, l, testClaim(t, 1))
	entered, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.set(func() {
		f.sync = func() error { once.Do(func() { close(entered); <-gate }); return nil }
	})
	done := make(chan error, 1)
	other := reserve(t, l, 2)
	go func() { done <- other.Start(context.Background(), testStart()) }()
	<-entered // somebody leads
	ended := make(chan error, 1)
	go func() { ended <- running.End(End{State: StateEnded, Status: 7}) }()
	await(l, 1)
	require.Empty(t, ended)
	close(gate)
	require.NoError(t, <-ended)
	found := false
	require.NoError(t, l.Walk(func(en Entry) error {
		found = found || en.End != nil && en.End.Status == 7
		return nil
	}))
	require.True(t, found)
	require.NoError(t, <-done)
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l, f := openFaulty(t, dir)
	entered, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.set(func() {
		f.sync = func() error { once.Do(func() { close(entered); <-gate }); return nil }
	})
	r := reserve(t, l, 1)
	done := make(chan error)
	go func() { done <- r.Start(context.Background(), testStart()) }()
	<-entered
	text := map[string]string{"text": strings.Repeat("x", 1000)}
	const n = 2000
	for range n {
		require.NoError(t, l.Event(Event{Name: "flood", Facts: text}))
	}
	l.mu.Lock()
	require.LessOrEqual(t, l.waiting, maxWaiting)
	dropped := l.dropped.records
	l.mu.Unlock()
	require.Greater(t, dropped, uint64(500))
	close(gate)
	require.NoError(t, <-done)
	require.NoError(t, l.Close())
	kept := 0
	require.NoError(t, Walk(dir, func(e Entry) error {
		if e.Event != nil && e.Event.Name == "flood" {
			kept++
		}
		return nil
	}))
	require.Equal(t, n, kept+int(dropped))
}

// spec: LEDGER-5
func TestEndsBecomeDurableWithoutStarts(t *testing.T) {
	t.Parallel()
	l, f := openFaulty(t, ledgerDir(t))
	f.set(func() { f.syncs = 0 })
	for range maxUnsynced/1000 + 1 {
		require.NoError(t, l.Event(Event{Name: "x", Facts: map[string]string{"text": strings.Repeat("x", 1000)}}))
	}
	f.set(func() { require.Equal(t, 1, f.syncs) })
	require.LessOrEqual(t, l.log.size-l.log.synced, int64(maxUnsynced))
}

// However many start at once, what one write holds is bounded. spec: LEDGER-5
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	l, f := openFaulty(t, ledgerDir(t))
	entered, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var sizes []int
	f.set(func() {
		f.sync = func() error { once.Do(func() { close(entered); <-gate }); return nil }
		f.write = func(b []byte, off int64) (int, error) {
			sizes = append(sizes, len(b))
			return f.File.WriteAt(b, off)
		}
	})
	const n = 100
	s := testStart()
	s.Audit = make([]byte, 128<<10)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		r := reserve(t, l, i)
		wg.Go(func() { errs[i] = r.Start(context.Background(), s) })
	}
	<-entered
	for full := false; !full; runtime.Gosched() {
		l.mu.Lock()
		full = l.next != nil && l.next.bytes >= maxGroup
		l.mu.Unlock()
	}
	close(gate)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Less(t, slices.Max(sizes), maxGroup+1<<20)
}

// spec: LEDGER-10
func TestCheckpointsFollow(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	covered := func() uint64 {
		report, err := Verify(dir)
		require.NoError(t, err)
		return report.Covered
	}
	require.Equal(t, uint64(1), covered(), "when it is made")
	for range checkpointEvery - 2 {
		require.NoError(t, l.Event(Event{Name: "x"}))
	}
	begin(t, l, testClaim(t, 1))
	require.Equal(t, uint64(1), covered())
	begin(t, l, testClaim(t, 2))
	require.Equal(t, uint64(checkpointEvery+1), covered(), "every so often")
	require.NoError(t, l.Event(Event{Name: "x"}))
	point, err := l.Checkpoint()
	require.NoError(t, err)
	require.Equal(t, uint64(checkpointEvery+2), covered(), "when asked for")
	require.NoError(t, l.Event(Event{Name: "x"}))
	require.Equal(t, l.log.size, l.log.synced+segment.FrameSize(len(Event{Name: "x"}.Encode(testTime))), "not durable yet")
	require.Equal(t, uint64(checkpointEvery+2), covered())
	require.NoError(t, l.Close())
	require.Equal(t, uint64(checkpointEvery+3), covered(), "when it is closed")
	_, err = Verify(dir, point)
	require.NoError(t, err)
}

func TestClosed(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	r, running := reserve(t, l, 1), begin(t, l, testClaim(t, 2))
	require.NoError(t, l.Close())
	require.ErrorIs(t, r.Start(t.Context(), testStart()), os.ErrClosed)
	require.ErrorIs(t, running.End(End{State: StateEnded}), os.ErrClosed)
	require.ErrorIs(t, l.Event(Event{Name: "x"}), os.ErrClosed)
	require.ErrorIs(t, l.Flush(), os.ErrClosed)
	require.ErrorIs(t, l.Err(), os.ErrClosed)
	_, err := l.Reserve(testClaim(t, 3))
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = l.Checkpoint()
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, l.Close())
}

func BenchmarkStart(b *testing.B) {
	l := mustOpen(b, ledgerDir(b))
	var mu sync.Mutex
	n := 0
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			n++
			c := testClaim(b, n)
			mu.Unlock()
			out, err := l.Reserve(c)
			if err == nil {
				err = out.Reservation.Start(context.Background(), testStart())
			}
			if err == nil {
				err = out.Reservation.End(End{State: StateEnded})
			}
			if err != nil {
				b.Error(err)
			}
		}
	})
}
