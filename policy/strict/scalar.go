package strict

import (
	"regexp"
	"strings"
)

// What a plain scalar may look like. Everything that one YAML version or another
// reads as something else than text, and that is not the one plain spelling of
// it, has to be written in quotes or in that spelling.
var (
	plainInt    = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	plainNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]*[1-9]$`)
	likeNumber  = regexp.MustCompile(`^[-+]?(\.?[0-9][0-9_,]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|0[xX][0-9a-fA-F_]*|0[oO][0-7_]*|0[bB][01_]*|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|\.(inf|Inf|INF|nan|NaN|NAN))$`)
	likeDate    = regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\t ].*)?$`)
)

// resolve gives the kind of a plain scalar, or what is wrong with it.
func resolve(s string) (kind Kind, message, hint string) {
	switch {
	case s == "true", s == "false":
		return Bool, "", ""
	case plainInt.MatchString(s):
		return Int, "", ""
	case plainNumber.MatchString(s):
		return Number, "", ""
	case likeNumber.MatchString(s):
		return Bad, "this is not the plain spelling of a number", "write 10 or 1.5, or text in quotes"
	case likeDate.MatchString(s):
		return Bad, "a date is written in quotes", `write "` + s + `"`
	}
	switch strings.ToLower(s) {
	case "yes", "on", "true":
		return Bad, "some YAML readers take this word for a boolean", `write true, or text in quotes`
	case "no", "off", "false":
		return Bad, "some YAML readers take this word for a boolean", `write false, or text in quotes`
	case "null", "~", "":
		return Null, "", ""
	case "=", "<<":
		return Bad, "this has a meaning of its own in YAML", "write it in quotes"
	}
	return String, "", ""
}
