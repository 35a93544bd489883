package argv

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// param is a Parameter made ready to judge values.
type param struct {
	Parameter
	patterns []*regexp.Regexp // by schema; nil where it has none
	// dashes allows a value that begins with '-' (a number, or one that the
	// declaration names) to be rendered: not where the child could take it for an
	// option.
	dashes bool
}

// check judges one scalar and returns its canonical spelling. What the declared
// schema names word by word (Enum, Const) may look like an option or a file
// reference. A schema that narrows names nothing: else it would widen.
func (p *param) check(raw string) (string, *Error) {
	if f := textFault(raw); f != "" {
		return "", p.refuse(f, "")
	}
	s, fault := canonicalScalar(p.Schemas[0].Type, raw)
	if fault != "" {
		return "", p.refuse(fault, "want "+typeRule(p.Schemas[0].Type))
	}
	if p.Schemas[0].Type == TypeString && !p.Schemas[0].names(s) {
		if f := looksFault(s, p.Schemas[0].allowsEmpty()); f != "" {
			return "", p.refuse(f, "")
		}
		if p.isPath() && !cleanPath(s) {
			return "", p.refuse(FaultPath, "want a clean relative path with slashes")
		}
	}
	if len(s) > 1 && s[0] == '-' && !p.dashes {
		return "", p.refuse(FaultOption, "")
	}
	if sep := p.separator(); sep != "" && strings.Contains(s, sep) {
		return "", p.refuse(FaultValue, "the item holds the separator "+name.Quote(sep))
	}
	if s == "false" && p.onlyTrue() {
		return "", p.refuse(FaultValue, "a flag of one letter cannot say false: leave it out")
	}
	for i := range p.Schemas {
		if rule := p.Schemas[i].reject(s, p.patterns[i]); rule != "" {
			return "", p.refuse(FaultValue, p.shown(rule))
		}
	}
	return s, nil
}

// separator is what joins items in one argument, "" where nothing does. Only the flag
// of a list has one.
func (p *param) separator() string {
	if p.Flag == nil {
		return ""
	}
	return p.Flag.Separator
}

// onlyTrue tells a boolean that has no spelling of false: "-w=false" would be an
// attached value.
func (p *param) onlyTrue() bool {
	return p.Flag != nil && shortFlag(p.Flag.Name) && p.Schemas[0].Type == TypeBoolean
}

func (p *param) isPath() bool { return p.Schemas[0].Kind == KindPath }

// shown keeps what a secret may be out of messages.
func (p *param) shown(rule string) string {
	if p.Secret {
		return ""
	}
	return rule
}

func (p *param) refuse(f Fault, rule string) *Error {
	return &Error{Kind: f, Parameter: p.Name, Index: -1, Rule: rule}
}

// names tells whether the schema lists s word by word.
func (s *Schema) names(v string) bool {
	return s.Const != nil && *s.Const == v || slices.Contains(s.Enum, v)
}

func (s *Schema) allowsEmpty() bool { return s.MinLength != nil && *s.MinLength == 0 }

// reject says what the schema wants instead of v, "" if it accepts v. Strings are
// compared byte by byte: no case folding, no normalisation.
func (s *Schema) reject(v string, pattern *regexp.Regexp) string {
	switch n := utf8.RuneCountInString(v); {
	case s.Const != nil && *s.Const != v:
		return "want " + name.Quote(*s.Const)
	case s.Enum != nil && !slices.Contains(s.Enum, v):
		return oneOf(s.Enum)
	case s.MinLength != nil && n < *s.MinLength:
		return "want at least " + strconv.Itoa(*s.MinLength) + " characters"
	case s.MaxLength != nil && n > *s.MaxLength:
		return "want at most " + strconv.Itoa(*s.MaxLength) + " characters"
	case pattern != nil && !pattern.MatchString(v):
		return "want a match of " + name.Quote(s.Pattern)
	}
	if s.Minimum == nil && s.Maximum == nil {
		return ""
	}
	f, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil:
		return "want a number"
	case s.Minimum != nil && f < *s.Minimum:
		return "want at least " + strconv.FormatFloat(*s.Minimum, 'f', -1, 64)
	case s.Maximum != nil && f > *s.Maximum:
		return "want at most " + strconv.FormatFloat(*s.Maximum, 'f', -1, 64)
	}
	return ""
}

func oneOf(values []string) string {
	const most = 8
	if len(values) == 0 {
		return "nothing is allowed"
	}
	shown := make([]string, 0, most+1)
	for i, v := range values {
		if i == most {
			shown = append(shown, "…")
			break
		}
		shown = append(shown, name.Quote(v))
	}
	return "want one of " + strings.Join(shown, ", ")
}

