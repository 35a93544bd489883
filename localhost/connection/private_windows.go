package connection

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// private: access control lists are inherited from the user's profile, where the
// directories are; modes say nothing here.
func private(fs.FileInfo) bool { return true }

func openPrivate(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrUnsafe
	}
	return os.Open(path)
}

// systemRoot is where many programs find what they load; from the system, not
// from our own environment.
func systemRoot() string {
	dir, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return ""
	}
	return dir
}
