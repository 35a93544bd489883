package manifest

import (
	"fmt"
	"strings"

	"github.com/lendcli/lend/protocol/name"
	"golang.org/x/mod/semver"
)

// Range is a comparator range of versions such as ">=22.0.0 <23.0.0": all of its
// comparators must hold. The zero Range accepts every version.
type Range struct {
	text        string
	comparators []comparator
}

type comparator struct{ op, version string }

const maxComparators = 8

// ParseRange reads one to eight comparators (<, <=, >, >= and a full x.y.z),
// separated by single spaces. There is nothing else: no caret, tilde, wildcard,
// alternative or prerelease.
func ParseRange(s string) (Range, error) {
	r := Range{text: s}
	for field := range strings.SplitSeq(s, " ") {
		v := strings.TrimLeft(field, "<>=")
		op := field[:len(field)-len(v)]
		known := op == "<" || op == "<=" || op == ">" || op == ">="
		if !known || !ExactVersion(v) || semver.Prerelease("v"+v) != "" || len(r.comparators) == maxComparators {
			return Range{}, fmt.Errorf("invalid version range %s: want up to %d comparators such as \">=22.0.0 <23.0.0\"",
				name.Quote(s), maxComparators)
		}
		r.comparators = append(r.comparators, comparator{op, "v" + v})
	}
	return r, nil
}

// Accepts tells whether version (x.y.z) lies in the range. A prerelease lies in
// the zero Range only.
func (r Range) Accepts(version string) bool {
	if len(r.comparators) == 0 {
		return true
	}
	v := "v" + version
	if !ExactVersion(version) || semver.Prerelease(v) != "" {
		return false
	}
	for _, c := range r.comparators {
		d := semver.Compare(v, c.version)
		if (d == 0 && !strings.HasSuffix(c.op, "=")) || (d < 0 && c.op[0] == '>') || (d > 0 && c.op[0] == '<') {
			return false
		}
	}
	return true
}

// String returns the range as it was parsed.
func (r Range) String() string { return r.text }

// ExactVersion tells whether s is x.y.z with an optional prerelease and no build
// metadata, in canonical spelling, of at most 64 bytes: the form of npm packages
// and of runtimes.
func ExactVersion(s string) bool {
	return len(s) <= name.MaxVersion && semver.IsValid("v"+s) && semver.Canonical("v"+s) == "v"+s
}
