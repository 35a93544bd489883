package artifact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
)

// maxTrailer bounds what may follow the end of a tar archive: its padding.
const maxTrailer = 1 << 20

func fromTarGz(w *writer, f *os.File, size int64) error {
	packed := bufio.NewReaderSize(f, 1<<16)
	z, err := gzip.NewReader(packed)
	if err != nil {
		return refuse("", "not a gzip file: %v", err)
	}
	z.Multistream(false) // what follows the one member is looked at below
	// The ratio bounds everything that is read, headers and padding included;
	// small archives are mostly padding.
	budget := &budgetReader{r: z, left: size*w.o.Limits.Ratio + 1<<16}
	t := tar.NewReader(budget)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // paths are checked below
			return damaged(err)
		}
		if err := w.tarEntry(h, t); err != nil {
			return damaged(err)
		}
	}
	if err := padding(budget); err != nil {
		return damaged(err)
	}
	switch _, err := packed.ReadByte(); {
	case err == nil:
		return refuse("", "something follows the archive's gzip stream")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// padding reads what follows the end of a tar archive: zeros, and not many. Another tool
// could take anything else for more entries, which nobody has seen.
func padding(r io.Reader) error {
	block := make([]byte, 4<<10)
	for total := 0; ; {
		n, err := r.Read(block)
		if total += n; total > maxTrailer || len(bytes.TrimLeft(block[:n], "\x00")) > 0 {
			return refuse("", "something follows the archive")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func damaged(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) {
		return refuse("", "damaged: %v", err)
	}
	return asRefusal("", err, tar.ErrHeader, tar.ErrFieldTooLong, gzip.ErrChecksum, gzip.ErrHeader, io.ErrUnexpectedEOF)
}

func (w *writer) tarEntry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader { // a comment, as archivers of repositories write it
		return w.count()
	}
	p, ok, err := w.entryName(h.Name)
	if err != nil || !ok {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return w.dir(p)
	case tar.TypeReg:
		if sparse(h) {
			return refuse(p, "it is sparse: most of it is not in the archive")
		}
		return w.file(p, h.Size, h.Mode&0o111 != 0, r)
	case tar.TypeLink:
		return refuse(p, "it is a hard link: only files and directories are taken")
	case tar.TypeSymlink:
		if w.o.SkipLinks {
			return w.count()
		}
		return refuse(p, "it is a symbolic link: only files and directories are taken")
	}
	return refuse(p, "entry type %q is not taken: only files and directories are", h.Typeflag)
}

// sparse tells whether a file has holes, which expand without being read: no budget
// would see them.
func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// budgetReader refuses to read on once left bytes have come.
type budgetReader struct {
	r    io.Reader
	left int64
}

func (b *budgetReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, refuse("", "it expands too far for its packed size")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
