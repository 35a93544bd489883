package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/strictjson"
)

const (
	receiptFile   = "receipt.json"
	receiptFormat = 1
	maxReceipt    = 4 << 10
)

// receipt says what a slot holds.
type receipt struct {
	Format int    `json:"format"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

func (p Pin) valid() bool {
	b, err := hex.DecodeString(p.SHA256)
	return err == nil && len(b) == sha256.Size && strings.ToLower(p.SHA256) == p.SHA256 && p.Size > 0
}

func writeReceipt(at string, p Pin) error {
	b, err := json.MarshalIndent(receipt{receiptFormat, p.SHA256, p.Size}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(at, append(b, '\n'))
}

// pinned is what the receipt of the slot at rel says; nobody looks at the bytes.
func (c *Cache) pinned(rel string) (Pin, bool) {
	b, err := atomicfile.Read(c.path(rel, receiptFile), maxReceipt)
	if err != nil {
		return Pin{}, false
	}
	var r receipt
	if strictjson.Decode(b, maxReceipt, &r) != nil || r.Format != receiptFormat {
		return Pin{}, false
	}
	return Pin{r.SHA256, r.Size}, true
}

// holds tells whether the slot at rel is whole: its receipt says so, and so does every
// byte of its file. What cannot be read is not.
func (c *Cache) holds(ctx context.Context, rel string, p Pin) bool {
	if got, ok := c.pinned(rel); !ok || got != p {
		return false
	}
	f, err := c.root.OpenFile(path.Join(rel, archiveFile), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != p.Size {
		return false
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(&reader{ctx, f}, p.Size+1))
	return err == nil && n == p.Size && hex.EncodeToString(h.Sum(nil)) == p.SHA256
}

// reader ends when ctx does.
type reader struct {
	ctx context.Context //nolint:containedctx // the lifetime of one copy
	r   io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}

var errFull = errors.New("more than was pinned")

// meter hashes what passes, and takes left bytes at most.
type meter struct {
	w    io.Writer
	hash hash.Hash
	left int64
	over bool
}

func (m *meter) Write(b []byte) (int, error) {
	if int64(len(b)) > m.left {
		m.over = true
		return 0, errFull
	}
	n, err := m.w.Write(b)
	m.hash.Write(b[:n])
	m.left -= int64(n)
	return n, err
}
