package manifest

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/lendcli/lend/protocol/name"
)

func (c *checker) identifier(path, s string) {
	if _, err := name.ParseCommand(s); err != nil {
		c.bad(path, "want a lower-case letter, then up to 127 lower-case letters, digits, '.', '_' and '-', not %s", name.Quote(s))
	}
}

// line is required text of one line.
func (c *checker) line(path, s string, maxBytes int) {
	if strings.TrimSpace(s) == "" {
		c.bad(path, "it is missing or blank")
	}
	if strings.ContainsAny(s, "\n\t") {
		c.bad(path, "want one line")
	}
	c.text(path, s, maxBytes)
}

// text refuses what could rewrite a terminal or hide in a page: control and format
// characters other than newline and tab.
func (c *checker) text(path, s string, maxBytes int) {
	if len(s) > maxBytes {
		c.bad(path, "longer than %d bytes", maxBytes)
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar) {
			c.bad(path, "character %U is not allowed", r)
			return
		}
	}
}

func (c *checker) arguments(path string, args []string) {
	if len(args) > maxArguments {
		c.bad(path, "more than %d", maxArguments)
	}
	for i, a := range args {
		if len(a) > maxArgument {
			c.bad(fmt.Sprintf("%s[%d]", path, i), "longer than %d bytes", maxArgument)
		}
		if strings.ContainsRune(a, 0) {
			c.bad(fmt.Sprintf("%s[%d]", path, i), "it holds NUL")
		}
	}
}

func (c *checker) variable(path, v string) {
	if !variable.MatchString(v) {
		c.bad(path, "want the name of an environment variable, not %s", name.Quote(v))
		return
	}
	if hostOwned(strings.ToUpper(v)) {
		c.bad(path, "%s is set by the host", v)
	}
}

// hostOwned names the variables that the host alone sets, or that would defeat
// verified execution. Case is folded, as Windows does.
func hostOwned(v string) bool {
	switch v {
	case "HOME", "USERPROFILE", "PATH", "PWD", "TMPDIR", "TMP", "TEMP", "SYSTEMROOT", "COMSPEC":
		return true
	}
	for _, prefix := range []string{"LD_", "DYLD_", "LEND_"} {
		if strings.HasPrefix(v, prefix) {
			return true
		}
	}
	return false
}

// loadsCode names variables through which common runtimes load code or change
// what trust means; no parameter of a caller may set them.
func loadsCode(v string) bool {
	switch v {
	case "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "BASH_ENV", "ENV", "IFS", "SHELLOPTS",
		"BASHOPTS", "PS4", "PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "EDITOR", "VISUAL", "PAGER",
		"BROWSER", "SHELL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GCONV_PATH", "XDG_CONFIG_HOME":
		return true
	}
	for _, prefix := range []string{"PYTHON", "GIT_", "NPM_CONFIG_", "BASH_FUNC_"} {
		if strings.HasPrefix(v, prefix) {
			return true
		}
	}
	return false
}
