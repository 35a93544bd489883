package stdio

import "golang.org/x/sys/unix"

func pipe(p *[2]int) error { return unix.Pipe2(p[:], unix.O_CLOEXEC) }
