package home

import (
	"slices"
	"time"
)

// tick is more than the resolution of the times that a file system keeps.
const tick = 20 * time.Millisecond

// state is what changes when a file or directory does: its content, its names, its
// mode or its owner. It is comparable.
type state struct {
	dev, ino, links      uint64
	size, mtime, changed int64
	mode, owner, group   uint32
}

// trace is what some entries looked like.
type trace struct {
	marks   []mark
	newest  int64 // the latest change of any of them, in nanoseconds since 1970
	unknown bool  // this system does not tell, or it could not be looked at
}

type mark struct {
	path string // below a directory, or absolute
	state
}

// add notes what is at path now, which is absolute or below dir.
func (t *trace) add(dir handle, path string) {
	s, ok := dir.stateOf(path)
	if !ok {
		t.unknown = true
		return
	}
	t.marks = append(t.marks, mark{path, s})
	t.newest = max(t.newest, s.changed)
}

// same tells whether nothing has changed since: neither an entry nor, because a
// directory's own state says so, which there are. It costs one lstat an entry.
func (t *trace) same(dir handle) bool {
	if t.unknown {
		return false
	}
	for i := range t.marks {
		if s, ok := dir.stateOf(t.marks[i].path); !ok || s != t.marks[i].state {
			return false
		}
	}
	return true
}

// settled tells whether a change that comes after now must have a later time than
// every change before: one in the same tick of the file system's clock would not show.
func (t *trace) settled(now time.Time) bool { return now.UnixNano()-t.newest >= int64(tick) }

// tree is what a directory and all below it looked like. The directory itself may be
// renamed, so that its own times say nothing: what is in it is listed instead.
type tree struct {
	trace

	top   state // without times and size
	names []string
}

// look notes what the directory at path is, which has the entries names, sorted, and
// the entries below these that deeper lists.
func look(path string, names, deeper []string) tree {
	t := tree{names: names}
	dir, ok := openDir(path)
	if !ok {
		t.unknown = true
		return t
	}
	defer dir.close()
	t.top, ok = dir.own()
	t.unknown = !ok
	for _, p := range slices.Concat(names, deeper) {
		t.add(dir, p)
	}
	return t
}

// untouched tells whether the directory at path, and all below it, is what it was.
func (t *tree) untouched(path string) bool {
	if t.unknown {
		return false
	}
	dir, ok := openDir(path)
	if !ok {
		return false
	}
	defer dir.close()
	top, ok := dir.own()
	return ok && top == t.top && dir.holds(t.names) && t.same(dir)
}
