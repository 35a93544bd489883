package artifact

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/lendcli/lend/localhost/manifest"
)

// End of central directory record, of a zip without 64-bit fields.
const (
	endLen        = 22
	maxComment    = 1<<16 - 1
	minEntryBytes = 46 // a central directory header without its name
)

func fromZip(w *writer, f *os.File, size int64) error {
	if err := checkEnd(f, size, w.o.Limits.Entries); err != nil {
		return err
	}
	z, err := zip.NewReader(f, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // paths are checked below
		return refuse("", "not a zip archive: %v", err)
	}
	for _, e := range z.File {
		if err := w.zipEntry(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) zipEntry(e *zip.File) error {
	p, ok, err := w.entryName(e.Name)
	if err != nil || !ok {
		return err
	}
	mode := e.Mode()
	switch {
	case e.Flags&1 != 0:
		return refuse(p, "it is encrypted")
	case mode.IsDir() && e.UncompressedSize64 == 0:
		return w.dir(p)
	case !mode.IsRegular():
		return refuse(p, "it is a %s: only files and directories are taken", kindOf(mode))
	case e.Method != zip.Store && e.Method != zip.Deflate:
		return refuse(p, "compression method %d is not known", e.Method)
	}
	ratio := uint64(max(w.o.Limits.Ratio, 1))
	if e.UncompressedSize64 > uint64(w.o.Limits.FileBytes) || e.UncompressedSize64/ratio > e.CompressedSize64 {
		return refuse(p, "larger than %d bytes, or than %d times its packed size", w.o.Limits.FileBytes, ratio)
	}
	r, err := e.Open()
	if err != nil {
		return refuse(p, "%v", err)
	}
	defer func() { _ = r.Close() }()
	return asRefusal(p, w.file(p, int64(e.UncompressedSize64), mode&0o111 != 0, r), zip.ErrChecksum, zip.ErrFormat, io.ErrUnexpectedEOF)
}

// asRefusal turns an error of a decoder into a refusal of the source.
func asRefusal(p string, err error, decoder ...error) error {
	for _, d := range decoder {
		if errors.Is(err, d) {
			return refuse(p, "damaged: %v", err)
		}
	}
	return err
}

// checkEnd bounds the central directory before archive/zip reads all of it into
// memory: it must be where the end record says, end where that begins, and have
// room for no more entries than allowed.
func checkEnd(f io.ReaderAt, size int64, entries int) error {
	tail := make([]byte, min(size, endLen+maxComment))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	at := -1
	for i := len(tail) - endLen; i >= 0; i-- {
		if string(tail[i:i+4]) == "PK\x05\x06" {
			at = i
			break
		}
	}
	if at < 0 {
		return refuse("", "not a zip archive: no end record")
	}
	end := tail[at:]
	le := binary.LittleEndian
	count, dirSize, dirAt := le.Uint16(end[10:]), int64(le.Uint32(end[12:])), int64(le.Uint32(end[16:]))
	endAt := size - int64(len(tail)) + int64(at)
	perEntry := int64(minEntryBytes + manifest.MaxPath)
	switch {
	case int(le.Uint16(end[20:])) != len(end)-endLen:
		return refuse("", "not a zip archive: something follows its end")
	case count == 0xffff || dirAt == 0xffffffff || dirSize == 0xffffffff:
		return refuse("", "64-bit zip archives are not taken")
	case int(count) > entries || dirSize > int64(entries)*perEntry:
		return refuse("", "more than %d entries", entries)
	case dirAt+dirSize != endAt || dirSize < int64(count)*minEntryBytes:
		return refuse("", "not a zip archive: its directory is not where it says")
	}
	return nil
}

// entryName brings the name of an archive entry into our form; ok is false for an
// entry that is left out. One "./" before it, as "tar -c ." writes it, is no part of the
// name.
func (w *writer) entryName(raw string) (p string, ok bool, err error) {
	p = strings.TrimSuffix(strings.TrimPrefix(raw, "./"), "/")
	if p == "" || p == "." {
		return "", false, w.count()
	}
	if err := manifest.CheckPath(p); err != nil {
		return "", false, &RefusedError{"", err.Error()}
	}
	for range w.o.Strip {
		if _, p, ok = strings.Cut(p, "/"); !ok {
			return "", false, w.count()
		}
	}
	if skipped(w, p) {
		return "", false, w.count()
	}
	return p, true, nil
}

// skipped tells whether p or a directory above it is left out.
func skipped(w *writer, p string) bool {
	for i, c := range p {
		if c == '/' && w.skip(p[:i]) {
			return true
		}
	}
	return w.skip(p)
}

// count bounds the entries that are left out as well.
func (w *writer) count() error {
	if w.left++; w.left > w.o.Limits.Entries {
		return refuse("", "more than %d entries", w.o.Limits.Entries)
	}
	return nil
}
