package folder

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes what was written durable, with the size of the file and without
// its times. Systems without this method sync everything.
func (system) datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
