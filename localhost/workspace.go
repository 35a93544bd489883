package localhost

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// workspace returns the absolute, link-free directory of a workspace, and the
// arguments of the call in which every path leads through no link, after checking
// that it lies in the workspace. Errors about the workspace are the owner's affair
// (ErrUnavailable), those about a path the caller's (ErrInvalid).
func (h *Host) workspace(label, place string, call argv.Call) (string, []string, error) {
	if h.cfg.Workspaces == nil {
		return "", nil, unavailable("find workspace", fs.ErrNotExist)
	}
	path, ok := h.cfg.Workspaces(label)
	if !ok {
		return "", nil, unavailable("find workspace", fs.ErrNotExist)
	}
	if sum := sha256.Sum256([]byte(path)); place != "" && place != hex.EncodeToString(sum[:]) {
		return "", nil, fmt.Errorf("workspace %s is another directory now: %w", name.Quote(label), route.ErrIdentityMismatch)
	}
	root, err := openWorkspace(path, h.private())
	if err != nil {
		return "", nil, unavailable("open workspace "+name.Quote(label), err)
	}
	defer func() { _ = root.Close() }() // only read
	args, err := resolved(root, call)
	return root.Name(), args, err
}

// CheckWorkspace says why nothing would start in the workspace at path, an absolute
// directory; nil if that could. Private are directories that it may not overlap.
func CheckWorkspace(path string, private ...string) error {
	root, err := openWorkspace(path, private)
	if err != nil {
		return err
	}
	return root.Close()
}

// private lists what no workspace may hold or lie in.
func (h *Host) private() []string { return append([]string{h.cfg.Connections.Dir()}, h.cfg.Private...) }

// openWorkspace resolves the links above a workspace; the workspace itself may not
// be one, and must not hold, or lie in, what the host keeps to itself.
func openWorkspace(path string, private []string) (*os.Root, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("path is not absolute")
	}
	path = filepath.Clean(path)
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if !isDirectory(path) {
		return nil, errors.New("it is a link, or not a directory")
	}
	for _, d := range private {
		own, err := filepath.EvalSymlinks(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if contains(dir, own) || contains(own, dir) {
			return nil, errors.New("it overlaps a private directory of the host")
		}
	}
	return os.OpenRoot(dir)
}

// isDirectory is false of a link to one.
func isDirectory(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// contains is true if it cannot be told.
func contains(outer, inner string) bool {
	rel, err := filepath.Rel(outer, inner)
	return err != nil || filepath.IsLocal(rel)
}

// resolved returns the arguments of the call with each path made canonical.
func resolved(root *os.Root, call argv.Call) ([]string, error) {
	args := slices.Clone(call.Arguments)
	paths := slices.Clone(call.Paths)
	// From the back: what is replaced moves only what comes after it.
	slices.SortStableFunc(paths, func(a, b argv.Path) int { return cmp.Compare(b.Offset, a.Offset) })
	for _, p := range paths {
		if !stands(args, p) { // nor did another path change it
			return nil, fmt.Errorf("path is not where the call says: %w", route.ErrInvalid)
		}
		real, err := canonical(root, filepath.FromSlash(p.Path))
		if err != nil {
			return nil, err
		}
		if real != filepath.FromSlash(p.Path) {
			arg := args[p.Index]
			args[p.Index] = arg[:p.Offset] + filepath.ToSlash(real) + arg[p.Offset+len(p.Path):]
		}
	}
	return args, nil
}

// stands tells whether p is in args where it says, alone or as an item of a list.
func stands(args []string, p argv.Path) bool {
	if p.Index < 0 || p.Index >= len(args) || p.Offset < 0 || p.Offset > len(args[p.Index]) {
		return false
	}
	rest, ok := strings.CutPrefix(args[p.Index][p.Offset:], p.Path)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], ",;:|+ "))
}
