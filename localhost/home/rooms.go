package home

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/internal/removal"
)

const (
	// mostKept bounds how many directories of one kind wait to be used. Making one
	// can take as long as starting a process, and so can removing it: on a large ext4
	// 0.8 ms were measured, because it avoids the numbers of files that went lately.
	mostKept = 32
	// mostRooms bounds how many wait in all, and keptBytes the content of one.
	mostRooms = 128
	keptBytes = 512 << 10
	// waiting bounds how many used directories wait to be looked at.
	waiting = 64
	// staleAfter is how long a copy can outlive what it was made of.
	staleAfter = 10 * time.Second
)

// Rooms are the private directories of the operations of one host. One that an
// operation has left exactly as it got it (no entry made, changed, moved or removed, no
// mode or time set) is used again, under a path that nobody had before; every other is
// removed. Copies of a home are used again, or at all if they were made ahead, only
// while the baseline is what they were made of. All methods are safe for concurrent use.
type Rooms struct {
	dir     string
	problem func(error)

	mu    sync.Mutex       // guards what follows, and the pools
	plain *pool            // of empty directories
	homes map[string]*pool // by the baseline's Home
	out   map[string]*room // handed out, by path
	kept  int              // those that wait, of all pools

	kick chan struct{} // one: fill has something to do
	used chan job
	stop chan struct{} // closed by Close
	done sync.WaitGroup
	once sync.Once
}

// pool is the rooms of one kind that wait to be used.
type pool struct {
	from *Dirs // nil: empty directories
	hold Hold

	rooms  []*room // used last, last; guarded by Rooms.mu, as what follows
	out    int     // handed out
	again  int     // of these, used again if they stay as they are
	target int     // how many there should be: as many as were out at once
	misses int
	gone   bool // forgotten

	filling sync.Mutex // held while a copy is made ahead
}

// room is one directory, of which an operation gets what is in it, with what it looked
// like.
type room struct {
	path  string
	pool  *pool
	own   tree
	base  trace // what it was copied from
	sound bool  // base and own show every change
	keep  bool  // it was settled when it was handed out
}

// job is a room to be looked at after its use or, without one, a wish to be told.
type job struct {
	room *room
	told chan struct{}
}

// ErrUnknown means that a path was not handed out, or was returned already.
var ErrUnknown = errors.New("unknown operation directory")

// Hold keeps a baseline from being changed by a login until it is closed; see ErrBusy.
type Hold func() (io.Closer, error)

// NewRooms makes rooms in dir, an existing private directory that nobody else uses. What
// cannot be removed is told to problem, which may be nil. The caller must Close it, and
// then remove dir.
func NewRooms(dir string, problem func(error)) *Rooms {
	if problem == nil {
		problem = func(error) {}
	}
	r := &Rooms{
		dir: dir, problem: problem, plain: &pool{target: 1}, homes: make(map[string]*pool), out: make(map[string]*room),
		kick: make(chan struct{}, 1), used: make(chan job, waiting), stop: make(chan struct{}),
	}
	r.done.Go(r.fill)
	r.done.Go(r.tidy)
	return r
}

// Plain returns the absolute path of an empty private directory that nobody else has.
func (r *Rooms) Plain() (string, error) {
	m := r.take(r.plain)
	if m == nil {
		var err error
		if m, err = r.furnishNow(context.Background(), r.plain); err != nil {
			return "", err
		}
	}
	return m.handed(), nil
}

// Home returns directories that hold a copy of the home and the state of from as they
// are now, an empty one for temporary files and an empty one to run in. Errors are those of hold and of Copy.
func (r *Rooms) Home(ctx context.Context, from Dirs, hold Hold) (Dirs, error) {
	held, err := hold()
	if err != nil {
		return Dirs{}, err
	}
	defer func() { _ = held.Close() }() // closing lets go
	p := r.poolOf(from, hold)
	m := r.take(p)
	if m == nil {
		if m, err = r.furnishNow(ctx, p); err != nil {
			return Dirs{}, err
		}
	}
	return In(m.path), nil
}

func (r *Rooms) poolOf(from Dirs, hold Hold) *pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.homes[from.Home]
	if p == nil {
		p = &pool{from: &from, hold: hold}
		r.homes[from.Home] = p
	}
	return p
}

