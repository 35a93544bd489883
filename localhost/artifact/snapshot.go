package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// ChangedError says that a tree is not what it was when it was written or opened.
// Nothing of it may run.
type ChangedError struct {
	Path   string // in the tree; "." for its root
	Reason string
}

func (e *ChangedError) Error() string {
	return "snapshot changed: " + name.Quote(e.Path) + ": " + e.Reason
}

func changed(path, reason string) error { return &ChangedError{path, reason} }

// Snapshot is a tree that was hashed when it was opened. Its methods may be called
// from any goroutine.
type Snapshot struct {
	dir    string
	digest string
	at     map[string]int // path → index in entries

	mu      sync.RWMutex // guards the identities in entries
	entries []entry      // in lexical order, "." first

	looked func() // of tests, between the look and the last check; nil
}

// entry is what is known of one file or directory.
type entry struct {
	path     string // in the tree
	abs      string
	id       identity
	sum      [sha256.Size]byte // of a file's content
	dir      bool
	children []string // names in a directory, sorted
}

// Open hashes the tree at dir, an absolute path. Links, special files, and modes
// that Import does not write are a *ChangedError. The caller compares Digest with
// what it has on record.
func Open(dir string, l Limits) (*Snapshot, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	defer func() { _ = root.Close() }()
	s := &Snapshot{dir: dir, at: make(map[string]int)}
	h := sha256.New()
	var total int64
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if len(s.entries) > l.Entries {
			return changed(p, "too many entries")
		}
		e, err := s.read(root, p, l, h)
		if total += e.id.size; err == nil && total > l.TreeBytes+int64(l.Entries)<<16 { // directories have a size too
			err = changed(p, "too large")
		}
		s.at[p] = len(s.entries)
		s.entries = append(s.entries, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	s.digest = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// read hashes one entry into tree and returns what is known of it.
func (s *Snapshot) read(root *os.Root, p string, l Limits, tree hash.Hash) (entry, error) {
	abs := filepath.Join(s.dir, filepath.FromSlash(p))
	id, err := identityOf(abs)
	if err != nil {
		return entry{}, err
	}
	e := entry{path: p, abs: abs, id: id, dir: id.isDir()}
	if !id.wellFormed() {
		return entry{}, changed(p, "not a private read-only file or directory")
	}
	id.settle()
	if e.dir {
		e.children, err = childNames(abs)
		if p != "." {
			tree.Write([]byte(p + "\x00dir\x00"))
		}
		return e, err
	}
	if id.size > l.FileBytes {
		return entry{}, changed(p, "too large")
	}
	tree.Write([]byte(p + "\x00file\x00" + strconv.FormatInt(id.size, 10) + "\x00"))
	f, err := root.Open(p)
	if err != nil {
		return entry{}, err
	}
	defer func() { _ = f.Close() }()
	e.sum, err = hashFile(f, p, id, tree)
	return e, err
}

// hashFile hashes f, which must have identity id before and after.
func hashFile(f *os.File, p string, id identity, also io.Writer) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(h, also), io.LimitReader(f, id.size+1))
	if err != nil {
		return sum, err
	}
	after, err := identityOfFile(f)
	if err != nil {
		return sum, err
	}
	if after != id || n != id.size {
		return sum, changed(p, "it changed while it was read")
	}
	copy(sum[:], h.Sum(nil))
	return sum, nil
}

// Dir returns the absolute path of the tree.
func (s *Snapshot) Dir() string { return s.dir }

// Digest returns the tree digest, 64 lower-case hexadecimal digits.
func (s *Snapshot) Digest() string { return s.digest }

// File returns the absolute path and the SHA-256 (hexadecimal) of the file p of the
// tree; ok is false if there is no such file.
func (s *Snapshot) File(p string) (abs, sum string, ok bool) {
	i, ok := s.at[p]
	if !ok || s.entries[i].dir {
		return "", "", false
	}
	return s.entries[i].abs, hex.EncodeToString(s.entries[i].sum[:]), true
}

// Identity is one state of one file: whatever changes its content, mode or owner
// gives another. Times are nanoseconds since 1970; a zero Inode means that the system
// has no such numbers.
type Identity struct {
	Device, Inode           uint64
	Size, Modified, Changed int64
}