// textFault refuses what no argument may hold, whatever its place.
func textFault(s string) Fault {
	if !utf8.ValidString(s) {
		return FaultEncoding
	}
	if strings.ContainsFunc(s, control) {
		return FaultControl
	}
	return ""
}

// control tells the characters that act rather than show: C0, C1, DEL, line and
// paragraph separators, bidirectional controls, the byte order mark.
func control(r rune) bool {
	switch {
	case r == '\u2028' || r == '\u2029' || r == '\ufeff':
		return true
	case r < unicode.MaxASCII:
		return r < ' '
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// looksFault refuses a string that a CLI could take for something other than
// itself. Look-alikes of '-' and '@' count, for systems that fold them.
func looksFault(s string, empty bool) Fault {
	first, _ := utf8.DecodeRuneInString(s)
	switch {
	case s == "" && !empty:
		return FaultEmpty
	case s == "-":
		return FaultDash
	case s != "" && (unicode.Is(unicode.Pd, first) || first == '\u2212' || first == '\u00ad'):
		return FaultOption
	case fileReference(s):
		return FaultFile
	}
	return ""
}

// fileReference tells "@file", "file:/…", "fileb://…", and the same after "key=".
// Whatever comes before the first '=' may be a key ("a/b=@f", "data:=@f"); a later
// one is looked at only after what looks like one.
func fileReference(s string) bool {
	for first := true; ; first = false {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
		if strings.HasPrefix(s, "@") || strings.HasPrefix(s, "\uff20") || strings.HasPrefix(s, "\ufe6b") {
			return true
		}
		scheme, rest, ok := strings.Cut(s, ":")
		if ok && rest != "" && strings.ContainsAny(rest[:1], `/\.~`) && (strings.EqualFold(scheme, "file") || strings.EqualFold(scheme, "fileb")) {
			return true
		}
		key, rest, ok := strings.Cut(s, "=")
		if !ok || !first && strings.ContainsAny(key, " /@:") {
			return false
		}
		s = rest
	}
}

// joinedFile tells items that are file references only when the separator joins
// them: "file" and "/etc/passwd" with ':'.
func (p *param) joinedFile(items []string) bool {
	sep := p.separator()
	return sep != "" && !slices.ContainsFunc(items, fileReference) && fileReference(strings.Join(items, sep))
}

// cleanPath tells a relative path in its one spelling, that cannot leave the
// directory it starts in by its own words. Links are the host's to resolve.
func cleanPath(s string) bool {
	if len(s) > maxPath || strings.Contains(s, `\`) || strings.IndexAny(s, "/~:-") == 0 {
		return false
	}
	if len(s) > 1 && s[1] == ':' { // a drive
		return false
	}
	if s == "." {
		return true
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func typeRule(t Type) string {
	switch t {
	case TypeInteger:
		return "a decimal integer within 53 bits, such as -7 or 42"
	case TypeNumber:
		return "a decimal number of at most 15 digits, such as -7 or 0.25"
	case TypeBoolean:
		return "true or false"
	case TypeString:
	}
	return "text"
}

// canonicalScalar returns the one spelling of raw. Numbers have no '+', no
// leading zeros and no exponent; zeros that end a fraction are dropped.
func canonicalScalar(t Type, raw string) (string, Fault) {
	switch t {
	case TypeString:
		return raw, ""
	case TypeBoolean:
		if raw == "true" || raw == "false" {
			return raw, ""
		}
		return "", FaultValue
	case TypeInteger, TypeNumber:
		if s, ok := canonicalNumber(raw, t == TypeNumber); ok {
			return s, ""
		}
	}
	return "", FaultNumber
}

// maxSafe is the greatest integer that every reader of JSON holds exactly.
const (
	maxSafe        = 1<<53 - 1
	maxSafeDecimal = "9007199254740991"
)

// greater compares decimal numbers without leading zeros.
func greater(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a > b
}

// canonicalNumber bounds a fraction to 15 digits in all: as many as a double
// tells apart, so that comparing doubles compares the decimals.
func canonicalNumber(raw string, fraction bool) (string, bool) {
	const digits = 15
	whole, frac, dot := strings.Cut(strings.TrimPrefix(raw, "-"), ".")
	if dot && (!fraction || !decimal(frac)) || !decimal(whole) || len(whole) > 1 && whole[0] == '0' {
		return "", false
	}
	frac = strings.TrimRight(frac, "0")
	if whole == "0" && frac == "" && raw[0] == '-' {
		return "", false
	}
	if frac != "" {
		if len(whole)+len(frac) > digits {
			return "", false
		}
		whole += "." + frac
	} else if greater(whole, maxSafeDecimal) {
		return "", false
	}
	if raw[0] == '-' {
		whole = "-" + whole
	}
	return whole, true
}

func decimal(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}
