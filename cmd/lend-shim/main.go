// Command lend-shim is the small companion of lend: what must start in a
// millisecond.
//
// As the supervisor of a command it is started by lend alone, which finds it beside
// its own executable and takes it only if it is of the same build.
//
// Under the name of a CLI (lend shim add github --as gh) it is a caller's shim: it
// hands its name, its arguments, LEND_AUTHORITY and its standard streams to the broker
// of the session that LEND_SESSION names, passes INT, TERM and HUP on as a cancel, and
// returns the exit status that it is told. It holds no authority, no path of a program
// and no lease, and it returns 0 only for an end that the broker has heard of.
//
// It links neither libp2p nor protobuf nor package net, which cost several
// milliseconds before main.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/process/supervise"
)

// exitUsage is the status of a shim that did nothing.
const exitUsage = 125

func main() {
	supervise.Main()
	as := filepath.Base(os.Args[0])
	if as = strings.TrimSuffix(as, ".exe"); as != "lend-shim" && !strings.HasPrefix(os.Args[0], "lend: ") {
		os.Exit(shim(as, os.Args[1:]))
	}
	_, _ = os.Stderr.WriteString("lend-shim: error: started by hand\nlend-shim: hint: lend starts it; see 'lend help shim'\n")
	os.Exit(exitUsage)
}

// say writes an error, and what to do next.
func say(message, hint string) {
	text := ""
	if message != "" {
		text = "lend: error: " + message + "\n"
	}
	if hint != "" {
		text += "lend: hint: " + hint + "\n"
	}
	_, _ = os.Stderr.WriteString(text)
}
