package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/lendcli/lend/localhost/manifest"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Modes of a finished tree.
const (
	modeFile       fs.FileMode = 0o400
	modeExecutable fs.FileMode = 0o500
	modeDir        fs.FileMode = 0o500
)

// writer fills one new tree. It is used by one goroutine.
type writer struct {
	ctx     context.Context //nolint:containedctx // the writer is the lifetime of one import
	root    *os.Root
	o       Options
	names   names
	dirs    []string
	entries int
	bytes   int64
	left    int // entries that were left out
}

func newWriter(ctx context.Context, dst string, o Options) (*writer, error) {
	if err := os.Mkdir(dst, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	return &writer{ctx: ctx, root: root, o: o, names: names{folded: map[string]string{}, isDir: map[string]bool{}}}, nil
}

func (w *writer) skip(p string) bool { return w.o.Skip != nil && w.o.Skip(p) }

// add checks one path and counts it, with the directories that lead to it. It
// returns false for a directory that is there already.
func (w *writer) add(p string, dir bool) (bool, error) {
	if err := w.ctx.Err(); err != nil {
		return false, err
	}
	if err := manifest.CheckPath(p); err != nil {
		return false, &RefusedError{"", err.Error()}
	}
	if err := w.reserved(p, dir); err != nil {
		return false, err
	}
	if parent := path.Dir(p); parent != "." && !w.names.isDir[parent] {
		if err := w.dir(parent); err != nil {
			return false, err
		}
	}
	fresh, err := w.names.add(p, dir)
	if err != nil || !fresh {
		return false, err
	}
	if w.entries++; w.entries > w.o.Limits.Entries {
		return false, refuse("", "more than %d entries", w.o.Limits.Entries)
	}
	return true, nil
}

// reserved refuses what stands where a file that is kept aside has to be: it would be
// content of the tree under a name that is none of the tree's.
func (w *writer) reserved(p string, dir bool) error {
	for aside := range w.o.Aside {
		switch {
		case p == aside && dir:
			return refuse(p, "it is a directory: that name is of a file")
		case p != aside && fold(p) == fold(aside):
			return refuse(p, "it differs from %s only by letter case or Unicode form", aside)
		}
	}
	return nil
}

func (w *writer) dir(p string) error {
	fresh, err := w.add(p, true)
	if err != nil || !fresh {
		return err
	}
	w.dirs = append(w.dirs, p)
	return w.root.Mkdir(p, 0o700)
}

// file writes one file of exactly size bytes from r.
func (w *writer) file(p string, size int64, exec bool, r io.Reader) error {
	if size < 0 || size > w.o.Limits.FileBytes {
		return refuse(p, "larger than %d bytes", w.o.Limits.FileBytes)
	}
	if w.bytes+size > w.o.Limits.TreeBytes {
		return refuse("", "more than %d bytes together", w.o.Limits.TreeBytes)
	}
	if _, err := w.add(p, false); err != nil {
		return err
	}
	if to := w.o.Aside[p]; to != nil {
		return w.aside(to, p, size, r)
	}
	// No child may be forked that inherits f: see the package comment.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := w.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = w.fill(f, p, size, r)
	mode := modeFile
	if exec {
		mode = modeExecutable
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = syncFile(f)
	}
	return errors.Join(err, f.Close())
}

// maxAside bounds a file that is kept in memory.
const maxAside = 64 << 10

// aside keeps what would be a file of the tree. Its name stays taken.
func (w *writer) aside(to *[]byte, p string, size int64, r io.Reader) error {
	if size > maxAside {
		return refuse(p, "larger than %d bytes", maxAside)
	}
	var b bytes.Buffer
	if err := w.fill(&b, p, size, r); err != nil {
		return err
	}
	*to = append([]byte{}, b.Bytes()...)
	return nil
}

func (w *writer) fill(f io.Writer, p string, size int64, r io.Reader) error {
	const chunk = 1 << 20
	for done := int64(0); done < size; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(f, r, min(chunk, size-done))
		done += n
		w.bytes += n
		if errors.Is(err, io.EOF) {
			return refuse(p, "shorter than it says")
		}
		if err != nil {
			return err
		}
		if w.o.Progress != nil {
			w.o.Progress(w.bytes)
		}
	}
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n != 0:
		return refuse(p, "longer than it says")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// finish makes the directories read-only, children first, and everything durable.
func (w *writer) finish() error {
	if w.o.Inspect != nil {
		executables, err := w.o.Inspect(w.root.FS())
		if err != nil {
			return err
		}
		for _, p := range executables {
			if isDir, ok := w.names.isDir[p]; isDir || !ok {
				return refuse(p, "there is no such file")
			}
			if err := w.root.Chmod(p, modeExecutable); err != nil {
				return err
			}
		}
	}
	for _, d := range slices.Backward(w.dirs) {
		if err := w.root.Chmod(d, modeDir); err != nil {
			return err
		}
	}
	if err := w.root.Chmod(".", modeDir); err != nil {
		return err
	}
	return syncTree(w.root, w.dirs)
}

// names finds paths that are one name to some file system: equal but for letter
// case or Unicode form.
type names struct {
	folded map[string]string
	isDir  map[string]bool // by exact path
}

func (n *names) add(p string, dir bool) (fresh bool, err error) {
	key := fold(p)
	other, seen := n.folded[key]
	switch {
	case seen && other != p:
		return false, refuse(p, "another name differs from it only by letter case or Unicode form")
	case seen && dir && n.isDir[p]:
		return false, nil
	case seen:
		return false, refuse(p, "it is there twice")
	}
	n.folded[key] = p
	n.isDir[p] = dir
	return true, nil
}

func fold(p string) string {
	if !strings.ContainsFunc(p, func(r rune) bool { return r >= 0x80 }) {
		return strings.ToLower(p)
	}
	return norm.NFC.String(cases.Fold().String(norm.NFD.String(p)))
}
