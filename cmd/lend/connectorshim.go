package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/shim"
	"github.com/lendcli/lend/protocol/name"
)

func (p paths) localShims() shim.Directory {
	return shim.Directory(filepath.Join(p.state, "localshims"))
}

func (a *app) connectorShimCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shim",
		Short: "names for a Connector's commands on this machine",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.connectorShimAddCommand(), a.connectorShimListCommand(), a.connectorShimRemoveCommand())
	return c
}

func (a *app) connectorShimAddCommand() *cobra.Command {
	var s shim.Shim
	var version string
	var replace bool
	c := &cobra.Command{
		Use:   "add NAME --peer PEER KEY [COMMAND]",
		Short: "make a name that runs a Connector's commands here",
		Long: `Make a small script in a private directory that is meant for PATH. What is
typed after NAME goes to lend connector try: it runs as PEER would get it,
through every check, with the policy of then, and ends with the same exit
status. Without COMMAND the first argument names the command.

The script holds no path of the Connector's program. It calls this lend; where
that has moved, add it again. A file that is not a shim of ours is never
replaced.`,
		Example: `  lend connector shim add gh --peer laptop github
  lend connector shim add issues --peer laptop github issue.list
  export PATH="$(lend connector shim list --dir-only):$PATH"`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if s, err = a.composeLocalShim(s, version, args); err != nil {
				return err
			}
			p, err := a.paths()
			if err != nil {
				return err
			}
			if err := p.makePrivate(); err != nil {
				return err
			}
			if err := p.localShims().Add(cmd.Context(), s, replace); err != nil {
				return localShimError(p, s.Name, err)
			}
			return a.show(struct {
				SchemaVersion int `json:"schemaVersion"`
				shownLocalShim
			}{jsonSchema, localShimShown(p, s)}, func() error {
				if !p.localShims().OnPath(os.Getenv("PATH")) {
					a.note("lend: next: export PATH=%s:\"$PATH\"", quoteWord(string(p.localShims())))
				}
				return a.say("%s", p.localShims().Path(s.Name))
			})
		},
	}
	f := c.Flags()
	f.StringVar(&s.Peer, "peer", "", "the peer to be: a name of the policy or a peer ID (required)")
	f.StringVar(&version, "version", "", "the Connector's version (default: the only one that is installed then)")
	f.BoolVar(&replace, "replace", false, "replace another shim of this name")
	return c
}

// composeLocalShim checks all that can be checked now: the peer, the Connector, and, where
// it declares any, the command.
func (a *app) composeLocalShim(s shim.Shim, version string, args []string) (shim.Shim, error) {
	s.Name = args[0]
	if err := shim.CheckName(s.Name); err != nil {
		return s, &usageError{err: err}
	}
	if s.Peer == "" {
		return s, usagef("lend connector shim add NAME --peer PEER KEY", "--peer is missing")
	}
	p, err := a.paths()
	if err != nil {
		return s, err
	}
	pol, err := loadPolicy(p.policy())
	if err != nil {
		return s, err
	}
	if _, err := resolvePeer(pol, s.Peer); err != nil {
		return s, err
	}
	g, err := a.composeGrant(issueFlags{version: version}, args[1:])
	if err != nil {
		return s, err
	}
	s.Connector = g.Connector
	if version != "" {
		s.Version = g.Version
	}
	if len(g.Commands) > 0 {
		s.Command = g.Commands[0]
	}
	if s.Lend, err = os.Executable(); err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	if a.dir != "" || os.Getenv("LEND_DIR") != "" {
		s.Home = p.state
	}
	return s, nil
}

func localShimError(p paths, leaf string, err error) error {
	switch {
	case errors.Is(err, shim.ErrForeign):
		return hintf("move it away, or choose another name", "%s: %w", name.Quote(p.localShims().Path(leaf)), err)
	case errors.Is(err, shim.ErrExists):
		return &hinted{err: err, hint: "lend connector shim add --replace …"}
	case errors.Is(err, shim.ErrNotFound):
		return &hinted{err: err, hint: "lend connector shim list"}
	case errors.Is(err, shim.ErrInvalid):
		return &usageError{err: err}
	case errors.Is(err, syscall.ENOSPC):
		return &hinted{err: err, hint: diskFull}
	default:
		return err
	}
}

// shownLocalShim is a shim as JSON has it.
type shownLocalShim struct {
	shim.Shim
	Path    string `json:"path"`
	Problem string `json:"problem,omitempty"`
}

func localShimShown(p paths, s shim.Shim) shownLocalShim {
	out := shownLocalShim{Shim: s, Path: p.localShims().Path(s.Name)}
	if info, err := os.Stat(s.Lend); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		out.Problem = "the lend that it calls is not there"
	}
	return out
}

func (a *app) connectorShimListCommand() *cobra.Command {
	var only bool
	c := &cobra.Command{
		Use:   "list",
		Short: "list the names, and where they are",
		Example: `  lend connector shim list
  lend connector shim list --json
  export PATH="$(lend connector shim list --dir-only):$PATH"`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			if only {
				return a.say("%s", string(p.localShims()))
			}
			ours, foreign, err := p.localShims().List()
			if err != nil {
				return err
			}
			list := struct {
				SchemaVersion int              `json:"schemaVersion"`
				Directory     string           `json:"directory"`
				OnPath        bool             `json:"onPath"`
				Shims         []shownLocalShim `json:"shims"`
				Foreign       []string         `json:"foreign"` // files that are not ours
			}{jsonSchema, string(p.localShims()), p.localShims().OnPath(os.Getenv("PATH")), []shownLocalShim{}, append([]string{}, foreign...)}
			rows := [][]string{{"NAME", "PEER", "CONNECTOR", "VERSION", "COMMAND", "PROBLEM"}}
			for _, s := range ours {
				shown := localShimShown(p, s)
				list.Shims = append(list.Shims, shown)
				rows = append(rows, []string{s.Name, name.Show(s.Peer), s.Connector.String(), orDash(s.Version.String()), orDash(s.Command.String()), orDash(shown.Problem)})
			}
			return a.show(list, func() error { return a.printLocalShims(p, rows, foreign, list.OnPath) })
		},
	}
	c.Flags().BoolVar(&only, "dir-only", false, "print the directory alone")
	return c
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) printLocalShims(p paths, rows [][]string, foreign []string, onPath bool) error {
	for _, f := range foreign {
		a.note("lend: not a shim of ours, left alone: %s", name.Quote(f))
	}
	if len(rows) == 1 {
		a.note("lend: there are none; next: lend connector shim add NAME --peer PEER KEY")
		return nil
	}
	if !onPath {
		a.note("lend: next: export PATH=%s:\"$PATH\"", quoteWord(string(p.localShims())))
	}
	return a.table(rows)
}

func (a *app) connectorShimRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "remove a name that was made here",
		Example: "  lend connector shim remove gh",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			if err := p.localShims().Remove(cmd.Context(), args[0]); err != nil {
				return localShimError(p, args[0], err)
			}
			return a.show(struct {
				SchemaVersion int    `json:"schemaVersion"`
				Removed       string `json:"removed"`
			}{jsonSchema, args[0]}, func() error { return a.say("%s removed", args[0]) })
		},
	}
}

// removeLocalShims takes away what would lead to a Connector that is being removed,
// all versions of it.
func (a *app) removeLocalShims(ctx context.Context, key name.ConnectorKey) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	gone, err := p.localShims().RemoveOf(ctx, key)
	for _, s := range gone {
		a.note("lend: shim %s removed", s)
	}
	return err
}
