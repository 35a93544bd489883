package argv

import (
	"slices"
	"strings"
)

// variableFault says why a parameter may not set the variable v, "" if it may.
// Names are compared without case, since proxies are read in both.
func variableFault(v string) string {
	if v == "" || len(v) > maxVariable || strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" || decimal(v[:1]) {
		return "want a name of at most 128 letters, digits and '_', no digit first"
	}
	upper := strings.ToUpper(v)
	begins := func(prefix string) bool { return strings.HasPrefix(upper, prefix) }
	ends := func(suffix string) bool { return strings.HasSuffix(upper, suffix) }
	switch {
	case begins("GIT_AUTHOR_"), begins("GIT_COMMITTER_"):
		return ""
	case slices.ContainsFunc(steeringPrefixes(), begins), slices.ContainsFunc(steeringSuffixes(), ends),
		slices.Contains(steeringNames(), upper):
		return "a caller who sets this variable could choose what code runs, which files it reads or whom it talks to"
	}
	return ""
}

// The variables with which loaders, interpreters, shells, git and the usual
// libraries are told to run other code, read other files or trust other hosts.
// The owner may still set them for a connection; only callers may not.

func steeringPrefixes() []string {
	return []string{
		"LD_", "DYLD_", "_RLD", "GCONV_", "GLIBC_", "MALLOC_", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR",
		"NODE_", "NPM_", "YARN_", "PYTHON", "PERL", "RUBY", "BUNDLE_", "GEM_", "JAVA_", "_JAVA_", "JDK_", "LUA_", "PHP", "DENO_", "BUN_",
		"GIT_", "SSH_", "BASH_", "XDG_", "LEND_", "OPENSSL_", "SSL_", "CURL_", "KRB5", "DBUS_", "SYSTEMD_", "ELECTRON_",
		"DOTNET_", "COR_", "CORECLR_", "COMPLUS_", "MONO_", "KUBE", "DOCKER_", "CARGO", "RUSTC", "GTK_", "QT_", "GST_",
	}
}

func steeringSuffixes() []string {
	return []string{"_PROXY", "_PAGER", "_EDITOR", "_BROWSER", "_ASKPASS", "_CA_BUNDLE", "_CONFIG", "_CONFIG_DIR", "_CONFIG_FILE", "_CONFIG_PATH", "_PRELOAD", "_RSH"}
}

func steeringNames() []string {
	return []string{
		"PATH", "HOME", "PWD", "OLDPWD", "CDPATH", "SHELL", "USER", "LOGNAME", "IFS", "ENV", "PS4", "SHELLOPTS", "PROMPT_COMMAND",
		"TMPDIR", "TMP", "TEMP", "TERM", "TERMCAP", "TERMINFO", "TERMINFO_DIRS", "LOCPATH", "NLSPATH", "TZDIR", "HOSTALIASES",
		"RES_OPTIONS", "LOCALDOMAIN", "RESOLV_HOST_CONF", "CLASSPATH",
		"PAGER", "EDITOR", "VISUAL", "BROWSER", "LESS", "LESSOPEN", "LESSCLOSE", "LESSKEY", "MANPAGER", "FCEDIT",
		"INPUTRC", "NETRC", "WGETRC", "GNUPGHOME", "VIMINIT", "EXINIT",
		"USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "PSMODULEPATH",
	}
}
