package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

const (
	prefix = "lend-"   // of the groups of operations
	own    = "gateway" // the leaf that the gateway itself moves to: a cgroup with children may hold no process
	// emptyBudget bounds the wait for killed processes to leave a group.
	emptyBudget = 2 * time.Second
)

// Tree is a delegated cgroup. It is safe for concurrent use; the owner must Close
// it, after the last operation.
type Tree struct {
	dir         string
	lock        *os.File
	controllers []string
	next        atomic.Uint64
	log         zerolog.Logger
}

// Detect returns the cgroup of this process if it is delegated: nobody else is in
// it, and it may be divided.
func Detect() (dir string, ok bool) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	if dir, ok = locate(self, mounts); !ok {
		return "", false
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	alone := err == nil && string(bytes.TrimSpace(procs)) == strconv.Itoa(os.Getpid())
	return dir, alone && unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) == nil
}

// locate reads /proc/self/cgroup and mountinfo.
func locate(self, mounts []byte) (string, bool) {
	path := ""
	for line := range strings.Lines(string(self)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = p
		}
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		if below, ok := strings.CutPrefix(path, strings.TrimSuffix(f[3], "/")); ok && path != "" {
			return filepath.Join(f[4], below), true
		}
	}
	return "", false
}

// Open takes over the delegated cgroup at dir: locks it, ends what an earlier
// gateway left, moves this process to a leaf of its own if it is in it, and turns
// on what controllers there are. The error matches ErrUnusable or ErrInUse. The log
// gets the groups that cannot be made or removed later.
func Open(dir string, log zerolog.Logger) (*Tree, error) {
	t := &Tree{dir: filepath.Clean(dir), log: log}
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("open cgroup: the path is not absolute: %w", ErrUnusable)
	}
	available, err := os.ReadFile(t.file("cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w: %w", ErrUnusable, err)
	}
	if t.lock, err = os.Open(t.dir); err != nil {
		return nil, fmt.Errorf("open cgroup: %w: %w", ErrUnusable, err)
	}
	if err := unix.Flock(int(t.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = t.lock.Close()
		return nil, fmt.Errorf("open cgroup: %w", ErrInUse)
	}
	if err := t.leave(); err != nil {
		return nil, errors.Join(fmt.Errorf("open cgroup: %w: %w", ErrUnusable, err), t.Close())
	}
	t.sweep()
	t.enable(strings.Fields(string(available)))
	return t, nil
}

// Close lets go of the directory.
func (t *Tree) Close() error { return t.lock.Close() }

// Dir is the directory.
func (t *Tree) Dir() string { return t.dir }

// Controllers are those of "pids" and "memory" that bound operations.
func (t *Tree) Controllers() []string { return slices.Clone(t.controllers) }

func (t *Tree) file(name string) string { return filepath.Join(t.dir, name) }

// leave moves this process to a leaf, if it is in the directory itself.
func (t *Tree) leave() error {
	procs, err := os.ReadFile(t.file("cgroup.procs"))
	if err != nil {
		return err
	}
	in := strings.Fields(string(procs))
	switch {
	case len(in) == 0:
		return nil
	case len(in) > 1 || in[0] != strconv.Itoa(os.Getpid()):
		return errors.New("other processes are in it")
	}
	if err := os.Mkdir(t.file(own), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return write(filepath.Join(t.file(own), "cgroup.procs"), "0")
}

// sweep ends what earlier gateways left: first all of it, then group by group, so
// that one which will not go holds nothing up. What stays is only in the way.
func (t *Tree) sweep() {
	all, _ := filepath.Glob(t.file(prefix + "*"))
	for _, dir := range all {
		_ = (&Group{dir: dir}).Kill()
	}
	for _, dir := range all {
		_ = (&Group{dir: dir}).remove()
	}
}

func (t *Tree) enable(available []string) {
	for _, c := range []string{"pids", "memory"} {
		if slices.Contains(available, c) && write(t.file("cgroup.subtree_control"), "+"+c) == nil {
			t.controllers = append(t.controllers, c)
		}
	}
}

// Group is the cgroup of one operation. The methods of a nil Group do nothing.
type Group struct {
	dir string
	log zerolog.Logger
}

// New makes a group; nil if t is, or if it cannot be made: all that must hold holds
// without. The caller must End it.
func (t *Tree) New(l Limits) *Group {
	if t == nil {
		return nil
	}
	g, err := t.make(l)
	if err != nil {
		t.log.Warn().Err(err).Msg("operation runs without a cgroup")
		return nil
	}
	return g
}

func (t *Tree) make(l Limits) (*Group, error) {
	name := prefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(t.next.Add(1), 10)
	g := &Group{t.file(name), t.log}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	if err := t.bound(g, l); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup: %w", err), g.remove())
	}
	return g, nil
}

func (t *Tree) bound(g *Group, l Limits) error {
	if l.Processes > 0 && slices.Contains(t.controllers, "pids") {
		if err := write(g.file("pids.max"), strconv.Itoa(l.Processes)); err != nil {
			return err
		}
	}
	if l.Memory > 0 && slices.Contains(t.controllers, "memory") {
		if err := write(g.file("memory.max"), strconv.FormatInt(l.Memory, 10)); err != nil {
			return err
		}
		_ = write(g.file("memory.swap.max"), "0")  // not there without swap
		_ = write(g.file("memory.oom.group"), "1") // not there before Linux 4.19
	}
	return nil
}

// Dir is where a process that joins the group writes itself: cgroup.procs in it.
func (g *Group) Dir() string {
	if g == nil {
		return ""
	}
	return g.dir
}

func (g *Group) file(name string) string { return filepath.Join(g.dir, name) }

// Kill kills everything in the group. Before Linux 5.14 it does nothing.
func (g *Group) Kill() error {
	if g == nil {
		return nil
	}
	err := write(g.file("cgroup.kill"), "1")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

// OutOfMemory says whether the kernel killed the group because of its memory.
func (g *Group) OutOfMemory() bool {
	if g == nil {
		return false
	}
	b, err := os.ReadFile(g.file("memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// End kills what is in the group and removes it.
func (g *Group) End() {
	if g == nil {
		return
	}
	if err := errors.Join(g.Kill(), g.remove()); err != nil {
		g.log.Warn().Err(err).Msg("cgroup is left")
	}
}

// remove removes the group once it is empty, which it waits for a moment.
func (g *Group) remove() error {
	deadline := time.Now().Add(emptyBudget)
	for {
		err := unix.Rmdir(g.dir)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(deadline):
			return fmt.Errorf("remove cgroup: %w", err)
		}
		_, _ = unix.Poll(nil, 1)
	}
}

// write writes one value. Files of cgroupfs exist already; it makes none there.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = unix.Write(fd, []byte(value))
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
