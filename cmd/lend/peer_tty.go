//go:build linux || darwin

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is how many columns a terminal has; 0 if v is none, or does not say.
func terminalWidth(v any) int {
	f, ok := v.(*os.File)
	if !ok || !isTerminal(f) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// forgetTyped drops what was typed at a terminal and is not read yet.
func forgetTyped(v any) error {
	f, ok := v.(*os.File)
	if !ok || !isTerminal(f) {
		return nil
	}
	return flushInput(int(f.Fd()))
}
