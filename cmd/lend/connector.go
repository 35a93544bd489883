package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/localhost/download/remote"
	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) connectorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "connector",
		Short: "install Connectors and give them their secrets",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(
		a.connectorNewCommand(), a.connectorAddCommand(), a.connectorUpdateCommand(), a.connectorListCommand(), a.connectorShowCommand(),
		a.connectorVerifyCommand(), a.connectorSkillsCommand(), a.connectorTryCommand(), a.connectorShimCommand(), a.connectorSecretCommand(), a.connectorSettingCommand(),
		a.connectorLoginCommand(), a.connectorDisableCommand(), a.connectorEnableCommand(), a.connectorRemoveCommand(), a.connectorGCCommand(),
	)
	return c
}

// withStore runs f on the store, with a transport for what npm and Node must do.
func (a *app) withStore(registry string, f func(*install.Store) error) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	transport := process.New(process.Config{})
	s, err := a.openStore(p, transport, registry, zerolog.Nop())
	if err != nil {
		return joinClose(err, transport.Close)
	}
	return joinClose(storeError(f(s)), s.Close, transport.Close)
}

func joinClose(err error, closers ...func() error) error {
	for _, c := range closers {
		err = errors.Join(err, c())
	}
	return err
}

// storeError adds the next command to what the store refuses.
func storeError(err error) error {
	switch {
	case errors.Is(err, install.ErrNoRegistry):
		return &hinted{err: err, hint: "npm's own setting is shown by: npm config get registry"}
	case errors.Is(err, install.ErrNoRuntime):
		return &hinted{err: err, hint: "lend runtime add node"}
	case errors.Is(err, install.ErrNoArchive), errors.Is(err, remote.ErrRefused):
		return &hinted{err: err, hint: "give the file: --archive FILE"}
	case errors.Is(err, install.ErrConflict):
		return &hinted{err: err, hint: "lend connector add --replace …"}
	case errors.Is(err, install.ErrNotInstalled):
		return &hinted{err: err, hint: "lend connector list"}
	default:
		return signatureError(err)
	}
}

// progress shows long work on a terminal.
func (a *app) progress() install.Progress {
	if !isTerminal(a.err) {
		return nil
	}
	last := ""
	return func(stage string, _, _ int64) {
		if stage != last {
			last = stage
			a.note("lend: %s …", stage)
		}
	}
}

