// Command lend lends commands of a Connector's CLI to peers, never a shell.
//
// On the owner's machine it is the gateway (lend serve) and everything that is
// set up beside it: keys, Connectors, secrets, policy and leases. On another
// machine it runs one lent command (lend run). The files of this package hold
// one noun each; wire.go joins the two sides.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/lendcli/lend/localhost/process"
)

func main() {
	process.Main() // does not return in a supervisor
	given := takeDescriptors()
	a := newApp(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	a.give(given)
	os.Exit(run(context.Background(), a))
}

// run executes one command line and returns its exit status: 0, 1 (failed), 2
// (usage or configuration), or what lend run passes on.
func run(ctx context.Context, a *app) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	a.stopSignals = stop
	root := a.root()
	root.SetArgs(a.args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.late
	}
	if err == nil {
		return 0
	}
	var status *statusError
	if errors.As(err, &status) {
		return status.code
	}
	switch cmd.CommandPath() {
	case "lend run", "lend connector try":
		return a.failRun(err, exitNotSent) // 1 and 2 are the command's
	case "lend ops attach":
		return a.failRun(err, 2)
	}
	return a.fail(err)
}

// failRun is fail for a command whose standard output is another's.
func (a *app) failRun(err error, status int) int {
	a.tellBoth(resultOf(nil, err, status, 0), err)
	return status
}
