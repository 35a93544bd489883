package revocations

import (
	"os"
	"syscall"
)

// changeTime is when the file was last changed in any way, in nanoseconds.
func changeTime(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctimespec.Nano()
	}
	return 0
}
