package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// gather is how long after a change in its directory the file is looked at: what writes
// it may do more.
const gather = 50 * time.Millisecond

// File calls changed, from the caller's goroutine, whenever the file at path is another
// one than before, or has been written, until ctx is done: then the error is nil. Else it
// says why nothing is noticed any more. A change between two looks that leaves size and
// time as they were is not one.
func File(ctx context.Context, path string, changed func()) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("watch lease: %w", err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch lease: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := arm(w, path); err != nil {
		return fmt.Errorf("watch lease: %w", err)
	}
	last := look(path)
	wait := time.NewTimer(gather)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return errors.New("watch lease: the system's notices have ended")
			}
			wait.Reset(gather)
			continue
		case _, ok := <-w.Errors: // some were missed, perhaps
			if !ok {
				return errors.New("watch lease: the system's notices have ended")
			}
		case <-wait.C:
		}
		if err := arm(w, path); err != nil {
			return fmt.Errorf("watch lease: %w", err)
		}
		if now := look(path); !same(last, now) {
			last = now
			changed()
		}
	}
}

// arm watches the directories that the file depends on: its own, and that of the file
// that a link leads to.
func arm(w *fsnotify.Watcher, path string) error {
	want := []string{filepath.Dir(path)}
	if at, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(at) != want[0] {
		want = append(want, filepath.Dir(at))
	}
	var errs error
	for _, dir := range want {
		if err := w.Add(dir); err != nil { // again is nothing; a directory in its place is another
			errs = errors.Join(errs, err)
		}
	}
	for _, dir := range w.WatchList() {
		if !slices.Contains(want, dir) {
			_ = w.Remove(dir) // it is gone
		}
	}
	return errs
}

// look returns what is known of the file from outside, nil if it is not there.
func look(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
