package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/pairing"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

func (a *app) pairCommand() *cobra.Command {
	var called string
	c := &cobra.Command{
		Use:   "pair",
		Short: "use the link of another machine's invitation",
		Long: `Ask for the link that lend peer invite prints on the owner's machine, or read it
from standard input, and use it. Both machines then show six check digits: tell
the owner yours, and compare. If they are not the same, somebody is in between:
the owner says no, and nothing has changed.

The link is a secret until it is used, so it is no argument: other users of this
machine could see it. It is used once. Exit status 1: the owner did not approve,
or it is not known.`,
		Example: `  lend pair
  lend pair --name laptop < link.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usagef("lend pair, and paste it, or lend pair < FILE", "unexpected argument (a link is a secret until it is used, and others can see it here; ask for a new one)")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.pair(cmd.Context(), called) },
	}
	c.Flags().StringVar(&called, "name", "", "how you would like to be called; the owner decides")
	return c
}

func (a *app) pair(ctx context.Context, called string) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	key, err := loadIdentity(p)
	if err != nil {
		return err
	}
	c := pairing.Config{Key: key}
	if called != "" {
		if c.Called, err = name.ParseLabel(called); err != nil {
			return &usageError{err: err, hint: "--name laptop"}
		}
	}
	if c.Link, err = a.readLink(ctx); err != nil {
		return err
	}
	c.Shown = func(digits string) {
		a.note("\n  check digits   %s\n\nlend: the owner's machine has to show the same; waiting for the owner", spaced(digits))
	}
	name, err := pairing.Join(ctx, c)
	switch {
	case errors.Is(err, pairing.ErrUnknown):
		return err
	case err != nil:
		return fmt.Errorf("not paired: %w", err)
	}
	r := struct {
		SchemaVersion int      `json:"schemaVersion"`
		Gateway       string   `json:"gateway"` // its peer ID
		Name          string   `json:"name"`    // of this machine, in the owner's policy
		Addresses     []string `json:"addresses"`
	}{jsonSchema, c.Link.Owner.String(), name.String(), []string{}}
	for _, m := range c.Link.Addresses {
		r.Addresses = append(r.Addresses, m.String())
	}
	return a.show(r, func() error {
		a.note("lend: next: ask the owner for a lease for %s; it holds the addresses", r.Name)
		return a.say("paired with %s as %s", r.Gateway, r.Name)
	})
}

// readLink reads one line. Nothing of it is in an error.
func (a *app) readLink(ctx context.Context) (pair.Link, error) {
	if isTerminal(a.in) {
		_, _ = fmt.Fprint(a.err, "link: ")
	}
	read, failed := make(chan string, 1), make(chan error, 1)
	go func() { // a read of a terminal cannot be ended: it ends with the program
		line, err := bufio.NewReader(io.LimitReader(a.in, 2*pair.MaxLink)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			failed <- err
			return
		}
		read <- line
	}()
	select {
	case err := <-failed:
		return pair.Link{}, &usageError{err: &client.InputError{Err: err}, hint: "lend pair < FILE, with the link that lend peer invite prints"}
	case line := <-read:
		l, err := pair.ParseLink(line)
		if err != nil {
			return l, &usageError{err: err, hint: "lend pair < FILE, with the link that lend peer invite prints"}
		}
		return l, nil
	case <-ctx.Done():
		return pair.Link{}, context.Cause(ctx)
	}
}
