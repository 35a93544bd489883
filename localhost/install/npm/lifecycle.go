package npm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// lifecycleTimeout bounds the one script that may run.
const lifecycleTimeout = 2 * time.Minute

// Lifecycle runs the one script that pkg's manifest allows, if any, after CI has
// installed its tree into dir, and before that tree is checked: what the script
// changes is part of what is verified from then on. The script is JavaScript in the
// package, run by the interpreter itself, without a shell, in the package's own
// directory. Its environment is private directories, the interpreter's directory
// as PATH, and what npm says of a script: its event, package and version. It is not
// kept from the network or from other files of this user.
func (t Tool) Lifecycle(ctx context.Context, dir string, pkg manifest.Package) error {
	if pkg.Lifecycle == nil {
		return nil
	}
	if err := t.lifecycle(ctx, dir, pkg); err != nil {
		return fmt.Errorf("run %s of %s: %w", pkg.Lifecycle.Event, pkg.Name, err)
	}
	return nil
}

func (t Tool) lifecycle(ctx context.Context, dir string, pkg manifest.Package) error {
	if t.Runner == nil {
		return errors.New("it cannot run here: no runner")
	}
	l := *pkg.Lifecycle
	project, err := os.OpenRoot(filepath.Join(dir, "project"))
	if err != nil {
		return err
	}
	defer func() { _ = project.Close() }()
	root := path.Join("node_modules", pkg.Name)
	if err := checkLifecycle(project.FS(), root, l); err != nil {
		return err
	}
	at := filepath.Join(project.Name(), filepath.FromSlash(root))
	env := append(t.privateEnv(dir, filepath.Dir(t.Node)), "npm_lifecycle_event="+l.Event, "npm_package_name="+pkg.Name, "npm_package_version="+pkg.Version)
	ctx, cancel := context.WithTimeout(ctx, lifecycleTimeout)
	defer cancel()
	out, err := t.Runner.Run(ctx, Command{
		Path: t.Node, Dir: at, Env: env,
		Args: append([]string{"node", filepath.Join(at, filepath.FromSlash(l.Entrypoint))}, l.Arguments...),
	})
	if err != nil {
		return fmt.Errorf("%w%s", err, lastWords(out))
	}
	return nil
}

// checkLifecycle wants a script that the package itself declares for this event.
func checkLifecycle(tree fs.FS, root string, l manifest.Lifecycle) error {
	info, err := readPackage(tree, root)
	if err != nil {
		return err
	}
	var scripts map[string]string
	if err := json.Unmarshal(info.Scripts, &scripts); err != nil || !strings.Contains(scripts[l.Event], path.Base(l.Entrypoint)) {
		return fmt.Errorf("the package's own %s is %s, the manifest says %s", l.Event, name.Quote(scripts[l.Event]), name.Quote(l.Entrypoint))
	}
	head, err := readHead(tree, path.Join(root, l.Entrypoint))
	if err != nil {
		return fmt.Errorf("%s: %w", name.Quote(l.Entrypoint), err)
	}
	if native, err := isNative(head); err != nil || native {
		return errors.Join(fmt.Errorf("%s is not a script of node", name.Quote(l.Entrypoint)), err)
	}
	return nil
}
