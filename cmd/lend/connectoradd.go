package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

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
	f.StringVar(&out, "out", "", "the directory to make (default: --key, or the package's or file's name, here)")
	f.StringVar(&registry, "registry", "", "package registry (default: $NPM_CONFIG_REGISTRY)")
	return c
}

// newPlaces makes the paths absolute.
func newPlaces(from, out, key string) (string, string, error) {
	kind, what, _ := strings.Cut(from, ":")
	if what == "" {
		kind = "" // neither
	}
	if out == "" {
		out = key
	}
	switch kind {
	case "exec":
		abs, err := fullPath(what)
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
	dir, err := fullPath(out)
	return from, dir, err
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
			path, err := fullPath(args[0])
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
					return sourceError(path, err)
				}
				if err := a.added(cmd.Context(), r); err != nil {
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

// added has a running gateway take a release up that is installed.
func (a *app) added(ctx context.Context, r install.Release) error {
	key, version := r.Manifest.Key, r.Manifest.Version
	if err := a.stillRemoved(key, version); err != nil {
		return err
	}
	return a.takenUp(ctx, change{key: key, version: version, done: key.String() + " " + version.String() + " is installed"})
}

// sourceError says what to give instead of a path that is no Connector.
func sourceError(path string, err error) error {
	info, look := os.Stat(path)
	if look == nil && info.IsDir() {
		_, look = os.Stat(filepath.Join(path, manifest.FileName))
	}
	if errors.Is(look, fs.ErrNotExist) {
		return &hinted{err: err, hint: "lend connector new npm:NAME@VERSION, or exec:PATH, makes a directory to add"}
	}
	return err
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