func (a *app) connectorNewCommand() *cobra.Command {
	var n install.NewConnector
	var out, registry string
	c := &cobra.Command{
		Use:   "new npm:NAME@VERSION | exec:PATH",
		Short: "write a Connector directory to start from",
		Long: `Make a directory with a manifest: for an npm package, with a lock that pins its
whole tree; for an executable, with a copy of that one file and of nothing
beside it. The manifest declares no commands: write them there, or in the
policy. Then: lend connector add.

npm packages need lend runtime add node first, and the registry; it is reached
through $HTTPS_PROXY, if set, and trusts the certificates in the file
$LEND_CA_FILE, or $SSL_CERT_FILE, besides the system's.`,
		Example: `  lend connector new npm:json5@2.2.3 --registry "$(npm config get registry)"
  lend connector new npm:@stripe/cli-linux-x64@1.52.0 --native bin/stripe
  lend connector new npm:esbuild@0.28.2 --postinstall install.js
  lend connector new exec:/usr/bin/gh --key github --version 2.23.0 --out gh`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if n.From, n.Dir, err = newPlaces(args[0], out, n.Key); err != nil {
				return err
			}
			return a.withStore(registry, func(s *install.Store) error {
				m, err := s.New(cmd.Context(), n, a.progress())
				if err != nil {
					return err
				}
				r := struct {
					SchemaVersion int    `json:"schemaVersion"`
					Directory     string `json:"directory"`
					Key           string `json:"key"`
					Version       string `json:"version"`
				}{jsonSchema, n.Dir, m.Key.String(), m.Version.String()}
				return a.show(r, func() error {
					next := "lend connector add " + name.Quote(n.Dir)
					if registry != "" {
						next += " --registry " + registry
					}
					a.note("lend: next: %s", next)
					return a.say("%s: connector %s %s", n.Dir, r.Key, r.Version)
				})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&n.Key, "key", "", "the Connector's key (default: from the name)")
	f.StringVar(&n.Version, "version", "", "the Connector's version (default: the package's, or 0.1.0)")
	f.StringVar(&n.Bin, "bin", "", "which of the package's commands, if it has several")
	f.StringVar(&n.Native, "native", "", "the path of an executable in the package, if it has no such command")
	f.StringVar(&n.Postinstall, "postinstall", "", "the path of a script in the package that its installation runs")
	f.StringVar(&out, "out", "", "the directory to make (default: the key, here)")
	f.StringVar(&registry, "registry", "", "package registry (default: $NPM_CONFIG_REGISTRY)")
	return c
}

// newPlaces makes the paths absolute.
func newPlaces(from, out, key string) (string, string, error) {
	kind, what, _ := strings.Cut(from, ":")
	if out == "" {
		out = key
	}
	switch kind {
	case "exec":
		abs, err := filepath.Abs(what)
		if err != nil {
			return "", "", err
		}
		if out == "" {
			out = filepath.Base(abs)
		}
		from = "exec:" + abs
	case "npm":
		if out == "" {
			out = filepath.Base(strings.TrimPrefix(what, "@"))
			if at := strings.LastIndexByte(out, '@'); at > 0 {
				out = out[:at]
			}
		}
	default:
		return "", "", usagef("lend connector new npm:NAME@VERSION", "%s is neither npm:NAME@VERSION nor exec:PATH", name.Quote(from))
	}
	dir, err := filepath.Abs(out)
	return from, dir, err
}

type shownRelease struct {
	Key          string   `json:"key"`
	Version      string   `json:"version"`
	DisplayName  string   `json:"displayName"`
	Kind         string   `json:"kind"`
	Digest       string   `json:"digest"`
	ContractHash string   `json:"contractHash"`
	Runtime      string   `json:"runtime,omitempty"`
	Command      string   `json:"command"`
	Commands     []string `json:"commands"`
	Secrets      []string `json:"secrets"`
	HasScripts   bool     `json:"hasScripts"`
}

func releaseShown(r install.Release) shownRelease {
	s := shownRelease{
		Key: r.Manifest.Key.String(), Version: r.Manifest.Version.String(), DisplayName: r.Manifest.DisplayName,
		Kind: string(r.Manifest.CLI.Kind), Digest: r.Digest, ContractHash: r.ContractHash, Runtime: r.Runtime,
		Command: r.Contract.Command, Commands: []string{}, Secrets: []string{}, HasScripts: r.HasScripts,
	}
	for _, c := range r.Contract.Commands {
		s.Commands = append(s.Commands, c.Name.String())
	}
	for _, secret := range r.Manifest.Secrets {
		s.Secrets = append(s.Secrets, secret.Name)
	}
	return s
}

func (a *app) connectorAddCommand() *cobra.Command {
	var replace bool
	var registry, archive string
	c := &cobra.Command{
		Use:   "add DIRECTORY | ARCHIVE",
		Short: "verify a Connector and install a private copy",
		Long: `Copy a Connector (a directory, .zip, .tar.gz or .tgz with a
connector-manifest.json at its root) into a private read-only place, verify
every byte of it, and install what its lock pins, from the registry, or what its
manifest pins, from the hosts that it names (without a proxy; --archive takes a
file that you have instead). Nothing is shared by this: the policy says what is.
A running gateway takes the change up at once.`,
		Example: `  lend connector add ./gh
  lend connector add github-2.40.1.tar.gz
  lend connector add ./json5 --registry "$(npm config get registry)"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if archive, err = fullPath(archive); err != nil {
				return err
			}
			if err := a.finishRemovals(cmd.Context()); err != nil {
				return err
			}
			return a.withStore(registry, func(s *install.Store) error {
				r, err := s.Add(cmd.Context(), install.Source{Path: path, Replace: replace, Archive: archive}, a.progress())
				if err != nil {
					return err
				}
				if err := a.reconcileRunning(cmd.Context()); err != nil {
					return err
				}
				shown, about := releaseShown(r), aboutShown(s, r)
				return a.show(struct {
					SchemaVersion int `json:"schemaVersion"`
					shownRelease
					shownAbout
				}{jsonSchema, shown, about}, func() error {
					a.noteSigned(about)
					return a.printAdded(shown)
				})
			})
		},
	}
	c.Flags().BoolVar(&replace, "replace", false, "replace the same version with other content")
	c.Flags().StringVar(&archive, "archive", "", "the archive that the manifest names, instead of fetching it")
	c.Flags().StringVar(&registry, "registry", "", "package registry (default: $NPM_CONFIG_REGISTRY)")
	return c
}

// printAdded ends with what a policy would need to share it.
func (a *app) printAdded(r shownRelease) error {
	if err := a.say("%s %s added (%s)", r.Key, r.Version, r.Kind); err != nil {
		return err
	}
	for _, s := range r.Secrets {
		a.note("lend: hint: lend connector secret set %s %s", r.Key, s)
	}
	if err := a.noteDisabled(r.Key); err != nil {
		return err
	}
	if r.HasScripts {
		a.note("lend: a package of its lock has install scripts; they did not run")
	}
	if len(r.Commands) == 0 {
		a.note("lend: it declares no commands; the policy declares those that you share: commands: {%s: …}, see docs/policy.md", r.Key)
		a.notePreset(r)
		return nil
	}
	a.note("lend: to share it, add to the policy:\n")
	a.note("  - name: %s for PEER\n    to: [PEER]\n    connector: %s\n    version: %q\n    commands:", r.Key, r.Key, r.Version)
	for _, c := range r.Commands {
		a.note("      %s: {}", c)
	}
	return nil
}

// reconcileRunning tells a running gateway; without one there is nothing to do.
func (a *app) reconcileRunning(ctx context.Context) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	r, err := admin.NewClient(p.socket).Reconcile(ctx)
	if errors.Is(err, admin.ErrNotRunning) {
		return nil
	}
	for _, problem := range r.Problems {
		a.note("lend: the running gateway says: %s", problem)
	}
	return err
}

func (a *app) connectorListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the installed Connectors",
		Long: `List the installed Connectors from their receipts. Nothing of them runs. Exit
status 1: one of them is not what was installed, or cannot be read.`,
		Example: "  lend connector list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore("", func(s *install.Store) error {
				found, err := a.inspected(cmd.Context())
				if err != nil {
					return err
				}
				root, err := a.connectionsHere()
				if err != nil {
					return err
				}
				type listed struct {
					shownRelease
					shownInstallation
					State string `json:"state"` // enabled, disabled, partly disabled, removing, unreadable
				}
				list := struct {
					SchemaVersion int      `json:"schemaVersion"`
					Connectors    []listed `json:"connectors"`
					Warning       string   `json:"warning,omitempty"`
				}{jsonSchema, []listed{}, lockedSecretsText(a.secretsLockedHere(s))}
				rows := [][]string{{"KEY", "VERSION", "KIND", "COMMANDS", "INSTALLED", "STATE"}}
				var bad []inspect.Result
				for _, r := range found {
					shown := listed{inspectedShown(r), installationShown(r), stateOf(root, r.Connector, r.Version)}
					list.Connectors = append(list.Connectors, shown)
					rows = append(rows, []string{
						shown.Key, shown.Version, shown.Kind, fmt.Sprint(len(shown.Commands)),
						installedText(shown.Installed, shown.Reason), shown.State,
					})
					if r.State != inspect.Present {
						bad = append(bad, r)
					}
				}
				err = a.show(list, func() error {
					if len(found) == 0 {
						a.note("lend: nothing is installed; next: lend connector new exec:PATH, or npm:NAME@VERSION")
						return nil
					}
					if list.Warning != "" {
						a.note("lend: warning: %s", list.Warning)
					}
					return a.table(rows)
				})
				return a.notPresent(bad, err)
			})
		},
	}
}

// release finds the installed release that a command line means.
func (a *app) release(s *install.Store, key, version string) (install.Release, error) {
	k, err := name.ParseConnectorKey(key)
	if err != nil {
		return install.Release{}, &usageError{err: err}
	}
	v, err := a.chooseVersion(k, version)
	if err != nil {
		return install.Release{}, err
	}
	return s.Release(k, v)
}

func (a *app) connectorShowCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "show KEY",
		Short: "show a Connector: digests, commands, secrets, readiness",
		Long: `Show one installed release: its digests, commands and secrets, and whether it is
what was installed, by its receipts; lend connector verify hashes all its files.
With a running gateway also, for each connection, whether its probe found it
ready, and what runs. Nothing of the Connector is run by this.`,
		Example: "  lend connector show github\n  lend connector show github --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore("", func(s *install.Store) error {
				r, err := a.release(s, args[0], version)
				if err != nil {
					return err
				}
				shown := releaseShown(r)
				found, err := a.inspectedOne(cmd.Context(), r.Manifest.Key, r.Manifest.Version)
				if err != nil {
					return err
				}
				about := aboutShown(s, r)
				live, err := a.live(cmd.Context(), shown.Key, shown.Version)
				if err != nil {
					return err
				}
				return a.show(struct {
					SchemaVersion int `json:"schemaVersion"`
					shownRelease
					shownInstallation
					shownLive
					shownAbout
				}{jsonSchema, shown, installationShown(found), live, about}, func() error { return a.printRelease(shown, about, r, found, live) })
			})
		},
	}
	c.Flags().StringVar(&version, "version", "", "which version (default: the only one)")
	return c
}

func (a *app) printRelease(s shownRelease, about shownAbout, r install.Release, found inspect.Result, live shownLive) error {
	rows := [][]string{
		{"connector", s.Key + " " + s.Version},
		{"name", name.Quote(s.DisplayName)},
		{"kind", strings.TrimSpace(s.Kind + " " + s.Runtime)},
		{"release", s.Digest},
		{"contract", s.ContractHash},
		{"installed", installedText(string(found.State), string(found.Reason))},
	}
	rows = append(append(rows, about.rows()...), live.rows()...)
	for _, secret := range s.Secrets {
		rows = append(rows, []string{"secret", secret})
	}
	if len(r.Contract.Commands) == 0 {
		rows = append(rows, []string{"commands", "none declared: the policy declares those that you share"})
	}
	for _, c := range r.Contract.Commands {
		rows = append(rows, []string{"command", c.Name.String() + "  " + c.Description})
		for _, p := range c.Parameters {
			place := ""
			switch {
			case p.Flag != nil:
				place = p.Flag.Name
			case p.Position > 0:
				place = fmt.Sprintf("position %d", p.Position)
			case p.Stdin != nil:
				place = "standard input"
			default:
				place = "variable " + p.Variable
			}
			required := ""
			if p.Required {
				required = ", required"
			}
			rows = append(rows, []string{"", fmt.Sprintf("  %s: %s, %s%s", p.Name, place, p.Schemas[0].Type, required)})
		}
	}
	return a.table(rows)
}

func (a *app) connectorVerifyCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:     "verify [KEY]",
		Short:   "hash every installed file again and compare",
		Example: "  lend connector verify\n  lend connector verify github",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore("", func(s *install.Store) error {
				releases, err := s.Releases()
				if len(args) == 1 {
					var r install.Release
					r, err = a.release(s, args[0], version)
					releases = []install.Release{r}
				}
				if err != nil {
					return err
				}
				type result struct {
					Key     string `json:"key"`
					Version string `json:"version"`
					OK      bool   `json:"ok"`
					Error   string `json:"error,omitempty"`
				}
				all := struct {
					SchemaVersion int      `json:"schemaVersion"`
					Connectors    []result `json:"connectors"`
				}{jsonSchema, []result{}}
				failed := false
				for _, r := range releases {
					row := result{Key: r.Manifest.Key.String(), Version: r.Manifest.Version.String(), OK: true}
					if err := s.Verify(cmd.Context(), r.Manifest.Key, r.Manifest.Version); err != nil {
						row.OK, row.Error, failed = false, err.Error(), true
					}
					all.Connectors = append(all.Connectors, row)
				}
				err = a.show(all, func() error {
					if len(releases) == 0 {
						a.note("lend: nothing is installed; next: lend connector new exec:PATH, or npm:NAME@VERSION")
					}
					for _, r := range all.Connectors {
						state := "as installed"
						if !r.OK {
							state = r.Error
						}
						if err := a.say("%s %s: %s", r.Key, r.Version, state); err != nil {
							return err
						}
					}
					return nil
				})
				if failed {
					a.note("lend: hint: lend connector remove KEY, then add it again")
					return errors.Join(err, &statusError{1})
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&version, "version", "", "which version (default: the only one)")
	return c
}
