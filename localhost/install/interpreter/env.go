package interpreter

import (
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/install/depot"
)

// ABI names what an interpreter can load: language, major version and system, as in
// "node22-linux-x64" and "python3-linux-x64".
func ABI(rt depot.Runtime) string {
	major, _, _ := strings.Cut(rt.Version, ".")
	return language(rt.Name) + major + "-" + rt.Target
}

func language(name string) string { return strings.TrimRight(name, "0123456789.") }

// Env is what an interpreter laid out in tree, an absolute path, needs in the
// environment of every start, as NAME=VALUE: it keeps it from writing beside what is
// verified, and from a library other than its own.
func Env(rt depot.Runtime, tree string) []string {
	switch {
	case rt.Name == Node:
		return []string{"NODE_DISABLE_COMPILE_CACHE=1"}
	case rt.Home != "":
		return []string{"PYTHONHOME=" + filepath.Join(tree, filepath.FromSlash(rt.Home)), "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1"}
	case language(rt.Name) == "python":
		return []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1"}
	}
	return nil
}
