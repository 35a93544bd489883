package npm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Leave tells which files of a project directory are not part of the installed
// tree: npm's own records, the links to commands, and what the project itself held.
func Leave(p string) bool {
	if p == "node_modules" {
		return false
	}
	if !strings.HasPrefix(p, "node_modules/") {
		return true
	}
	dir, base := path.Split(p)
	return (base == ".bin" || base == ".package-lock.json") && isModules(strings.TrimSuffix(dir, "/"))
}

// isModules tells whether p is a node_modules directory that npm laid out, not one
// that a package's own files hold.
func isModules(p string) bool {
	return p == "node_modules" || strings.HasSuffix(p, "/node_modules") && lockedPath.MatchString(strings.TrimSuffix(p, "/node_modules"))
}

// CheckTree says whether tree, the directory that holds node_modules, has exactly
// the packages of l, each with the name and version that l says. Optional packages
// of other systems may be absent.
func CheckTree(tree fs.FS, l Lock) error {
	for _, p := range l.packages {
		if err := checkPackage(tree, p); err != nil {
			return fmt.Errorf("check installed packages: %s: %w", name.Quote(p.Path), err)
		}
	}
	if err := checkModules(tree, l, "node_modules"); err != nil {
		return fmt.Errorf("check installed packages: %w", err)
	}
	return nil
}

func checkPackage(tree fs.FS, p Locked) error {
	info, err := readPackage(tree, p.Path)
	if errors.Is(err, fs.ErrNotExist) && p.Optional && !p.Needed {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) && p.Needed {
		return fmt.Errorf("npm left out this system's own package: the registry may not serve it: %w", err)
	}
	if err != nil {
		return err
	}
	if info.Name != p.Name || info.Version != p.Version {
		return fmt.Errorf("it is %s, the lock says %s", name.Quote(info.Name+"@"+info.Version), name.Quote(p.Name+"@"+p.Version))
	}
	return nil
}

// checkModules refuses packages that the lock does not name.
func checkModules(tree fs.FS, l Lock, dir string) error {
	list, err := fs.ReadDir(tree, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range list {
		p := path.Join(dir, d.Name())
		if strings.HasPrefix(d.Name(), "@") && path.Base(dir) == "node_modules" {
			if err := checkModules(tree, l, p); err != nil {
				return err
			}
			continue
		}
		if _, ok := l.Package(p); !ok {
			return fmt.Errorf("%s is not in the lock", name.Quote(p))
		}
		if err := checkModules(tree, l, path.Join(p, "node_modules")); err != nil {
			return err
		}
	}
	return nil
}

type packageInfo struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Bin     json.RawMessage `json:"bin"`

	Scripts json.RawMessage `json:"scripts"`
}

const maxPackageFile = 1 << 20

func readPackage(tree fs.FS, dir string) (packageInfo, error) {
	var info packageInfo
	f, err := tree.Open(path.Join(dir, ProjectFile))
	if err != nil {
		return info, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return info, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxPackageFile {
		return info, errors.New("its package.json is no file, or too large")
	}
	if err := json.NewDecoder(f).Decode(&info); err != nil {
		return info, fmt.Errorf("its package.json: %w", err)
	}
	return info, nil
}
