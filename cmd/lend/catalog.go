package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/synopsis"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) catalogCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "catalog [KEY [COMMAND]]",
		Short: "list what a lease may run now, and what each command takes",
		Long: `Ask the gateway that a lease names what the lease may run now: what the owner's
policy allows, what was frozen when the invocation began, and the lease itself,
taken together. With KEY and COMMAND it says what the command takes: options,
positions, values and bounds, whether it reads standard input, what it does and
its limits; lend run --help KEY COMMAND is the same. With --json, each command
has its JSON Schema. What others wrote is escaped.

The lease is read as by lend run; without one, the broker of the session in
$LEND_SESSION tells of all its leases. Nothing is started. Exit status 1:
refused, no link, or no such command.`,
		Example: `  lend catalog --lease laptop-github.lease
  lend catalog --lease l.lease github
  lend catalog --lease l.lease github issue.list
  LEND_LEASE_FILE=l.lease lend catalog --json`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			entries, err := a.lent(cmd.Context(), f, args)
			if err != nil {
				return err
			}
			return a.showCatalog(entries, len(args) == 2)
		},
	}
	a.callerFlags(c, &f)
	return c
}

// callerFlags are those of a caller that asks, with a lease that is valid.
func (a *app) callerFlags(c *cobra.Command, f *runFlags) {
	fl := c.Flags()
	fl.StringVar(&f.lease, "lease", "", "the lease file; - reads standard input")
	fl.IntVar(&f.leaseFD, "lease-fd", -1, "read the lease from this file descriptor")
	fl.StringVar(&f.version, "version", "", "show this version of the Connector only")
	fl.StringArrayVar(&f.addresses, "address", nil, "an address of the gateway beside those of the lease")
	fl.Var(atLeastNone(&f.wait, 10*time.Second), "wait", "how long to wait for a connection; 0 is the least")
}

// lent returns what may be run, of all or of args (KEY, COMMAND).
func (a *app) lent(ctx context.Context, f runFlags, args []string) ([]protocol.CatalogEntry, error) {
	all, err := a.allLent(ctx, f)
	if err != nil {
		return nil, advised(waitsLonger(err, "lend catalog"))
	}
	var out []protocol.CatalogEntry
	for _, e := range all {
		if (len(args) < 1 || e.Connector.String() == args[0]) && (len(args) < 2 || e.Command.String() == args[1]) &&
			(f.version == "" || e.Version.String() == f.version) {
			out = append(out, e)
		}
	}
	switch {
	case len(out) > 0 || len(args) == 0 && f.version == "":
		return out, nil
	case len(args) == 2:
		return nil, hintf("lend catalog lists what is; ask the owner for more", "command %s of %s is not lent", name.Quote(args[1]), name.Quote(args[0]))
	case len(args) == 1:
		return nil, hintf("lend catalog lists what is; ask the owner for more", "nothing of %s is lent", name.Quote(args[0]))
	default:
		return nil, hintf("lend catalog lists what is; ask the owner for more", "no version %s is lent", name.Quote(f.version))
	}
}

