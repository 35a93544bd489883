package localhost

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// workspace returns the absolute, link-free directory of a workspace, after
// checking that every path of the call lies in it. Errors about the workspace
// are the owner's affair (ErrUnavailable), those about a path the caller's
// (ErrInvalid).
func (h *Host) workspace(label, place string, call argv.Call) (string, error) {
	if h.cfg.Workspaces == nil {
		return "", unavailable("find workspace", fs.ErrNotExist)
	}
	path, ok := h.cfg.Workspaces(label)
	if !ok {
		return "", unavailable("find workspace", fs.ErrNotExist)
	}
	if sum := sha256.Sum256([]byte(path)); place != "" && place != hex.EncodeToString(sum[:]) {
		return "", fmt.Errorf("workspace %s is another directory now: %w", name.Quote(label), route.ErrIdentityMismatch)
	}
	dir, err := h.workspaceDir(path)
	if err != nil {
		return "", unavailable("open workspace "+name.Quote(label), err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", unavailable("open workspace "+name.Quote(label), err)
	}
	defer func() { _ = root.Close() }() // only read
	for _, p := range call.Paths {
		if err := inside(root, call.Arguments, p); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// workspaceDir resolves the links above a workspace; the workspace itself may not
// be one, and must not hold, or lie in, what the host keeps to itself.
func (h *Host) workspaceDir(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("path is not absolute")
	}
	info, err := os.Lstat(filepath.Clean(path))
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", errors.New("not a directory")
	}
	dir, err := filepath.EvalSymlinks(filepath.Clean(path))
	if err != nil {
		return "", err
	}
	for _, d := range append([]string{h.cfg.Connections.Dir()}, h.cfg.Private...) {
		private, err := filepath.EvalSymlinks(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if contains(dir, private) || contains(private, dir) {
			return "", errors.New("it overlaps a private directory of the host")
		}
	}
	return dir, nil
}

func contains(outer, inner string) bool {
	rel, err := filepath.Rel(outer, inner)
	return err == nil && filepath.IsLocal(rel)
}

// inside tells whether a path of a call stays in the workspace, following links
// as the CLI will. What does not exist yet is inside if the way to it is.
func inside(root *os.Root, args []string, p argv.Path) error {
	outside := fmt.Errorf("path is outside the workspace: %w", route.ErrInvalid)
	if !stands(args, p) {
		return fmt.Errorf("path is not where the call says: %w", route.ErrInvalid)
	}
	local := filepath.FromSlash(p.Path)
	if !filepath.IsLocal(local) || strings.ContainsRune(local, 0) {
		return outside
	}
	if _, err := root.Stat(local); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return outside
	}
	return nil
}

// stands tells whether p is in args where it says, alone or as an item of a list.
func stands(args []string, p argv.Path) bool {
	if p.Index < 0 || p.Index >= len(args) || p.Offset < 0 || p.Offset > len(args[p.Index]) {
		return false
	}
	rest, ok := strings.CutPrefix(args[p.Index][p.Offset:], p.Path)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], ",;:|+ "))
}
