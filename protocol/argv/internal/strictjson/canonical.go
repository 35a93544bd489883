package strictjson

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

const hexDigits = "0123456789abcdef"

// Append appends v in the canonical form of RFC 8785. An integer literal that a
// double does not hold exactly, and a number that is not finite, are errors.
func Append(dst []byte, v Value) ([]byte, error) {
	switch v.Kind {
	case Null:
		return append(dst, "null"...), nil
	case Bool:
		return append(dst, v.Text...), nil
	case Number:
		return appendNumber(dst, v.Text)
	case String:
		return appendString(dst, v.Text), nil
	case Array:
		return appendArray(dst, v.Items)
	case Object:
		return appendObject(dst, v.Members)
	}
	return nil, fmt.Errorf("encode value: unknown kind %d", v.Kind)
}

func appendArray(dst []byte, items []Value) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = Append(dst, item); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, members []Member) (_ []byte, err error) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return compareUTF16(a.Name, b.Name) })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, m.Name), ':')
		if dst, err = Append(dst, m.Value); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// compareUTF16 orders as RFC 8785 section 3.2.3 does: by UTF-16 code units, so a
// surrogate pair comes before U+E000.
func compareUTF16(a, b string) int {
	return slices.CompareFunc(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)), cmp.Compare[uint16])
}

func appendNumber(dst []byte, literal string) ([]byte, error) {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fmt.Errorf("encode number: no finite double")
	}
	start := len(dst)
	dst = appendFloat(dst, f)
	if !strings.ContainsAny(literal, ".eE") && string(dst[start:]) != literal && literal != "-0" {
		return nil, fmt.Errorf("encode number: an integer that no double holds exactly")
	}
	return dst, nil
}

// appendFloat is ECMAScript's Number::toString, section 3.2.2.3.
func appendFloat(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs == 0 {
		return append(dst, '0') // minus zero too
	}
	if 1e-6 <= abs && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' { // e-07 is e-7 there
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			dst = append(dst, '\\', "btn_fr"[c-'\b'])
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(dst, '"')
}
