package argv

import (
	"errors"
	"math"
	"regexp"
	"slices"

	"github.com/lendcli/lend/protocol/name"
)

// check checks a schema by itself.
func (s *Schema) check(p problems) {
	str, num := s.Type == TypeString, s.Type == TypeInteger || s.Type == TypeNumber
	p.in("type").addIf(!str && !num && s.Type != TypeBoolean, "want string, integer, number or boolean")
	p.in("pattern").addIf(s.Pattern != "" && !str, "only a string has one")
	p.in("free_text").addIf(s.FreeText && !str, "only a string has it")
	p.in("kind").addIf(s.Kind != "" && (!str || s.Kind != KindPath), "want path, on a string")
	p.addIf((s.MinLength != nil || s.MaxLength != nil) && !str, "only a string has a length")
	p.addIf((s.Minimum != nil || s.Maximum != nil) && !num, "only a number has minimum and maximum")
	if _, err := compilePattern(s.Pattern); err != nil {
		p.in("pattern").add("want a regular expression (RE2) of at most %d bytes: %v", maxPattern, err)
	}
	checkLengths(p, s.MinLength, s.MaxLength)
	checkRange(p, s.Minimum, s.Maximum)
	p.in("enum").addIf(len(s.Enum) > maxEnum, "want at most %d values", maxEnum)
	for i, v := range s.Enum {
		s.checkWord(p.in("enum").index(i), v)
		p.in("enum").index(i).addIf(slices.Contains(s.Enum[:i], v), "%s is listed twice", name.Quote(v))
	}
	if s.Const != nil {
		s.checkWord(p.in("const"), *s.Const)
	}
}

func (s *Schema) checkWord(p problems, v string) {
	canonical, fault := canonicalScalar(s.Type, v)
	p.addIf(fault != "" || canonical != v, "%s is not %s in its one spelling", name.Quote(v), typeRule(s.Type))
	p.addIf(len(v) > maxEnumBytes, "want at most %d bytes", maxEnumBytes)
	p.addIf(textFault(v) != "", "%s holds a control character or is not UTF-8", name.Quote(v))
	p.addIf(s.Kind == KindPath && !cleanPath(v), "%s is not a clean relative path", name.Quote(v))
}

func checkLengths(p problems, least, most *int) {
	p.in("min_length").addIf(least != nil && (*least < 0 || *least > maxLength), "want 0 to %d", maxLength)
	p.in("max_length").addIf(most != nil && (*most < 0 || *most > maxLength), "want 0 to %d", maxLength)
	p.in("min_length").addIf(least != nil && most != nil && *least > *most, "want at most max_length")
}

func checkRange(p problems, least, most *float64) {
	bad := func(f *float64) bool { return f != nil && !(math.Abs(*f) <= maxSafe) } // NaN too
	p.in("minimum").addIf(bad(least), "want a number within 53 bits")
	p.in("maximum").addIf(bad(most), "want a number within 53 bits")
	p.in("minimum").addIf(least != nil && most != nil && *least > *most, "want at most maximum")
}

// unconstrained tells a schema that says nothing about characters; a length is
// no constraint on them.
func (s *Schema) unconstrained() bool {
	return s.Enum == nil && s.Const == nil && s.Pattern == "" && s.Kind == ""
}

// words are the values that the schema names.
func (s *Schema) words() []string {
	if s.Const != nil {
		return append(slices.Clone(s.Enum), *s.Const)
	}
	return s.Enum
}

// compilePattern compiles p to match the whole of a value. It is compiled alone
// first, so that no bracket of p reaches outside.
func compilePattern(p string) (*regexp.Regexp, error) {
	if p == "" {
		return nil, nil //nolint:nilnil // no pattern, no expression
	}
	if len(p) > maxPattern {
		return nil, errors.New("it is longer")
	}
	if textFault(p) != "" {
		return nil, errors.New("it holds a control character or is not UTF-8")
	}
	if _, err := regexp.Compile(p); err != nil {
		return nil, errors.New(name.Quote(err.Error()))
	}
	return regexp.Compile(`\A(?:` + p + `)\z`)
}
