package manifest

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a path inside an artifact.
const (
	MaxPath      = 1024 // bytes
	MaxPathDepth = 32   // segments
	maxSegment   = 255  // bytes
)

// CheckPath says whether p is a safe relative path with slashes, on every system
// that an artifact may be unpacked on: clean, no "..", no backslash, colon or
// control character, no segment that ends in a dot or a space, and none that
// Windows takes for a device.
func CheckPath(p string) error {
	if err := checkPath(p); err != nil {
		return fmt.Errorf("unsafe path %s: %w", name.Quote(p), err)
	}
	return nil
}

func checkPath(p string) error {
	switch {
	case p == "" || p == ".":
		return errors.New("it is empty")
	case len(p) > MaxPath:
		return fmt.Errorf("longer than %d bytes", MaxPath)
	case !utf8.ValidString(p):
		return errors.New("not UTF-8")
	case strings.HasPrefix(p, "/"):
		return errors.New("it is absolute")
	case strings.ContainsAny(p, `\:`):
		return errors.New("a backslash or colon")
	case strings.ContainsFunc(p, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return errors.New("a control or format character")
	case p == ".." || strings.HasPrefix(p, "../") || path.Clean(p) != p:
		return errors.New(`not clean, or with ".."`)
	case strings.Count(p, "/") >= MaxPathDepth:
		return fmt.Errorf("more than %d segments", MaxPathDepth)
	}
	for seg := range strings.SplitSeq(p, "/") {
		if err := checkSegment(seg); err != nil {
			return err
		}
	}
	return nil
}

func checkSegment(seg string) error {
	if len(seg) > maxSegment {
		return fmt.Errorf("a segment longer than %d bytes", maxSegment)
	}
	if strings.HasSuffix(seg, ".") || strings.HasSuffix(seg, " ") {
		return errors.New("a segment that ends in a dot or a space")
	}
	base, _, _ := strings.Cut(seg, ".")
	if isDevice(strings.ToLower(strings.TrimRight(base, " "))) {
		return errors.New("a segment that Windows takes for a device")
	}
	return nil
}

func isDevice(base string) bool {
	switch base {
	case "con", "prn", "aux", "nul", "conin$", "conout$":
		return true
	}
	if rest, ok := strings.CutPrefix(base, "com"); ok {
		return isDeviceNumber(rest)
	}
	rest, ok := strings.CutPrefix(base, "lpt")
	return ok && isDeviceNumber(rest)
}

func isDeviceNumber(s string) bool {
	switch s {
	case "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³":
		return true
	}
	return false
}
