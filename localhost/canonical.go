package localhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/route"
)

// maxLinks bounds how many links one path of a call may lead through.
const maxLinks = 40

// Why a path of a call is not passed on; none of them tells where it leads.
var (
	errNotLocal = fmt.Errorf("path is outside the workspace: %w", route.ErrInvalid)
	errLeadsOut = fmt.Errorf("path leads outside the workspace, or cannot be followed: %w", route.ErrInvalid)
	errLinkOut  = fmt.Errorf("path goes through a link that leads outside the workspace: %w", route.ErrInvalid)
	errLinkLost = fmt.Errorf("path goes through what cannot be followed: %w", route.ErrInvalid)
)

// follower is what along asks of an *os.Root.
type follower interface {
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
}

// canonical returns the path in root that a local path leads to, without a link in
// it, so that a link which changes later is not asked again. What does not exist yet
// is itself, after the way to it was resolved. Links out, and too many, are
// refused. A path through no link comes back as it was given, cleaned or not.
func canonical(root *os.Root, path string) (string, error) {
	if !filepath.IsLocal(path) || strings.ContainsRune(path, 0) {
		return "", errNotLocal
	}
	if _, err := root.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errLeadsOut // the whole way at once, as the system goes it
	}
	return along(root, path)
}

// along goes a local path link by link, and trusts nothing that was looked at before:
// somebody may change the links meanwhile.
func along(root follower, path string) (string, error) {
	at, rest, links := ".", split(path), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		if !filepath.IsLocal(next) {
			return "", errLinkOut
		}
		info, err := root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if next = filepath.Join(append([]string{next}, rest...)...); !filepath.IsLocal(next) {
				return "", errLinkOut
			}
			rest = nil
		case err != nil:
			return "", errLinkLost
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := root.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return "", errLinkLost
			}
			if filepath.IsAbs(target) {
				return "", errLinkOut
			}
			rest = append(split(target), rest...)
			continue
		}
		at = next
	}
	if links == 0 {
		return path, nil
	}
	return at, plain(at)
}

// split takes a path apart without resolving "..", which a link may lead through.
func split(path string) []string {
	var parts []string
	for _, p := range strings.Split(filepath.ToSlash(path), "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return parts
}

// plain refuses a path that a link chose and that could mean something else in an
// argument: an option, an item more of a list, a file to read.
func plain(path string) error {
	for i, c := range path {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '/', c == filepath.Separator:
		case c == '-' && i > 0:
		default:
			return fmt.Errorf("link leads to a name that cannot be passed on: %w", route.ErrInvalid)
		}
	}
	return nil
}
