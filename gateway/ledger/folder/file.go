package folder

import (
	"io"
	"os"
	"path/filepath"

	"github.com/lendcli/lend/gateway/ledger/segment"
)

// File is what the ledger needs of its segment; tests put faults behind it.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	// Datasync makes what was written durable.
	Datasync() error
	Size() (int64, error)
	// Linked tells whether the path still names this file.
	Linked() bool
	Close() error
}

type osFile struct {
	*os.File
	path string
}

// system has a method datasync where the operating system has that call.
type system struct{}

func (f osFile) Datasync() error {
	if s, ok := any(system{}).(interface{ datasync(f *os.File) error }); ok {
		return s.datasync(f.File)
	}
	return f.Sync()
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Linked() bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.path)
	return err == nil && os.SameFile(mine, named)
}

// Open opens the segment of the ledger in dir that begins with a record, with the
// flag of os.OpenFile. What is no file is segment.ErrCorrupt.
func Open(dir string, first uint64, flag int) (File, error) {
	path := filepath.Join(dir, segmentName(first))
	if err := regular(path); err != nil {
		err.Index = first
		return nil, err
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f, path}, nil
}

// regular refuses what is there and is no file: in a directory that came from
// elsewhere, opening a pipe would wait for ever.
func regular(path string) *segment.DamageError {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &segment.DamageError{What: filepath.Base(path) + " is not a file"}
	}
	return nil
}
