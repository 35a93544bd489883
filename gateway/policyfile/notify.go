package policyfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds the links on the way to the file.
const maxLinks = 32

// notifier says that something may have changed.
type notifier interface {
	// arm watches the places of the file as they are now. It does nothing if they
	// are watched already.
	arm(file string) error
	// changed gets a value some time after each change; never after an error of
	// arm, which leaves nothing armed.
	changed() <-chan struct{}
	close() error
}

// watch is the operating system's.
type watch struct {
	watcher *fsnotify.Watcher
	armed   map[string]os.FileInfo
	out     chan struct{}
	done    chan struct{} // closed when forward has ended
}

func newWatch() *watch { return &watch{out: make(chan struct{}, 1)} }

func (w *watch) changed() <-chan struct{} { return w.out }

func (w *watch) arm(file string) error {
	dirs := places(file)
	if w.watcher != nil && w.current(dirs) {
		return nil
	}
	if err := w.close(); err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch directories: %w", err)
	}
	armed := map[string]os.FileInfo{}
	for _, d := range dirs {
		info, err := os.Stat(d)
		if err == nil {
			err = watcher.Add(d)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("watch %s: %w", d, err), watcher.Close())
		}
		armed[d] = info
	}
	w.watcher, w.armed, w.done = watcher, armed, make(chan struct{})
	go w.forward(watcher, w.done)
	return nil
}

// current tells whether exactly these directories are watched, and are still those.
func (w *watch) current(dirs []string) bool {
	if len(dirs) != len(w.armed) {
		return false
	}
	for _, d := range dirs {
		was := w.armed[d]
		info, err := os.Stat(d)
		if was == nil || err != nil || !os.SameFile(was, info) {
			return false
		}
	}
	return true
}

// forward ends with the watcher. What overflowed may have been a change.
func (w *watch) forward(watcher *fsnotify.Watcher, done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case _, ok := <-watcher.Events:
			if !ok {
				return
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
		}
		select {
		case w.out <- struct{}{}:
		default:
		}
	}
}

func (w *watch) close() error {
	if w.watcher == nil {
		return nil
	}
	err := w.watcher.Close()
	<-w.done
	w.watcher, w.armed = nil, nil
	return err
}

// places are the directories in which a change could change the file: its own, and
// that of each link on the way. Where the way ends, it is the last that exists.
func places(file string) []string {
	abs, err := filepath.Abs(file)
	if err != nil || filepath.Separator != '/' {
		return []string{filepath.Dir(file)}
	}
	found := map[string]bool{}
	var dirs []string
	add := func(d string) {
		if !found[d] {
			found[d] = true
			dirs = append(dirs, d)
		}
	}
	at, rest, links := "/", strings.Split(abs[1:], "/"), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		info, err := os.Lstat(next)
		if err != nil || len(rest) == 1 {
			add(at)
		}
		switch {
		case err != nil:
			return dirs
		case info.Mode()&os.ModeSymlink == 0:
			at, rest = next, rest[1:]
			continue
		}
		add(at)
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return dirs
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest[1:]...)
	}
	return dirs
}
