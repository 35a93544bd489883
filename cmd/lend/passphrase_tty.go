//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// promptPassphrase asks on the terminal of this process, wherever its streams go. Without
// one it names the variable that is read instead.
func promptPassphrase(prompt, variable string) (pass []byte, err error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("no terminal to ask on: set %[1]s_FD or %[1]s", variable)
	}
	defer func() { _ = tty.Close() }() // nothing is buffered
	fd := int(tty.Fd())
	modes, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, fmt.Errorf("ask on the terminal: %w", err)
	}
	quiet := *modes
	quiet.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG // a signal would leave it so
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, setTermios, &quiet); err != nil {
		return nil, fmt.Errorf("ask on the terminal: %w", err)
	}
	defer func() { err = errors.Join(err, unix.IoctlSetTermios(fd, setTermios, modes)) }()
	if _, err := fmt.Fprint(tty, "lend: ", prompt); err != nil {
		return nil, err
	}
	pass, err = readHidden(tty)
	_, _ = fmt.Fprintln(tty) // the line end was not shown
	return pass, err
}
