package npm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/internal/strictjson"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a lock.
const (
	MaxLock     = 8 << 20 // bytes
	maxPackages = 4096
)

// Locked is one package of a lock.
type Locked struct {
	Path       string // "node_modules/a/node_modules/@b/c"
	Name       string // what its package.json says; differs from Path for an alias
	Version    string
	Integrity  Integrity
	Optional   bool // npm may leave it out: another system's, or part of such
	Needed     bool // optional, but made for this very system: it must be there
	HasScripts bool // it has install scripts; they do not run
	Bin        map[string]string
	Engine     string // its engines.node, as its author wrote it
}

// Lock is a tree of packages, each from a registry and with its integrity. It is
// immutable.
type Lock struct {
	packages []Locked // by Path
}

// LockError is one fault of a lock. ParseLock returns all that it finds, joined.
type LockError struct {
	Path string // of the entry; "" for the lock as a whole
	Msg  string
}

func (e *LockError) Error() string {
	if e.Path == "" {
		return "package lock: " + e.Msg
	}
	return "package lock: " + name.Quote(e.Path) + ": " + e.Msg
}

type lockDocument struct {
	LockfileVersion int                  `json:"lockfileVersion"`
	Packages        map[string]lockEntry `json:"packages"`
}

// lockEntry has every field that changes what is installed; the rest is ignored.
type lockEntry struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Resolved             string            `json:"resolved"`
	Integrity            string            `json:"integrity"`
	Link                 bool              `json:"link"`
	InBundle             bool              `json:"inBundle"`
	Dev                  bool              `json:"dev"`
	Optional             bool              `json:"optional"`
	DevOptional          bool              `json:"devOptional"`
	HasInstallScript     bool              `json:"hasInstallScript"`
	Bin                  json.RawMessage   `json:"bin"`
	Engines              json.RawMessage   `json:"engines"`
	Dependencies         map[string]string `json:"dependencies"`
	DevDependencies      map[string]string `json:"devDependencies"`
	OptionalDependencies map[string]string `json:"optionalDependencies"`
	PeerDependencies     map[string]string `json:"peerDependencies"`
	BundleDependencies   json.RawMessage   `json:"bundleDependencies"`
	Workspaces           json.RawMessage   `json:"workspaces"`
	OS                   json.RawMessage   `json:"os"`
	CPU                  json.RawMessage   `json:"cpu"`
	Libc                 json.RawMessage   `json:"libc"`
}

var (
	lockedName = regexp.MustCompile(`^(@[A-Za-z0-9_~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9_~-][A-Za-z0-9._~-]*$`)
	lockedPath = regexp.MustCompile(`^(node_modules/(@[A-Za-z0-9_~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9_~-][A-Za-z0-9._~-]*(/|$))+$`)
)

// ParseLock reads the package-lock.json of at most MaxLock bytes that pins pkg at
// version and all that it depends on, and nothing else. Every entry must come from a
// registry and have a sha512 integrity: links, workspaces, bundled and development
// packages, and git, file or plain http sources are refused. The error joins
// *LockError values; the Lock is then the zero value.
func ParseLock(data []byte, pkg, version string) (Lock, error) {
	var d lockDocument
	if err := strictjson.DecodeKnown(data, MaxLock, &d); err != nil {
		return Lock{}, &LockError{"", err.Error()}
	}
	if d.LockfileVersion != 3 {
		return Lock{}, &LockError{"", fmt.Sprintf("lockfileVersion is %d, want 3", d.LockfileVersion)}
	}
	if len(d.Packages) > maxPackages {
		return Lock{}, &LockError{"", fmt.Sprintf("more than %d packages", maxPackages)}
	}
	var l Lock
	errs := []error{checkRoot(d.Packages, pkg, version)}
	for _, p := range slices.Sorted(maps.Keys(d.Packages)) {
		if p == "" {
			continue
		}
		locked, err := lockedFrom(p, d.Packages[p])
		errs = append(errs, err, checkOptional(d.Packages, p))
		l.packages = append(l.packages, locked)
	}
	if err := errors.Join(errs...); err != nil {
		return Lock{}, err
	}
	return l, nil
}

