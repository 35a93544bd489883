package main

import "golang.org/x/sys/unix"

const getTermios, setTermios = unix.TCGETS, unix.TCSETSF

func flushInput(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