// Identity returns that of the file p of the tree as it was when it was last found to
// hold the bytes that Digest is of; ok is false if there is no such file.
func (s *Snapshot) Identity(p string) (id Identity, ok bool) {
	i, ok := s.at[p]
	if !ok || s.entries[i].dir {
		return Identity{}, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[i].id.public(), true
}

func (i identity) public() Identity { return Identity{i.dev, i.ino, i.size, i.mtime, i.ctime} }

// tick is more than the resolution of the times that a file system keeps.
const tick = 20 * time.Millisecond

const (
	severalFrom = 512 // entries
	maxLookers  = 4
)

// settle waits until a change that comes later must have a later time than id has:
// else one in the same tick, after the file was hashed, would not show.
func (i identity) settle() {
	age := time.Since(time.Unix(0, max(i.mtime, i.ctime)))
	if age < tick {
		<-time.After(min(tick, tick-age)) // no longer, whatever the clock says
	}
}

// Verify says whether the tree is still the one that was hashed: the same names,
// modes and bytes. It compares (device, inode, size, both times, mode, owner) of
// every entry; where one differs it hashes the file, or lists the directory, again,
// and remembers the new identity if the content is the same. Otherwise the error is
// a *ChangedError. It costs one lstat an entry, in several goroutines if there are many.
func (s *Snapshot) Verify() error {
	root, err := openBase(s)
	if err != nil {
		return changed(".", "it cannot be read: "+reason(err))
	}
	defer root.close()
	if err := s.verifyAll(root); err != nil {
		return err
	}
	if s.looked != nil {
		s.looked()
	}
	// Its path still leads to the tree that was looked at.
	s.mu.RLock()
	top := s.entries[0].id
	s.mu.RUnlock()
	if id, err := identityOf(s.dir); err != nil || id != top {
		return changed(".", "it was replaced while it was looked at")
	}
	return nil
}

// verifyAll looks at all entries: at those of a large tree by several goroutines, since
// that is what the start of a large package waits for.
func (s *Snapshot) verifyAll(root base) error {
	parts := 1
	if len(s.entries) >= severalFrom {
		parts = min(maxLookers, runtime.GOMAXPROCS(0))
	}
	errs := make([]error, parts)
	var all sync.WaitGroup
	for k := range parts {
		from, to := k*len(s.entries)/parts, (k+1)*len(s.entries)/parts
		look := func() { errs[k] = s.verify(root, from, to) }
		if k == parts-1 {
			look()
		} else {
			all.Go(look)
		}
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// verify looks at the entries from from to before to.
func (s *Snapshot) verify(root base, from, to int) error {
	for i := from; i < to; i++ {
		s.mu.RLock()
		before := s.entries[i].id
		s.mu.RUnlock()
		e := &s.entries[i]
		id, err := root.identityOf(e)
		if err != nil {
			return changed(e.path, "it cannot be read: "+reason(err))
		}
		if id == before {
			continue
		}
		if err := again(e, before, id); err != nil {
			return err
		}
		s.mu.Lock()
		e.id = id
		s.mu.Unlock()
	}
	return nil
}

// again decides about an entry whose identity was before and is now id.
func again(e *entry, before, id identity) error {
	if id.mode != before.mode || id.owner != before.owner || !id.wellFormed() {
		return changed(e.path, "its kind, mode or owner changed")
	}
	id.settle()
	if !e.dir {
		return rehash(e, before, id)
	}
	now, err := childNames(e.abs)
	if err != nil {
		return changed(e.path, "it cannot be read: "+reason(err))
	}
	if !slices.Equal(now, e.children) {
		return changed(e.path, "entries were added or removed")
	}
	return nil
}

func rehash(e *entry, before, id identity) error {
	if id.size != before.size {
		return changed(e.path, "its size changed")
	}
	f, err := openNoFollow(e.abs)
	if err != nil {
		return changed(e.path, "it cannot be read: "+reason(err))
	}
	defer func() { _ = f.Close() }()
	sum, err := hashFile(f, e.path, id, io.Discard)
	if err != nil {
		return err
	}
	if sum != e.sum {
		return changed(e.path, "its content changed")
	}
	return nil
}

// reason says why without the absolute path, which is the owner's business.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

func childNames(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = d.Name()
	}
	return out, nil
}

// Remove takes away the tree, or any directory above trees, at the relative path p
// under root. Links are removed, never followed. Absent is no error.
func Remove(root *os.Root, p string) error {
	p = path.Clean(filepath.ToSlash(p))
	err := fs.WalkDir(root.FS(), p, func(q string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = root.Chmod(q, 0o700)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove tree: %w", err)
	}
	if err := root.RemoveAll(p); err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	return nil
}
