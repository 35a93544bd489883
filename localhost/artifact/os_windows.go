package artifact

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// identity is what changes when a file does. It is comparable.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // 100 ns; ctime is the creation time
	mode, owner  uint32
}

// base stands for the root of a tree, whose entries are looked up by their whole paths.
type base struct{}

func openBase(*Snapshot) (base, error) { return base{}, nil }

func (base) close() {}

func (base) identityOf(e *entry) (identity, error) { return identityOf(e.abs) }

func identityOf(path string) (identity, error) {
	f, err := openNoFollow(path)
	if err != nil {
		return identity{}, err
	}
	defer func() { _ = f.Close() }()
	return identityOfFile(f)
}

func identityOfFile(f *os.File) (identity, error) {
	var d windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &d); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return identity{
		dev: uint64(d.VolumeSerialNumber), ino: uint64(d.FileIndexHigh)<<32 | uint64(d.FileIndexLow),
		size:  int64(d.FileSizeHigh)<<32 | int64(d.FileSizeLow),
		mtime: d.LastWriteTime.Nanoseconds(), ctime: d.CreationTime.Nanoseconds(), mode: d.FileAttributes,
	}, nil
}

func (i identity) isDir() bool { return i.mode&windows.FILE_ATTRIBUTE_DIRECTORY != 0 }

// wellFormed tells whether Import could have made it.
func (i identity) wellFormed() bool {
	return i.mode&(windows.FILE_ATTRIBUTE_REPARSE_POINT|windows.FILE_ATTRIBUTE_DEVICE) == 0 &&
		(i.isDir() || i.mode&windows.FILE_ATTRIBUTE_READONLY != 0)
}

func openNoFollow(path string) (*os.File, error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(p, windows.GENERIC_READ, windows.FILE_SHARE_READ, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

func syncFile(f *os.File) error { return f.Sync() }

func syncTree(*os.Root, []string) error { return nil }
