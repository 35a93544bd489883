package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lendcli/lend/protocol/name"
)

// Limits bound a tree and the archive that it comes from. Every field counts;
// there is no value for "unlimited".
type Limits struct {
	Entries      int   // files and directories
	FileBytes    int64 // of one file
	TreeBytes    int64 // of all files together
	ArchiveBytes int64 // of the archive itself
	Ratio        int64 // expanded to packed: of each zip entry, of a whole tar.gz
}

// ConnectorLimits are those of a Connector's artifact and of an installed package
// tree: 10 000 entries, 64 MiB a file, 512 MiB in all, ratio 200.
func ConnectorLimits() Limits {
	return Limits{Entries: 10_000, FileBytes: 64 << 20, TreeBytes: 512 << 20, ArchiveBytes: 256 << 20, Ratio: 200}
}

// RuntimeLimits are ConnectorLimits with 256 MiB a file.
func RuntimeLimits() Limits {
	l := ConnectorLimits()
	l.FileBytes = 256 << 20
	return l
}

// Options say how a tree is imported.
type Options struct {
	Limits Limits
	// Inspect is called once all files are there and before they are final; it may
	// refuse the tree, and names files that are executable whatever the source's
	// modes say. Others are if the source has any execute bit. nil names none.
	Inspect func(tree fs.FS) (executables []string, err error)
	// Skip leaves out a file, or a directory with all below it. nil skips nothing.
	Skip func(path string) bool
	// Aside takes files out of the tree: the content of a path in it goes where it
	// points to, at most 64 KiB. A path that the source does not have leaves its nil.
	Aside map[string]*[]byte
	// SkipLinks leaves out the symbolic links of a tar.gz instead of refusing them.
	SkipLinks bool
	// Strip drops that many leading segments of each path of an archive; an entry
	// that has no more is left out.
	Strip int
	// Progress is told the bytes written so far. nil is told nothing.
	Progress func(done int64)
}

// RefusedError says why a source was refused. Path is "" where it is all of it.
type RefusedError struct {
	Path   string
	Reason string
}

func (e *RefusedError) Error() string {
	if e.Path == "" {
		return "artifact refused: " + e.Reason
	}
	return "artifact refused: " + name.Quote(e.Path) + ": " + e.Reason
}

func refuse(path, format string, args ...any) error {
	return &RefusedError{path, fmt.Sprintf(format, args...)}
}

// Import copies src, a directory, zip or tar.gz by absolute path, into the new
// directory dst, whose parent exists and is private. What the source holds decides
// the format, not its name. An error that is about the source is a *RefusedError;
// after any error, what was written is left for the caller to Remove.
func Import(ctx context.Context, src, dst string, o Options) error {
	if !filepath.IsAbs(src) || !filepath.IsAbs(dst) {
		return errors.New("import artifact: paths must be absolute")
	}
	info, err := os.Stat(src)
	if err != nil {
		return fmt.Errorf("import artifact: %w", err)
	}
	fill := fromArchive
	if info.IsDir() {
		fill = fromDir
		if holds(src, filepath.Dir(dst)) {
			return fmt.Errorf("import artifact: %w", &RefusedError{Reason: "the copy would be in it: keep it apart from what is installed"})
		}
	}
	return write(ctx, dst, o, func(w *writer) error { return fill(w, src) })
}

// holds tells whether a directory is below another, or is that one.
func holds(above, dir string) bool {
	above, errAbove := filepath.EvalSymlinks(above)
	dir, errDir := filepath.EvalSymlinks(dir)
	rel, err := filepath.Rel(above, dir)
	return errAbove == nil && errDir == nil && err == nil && filepath.IsLocal(rel)
}

// ImportFile copies the one file src as the executable path of the new tree dst.
// Links are followed: src is what an owner named.
func ImportFile(ctx context.Context, src, dst, path string, o Options) error {
	return write(ctx, dst, o, func(w *writer) error {
		f, info, err := openRegular(src)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return w.file(path, info.Size(), true, f)
	})
}

func write(ctx context.Context, dst string, o Options, fill func(*writer) error) error {
	w, err := newWriter(ctx, dst, o)
	if err != nil {
		return fmt.Errorf("import artifact: %w", err)
	}
	defer func() { _ = w.root.Close() }()
	if err := fill(w); err != nil {
		return fmt.Errorf("import artifact: %w", err)
	}
	if err := w.finish(); err != nil {
		return fmt.Errorf("import artifact: %w", err)
	}
	return nil
}

// openRegular opens a regular file without waiting for a FIFO's writer.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(filepath.Base(path), "not a regular file")
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func fromDir(w *writer, src string) error {
	root, err := os.OpenRoot(src)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == ".":
			return nil
		case w.skip(p) && d.IsDir():
			return fs.SkipDir
		case w.skip(p):
			return nil
		case d.IsDir():
			return w.dir(p)
		case !d.Type().IsRegular():
			return refuse(p, "it is a %s: only files and directories are taken", kindOf(d.Type()))
		}
		return w.copyFrom(root, p)
	})
}

func (w *writer) copyFrom(root *os.Root, p string) error {
	before, err := root.Lstat(p)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !os.SameFile(before, info) {
		return refuse(p, "it changed while it was read")
	}
	return w.file(p, info.Size(), info.Mode()&0o111 != 0, f)
}

func fromArchive(w *writer, src string) error {
	f, info, err := openRegular(src)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > w.o.Limits.ArchiveBytes {
		return refuse("", "the archive is larger than %d bytes", w.o.Limits.ArchiveBytes)
	}
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case string(magic[:2]) == "PK":
		return fromZip(w, f, info.Size())
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return fromTarGz(w, f, info.Size())
	}
	return refuse("", "neither a zip nor a tar.gz archive")
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
