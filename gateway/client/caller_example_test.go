package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/renewal"
	"github.com/lendcli/lend/gateway/lendtest"
	"github.com/lendcli/lend/gateway/synopsis"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
)

// The examples of a caller run on a gateway in memory that lends these commands. What is
// between "doc:" and "end doc" is in docs/embedding.md.

// comments is how often issue.comment has run.
type comments struct{ atomic.Int64 }

func (n *comments) connector() lendtest.Connector {
	text := map[string]argv.ParameterDeclaration{"body": {Stdin: &argv.Stdin{Text: true}, FreeText: true}}
	return lendtest.Connector{Key: "github", Version: "2.40.1", Commands: []lendtest.Command{
		{
			Name: "issue.list",
			Declaration: argv.Declaration{Effect: argv.EffectRead, Summary: "list the issues of a repository", Parameters: map[string]argv.ParameterDeclaration{
				"repo":  {Flag: "--repo", Pattern: "acme/[a-z]+", Required: true},
				"limit": {Flag: "--limit", Type: argv.TypeInteger},
			}},
			Run: func(c *lendtest.Call) int {
				fmt.Fprintln(c.Stdout, "#1 it works")
				return 0
			},
		},
		{
			Name: "issue.comment", Declaration: argv.Declaration{Summary: "comment on an issue", Parameters: text},
			Run: func(c *lendtest.Call) int {
				_, err := io.Copy(io.Discard, c.Stdin)
				n.Add(1)
				if err != nil {
					return 1
				}
				return 0
			},
		},
		{
			Name: "shout", Declaration: argv.Declaration{Effect: argv.EffectRead, Summary: "answer each line", Parameters: text},
			Run: func(c *lendtest.Call) int {
				for lines := bufio.NewScanner(c.Stdin); lines.Scan(); {
					fmt.Fprintf(c.Stdout, "%s!\n", bytes.ToUpper(lines.Bytes()))
				}
				return 0
			},
		},
		{
			Name: "watch", Declaration: argv.Declaration{Effect: argv.EffectRead, Summary: "wait for what happens"},
			Run: func(c *lendtest.Call) int {
				fmt.Fprintln(c.Stdout, "watching")
				<-c.Context.Done()
				return 0
			},
		},
	}}
}

// lent opens a gateway for an example, and a caller.
func lent() (*lendtest.Gateway, *comments) {
	n := &comments{}
	g, err := lendtest.Open(lendtest.Config{Connectors: []lendtest.Connector{n.connector()}})
	if err != nil {
		panic(err)
	}
	return g, n
}

// doc: one
func listIssues(ctx context.Context, c *client.Client) ([]byte, error) {
	out, err := c.Command(ctx, "github", "issue.list", "--repo", "acme/site").Output()
	var exit *client.ExitError
	var refused *client.RefusedError
	var ended *client.EndedError
	switch {
	case errors.As(err, &exit): // the command itself failed; out is what it wrote
		return out, fmt.Errorf("gh says no: %w", err)
	case errors.As(err, &refused): // nothing ran; refused.Code says why
		return nil, fmt.Errorf("%s: %s", refused.Code, refused.Code.Advice())
	case errors.As(err, &ended): // it ran and was stopped, or nobody knows its end
		return out, err
	}
	return out, err // nil, or nothing was sent: no lease, no link
}

// end doc

func ExampleClient_Command() {
	g, _ := lent()
	defer g.Close()
	out, err := listIssues(context.Background(), g.Client)
	fmt.Printf("%s%v\n", out, err)
	_, err = g.Client.Command(context.Background(), "github", "issue.list", "--repo", "evil/site").Output()
	fmt.Println(err, client.ExitStatus(err))
	// Output:
	// #1 it works
	// <nil>
	// refused: ARGUMENT_REJECTED: refuse argument 2, parameter repo "--repo": not-allowed: want a match of "acme/[a-z]+" 126
}

// doc: stream
// talk sends lines and reads an answer to each while the command runs.
func talk(ctx context.Context, c *client.Client, lines ...string) (answers []string, err error) {
	cmd := c.Command(ctx, "github", "shout")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(out)
	for _, line := range lines {
		if _, err := fmt.Fprintln(in, line); err != nil {
			break // Wait says why
		}
		answer, err := reader.ReadString('\n')
		if err != nil {
			break
		}
		answers = append(answers, answer)
	}
	_ = in.Close() // the end of the input
	_, _ = io.Copy(io.Discard, reader)
	return answers, cmd.Wait()
}

