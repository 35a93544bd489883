package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/binary"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// ErrNoRegistry means that something must be fetched and no package registry is known.
var ErrNoRegistry = errors.New("no package registry: give --registry URL or set NPM_CONFIG_REGISTRY")

// Source is an interpreter to add: the managed "node" or "npm", or another by an
// archive or its executable.
type Source struct {
	Name string // an identifier: "node", "npm", "python3"
	// Version is x.y.z. "" means the tried one of node and npm; every other needs one.
	Version string
	// Integrity is that of the package of node or npm; it may be "" for the version
	// that was tried.
	Integrity string
	// File is the absolute path of that package's tarball; "" fetches it.
	File string
	// Exec is the absolute path of the executable to copy, for all but node and npm.
	Exec string
	// Archive is the absolute path of a tar.gz or zip with a Python and its standard
	// library, and SHA256 its digest, 64 lower-case hexadecimal digits.
	Archive, SHA256 string
}

// Place is where an interpreter is laid out. Dir is an empty private directory; the
// interpreter comes into the new directory Tree, beside or below it.
type Place struct {
	Dir, Tree string
	Registry  npm.Registry
	// Progress is told of each stage, and returns what is told the bytes of it.
	Progress func(stage string) func(done, total int64)
}

// Lay brings the interpreter into p.Tree and returns what is to run, without its
// digest. The tree is read-only and on disk. Errors match ErrNoRegistry,
// npm.ErrIntegrity, and *artifact.RefusedError.
func (src Source) Lay(ctx context.Context, p Place) (depot.Runtime, error) {
	if _, err := name.ParseCommand(src.Name); err != nil || manifest.CheckPath(src.Name) != nil {
		return depot.Runtime{}, errors.New("want a name such as \"node\" or \"python3\"")
	}
	switch {
	case src.Name == Node || src.Name == NPM:
		return src.unpackManaged(ctx, p)
	case src.Archive != "":
		return src.unpackArchive(ctx, p)
	}
	return src.copyExecutable(ctx, p)
}

func (src Source) unpackManaged(ctx context.Context, p Place) (depot.Runtime, error) {
	if src.Exec+src.Archive != "" {
		return depot.Runtime{}, errors.New("node and npm come from their packages: an executable of this system is never used")
	}
	t, ok := managed(src.Name, Target())
	if !ok {
		return depot.Runtime{}, fmt.Errorf("there is no managed runtime for %s", Target())
	}
	if src.Version != "" && src.Version != t.version {
		t.version, t.integrity = src.Version, ""
	}
	if src.Integrity != "" {
		t.integrity = src.Integrity
	}
	if t.integrity == "" {
		return depot.Runtime{}, fmt.Errorf("give the integrity of %s@%s: only %s's tried version has a known one (--integrity sha512-…)", t.pkg, t.version, src.Name)
	}
	want, err := npm.ParseIntegrity(t.integrity)
	if err != nil {
		return depot.Runtime{}, err
	}
	if err := manifest.CheckPackage(t.pkg, t.version); err != nil {
		return depot.Runtime{}, err
	}
	file, err := p.tarballOf(ctx, t, want, src.File)
	if err != nil {
		return depot.Runtime{}, err
	}
	stage := p.Progress("unpack " + src.Name)
	err = artifact.Import(ctx, file, p.Tree, artifact.Options{
		Limits: artifact.RuntimeLimits(), Strip: 1, Skip: t.skip,
		Inspect:  func(fs.FS) ([]string, error) { return []string{t.exec}, nil },
		Progress: func(done int64) { stage(done, 0) },
	})
	if err != nil {
		return depot.Runtime{}, err
	}
	return depot.Runtime{Name: src.Name, Version: t.version, Exec: t.exec, Target: Target()}, os.Remove(file)
}

// packed makes the file in p that is unpacked: its bytes are those that are hashed.
func (p Place) packed() (*os.File, error) {
	return os.OpenFile(filepath.Join(p.Dir, "packed"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// tarballOf returns a verified file.
func (p Place) tarballOf(ctx context.Context, t tarball, want npm.Integrity, local string) (string, error) {
	f, err := p.packed()
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if local == "" {
		if p.Registry.Base == "" {
			return "", ErrNoRegistry
		}
		return f.Name(), npm.Fetch(ctx, p.Registry, t.pkg, t.version, want, f, p.Progress("fetch "+t.pkg))
	}
	in, err := open(local)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	return f.Name(), npm.CopyFile(in, want, f)
}

func open(path string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("the archive's path must be absolute")
	}
	return os.Open(path)
}

func (t tarball) skip(p string) bool {
	if t.keep == nil {
		return false
	}
	return !slices.ContainsFunc(t.keep, func(k string) bool { return k == p || strings.HasPrefix(k, p+"/") || strings.HasPrefix(p, k+"/") })
}

func (src Source) copyExecutable(ctx context.Context, p Place) (depot.Runtime, error) {
	if src.Exec == "" || !filepath.IsAbs(src.Exec) || src.File+src.Integrity+src.SHA256 != "" {
		return depot.Runtime{}, errors.New("give the absolute path of its executable (--exec PATH), or of python an archive with its digest (--archive FILE --sha256 HEX)")
	}
	if !manifest.ExactVersion(src.Version) {
		return depot.Runtime{}, errors.New("want a version such as 3.11.2, which an executable does not tell (--version X.Y.Z)")
	}
	exec := "bin/" + src.Name
	stage := p.Progress("copy " + src.Name)
	err := artifact.ImportFile(ctx, src.Exec, p.Tree, exec, artifact.Options{
		Limits: artifact.RuntimeLimits(), Progress: func(done int64) { stage(done, 0) },
		Inspect: func(tree fs.FS) ([]string, error) { return nil, refuseNoProgram(tree, exec) },
	})
	return depot.Runtime{Name: src.Name, Version: src.Version, Exec: exec, Target: Target()}, err
}

// refuseNoProgram takes only what this system starts by itself: of a script the system
// would look up an interpreter that nobody verified.
func refuseNoProgram(tree fs.FS, p string) error {
	f, err := tree.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, binary.HeadSize))
	if err != nil {
		return err
	}
	h, ok := binary.Read(head)
	switch {
	case ok && h.RunsOn(runtime.GOOS, runtime.GOARCH):
		return nil
	case ok:
		return &artifact.RefusedError{Path: p, Reason: fmt.Sprintf("it is an executable of another system (%s for %s): this one is %s", h.Format, processors(h), Target())}
	case strings.HasPrefix(string(head), "#!"):
		return &artifact.RefusedError{Path: p, Reason: "it is a script: an interpreter is an executable"}
	}
	return &artifact.RefusedError{Path: p, Reason: "it is no executable: it begins as neither an ELF, a Mach-O nor a PE file does"}
}

func processors(h binary.Header) string {
	if all := strings.Join(h.Archs, ", "); all != "" {
		return all
	}
	return "another processor"
}
