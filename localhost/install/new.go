package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/install/draft"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// NewConnector asks for a Connector's directory to start from.
type NewConnector struct {
	// From is "npm:NAME@VERSION" or "exec:PATH" (absolute).
	From string
	// Dir is the absolute path of the directory to make; it must not exist.
	Dir string
	// Key and Version are the Connector's; "" takes the package's or file's name,
	// and the package's version or 0.1.0.
	Key, Version string
	// Bin is which of the package's commands; "" if it has one.
	Bin string
	// Native is the path of an executable in the package, for one without commands.
	Native string
	// Postinstall is the path of the JavaScript file in the package that its
	// installation runs; "" runs none.
	Postinstall string
}

// New writes a Connector's directory: a manifest without commands, which leaves them
// to the owner's policy until its author declares some; for npm the lock of the
// whole tree, resolved by the managed npm; for an executable a copy of it. The
// result is what Add takes. Errors match ErrNoRuntime, ErrNoRegistry.
func (s *Store) New(ctx context.Context, n NewConnector, p Progress) (manifest.Manifest, error) {
	m, err := s.newConnector(ctx, n, p)
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("new connector: %w", err)
	}
	return m, nil
}

func (s *Store) newConnector(ctx context.Context, n NewConnector, p Progress) (m manifest.Manifest, err error) {
	if !filepath.IsAbs(n.Dir) {
		return m, errors.New("the directory must be absolute")
	}
	kind, what, ok := strings.Cut(n.From, ":")
	if !ok || (kind != "npm" && kind != "exec") {
		return m, fmt.Errorf("want npm:NAME@VERSION or exec:PATH, not %s", name.Quote(n.From))
	}
	if kind == "exec" && n.Bin+n.Native+n.Postinstall != "" {
		return m, errors.New("an executable is no package: it has no bin, native file or postinstall")
	}
	if _, err := os.Lstat(n.Dir); !errors.Is(err, fs.ErrNotExist) {
		return m, errors.Join(fmt.Errorf("%s is there already", name.Quote(n.Dir)), err)
	}
	o := draft.Options{Key: n.Key, Version: n.Version, Bin: n.Bin, Native: n.Native, Postinstall: n.Postinstall}
	var d draft.Draft
	if kind == "npm" {
		d, err = s.draftNPM(ctx, what, o, p)
	} else {
		d, err = draft.Exec(what, o)
	}
	if err != nil {
		return m, err
	}
	return d.Write(n.Dir)
}

func (s *Store) draftNPM(ctx context.Context, spec string, o draft.Options, p Progress) (draft.Draft, error) {
	if _, _, err := draft.Package(spec); err != nil {
		return draft.Draft{}, err
	}
	rt, err := s.chooseRuntime(manifest.Runtime{Profile: interpreter.Node})
	if err != nil {
		return draft.Draft{}, err
	}
	tool, release, err := s.tool(ctx, rt)
	if err != nil {
		return draft.Draft{}, err
	}
	defer release()
	g, err := s.depot.Stage(ctx)
	if err != nil {
		return draft.Draft{}, err
	}
	defer g.Drop()
	p.tell("resolve "+spec, 0, 0)
	return draft.NPM(ctx, tool, rt.Version, g.Path(), spec, o)
}
