package route

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of a start, after rendering, and of a descriptor.
const (
	MaxArguments     = 256
	MaxArgumentBytes = 131071    // one argument
	MaxArgumentTotal = 256 << 10 // all arguments together

	MaxDisplayName = 256 // bytes
	MaxAliases     = 12
	MaxAlias       = 192 // bytes: 48 characters

	MaxProbeArguments = 32
	MaxProbeBytes     = 16 << 10 // of a probe's arguments together
	MaxProbeTime      = 30 * time.Second

	MaxRoutes = 4096 // current ones, of one Registry
)

// contractHashPrefix begins every contract hash.
const contractHashPrefix = "sha256:"

// check tells whether the request is well formed and within bounds; nothing is
// looked up. Errors wrap ErrInvalid and quote no value.
func (q StartCLIRequest) check() error {
	switch {
	case !q.Identity.complete() || q.Generation.Epoch == "" || q.Generation.Number == 0:
		return invalid("identity is incomplete")
	case q.WorkingDirectory != "" && !filepath.IsAbs(q.WorkingDirectory), strings.ContainsRune(q.WorkingDirectory, 0):
		return errDirectory
	case q.Limits.Processes < 0 || q.Limits.Memory < 0:
		return invalid("limit is negative")
	}
	for _, v := range q.Environment {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.ContainsRune(v.Value, 0) {
			return invalid("variable is malformed")
		}
	}
	return checkArguments(q.Arguments)
}

func checkArguments(args []string) error {
	if len(args) > MaxArguments {
		return invalid("more than 256 arguments")
	}
	total := 0
	for _, a := range args {
		if total += len(a); len(a) > MaxArgumentBytes || total > MaxArgumentTotal {
			return invalid("arguments are too long")
		}
		if strings.ContainsRune(a, 0) {
			return invalid("argument holds a NUL")
		}
	}
	return nil
}

var errDirectory = invalid("working directory is not an absolute path")

func invalid(why string) error { return fmt.Errorf("%s: %w", why, ErrInvalid) }

// complete tells whether all fields but the generation are set and well formed.
func (id Identity) complete() bool {
	hash, ok := strings.CutPrefix(id.ContractHash, contractHashPrefix)
	return ok && digest(hash) && digest(id.ReleaseDigest) &&
		!id.Connection.IsZero() && !id.Connector.IsZero() && !id.Version.IsZero()
}

// bounded tells whether what the descriptor says to people and agents is within
// bounds.
func (d Descriptor) bounded() bool {
	return len(d.DisplayName) <= MaxDisplayName && len(d.Aliases) <= MaxAliases &&
		!slices.ContainsFunc(d.Aliases, func(a string) bool { return a == "" || len(a) > MaxAlias }) &&
		(d.Probe == nil || d.Probe.bounded())
}

func (p *Probe) bounded() bool {
	size := 0
	for _, a := range p.Arguments {
		size += len(a)
	}
	return len(p.Arguments) > 0 && len(p.Arguments) <= MaxProbeArguments && size <= MaxProbeBytes &&
		checkArguments(p.Arguments) == nil && p.Timeout > 0 && p.Timeout <= MaxProbeTime
}

// digest tells whether s is a SHA-256 in lower-case hexadecimal.
func digest(s string) bool {
	if len(s) != 64 || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}
