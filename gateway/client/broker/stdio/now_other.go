//go:build unix && !linux

package stdio

import "golang.org/x/sys/unix"

func canNow(uint32) bool { return false }

func readNow(int, []byte) (int, error) { return 0, unix.ENOSYS }

func writeNow(int, []byte) (int, error) { return 0, unix.ENOSYS }

func cannotNow(error) bool { return true }
