package interpreter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/binary"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// unpackArchive brings a Python and its standard library into the tree. Symbolic
// links, of which such archives have some beside what they name, are left out.
func (src Source) unpackArchive(ctx context.Context, p Place) (depot.Runtime, error) {
	switch {
	case src.Exec+src.File+src.Integrity != "":
		return depot.Runtime{}, errors.New("give an archive or an executable, not both")
	case language(src.Name) != "python":
		return depot.Runtime{}, errors.New("an archive is taken for \"python\" or \"python3\" alone")
	case !manifest.ExactVersion(src.Version):
		return depot.Runtime{}, errors.New("give the version of what is in the archive, such as 3.11.2 (--version)")
	}
	file, err := src.checkedArchive(p)
	if err != nil {
		return depot.Runtime{}, err
	}
	rt := depot.Runtime{Name: src.Name, Version: src.Version, Target: Target()}
	stage := p.Progress("unpack " + src.Name)
	err = artifact.Import(ctx, file, p.Tree, artifact.Options{
		Limits: artifact.RuntimeLimits(), SkipLinks: true, Progress: func(done int64) { stage(done, 0) },
		Inspect: func(tree fs.FS) ([]string, error) {
			rt.Exec, rt.Home, err = findPython(tree, src.Version)
			return []string{rt.Exec}, err
		},
	})
	if err != nil {
		return depot.Runtime{}, err
	}
	return rt, os.Remove(file)
}

func (src Source) checkedArchive(p Place) (string, error) {
	if b, err := hex.DecodeString(src.SHA256); err != nil || len(b) != sha256.Size || strings.ToLower(src.SHA256) != src.SHA256 {
		return "", errors.New("give the SHA-256 of the archive: 64 lower-case hexadecimal digits, as sha256sum prints them (--sha256)")
	}
	in, err := open(src.Archive)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	f, err := p.packed()
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h, most := sha256.New(), artifact.RuntimeLimits().ArchiveBytes
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return "", err
	case n > most:
		return "", &artifact.RefusedError{Reason: fmt.Sprintf("the archive is larger than %d bytes", most)}
	case hex.EncodeToString(h.Sum(nil)) != src.SHA256:
		return "", &artifact.RefusedError{Reason: "its SHA-256 is " + hex.EncodeToString(h.Sum(nil)) + ", which is not the one given"}
	}
	return f.Name(), nil
}

// findPython finds the executable and the directory that holds bin and lib, at the
// root of tree or at most two directories below it.
func findPython(tree fs.FS, version string) (exec, home string, err error) {
	minor := version[:strings.LastIndexByte(version, '.')]
	for _, dir := range upTo(tree, ".", 2) {
		for _, layout := range [][2]string{
			{"bin/python" + minor, "lib/python" + minor + "/os.py"},
			{"bin/python3", "lib/python" + minor + "/os.py"},
			{"bin/python", "lib/python" + minor + "/os.py"},
			{"python.exe", "Lib/os.py"},
		} {
			exec := path.Join(dir, layout[0])
			if info, err := fs.Stat(tree, exec); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if _, err := fs.Stat(tree, path.Join(dir, layout[1])); err != nil {
				return "", "", &artifact.RefusedError{Path: path.Join(dir, layout[1]), Reason: "the standard library of this version is not there"}
			}
			return exec, dir, runsHere(tree, exec)
		}
	}
	return "", "", &artifact.RefusedError{Reason: "it holds no Python " + minor + ": no bin/python" + minor + ", bin/python3 or python.exe"}
}

// upTo lists dir and the directories below it to a depth, its own first.
func upTo(tree fs.FS, dir string, depth int) []string {
	out := []string{dir}
	list, err := fs.ReadDir(tree, dir)
	if err != nil || depth == 0 {
		return out
	}
	for _, d := range list {
		if d.IsDir() {
			out = append(out, upTo(tree, path.Join(dir, d.Name()), depth-1)...)
		}
	}
	return out
}

func runsHere(tree fs.FS, p string) error {
	f, err := tree.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, binary.HeadSize))
	if err != nil {
		return err
	}
	if h, ok := binary.Read(head); !ok || !h.RunsOn(runtime.GOOS, runtime.GOARCH) {
		return &artifact.RefusedError{Path: p, Reason: "it is no executable of this system: the ABI is " + runtime.GOOS + "/" + runtime.GOARCH}
	}
	return nil
}

// Ask has the interpreter of rt, whose tree was hashed just before, say which version
// it is and where its library is, if it brought one. scratch is a private directory.
func Ask(ctx context.Context, run npm.Runner, rt depot.Runtime, tree, scratch string) error {
	if rt.Home == "" {
		return nil
	}
	if run == nil {
		return errors.New("it cannot run here: no runner")
	}
	const code = `import sys, os; print("%d.%d.%d" % sys.version_info[:3]); print(sys.prefix); print(os.__file__)`
	exec := filepath.Join(tree, filepath.FromSlash(rt.Exec))
	out, err := run.Run(ctx, npm.Command{
		Path: exec, Args: []string{exec, "-S", "-c", code}, Dir: scratch,
		Env: append(Env(rt, tree), "HOME="+scratch, "TMPDIR="+scratch, "PATH=/dev/null", "LC_CTYPE=C.UTF-8"),
	})
	if err != nil {
		return fmt.Errorf("ask it for its version: %w: %s", err, name.Quote(string(out)))
	}
	said := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), "\r", "")), "\n")
	home := filepath.Join(tree, filepath.FromSlash(rt.Home))
	release, _, _ := strings.Cut(rt.Version, "-")
	switch {
	case len(said) != 3 || said[0] != release:
		return fmt.Errorf("it says that it is version %s, not %s", name.Quote(said[0]), rt.Version)
	case filepath.Clean(said[1]) != home || !strings.HasPrefix(filepath.Clean(said[2]), home+string(filepath.Separator)):
		return fmt.Errorf("its standard library is not its own but at %s", name.Quote(said[2]))
	}
	return nil
}
