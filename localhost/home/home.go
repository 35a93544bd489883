package home

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of what is copied for one operation. Over them nothing starts.
const (
	MaxEntries = 512
	MaxBytes   = 16 << 20
)

const (
	homeDir  = "home"
	stateDir = "state"
	tempDir  = "tmp"
	workDir  = "work"
)

// Errors of copying. They are the owner's affair.
var (
	// ErrTooLarge: a baseline is over the bounds.
	ErrTooLarge = errors.New("home is too large to be copied for each operation")
	// ErrBusy: the CLI's own login is changing the baseline at this moment.
	ErrBusy = errors.New("a login is running")
	// ErrLink: a link in a baseline leads out of it.
	ErrLink = errors.New("link leads out of the home")
)

// Dirs are the private directories that a CLI is told of, and one that it may run in,
// absolute.
type Dirs struct {
	Home, Temp, State string
	Work              string // of one operation only: a connection has none
}

// In returns the directories below dir, which holds them for one operation.
func In(dir string) Dirs {
	return Dirs{
		Home: filepath.Join(dir, homeDir), Temp: filepath.Join(dir, tempDir), State: filepath.Join(dir, stateDir),
		Work: filepath.Join(dir, workDir),
	}
}

// Make makes the four directories, which must not exist, with mode 0700.
func (d Dirs) Make() error {
	for _, dir := range []string{d.Home, d.Temp, d.State, d.Work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// Rebase returns env with each value that is d's Home, Temp or State replaced by the
// same of to.
func (d Dirs) Rebase(env []string, to Dirs) []string {
	env = slices.Clone(env)
	for i, v := range env {
		variable, value, _ := strings.Cut(v, "=")
		switch value {
		case d.Home:
			env[i] = variable + "=" + to.Home
		case d.Temp:
			env[i] = variable + "=" + to.Temp
		case d.State:
			env[i] = variable + "=" + to.State
		}
	}
	return env
}

// Copy fills d, which Make made, with the home and the state of from; nothing
// else is copied. It gives up when ctx is done. What it began is the caller's to
// remove.
func (d Dirs) Copy(ctx context.Context, from Dirs) error {
	_, err := d.copy(ctx, from)
	return err
}

func (d Dirs) copy(ctx context.Context, from Dirs) (*copying, error) {
	c := &copying{ctx: ctx, entries: MaxEntries, bytes: MaxBytes}
	for _, pair := range [][2]string{{from.Home, d.Home}, {from.State, d.State}} {
		if err := c.tree(pair[0], pair[1]); err != nil {
			return nil, fmt.Errorf("copy home: %w", err)
		}
	}
	return c, nil
}

// Check tells whether Copy would copy d, and copies nothing: nil, or an error of Copy's.
func (d Dirs) Check(ctx context.Context) error {
	c := &copying{ctx: ctx, entries: MaxEntries, bytes: MaxBytes, dry: true}
	for _, dir := range []string{d.Home, d.State} {
		if err := c.tree(dir, ""); err != nil {
			return fmt.Errorf("check home: %w", err)
		}
	}
	return nil
}

// copying counts what may still be copied, and notes what was.
type copying struct {
	dry     bool            // count only
	ctx     context.Context //nolint:containedctx // one Copy
	entries int
	bytes   int64
	seen    trace    // of what is copied, each entry before it was read
	made    []string // the copies' paths, below what holds the tree

	source, base string // the tree, also without links
	into         string // the copy's name
	from, to     *os.Root
}

func (c *copying) tree(from, to string) (err error) {
	c.source, c.into = from, filepath.Base(to)
	if c.base, err = filepath.EvalSymlinks(from); err != nil {
		return err
	}
	if c.from, err = os.OpenRoot(from); err != nil {
		return err
	}
	defer func() { _ = c.from.Close() }() // only a directory handle
	if !c.dry {
		if c.to, err = os.OpenRoot(to); err != nil {
			return err
		}
		defer func() { _ = c.to.Close() }() // only a directory handle
	}
	return c.directory(".")
}

// directory copies the entries of path, which both sides have. Reading stops at the
// bound, so that a directory of a million names costs no more than one too many.
func (c *copying) directory(path string) error {
	c.seen.add(nowhere, filepath.Join(c.source, path))
	f, err := c.from.Open(path)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(c.entries + 1)
	if err = errors.Join(ignoreEOF(err), f.Close()); err != nil {
		return err
	}
	if c.entries -= len(entries); c.entries < 0 {
		return fmt.Errorf("more than %d entries: %w", MaxEntries, ErrTooLarge)
	}
	for _, e := range entries {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		if err := c.entry(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (c *copying) entry(path string) error {
	info, err := c.from.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	if t := info.Mode().Type(); t == 0 || t == fs.ModeDir || t == fs.ModeSymlink {
		c.made = append(c.made, filepath.Join(c.into, path))
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		if !c.dry {
			if err := c.to.Mkdir(path, 0o700); err != nil {
				return err
			}
		}
		return c.directory(path)
	case fs.ModeSymlink:
		c.seen.add(nowhere, filepath.Join(c.source, path))
		return c.link(path)
	case 0:
		c.seen.add(nowhere, filepath.Join(c.source, path))
		return c.file(path, info)
	default:
		return nil // a socket or pipe of a process that is gone
	}
}

// link copies a link that stays inside; one by its whole path becomes relative.
func (c *copying) link(path string) error {
	target, err := c.from.Readlink(path)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		if target, err = filepath.Rel(filepath.Join(c.base, filepath.Dir(path)), target); err != nil {
			return err
		}
	}
	if !filepath.IsLocal(filepath.Join(filepath.Dir(path), target)) {
		return fmt.Errorf("%s: %w", name.Quote(path), ErrLink)
	}
	if c.dry {
		return nil
	}
	return c.to.Symlink(target, path)
}

func (c *copying) file(path string, info fs.FileInfo) (err error) {
	if info.Size() > c.bytes {
		return fmt.Errorf("more than %d bytes: %w", int64(MaxBytes), ErrTooLarge)
	}
	if c.dry {
		c.bytes -= info.Size()
		return nil
	}
	in, err := openFile(c.from, path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	now, err := in.Stat()
	if err != nil || !os.SameFile(info, now) {
		return errors.Join(err, fmt.Errorf("%s changed meanwhile: %w", name.Quote(path), fs.ErrInvalid))
	}
	out, err := c.to.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()&0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, io.LimitReader(in, c.bytes+1))
	if err != nil {
		return err
	}
	if c.bytes -= n; c.bytes < 0 {
		return fmt.Errorf("more than %d bytes: %w", int64(MaxBytes), ErrTooLarge)
	}
	return c.to.Chtimes(path, info.ModTime(), info.ModTime())
}
