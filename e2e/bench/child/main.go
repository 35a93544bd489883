// Command child is what the benchmarks start: it moves bytes and does nothing else.
//
//	child produce BYTES   write BYTES to standard output, 64 KiB at a time
//	child consume         read standard input to its end
//	child cat             copy standard input to standard output
//	child sleep           wait for ever
package main

import (
	"os"
	"strconv"
	"time"
)

const block = 64 << 10

func main() {
	if len(os.Args) < 2 {
		os.Exit(64)
	}
	switch os.Args[1] {
	case "produce":
		produce()
	case "consume":
		pump(nil)
	case "cat":
		pump(os.Stdout)
	case "sleep":
		for {
			time.Sleep(time.Hour) // an empty select would be taken for a deadlock
		}
	default:
		os.Exit(64)
	}
}

func produce() {
	if len(os.Args) < 3 {
		os.Exit(64)
	}
	left, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(64)
	}
	b := make([]byte, block)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for left > 0 {
		n, err := os.Stdout.Write(b[:min(left, block)])
		if err != nil {
			os.Exit(1)
		}
		left -= n
	}
}

func pump(to *os.File) {
	b := make([]byte, block)
	for {
		n, err := os.Stdin.Read(b)
		if n > 0 && to != nil {
			if _, err := to.Write(b[:n]); err != nil {
				os.Exit(1)
			}
		}
		if err != nil {
			return
		}
	}
}
