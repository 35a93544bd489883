package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// ErrMismatch means that bytes are not those that were pinned.
var ErrMismatch = errors.New("not the pinned archive")

// Pin says exactly which archive is wanted.
type Pin struct {
	SHA256 string // 64 lower-case hexadecimal digits
	Size   int64  // bytes, more than 0
}

// Fill writes the archive to w, which takes no more than the pinned bytes. What it
// wrote before an error is thrown away.
type Fill func(ctx context.Context, w io.Writer) error

// Slots of one Connector. The hidden ones are steps in between.
const (
	current   = "current"
	candidate = "candidate"
	filling   = ".filling"
	retired   = ".retired"

	archiveFile = "archive"
)

// Cache is the archives in one directory. Its methods may be called from any goroutine
// and process, for one Connector by whoever holds its lock.
type Cache struct {
	dir  string
	root *os.Root
}

// Open opens the cache in dir, absolute, made with mode 0700 if absent. The caller must
// Close it.
func Open(dir string) (*Cache, error) {
	if !filepath.IsAbs(dir) {
		return nil, errors.New("open downloads: the directory must be absolute")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open downloads: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open downloads: %w", err)
	}
	return &Cache{dir: dir, root: root}, nil
}

// Close lets go of the directory.
func (c *Cache) Close() error { return c.root.Close() }

// Prepare returns the absolute path of a private file with exactly the pinned bytes,
// hashed now. The current archive or the candidate is taken if it is that one;
// otherwise fill writes a new candidate. The current one stays whatever happens. What
// comes is an ErrMismatch if its size or digest is another. The file stays until the
// next Prepare, Promote or Drop for the key.
func (c *Cache) Prepare(ctx context.Context, key name.ConnectorKey, p Pin, fill Fill) (string, error) {
	at, err := c.prepare(ctx, key, p, fill)
	if err != nil {
		return "", fmt.Errorf("prepare archive of %s: %w", key, err)
	}
	return at, nil
}

