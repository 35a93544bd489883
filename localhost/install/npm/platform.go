package npm

import (
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// system is this one, as npm spells it.
func system() (os, cpu string) {
	os, cpu = runtime.GOOS, runtime.GOARCH
	if os == "windows" {
		os = "win32"
	}
	switch cpu {
	case "amd64":
		cpu = "x64"
	case "386":
		cpu = "ia32"
	}
	return os, cpu
}

// madeForThisSystem tells whether an entry names this operating system or processor
// and excludes neither. One that names a C library may be the other one's.
func madeForThisSystem(e lockEntry) bool {
	os, cpu := system()
	return (e.OS != nil || e.CPU != nil) && e.Libc == nil && allows(e.OS, os) && allows(e.CPU, cpu)
}

// allows reads npm's list of systems: names, or names to exclude with "!" before
// them. A list of neither shape allows nothing, since nothing is then known.
func allows(raw json.RawMessage, want string) bool {
	if raw == nil {
		return true
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return false
	}
	only := false
	for _, s := range list {
		if s == "!"+want {
			return false
		}
		only = only || !strings.HasPrefix(s, "!")
	}
	return !only || slices.Contains(list, want) || slices.Contains(list, "any")
}

// checkOptional refuses a lock that lacks an optional package which by its name is
// the one for this system: a registry that does not serve it leaves it out, and
// with it the program.
func checkOptional(all map[string]lockEntry, at string) error {
	os, cpu := system()
	for dep := range all[at].OptionalDependencies {
		_, found := resolve(all, at, dep)
		for _, libc := range []string{"", "-gnu", "-glibc", "-msvc"} {
			if found || !strings.HasSuffix(dep, os+"-"+cpu+libc) {
				continue
			}
			return &LockError{at, fmt.Sprintf("it needs %s on this system, and the lock lacks it: the registry may not serve that version", name.Quote(dep))}
		}
	}
	return nil
}

// resolve finds the entry that node would load for dep from the package at.
func resolve[E any](all map[string]E, at, dep string) (string, bool) {
	for {
		p := path.Join(at, "node_modules", dep)
		if _, ok := all[p]; ok {
			return p, true
		}
		if at == "" {
			return "", false
		}
		at = strings.TrimSuffix(at[:max(strings.LastIndex(at, "node_modules/"), 0)], "/")
	}
}

// portable writes the lock again for npm: without the addresses that it recorded,
// so that npm asks the owner's registry and no other host, and without optional
// dependencies that the lock does not have, which are other systems' and which npm
// would insist on.
func portable(data []byte) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("rewrite package lock: %w", err)
	}
	packages, _ := doc["packages"].(map[string]any)
	for at, p := range packages {
		entry, ok := p.(map[string]any)
		if !ok {
			continue
		}
		delete(entry, "resolved")
		optional, _ := entry["optionalDependencies"].(map[string]any)
		for dep := range optional {
			if _, found := resolve(packages, at, dep); !found {
				delete(optional, dep)
			}
		}
	}
	return json.MarshalIndent(doc, "", "  ")
}
