package manifest

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// permission is a name, or a name and what it is limited to.
var permission = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,127}(:(\*|[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?))?$`)

// about checks what is only shown.
func (c *checker) about(d *document, m *Manifest) {
	if d.IconURL != nil {
		c.icon(*d.IconURL)
		m.IconURL = *d.IconURL
	}
	if d.Permissions != nil {
		m.Permissions = c.permissions(d.Permissions)
	}
	if d.AgentRouting != nil {
		c.aliases(d.AgentRouting.Aliases)
		m.Aliases = slices.Clone(d.AgentRouting.Aliases)
	}
}

func (c *checker) icon(s string) {
	if len(s) > maxIconURL {
		c.bad("iconUrl", "longer than %d bytes", maxIconURL)
		return
	}
	u, err := url.Parse(s)
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	if err != nil || !plain || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(s, "https://") {
		c.bad("iconUrl", "want an address such as \"https://example.com/icon.png\", in ASCII, without a user")
	}
}

func (c *checker) permissions(all []string) []string {
	if len(all) == 0 || len(all) > maxPermissions {
		c.bad("permissions", "want 1 to %d", maxPermissions)
	}
	for i, p := range all {
		if !permission.MatchString(p) {
			c.bad(fmt.Sprintf("permissions[%d]", i), "want \"name\" or \"name:scope\" in lower case, the scope as a connector key or \"*\"")
		}
		if slices.Contains(all[:i], p) {
			c.bad(fmt.Sprintf("permissions[%d]", i), "it is there twice")
		}
		if i == maxPermissions {
			break
		}
	}
	return slices.Sorted(slices.Values(all))
}

// aliases are words that an agent will read among others: they hold nothing that
// could end a line, a quotation or a block of text.
func (c *checker) aliases(all []string) {
	if len(all) < 1 || len(all) > maxAliases {
		c.bad("agentRouting.aliases", "want 1 to %d", maxAliases)
		return
	}
	seen := map[string]bool{}
	for i, s := range all {
		path := fmt.Sprintf("agentRouting.aliases[%d]", i)
		if n := utf8.RuneCountInString(s); n < 1 || n > maxAlias || strings.TrimSpace(s) != s {
			c.bad(path, "want 1 to %d characters, no blank at either end", maxAlias)
		}
		if strings.ContainsFunc(s, func(r rune) bool { return !inAlias(r) }) {
			c.bad(path, "want letters, digits, blanks and - _ . + & / ( )")
		}
		folded := norm.NFC.String(cases.Fold().String(norm.NFD.String(s)))
		if seen[folded] {
			c.bad(path, "it is there twice")
		}
		seen[folded] = true
	}
}

func inAlias(r rune) bool {
	return r != unicode.ReplacementChar && (unicode.In(r, unicode.L, unicode.N, unicode.M) || strings.ContainsRune(" -_.+&/()", r))
}
