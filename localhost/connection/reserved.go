package connection

import "strings"

// maxVariable bounds the name of a variable, in bytes.
const maxVariable = 128

// validVariable tells whether s is a portable name of a variable.
func validVariable(s string) bool {
	if s == "" || len(s) > maxVariable || ('0' <= s[0] && s[0] <= '9') {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// foldName makes names equal that some system takes for the same.
func foldName(variable string) string { return strings.ToUpper(variable) }

// Reserved tells whether a variable may come from nobody but the host: it decides
// where the CLI lives, or makes a loader, an interpreter, a shell or a helper
// program run or read something else than what was verified. Case is ignored. The
// list cannot know what each CLI runs by itself (an own pager or browser
// variable): the contract's list of variables is what limits callers.
func Reserved(variable string) bool {
	v := foldName(variable)
	if _, ok := reservedNames[v]; ok {
		return true
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(v, p) {
			return true
		}
	}
	return false
}

//nolint:gochecknoglobals // immutable tables
var (
	reservedPrefixes = []string{
		"LD_", "DYLD_", "_RLD", "GLIBC_", "GCONV_", "MALLOC_", // loaders and the C library
		"LEND_",                                  // ours
		"NPM_CONFIG_", "COREPACK_", "NODE_REPL_", // node
		"PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_", "LUA_", // other interpreters
		"BASH_FUNC_", "GIT_CONFIG", "COR_", "CORECLR_", "DOTNET_",
	}
	reservedNames = set(
		// Where the CLI lives.
		"PATH", "PATHEXT", "HOME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "TMPDIR", "TMP", "TEMP",
		"APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "SYSTEMROOT", "WINDIR", "COMSPEC",
		"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
		"XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "PWD", "OLDPWD",
		// The C library and what it loads or asks.
		"LOCPATH", "NLSPATH", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF",
		"TZDIR", "TERMINFO", "TERMINFO_DIRS", "TERMCAP", "GETCONF_DIR",
		// Shells.
		"SHELL", "ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "IFS", "CDPATH", "GLOBIGNORE",
		"PS4", "PROMPT_COMMAND", "FPATH", "ZDOTDIR",
		// Interpreters.
		"NODE_OPTIONS", "NODE_PATH", "NODE_CHANNEL_FD", "NODE_V8_COVERAGE", "NODE_ICU_DATA",
		"NODE_REDIRECT_WARNINGS", "NODE_COMPILE_CACHE", "ELECTRON_RUN_AS_NODE", "V8_OPTIONS",
		"BUN_OPTIONS", "DENO_DIR", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "JAVA_HOME",
		"PHPRC", "PHP_INI_SCAN_DIR", "TCLLIBPATH", "ERL_LIBS", "ERL_FLAGS", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR",
		// Helper programs that tools start.
		"EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "LESS",
		"SSH_ASKPASS", "SUDO_ASKPASS",
		"GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_ASKPASS", "GIT_EDITOR",
		"GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_DIR", "GIT_WORK_TREE",
		// Libraries that load code or write keys.
		"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "SSLKEYLOGFILE",
	)
)

func set(names ...string) map[string]struct{} {
	m := make(map[string]struct{}, len(names))
	for _, n := range names {
		m[n] = struct{}{}
	}
	return m
}