// take hands out a room that waits, if it is as it was made and so is its baseline.
func (r *Rooms) take(p *pool) *room {
	for {
		m := r.pop(p)
		if m == nil {
			return nil
		}
		if m.base.same(nowhere) { // nobody knows the path of m itself
			r.handOut(m)
			return m
		}
		m.sound = false
		r.give(m)
	}
}

// pop takes the room that was used last out of the pool; none is a miss.
func (r *Rooms) pop(p *pool) *room {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(p.rooms) - 1; i >= 0; i-- {
		if m := p.rooms[i]; m.own.settled(now) {
			p.rooms = append(p.rooms[:i], p.rooms[i+1:]...)
			r.kept--
			m.keep = true
			p.out++
			p.again++
			return m
		}
	}
	p.out++ // the one that is made now
	// The first start of a connection may be the only one of this process.
	if p.misses++; p.from == nil || p.misses > 1 {
		p.target = max(p.target, min(p.out, mostKept))
		r.wake()
	}
	return nil
}

func (r *Rooms) handOut(m *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out[m.handed()] = m
}

// furnishNow makes the room that was missed, and hands it out.
func (r *Rooms) furnishNow(ctx context.Context, p *pool) (*room, error) {
	m, err := r.furnish(ctx, p)
	if err != nil {
		r.mu.Lock()
		p.out--
		r.mu.Unlock()
		return nil, err
	}
	r.handOut(m)
	return m, nil
}

// furnish makes one more room of p.
func (r *Rooms) furnish(ctx context.Context, p *pool) (*room, error) {
	m := &room{path: filepath.Join(r.dir, rand.Text()), pool: p, sound: true}
	if err := os.Mkdir(m.path, 0o700); err != nil {
		return nil, fmt.Errorf("make operation directory: %w", err)
	}
	if p.from == nil {
		if err := os.Mkdir(m.handed(), 0o700); err != nil {
			return nil, fmt.Errorf("make operation directory: %w", err) // it goes with the host
		}
		m.own = look(m.path, []string{workDir}, nil)
		return m, nil
	}
	if err := m.copy(ctx, *p.from); err != nil {
		return nil, errors.Join(err, r.remove(m))
	}
	return m, nil
}

func (m *room) copy(ctx context.Context, from Dirs) error {
	d, began := In(m.path), time.Now()
	if err := d.Make(); err != nil {
		return fmt.Errorf("make operation directory: %w", err)
	}
	c, err := d.copy(ctx, from)
	if err != nil {
		return err
	}
	m.base = c.seen
	m.sound = !m.base.unknown && m.base.settled(began) && MaxBytes-c.bytes <= keptBytes
	m.own = look(m.path, []string{homeDir, stateDir, tempDir, workDir}, c.made)
	return nil
}

// handed is the path that stands for the room where it is used.
func (m *room) handed() string {
	if m.pool.from == nil {
		return filepath.Join(m.path, workDir)
	}
	return m.path
}

// Return takes back what Plain returned, or the directory that holds those of Home. In
// it nothing runs any more. It goes soon, with everything in it, unless it is used again;
// links are removed, never followed. Another path, and the same twice, is ErrUnknown.
func (r *Rooms) Return(path string) error {
	r.mu.Lock()
	m := r.out[path]
	delete(r.out, path)
	r.mu.Unlock()
	if m == nil {
		return ErrUnknown
	}
	r.give(m)
	return nil
}

// InUse counts the rooms that were handed out and are not taken back yet, or not looked
// at since.
func (r *Rooms) InUse() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.plain.out
	for _, p := range r.homes {
		n += p.out
	}
	return n
}

// give leaves a room to tidy, or looks at it here if that has too much to do.
func (r *Rooms) give(m *room) {
	select {
	case <-r.stop:
		r.sort(m)
		return
	default:
	}
	select {
	case r.used <- job{room: m}:
	default:
		r.sort(m)
	}
}

func (r *Rooms) remove(m *room) error {
	if err := removal.Tree(r.dir, filepath.Base(m.path)); err != nil {
		return fmt.Errorf("remove operation directory: %w", err)
	}
	return nil
}

// wake lets fill look. mu may be held.
func (r *Rooms) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}