func (c *Cache) prepare(ctx context.Context, key name.ConnectorKey, p Pin, fill Fill) (string, error) {
	if !p.valid() || manifest.CheckPath(key.String()) != nil {
		return "", errors.New("want a key, a size and a SHA-256")
	}
	of := key.String()
	if err := c.recover(of); err != nil {
		return "", err
	}
	for _, slot := range []string{current, candidate} {
		if c.holds(ctx, path.Join(of, slot), p) {
			return c.path(of, slot, archiveFile), nil
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := c.root.MkdirAll(path.Join(of, filling), 0o700); err != nil {
		return "", err
	}
	failpoint.Hit("download-begun")
	if err := c.fill(ctx, path.Join(of, filling), p, fill); err != nil {
		return "", errors.Join(err, c.root.RemoveAll(path.Join(of, filling)))
	}
	if err := c.root.RemoveAll(path.Join(of, candidate)); err != nil {
		return "", err
	}
	if err := c.rename(of, filling, candidate); err != nil {
		return "", err
	}
	failpoint.Hit("candidate")
	return c.path(of, candidate, archiveFile), nil
}

// fill makes a whole slot at rel, which is an empty directory.
func (c *Cache) fill(ctx context.Context, rel string, p Pin, fill Fill) (err error) {
	f, err := c.root.OpenFile(path.Join(rel, archiveFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := &meter{w: f, left: p.Size, hash: sha256.New()}
	err = fill(ctx, w)
	switch {
	case w.over: // whatever fill made of the refusal
		err = fmt.Errorf("%w: it is larger than %d bytes", ErrMismatch, p.Size)
	case err != nil:
	case w.left != 0:
		err = fmt.Errorf("%w: it has %d bytes, not %d", ErrMismatch, p.Size-w.left, p.Size)
	case hex.EncodeToString(w.hash.Sum(nil)) != p.SHA256:
		err = fmt.Errorf("%w: its SHA-256 is %x", ErrMismatch, w.hash.Sum(nil))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	failpoint.Hit("download-written")
	if err := writeReceipt(c.path(rel, receiptFile), p); err != nil {
		return err
	}
	failpoint.Hit("download-received")
	return nil
}

// Promote makes the archive that p names the current one of key, if it is the
// candidate; if it is current already, or there is none, nothing changes. The one that
// was current is the candidate then, until Tidy or the next Prepare takes it away. A
// crash at any step leaves a whole archive in one of the two places.
func (c *Cache) Promote(ctx context.Context, key name.ConnectorKey, p Pin) error {
	if err := c.promote(ctx, key.String(), p); err != nil {
		return fmt.Errorf("promote archive of %s: %w", key, err)
	}
	return nil
}

func (c *Cache) promote(ctx context.Context, of string, p Pin) error {
	if err := c.recover(of); err != nil {
		return err
	}
	if !c.holds(ctx, path.Join(of, candidate), p) {
		return nil
	}
	if err := c.rename(of, current, retired); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	failpoint.Hit("promote-retired")
	if err := c.rename(of, candidate, current); err != nil {
		return errors.Join(err, c.recover(of))
	}
	failpoint.Hit("promote-current")
	if err := c.settle(of); err != nil {
		return err
	}
	failpoint.Hit("promoted")
	return nil
}

// recover finishes or undoes what a crash interrupted: without a current archive the
// retired one is current again; a half-filled slot is rubbish.
func (c *Cache) recover(of string) error {
	if _, err := c.root.Lstat(path.Join(of, current)); errors.Is(err, fs.ErrNotExist) {
		if err := c.rename(of, retired, current); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else if err != nil {
		return err
	}
	return errors.Join(c.settle(of), c.root.RemoveAll(path.Join(of, filling)))
}

// settle makes the retired archive, beside a current one, the candidate: the version that
// it is of may still be there, and be gone back to. It is rubbish if it says nothing
// else than the current one, or if there is a candidate.
func (c *Cache) settle(of string) error {
	was, ok := c.pinned(path.Join(of, retired))
	is, _ := c.pinned(path.Join(of, current))
	if _, err := c.root.Lstat(path.Join(of, candidate)); ok && was != is && errors.Is(err, fs.ErrNotExist) {
		return c.rename(of, retired, candidate)
	}
	return c.root.RemoveAll(path.Join(of, retired))
}

// Unused is an archive that no release is made of.
type Unused struct {
	Path  string // relative to the cache, with slashes
	Bytes int64
}

// Tidy removes the archives of key that are not among used, those of the releases that
// are installed, and returns them; remove false only finds them. What a crash left
// between an installation and its promotion is promoted. A crash at any step leaves what
// is used, and the rest to the next Tidy.
func (c *Cache) Tidy(ctx context.Context, key name.ConnectorKey, used []Pin, remove bool) ([]Unused, error) {
	found, err := c.tidy(ctx, key.String(), used, remove)
	if err != nil {
		return found, fmt.Errorf("tidy archives of %s: %w", key, err)
	}
	return found, nil
}

func (c *Cache) tidy(ctx context.Context, of string, used []Pin, remove bool) (found []Unused, err error) {
	if manifest.CheckPath(of) != nil {
		return nil, errors.New("want a key")
	}
	if remove {
		if err := c.recover(of); err != nil {
			return nil, err
		}
	}
	pin, waits := c.pinned(path.Join(of, candidate))
	if _, ok := c.pinned(path.Join(of, current)); remove && waits && !ok && slices.Contains(used, pin) {
		if err := c.promote(ctx, of, pin); err != nil {
			return nil, err
		}
	}
	for _, slot := range []string{current, candidate} {
		rel := path.Join(of, slot)
		if pin, ok := c.pinned(rel); ok && slices.Contains(used, pin) {
			continue
		}
		bytes, err := c.weigh(rel)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, err
		}
		found = append(found, Unused{rel, bytes})
		if !remove {
			continue
		}
		// Its name first, so that a part of it is never taken for the whole.
		if err := errors.Join(c.rename(of, slot, filling), c.root.RemoveAll(path.Join(of, filling))); err != nil {
			return found, err
		}
	}
	if remove {
		_ = c.root.Remove(of) // if it is empty
	}
	return found, nil
}

func (c *Cache) weigh(rel string) (n int64, err error) {
	if _, err := c.root.Lstat(rel); err != nil {
		return 0, err
	}
	return n, fs.WalkDir(c.root.FS(), rel, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
}

// Drop removes all archives of a Connector. None is no error.
func (c *Cache) Drop(key name.ConnectorKey) error {
	if key.IsZero() || manifest.CheckPath(key.String()) != nil {
		return errors.New("drop archives: want a key")
	}
	if err := c.root.RemoveAll(key.String()); err != nil {
		return fmt.Errorf("drop archives of %s: %w", key, err)
	}
	return nil
}

// Keys names the Connectors that have archives here.
func (c *Cache) Keys() ([]name.ConnectorKey, error) {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list downloads: %w", err)
	}
	var out []name.ConnectorKey
	for _, e := range entries {
		if key, err := name.ParseConnectorKey(e.Name()); err == nil && e.IsDir() {
			out = append(out, key)
		}
	}
	return out, nil
}

// rename moves a slot and makes that durable.
func (c *Cache) rename(of, from, to string) error {
	if err := c.root.Rename(path.Join(of, from), path.Join(of, to)); err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(c.path(of)), atomicfile.SyncDir(c.dir))
}

func (c *Cache) path(rel ...string) string {
	return filepath.Join(c.dir, filepath.FromSlash(path.Join(rel...)))
}
