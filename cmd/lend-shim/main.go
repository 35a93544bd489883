// Command lend-shim is the small companion of lend: what must start in a
// millisecond. As the supervisor of a command it is started by lend alone, which
// finds it beside its own executable and takes it only if it is of the same build.
//
// It links neither libp2p nor protobuf nor package net, which cost several
// milliseconds before main.
package main

import (
	"os"

	"github.com/lendcli/lend/localhost/process/supervise"
)

// exitUsage is the status of a shim that did nothing.
const exitUsage = 125

func main() {
	supervise.Main()
	_, _ = os.Stderr.WriteString("lend-shim: error: started by hand\nlend-shim: hint: lend starts it; see 'lend help'\n")
	os.Exit(exitUsage)
}