// checkRoot wants a project that depends on exactly pkg at version.
func checkRoot(all map[string]lockEntry, pkg, version string) error {
	root, ok := all[""]
	if !ok {
		return &LockError{"", "it has no root entry"}
	}
	if len(root.Dependencies) != 1 || root.Dependencies[pkg] != version || len(root.DevDependencies)+len(root.OptionalDependencies)+
		len(root.PeerDependencies) > 0 || root.Workspaces != nil || root.BundleDependencies != nil {
		return &LockError{"", fmt.Sprintf("its root must depend on %s %s and nothing else", pkg, version)}
	}
	if top, ok := all["node_modules/"+pkg]; !ok || top.Version != version {
		return &LockError{"", fmt.Sprintf("it does not pin %s %s", pkg, version)}
	}
	return nil
}

func lockedFrom(p string, e lockEntry) (Locked, error) {
	bad := func(format string, args ...any) (Locked, error) {
		return Locked{}, &LockError{p, fmt.Sprintf(format, args...)}
	}
	if !lockedPath.MatchString(p) || strings.HasSuffix(p, "/") || manifest.CheckPath(p) != nil {
		return bad("not the path of an installed package")
	}
	out := Locked{
		Path: p, Name: p[strings.LastIndex(p, "node_modules/")+len("node_modules/"):], Version: e.Version,
		Optional: e.Optional || e.DevOptional, HasScripts: e.HasInstallScript,
	}
	switch {
	case out.Name == "node_modules":
		return bad("not the path of an installed package")
	case e.Link:
		return bad("a link to a directory cannot be verified")
	case e.InBundle:
		return bad("a bundled package has no integrity of its own")
	case e.Dev || e.DevOptional:
		return bad("a development package does not belong in a release")
	case !manifest.ExactVersion(e.Version):
		return bad("version %s is not exact", name.Quote(e.Version))
	case e.Resolved != "" && !fromRegistry(e.Resolved):
		return bad("it does not come from a registry over https")
	case e.Integrity == "":
		return bad("it has no integrity")
	case e.Name != "" && !lockedName.MatchString(e.Name):
		return bad("name %s is not a package's", name.Quote(e.Name))
	}
	if e.Name != "" {
		out.Name = e.Name
	}
	var err error
	if out.Integrity, err = ParseIntegrity(e.Integrity); err != nil {
		return bad("%v", err)
	}
	out.Bin = binFrom(e.Bin, out.Name)
	out.Engine = engineFrom(e.Engines)
	out.Needed = out.Optional && madeForThisSystem(e)
	return out, nil
}

// fromRegistry refuses git, file and plain http; the address itself is never used.
func fromRegistry(resolved string) bool {
	rest, ok := strings.CutPrefix(resolved, "https://")
	host, path, slash := strings.Cut(rest, "/")
	return ok && slash && host != "" && !strings.Contains(host, "@") && strings.HasSuffix(path, ".tgz")
}

// binFrom reads a package's commands: a map, or one string that is named as the
// package is. What is neither is no bin; npm's word is not what starts.
func binFrom(raw json.RawMessage, pkg string) map[string]string {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return map[string]string{pkg[strings.LastIndex(pkg, "/")+1:]: one}
	}
	var many map[string]string
	if json.Unmarshal(raw, &many) != nil {
		return nil
	}
	return many
}

func engineFrom(raw json.RawMessage) string {
	var engines struct {
		Node string `json:"node"`
	}
	if json.Unmarshal(raw, &engines) != nil {
		return ""
	}
	return engines.Node
}

// Packages returns all packages by path.
func (l Lock) Packages() []Locked { return slices.Clone(l.packages) }

// Package returns the one at path.
func (l Lock) Package(path string) (Locked, bool) {
	i, ok := slices.BinarySearchFunc(l.packages, path, func(p Locked, s string) int { return strings.Compare(p.Path, s) })
	if !ok {
		return Locked{}, false
	}
	return l.packages[i], true
}

// HasScripts tells whether some package has install scripts that did not run: ran
// is the name of the one whose script did, "" for none.
func (l Lock) HasScripts(ran string) bool {
	return slices.ContainsFunc(l.packages, func(p Locked) bool { return p.HasScripts && p.Path != "node_modules/"+ran })
}

// LockOf is ParseLock for the lock of a manifest's package, whose integrity must be the
// manifest's.
func LockOf(pkg manifest.Package, data []byte) (Lock, error) {
	lock, err := ParseLock(data, pkg.Name, pkg.Version)
	if err != nil {
		return Lock{}, err
	}
	if top, ok := lock.Package("node_modules/" + pkg.Name); !ok || top.Integrity.String() != pkg.Integrity {
		return Lock{}, &LockError{Path: top.Path, Msg: "its integrity is not the manifest's"}
	}
	return lock, nil
}
