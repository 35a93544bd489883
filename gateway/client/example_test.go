package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol"
)

// The examples talk to a gateway of this test that says what a real one would.

func Example() {
	f := newFixture(overTCP)
	defer f.close()
	f.then(exits(stdout(0, "#1 first issue\n"), &protocol.Exit{Stdout: 15}))

	c, err := New(Config{Key: f.key, Leases: f.config.Leases, Addresses: f.config.Addresses})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := c.Command(ctx, "github", "issue.list", "--repo", "a/b").Output()
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// #1 first issue
	// <nil>
}

// Input and output are streams; the command begins while the input is not
// complete.
func ExampleCmd_StdinPipe() {
	f := newFixture(overQUIC)
	defer f.close()
	f.then(echo)
	c, err := New(f.config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	cmd := c.Command(context.Background(), "github", "issue.list")
	cmd.Stdout = os.Stdout
	in, err := cmd.StdinPipe()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = io.Copy(in, strings.NewReader("hello\n"))
	_ = in.Close()
	fmt.Println(cmd.Wait())
	// Output:
	// hello
	// <nil>
}

// Each family of errors says something else about what ran.
func ExampleExitStatus() {
	f := newFixture(overTCP)
	defer f.close()
	f.then(
		exits(&protocol.Exit{Status: 3}),
		refuses(protocol.CodeArgumentRejected, 0),
		exits(&protocol.Exit{Code: protocol.CodeTimeout, Signal: "SIGTERM"}),
	)
	c, err := New(f.config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for range 3 {
		err := c.Command(context.Background(), "github", "issue.list").Run()
		var exit *ExitError
		var refused *RefusedError
		var ended *EndedError
		switch {
		case errors.As(err, &exit):
			fmt.Println("it failed:", err)
		case errors.As(err, &refused):
			fmt.Println("nothing ran:", refused.Code)
		case errors.As(err, &ended):
			fmt.Println("it was stopped:", ended.Code)
		}
		fmt.Println(ExitStatus(err))
	}
	// Output:
	// it failed: the command exited with status 3
	// 3
	// nothing ran: ARGUMENT_REJECTED
	// 126
	// it was stopped: TIMEOUT
	// 124
}
