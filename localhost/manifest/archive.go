package manifest

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a remote archive.
const (
	maxArchiveURL  = 2048      // bytes
	maxArchiveSize = 256 << 20 // bytes
	maxHosts       = 8
	maxStrip       = 8
)

// Archive is where a native program comes from that is not in the artifact: one file
// on the web, pinned by size and digest, so that the release digest covers its bytes.
// Entrypoint and SHA256 of the CLI then name an executable in it.
type Archive struct {
	URL    string   `json:"url"`             // https, on one of Hosts; no port, user, query or fragment
	Hosts  []string `json:"hosts"`           // 1 to 8 exact DNS names that may be asked, redirects included
	SHA256 string   `json:"sha256"`          // of the file, 64 lower-case hexadecimal digits
	Size   int64    `json:"size"`            // of the file in bytes, at most 256 MiB
	Strip  int      `json:"strip,omitempty"` // leading directories that are dropped, 0 to 8
}

func (c *checker) archive(at string, d implementationDocument) *Archive {
	a := d.Archive
	if a == nil {
		return nil
	}
	if d.SHA256 == "" {
		c.bad(at+".sha256", "it is missing: what an archive brings needs one")
	}
	if !digest(a.SHA256) {
		c.bad(at+".archive.sha256", "want 64 lower-case hexadecimal digits")
	}
	if a.Size < 1 || a.Size > maxArchiveSize {
		c.bad(at+".archive.size", "want 1 to %d bytes", maxArchiveSize)
	}
	if a.Strip < 0 || a.Strip > maxStrip {
		c.bad(at+".archive.strip", "want 0 to %d", maxStrip)
	}
	if len(a.Hosts) == 0 || len(a.Hosts) > maxHosts {
		c.bad(at+".archive.hosts", "want 1 to %d names", maxHosts)
	}
	for i, h := range a.Hosts {
		if !publicHost(h) {
			c.bad(fmt.Sprintf("%s.archive.hosts[%d]", at, i), "want an exact public DNS name in lower case, not %s", name.Quote(h))
		}
		if slices.Contains(a.Hosts[:i], h) {
			c.bad(fmt.Sprintf("%s.archive.hosts[%d]", at, i), "it is there twice")
		}
	}
	c.archiveURL(at+".archive", a)
	out := *a
	out.Hosts = slices.Clone(a.Hosts)
	return &out
}

func (c *checker) archiveURL(at string, a *Archive) {
	u, err := url.Parse(a.URL)
	if err != nil || len(a.URL) > maxArchiveURL || u.Scheme != "https" || u.Opaque != "" || u.User != nil || u.RawQuery != "" ||
		u.ForceQuery || strings.Contains(a.URL, "#") || u.String() != a.URL || !strings.HasPrefix(u.Path, "/") {
		c.bad(at+".url", "want an https URL of at most %d bytes without user, query and fragment", maxArchiveURL)
		return
	}
	if !slices.Contains(a.Hosts, u.Host) {
		c.bad(at+".url", "its host is none of its hosts")
	}
}

// hostName is a DNS name of two labels or more whose last one is no number.
var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])$`)

// publicHost tells whether h can be the name of a host of the public web. Names that
// only mean something on one machine or network are none.
func publicHost(h string) bool {
	if len(h) > 253 || !hostName.MatchString(h) {
		return false
	}
	for _, local := range []string{"localhost", "local", "internal", "lan", "home.arpa", "onion", "invalid", "test"} {
		if h == local || strings.HasSuffix(h, "."+local) {
			return false
		}
	}
	return true
}

func digest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}