// end doc

// Both directions are open at the same time, as with a local process.
func ExampleCmd_StdoutPipe() {
	g, _ := lent()
	defer g.Close()
	answers, err := talk(context.Background(), g.Client, "hello", "and again")
	fmt.Printf("%q %v\n", answers, err)
	// Output:
	// ["HELLO!\n" "AND AGAIN!\n"] <nil>
}

// doc: cancel
// watchFor watches for a while; then the gateway ends the command and all that it
// started.
func watchFor(ctx context.Context, c *client.Client, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	cmd := c.Command(ctx, "github", "watch")
	cmd.Grace = 2 * time.Second // between the polite stop and the kill
	err := cmd.Run()
	var ended *client.EndedError
	if errors.As(err, &ended) && ended.Code == protocol.CodeCancelled {
		return nil // as it was meant
	}
	return err
}

// end doc

// When the context is done, the command ends where it runs, and Wait tells how.
func ExampleCmd_Run_cancellation() {
	g, _ := lent()
	defer g.Close()
	fmt.Println(watchFor(context.Background(), g.Client, 50*time.Millisecond))
	// Output:
	// <nil>
}

// doc: retry
// comment writes a comment once, however often it is called for the same job: the
// operation ID comes from the job, not from the attempt.
func comment(ctx context.Context, c *client.Client, job, text string) error {
	cmd := c.Command(ctx, "github", "issue.comment")
	cmd.OperationID = "comment-" + job // 16 to 64 letters, digits, - and _
	cmd.Stdin = bytes.NewReader([]byte(text))
	err := cmd.Run()
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return fmt.Errorf("it may have run; ask again with the same ID only: %w", err)
	}
	return err
}

// end doc

// The same operation ID never runs twice: a second caller is told how the first run
// ended.
func ExampleCmd_Run_retry() {
	g, n := lent()
	defer g.Close()
	fmt.Println(comment(context.Background(), g.Client, "job-2026-0001", "done"))
	restarted, err := g.NewCaller(client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(comment(context.Background(), restarted, "job-2026-0001", "done"))
	fmt.Println("it ran", n.Load(), "time")
	// Output:
	// <nil>
	// <nil>
	// it ran 1 time
}

// doc: catalog
// menu lists what may be run, as a person would type it.
func menu(ctx context.Context, c *client.Client) (lines []string, err error) {
	entries, err := c.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		line := e.Connector.String() + " " + e.Command.String()
		params, err := synopsis.Read(e)
		if err != nil {
			return nil, err
		}
		for _, p := range params {
			if u := p.Usage(); u != "" {
				line += " " + u
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// end doc

func ExampleClient_Catalog() {
	g, _ := lent()
	defer g.Close()
	lines, err := menu(context.Background(), g.Client)
	for _, l := range lines {
		fmt.Println(l)
	}
	fmt.Println(err)
	// Output:
	// github issue.comment
	// github issue.list [--limit=LIMIT] --repo=REPO
	// github shout
	// github watch
	// <nil>
}

// doc: renew
// newCaller makes a Client whose lease is renewed for as long as it is used. The caller
// closes both.
func newCaller(config client.Config, askIssuer func(context.Context) (lease.File, error)) (*client.Client, *renewal.Source, error) {
	source, err := renewal.New(renewal.Config{Fetch: askIssuer, Log: config.Log})
	if err != nil {
		return nil, nil, err
	}
	config.Leases = source.Lease
	c, err := client.New(config)
	if err != nil {
		return nil, nil, errors.Join(err, source.Close())
	}
	return c, source, nil
}

// end doc

// A LeaseSource asks for the next lease before the present one expires.
func ExampleLeaseSource() {
	g, _ := lent()
	defer g.Close()
	source, err := renewal.New(renewal.Config{
		Fetch: func(context.Context) (lease.File, error) { return g.Lease(nil) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()
	c, err := g.NewCaller(client.Config{Leases: source.Lease})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := listIssues(context.Background(), c)
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// #1 it works
	// <nil>
}

var _ = newCaller
