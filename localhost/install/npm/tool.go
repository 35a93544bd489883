package npm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// runTimeout bounds one run of npm; tail bounds what of other output than its own
// lines an error shows, before it is quoted.
const (
	runTimeout = 10 * time.Minute
	tail       = 2 << 10
)

// Tool is npm itself: a verified package, run by a verified interpreter. Both must
// have been verified just before a call. It may be used from any goroutine.
type Tool struct {
	Node     string // absolute path of the interpreter
	CLI      string // absolute path of npm-cli.js
	Cache    string // absolute path of npm's own cache, shared between runs
	Registry Registry
	Runner   Runner
}

// ProjectFile and LockFile are the names that npm gives them.
const (
	ProjectFile = "package.json"
	LockFile    = "package-lock.json"
)

// CI installs the tree that lock pins into dir/project/node_modules. dir is an
// empty private directory; lock was accepted by ParseLock for pkg and version. No
// lifecycle script runs, and what npm left must pass CheckTree before it is used.
func (t Tool) CI(ctx context.Context, dir string, lock []byte, pkg, version string) error {
	bare, err := portable(lock)
	if err != nil {
		return err
	}
	files := map[string][]byte{ProjectFile: Project(pkg, version), LockFile: bare}
	// What is in the cache is enough, however old: the lock pins every byte.
	if err := t.run(ctx, dir, files, "ci", "--omit=dev", "--no-bin-links", "--prefer-offline"); err != nil {
		return fmt.Errorf("install %s@%s: %w", pkg, version, err)
	}
	return nil
}

// Resolve asks the registry for the tree of pkg at version and returns its lock, in
// which no address is recorded. dir is an empty private directory.
func (t Tool) Resolve(ctx context.Context, dir, pkg, version string) ([]byte, error) {
	if err := manifest.CheckPackage(pkg, version); err != nil {
		return nil, fmt.Errorf("resolve package: %w", err)
	}
	files := map[string][]byte{ProjectFile: Project(pkg, version)}
	if err := t.run(ctx, dir, files, "install", "--package-lock-only", "--omit-lockfile-registry-resolved"); err != nil {
		return nil, fmt.Errorf("resolve %s@%s: %w", pkg, version, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "project", LockFile))
	if err != nil {
		return nil, fmt.Errorf("resolve %s@%s: %w", pkg, version, err)
	}
	return b, nil
}

// Project returns the package.json of a project that depends on pkg at version.
func Project(pkg, version string) []byte {
	b, err := json.MarshalIndent(struct {
		Private      bool              `json:"private"`
		Dependencies map[string]string `json:"dependencies"`
	}{true, map[string]string{pkg: version}}, "", "  ")
	if err != nil {
		return nil // strings always marshal
	}
	return append(b, '\n')
}

// run lays out dir and runs npm in it. The environment is empty but for private
// directories, and every setting is a flag, since a flag is what nothing overrides.
func (t Tool) run(ctx context.Context, dir string, files map[string][]byte, args ...string) error {
	if t.Runner == nil {
		return errors.New("npm cannot run here: no runner")
	}
	if _, _, err := t.Registry.check(); err != nil {
		return err
	}
	for _, d := range []string{"home", "tmp", "project"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	for _, empty := range []string{"user.npmrc", "global.npmrc"} {
		if err := os.WriteFile(filepath.Join(dir, empty), nil, 0o600); err != nil {
			return err
		}
	}
	for n, b := range files {
		if err := os.WriteFile(filepath.Join(dir, "project", n), b, 0o600); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	out, err := t.Runner.Run(ctx, Command{
		Path: t.Node, Dir: filepath.Join(dir, "project"), Env: t.env(dir),
		Args: append([]string{"node", t.CLI}, append(args, t.flags(dir)...)...),
	})
	if err != nil && says(out, "code EINTEGRITY") {
		err = fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	if err != nil {
		return fmt.Errorf("npm: %w%s", err, lastWords(out))
	}
	return nil
}

// says tells whether npm wrote exactly this line as an error.
func says(out []byte, what string) bool {
	for line := range bytes.Lines(out) {
		own, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("npm error"))
		if ok && string(bytes.TrimSpace(own)) == what {
			return true
		}
	}
	return false
}

func (t Tool) flags(dir string) []string {
	f := []string{
		"--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--no-color",
		// What a package names outside of registries is refused before it is looked at. But for
		// an address: with that, npm could not read the shrinkwrap of a package, either.
		"--allow-git=none", "--allow-file=none", "--allow-directory=none",
		"--loglevel=error", "--logs-max=0", "--install-strategy=hoisted", "--engine-strict=false",
		"--userconfig=" + filepath.Join(dir, "user.npmrc"), "--globalconfig=" + filepath.Join(dir, "global.npmrc"),
		"--prefix=" + filepath.Join(dir, "project"), "--cache=" + t.Cache, "--registry=" + t.Registry.Base,
	}
	if t.Registry.CAFile != "" {
		f = append(f, "--cafile="+t.Registry.CAFile)
	}
	return f
}

// env is all that npm gets. A proxy's address may hold a password, which other users
// of the machine could read among the arguments.
func (t Tool) env(dir string) []string {
	e := t.privateEnv(dir, "")
	if t.Registry.Proxy != "" {
		e = append(e, "HTTP_PROXY="+t.Registry.Proxy, "HTTPS_PROXY="+t.Registry.Proxy)
	}
	return e
}

// privateEnv is what every program gets: places of its own, and path as PATH.
func (t Tool) privateEnv(dir, path string) []string {
	home, tmp := filepath.Join(dir, "home"), filepath.Join(dir, "tmp")
	return []string{
		"HOME=" + home, "USERPROFILE=" + home, "PATH=" + path, "TMPDIR=" + tmp, "TMP=" + tmp, "TEMP=" + tmp, "NODE_DISABLE_COMPILE_CACHE=1",
	}
}

// lastWords shows on one line what npm says first: its own lines, and the usage text
// that follows them left out. Without such lines it shows the end of the output.
func lastWords(out []byte) string {
	const lines = 3
	var said []string
	for line := range bytes.Lines(out) {
		own, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("npm error"))
		if own = bytes.TrimSpace(own); ok && len(own) > 0 && len(said) < lines {
			said = append(said, string(own))
		}
	}
	if len(said) > 0 {
		return ": " + name.Quote(strings.Join(said, "; "))
	}
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return ""
	}
	if len(out) > tail {
		out = out[len(out)-tail:]
	}
	return ": " + name.Quote(string(bytes.ReplaceAll(out, []byte("\n"), []byte("; "))))
}