// lentCommand is the JSON of one command of the catalogue.
type lentCommand struct {
	Connector   string          `json:"connector"`
	Version     string          `json:"version"`
	Command     string          `json:"command"`
	Summary     string          `json:"summary,omitempty"`
	Effect      string          `json:"effect,omitempty"`
	Stdin       bool            `json:"stdin"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	Limits      lentLimits      `json:"limits"`
}

// lentLimits leave out what has no limit.
type lentLimits struct {
	Stdin      *uint64 `json:"stdinBytes,omitempty"`
	Stdout     *uint64 `json:"stdoutBytes,omitempty"`
	Stderr     *uint64 `json:"stderrBytes,omitempty"`
	RunMS      int64   `json:"runMs,omitempty"`
	DetachedMS int64   `json:"detachedMs"`
}

func limitsOfEntry(l protocol.Limits) lentLimits {
	of := func(n uint64) *uint64 {
		if n == protocol.NoLimit {
			return nil
		}
		return &n
	}
	return lentLimits{of(l.Stdin), of(l.Stdout), of(l.Stderr), l.Run.Milliseconds(), l.Detached.Milliseconds()}
}

func (a *app) showCatalog(entries []protocol.CatalogEntry, detailed bool) error {
	list := struct {
		SchemaVersion int           `json:"schemaVersion"`
		Commands      []lentCommand `json:"commands"`
	}{jsonSchema, []lentCommand{}}
	for _, e := range entries {
		list.Commands = append(list.Commands, lentCommand{
			e.Connector.String(), e.Version.String(), e.Command.String(), e.Summary, e.Effect, e.Stdin, e.InputSchema, limitsOfEntry(e.Limits),
		})
	}
	return a.show(list, func() error {
		switch {
		case detailed:
			for _, e := range entries {
				if err := a.describe(e); err != nil {
					return err
				}
			}
			return nil
		case len(entries) == 0:
			a.note("lend: the lease may run nothing now; ask the owner what the policy allows")
			return nil
		}
		return a.table(catalogRows(entries))
	})
}

func catalogRows(entries []protocol.CatalogEntry) [][]string {
	rows := [][]string{{"CONNECTOR", "VERSION", "COMMAND", "EFFECT", "INPUT", "SUMMARY"}}
	for _, e := range entries {
		input := "no"
		if e.Stdin {
			input = "yes"
		}
		rows = append(rows, []string{e.Connector.String(), e.Version.String(), e.Command.String(), effectOf(e), input, name.Show(e.Summary)})
	}
	return rows
}

// allLent asks the gateway of a lease or, where none is named, the broker of a session.
func (a *app) allLent(ctx context.Context, f runFlags) ([]protocol.CatalogEntry, error) {
	if said, at, named := a.brokerCall(f, nil); named {
		return a.lentInSession(ctx, at, said.Session)
	}
	c, err := a.newClient(f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing runs
	return c.Catalog(ctx)
}

// effectOf counts what nobody calls reading as writing.
func effectOf(e protocol.CatalogEntry) string {
	if e.Effect == "read" {
		return "read"
	}
	return "write"
}

// describe is the help of a lent command.
func (a *app) describe(e protocol.CatalogEntry) error {
	return a.describeAs(e, "lend run [flags]", e.Connector.String(), e.Command.String())
}

// describeAs is the help of a lent command whose command line begins with these words.
func (a *app) describeAs(e protocol.CatalogEntry, usage ...string) error {
	title := fmt.Sprintf("%s %s (version %s)", e.Connector, e.Command, e.Version)
	if e.Summary != "" {
		title += ": " + name.Show(e.Summary)
	}
	params, err := synopsis.Read(e)
	var rows [][]string
	for _, p := range params {
		if u := p.Usage(); u != "" {
			usage = append(usage, name.Show(u))
		}
		if !p.Stdin {
			rows = append(rows, []string{"  " + spellings(&p), meaning(&p)})
		}
	}
	if err := a.say("%s\n\nUsage:\n  %s", title, strings.Join(usage, " ")); err != nil {
		return err
	}
	switch {
	case err != nil:
		if err := a.say("\nParameters: %s", name.Show(err.Error())); err != nil {
			return err
		}
	case len(rows) > 0:
		if err := a.say("\nParameters:"); err != nil {
			return err
		}
		if err := a.table(rows); err != nil {
			return err
		}
	}
	return a.say("\nStandard input: %s\nEffect: %s\nLimits: %s", inputOf(e, params), map[string]string{
		"read": "read: it changes nothing, says the owner", "write": "write: it changes something",
	}[effectOf(e)], limitsText(e.Limits))
}

// spellings are all ways to name a parameter.
func spellings(p *synopsis.Parameter) string {
	if p.Flag == "" {
		return strings.ToUpper(strings.ReplaceAll(p.Name.String(), "_", "-"))
	}
	all := []string{name.Show(p.Flag)}
	for _, s := range p.Aliases {
		all = append(all, name.Show(s))
	}
	return strings.Join(all, ", ")
}

// meaning is everything that is said of the values.
func meaning(p *synopsis.Parameter) string {
	parts := []string{p.Type}
	switch p.Type {
	case "string", "integer", "number", "boolean":
	default:
		parts[0] = "value"
	}
	if p.Required {
		parts[0] += ", needed"
	}
	if p.List {
		parts = append(parts, listText(p))
	}
	if p.Values != nil {
		shown := make([]string, 0, len(p.Values))
		for _, v := range p.Values {
			shown = append(shown, name.Show(v))
		}
		parts = append(parts, "one of: "+strings.Join(shown, ", "))
		if len(shown) == 0 {
			parts[len(parts)-1] = "nothing is accepted"
		}
	}
	for _, b := range p.Bounds {
		parts = append(parts, name.Show(b))
	}
	if p.Description != "" {
		parts = append(parts, name.Show(p.Description))
	}
	return strings.Join(parts, "; ")
}

func listText(p *synopsis.Parameter) string {
	s := "several"
	if p.MaxItems > 0 {
		s = fmt.Sprintf("up to %d", p.MaxItems)
	}
	if p.MinItems > 1 {
		s = fmt.Sprintf("%d or more, %s", p.MinItems, s)
	}
	switch {
	case p.Separator != "":
		return s + ", joined by " + name.Quote(p.Separator)
	case p.Flag != "":
		return s + ", each with its option"
	}
	return s
}

func inputOf(e protocol.CatalogEntry, params []synopsis.Parameter) string {
	if !e.Stdin {
		return "none"
	}
	text := "at most " + sizeText(e.Limits.Stdin)
	for _, p := range params {
		if p.Stdin {
			if p.Required {
				text = "needed; " + text
			}
			if p.Description != "" {
				text += "; " + name.Show(p.Description)
			}
		}
	}
	return text
}

func limitsText(l protocol.Limits) string {
	run := "any run time"
	if l.Run > 0 {
		run = l.Run.String() + " of run time"
	}
	return fmt.Sprintf("%s; %s of output, %s of error output; it outlives a lost link for %s", run, sizeText(l.Stdout), sizeText(l.Stderr), l.Detached)
}

// sizeText writes a number of bytes for people.
func sizeText(n uint64) string {
	if n == protocol.NoLimit {
		return "any amount"
	}
	for _, u := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.size)), ".0") + " " + u.name
		}
	}
	return bytesCount(n)
}

// helpOfRun is lend run --help: with KEY and COMMAND it is about the lent command.
func (a *app) helpOfRun(c *cobra.Command, f *runFlags, usual func(*cobra.Command, []string)) {
	args := c.Flags().Args()
	if len(args) == 0 {
		usual(c, args)
		return
	}
	if len(args) > 2 {
		args = args[:2] // the rest is an attempt that is not made
	}
	entries, err := a.lent(c.Context(), *f, args)
	if err == nil {
		err = a.showCatalog(entries, len(args) == 2)
	}
	a.late = err
}

// advised adds what to do about an error, if it says nothing of that itself.
func advised(err error) error {
	if err == nil || hintOf(err) != "" {
		return err
	}
	if advice := adviceOf(err); advice != "" {
		return &hinted{err, advice}
	}
	return err
}
