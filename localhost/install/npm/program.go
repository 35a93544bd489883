package npm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/binary"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// Program is what a package's command runs.
type Program struct {
	Path   string // in the tree that holds node_modules
	Native bool   // an executable of this system; otherwise a script that node runs
}

// FindProgram finds in an installed tree what pkg runs: the executable that it
// names, or the target of the bin that ChooseBin picks. Refused are targets outside
// the package, executables of another system, and scripts of another interpreter
// than node.
func FindProgram(tree fs.FS, pkg manifest.Package) (Program, error) {
	p, err := findProgram(tree, pkg)
	if err != nil {
		return Program{}, fmt.Errorf("find command of %s: %w", pkg.Name, err)
	}
	return p, nil
}

func findProgram(tree fs.FS, pkg manifest.Package) (Program, error) {
	dir := path.Join("node_modules", pkg.Name)
	info, err := readPackage(tree, dir)
	if err != nil {
		return Program{}, err
	}
	target := pkg.Native
	if target == "" {
		if _, target, err = ChooseBin(binFrom(info.Bin, pkg.Name), pkg.Name, pkg.Bin); err != nil {
			return Program{}, err
		}
	}
	p := Program{Path: path.Join(dir, target)}
	if !strings.HasPrefix(p.Path, dir+"/") {
		return Program{}, fmt.Errorf("%s leaves the package", name.Quote(target))
	}
	head, err := readHead(tree, p.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Program{}, fmt.Errorf("%s: the file is not there%s", name.Quote(target), info.madeBy())
	}
	if err == nil {
		p.Native, err = isNative(head)
	}
	if err == nil && pkg.Native != "" && !p.Native {
		err = fmt.Errorf("it is not a native executable: name it as a bin%s", info.madeBy())
	}
	if err != nil {
		return Program{}, fmt.Errorf("%s: %w", name.Quote(target), err)
	}
	return p, nil
}

// madeBy says which script of the package may have been meant to make a file. A
// package whose scripts fetch its program from elsewhere cannot be used.
func (info packageInfo) madeBy() string {
	var scripts map[string]string
	if json.Unmarshal(info.Scripts, &scripts) != nil {
		return ""
	}
	for _, event := range []string{"preinstall", "install", "postinstall"} {
		if script, ok := scripts[event]; ok {
			return fmt.Sprintf("; the package's %s script, which did not run, may make or download it: %s (see cli.package.lifecycle)", event, name.Quote(script))
		}
	}
	return ""
}

func readHead(tree fs.FS, p string) ([]byte, error) {
	f, err := tree.Open(p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, binary.HeadSize))
	if err != nil || len(head) == 0 {
		return nil, errors.Join(errors.New("the file is empty or unreadable"), err)
	}
	return head, nil
}

// isNative tells an executable of this system from a script of node, and refuses
// what is neither.
func isNative(head []byte) (bool, error) {
	if h, ok := binary.Read(head); ok {
		if !h.RunsOn(runtime.GOOS, runtime.GOARCH) {
			return false, fmt.Errorf("it is a native executable (%s, %s) for another system than %s/%s", h.Format, strings.Join(h.Archs, " "), runtime.GOOS, runtime.GOARCH)
		}
		return true, nil
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return false, errors.New("it is neither a script nor a native executable")
	}
	if line, _, _ := bytes.Cut(head, []byte("\n")); bytes.HasPrefix(line, []byte("#!")) && !bytes.Contains(line, []byte("node")) {
		return false, fmt.Errorf("it needs another interpreter than node: %s", name.Quote(strings.TrimSpace(string(line))))
	}
	return false, nil
}

// ChooseBin picks from a package's commands the one named want; where want is "",
// the only one, or the one that is named as pkg is.
func ChooseBin(bins map[string]string, pkg, want string) (bin, target string, err error) {
	if want == "" {
		want = pkg[strings.LastIndex(pkg, "/")+1:]
		if len(bins) == 1 {
			for want = range bins { //nolint:revive // the only key
			}
		}
	}
	target, ok := bins[want]
	if !ok || target == "" {
		return "", "", fmt.Errorf("find command of %s: no bin named %s; it has %s: name one (--bin, or bin in the manifest)", pkg, name.Quote(want), binList(bins))
	}
	return want, target, nil
}

func binList(bins map[string]string) string {
	if len(bins) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, n := range slices.Sorted(maps.Keys(bins)) {
		if i == 8 {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name.Quote(n))
	}
	return b.String()
}
