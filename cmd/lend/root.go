package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// root makes the tree of commands. There is no state outside of a.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lend",
		Short: "lend a command, never a shell",
		Long: `lend lets peers run chosen commands of a Connector's CLI on this machine, with
its owner's credentials, and nothing else.

The owner:   lend init, connector add, policy check, serve, lease issue
The caller:  lend init, id, catalog, run`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("lend help", "unknown command %s", strconv.QuoteToASCII(args[0]))
			}
			return nil
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, with a schema version; fields are only ever added")
	root.PersistentFlags().StringVar(&a.dir, "dir", "", "keep everything in this directory (default: $LEND_DIR, else XDG directories)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		a.json = a.json || wantsJSON(a.args) // it may come after what is wrong
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) && errors.Is(err, strconv.ErrRange) {
			err = fmt.Errorf("--%s: %s is out of range", invalid.GetFlag().Name, name.Quote(invalid.GetValue()))
		}
		return &usageError{err: err, hint: c.CommandPath() + " --help"}
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages |", ".FlagUsagesWrapped 80 |"))
	root.AddCommand(
		a.initCommand(), a.idCommand(), a.serveCommand(), a.runCommand(), a.catalogCommand(), a.brokerCommand(), a.mcpCommand(), a.shimCommand(), a.leaseCommand(), a.policyCommand(), a.peerCommand(), a.pairCommand(),
		a.connectorCommand(), a.publisherCommand(), a.runtimeCommand(), a.opsCommand(), a.lockdownCommand(), a.unlockCommand(), a.auditCommand(), a.statusCommand(), a.doctorCommand(), a.demoCommand(), a.manCommand(), a.versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	helpOfKnown(root)
	groupErrors(root)
	a.addCompletions(root)
	return root
}

// helpOfKnown makes lend help refuse what is no command, rather than show something else.
func helpOfKnown(root *cobra.Command) {
	help, _, err := root.Find([]string{"help"})
	if err != nil || help == root {
		return
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return usagef("lend help", "unknown command %s", strconv.QuoteToASCII(strings.Join(args, " ")))
		}
		return nil
	}
}

// wantsJSON looks for --json in a command line that could not be read.
func wantsJSON(args []string) bool {
	for _, s := range args {
		switch s {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

// groupErrors makes mistakes in arguments and unknown subcommands exit with 2, in
// our own words.
func groupErrors(c *cobra.Command) {
	for _, sub := range c.Commands() {
		groupErrors(sub)
	}
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if c.HasSubCommands() && c.HasParent() && len(args) > 0 {
			return usagef(c.CommandPath()+" --help", "unknown command %s for %s", strconv.QuoteToASCII(args[0]), strconv.Quote(c.CommandPath()))
		}
		if check == nil {
			return nil
		}
		err := check(c, args)
		var usage *usageError
		if err == nil || errors.As(err, &usage) {
			return err
		}
		return argumentsError(c, args)
	}
	if c.HasSubCommands() && c.RunE == nil {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

type versionInfo struct {
	SchemaVersion int      `json:"schemaVersion"`
	Version       string   `json:"version"`
	Commit        string   `json:"commit,omitempty"`
	Go            string   `json:"go"`
	Platform      string   `json:"platform"`
	Protocols     []string `json:"protocols"`
}

func buildVersion() versionInfo {
	v := versionInfo{
		SchemaVersion: jsonSchema, Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Protocols: []string{protocol.RunID, protocol.ControlID, protocol.CatalogID, pair.ID},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "print the version, and the protocols that it speaks",
		Example: "  lend version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return a.show(v, func() error {
				return a.say("lend %s %s %s\n%s", v.Version, v.Go, v.Platform, strings.Join(v.Protocols, "\n"))
			})
		},
	}
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show what the running gateway does",
		Long: `Ask the gateway of this machine, over its private socket, for its addresses,
policy, routes, peers, running operations and limits. Exit status 1: none runs;
it says whether the next one is locked down.`,
		Example: "  lend status\n  lend status --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			s, err := admin.NewClient(p.socket).Status(cmd.Context())
			if errors.Is(err, admin.ErrNotRunning) {
				return noGateway(p)
			}
			if err != nil {
				return err
			}
			return a.show(s, func() error { return a.printStatus(s) })
		},
	}
}

func (a *app) printStatus(s admin.Status) error {
	rows := [][]string{
		{"peer ID", s.PeerID},
		{"version", s.Version},
		{"running", fmt.Sprintf("since %s (process %d)", s.Started.Format(time.RFC3339), s.ProcessID)},
		{"policy", policyLine(s.Policy)},
	}
	rows = append(append(deniedRows(&s), rows...), ledgerRows(s.Ledger)...)
	if s.Metrics != "" {
		rows = append(rows, []string{"metrics", s.Metrics})
	}
	for _, addr := range s.Addresses {
		rows = append(rows, []string{"address", addr})
	}
	for _, r := range s.Routes {
		rows = append(rows, []string{"route", strings.TrimSpace(fmt.Sprintf("%s %s (%s) %s", r.Connector, r.Version, r.Connection, r.Reason))})
	}
	rows = append(rows, observedRows(s)...)
	for _, p := range s.Peers {
		rows = append(rows, []string{"peer", strings.TrimSpace(fmt.Sprintf("%s %s %s, %d running", p.Name, p.PeerID, p.Address, p.Operations))})
	}
	for _, o := range s.Operations {
		rows = append(rows, []string{"operation", fmt.Sprintf("%s %s %s since %s for %s, %s out", o.ID, o.Connector, o.Command, o.Started.Format(time.RFC3339), peerText(&o), bytesCount(o.Stdout+o.Stderr))})
	}
	for _, l := range s.Limits {
		rows = append(rows, []string{"limit", l.Name + " " + l.Value})
	}
	for _, w := range s.Warnings {
		rows = append(rows, []string{"warning", w})
	}
	return a.table(rows)
}

func ledgerLine(l admin.Ledger) string {
	if l.Failed != "" {
		return "failed: " + l.Failed
	}
	return count(l.Records, "record", "records")
}
