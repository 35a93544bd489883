package strict

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// Shape says what a value may be. Each alternative that is set accepts nodes of
// its kind: a Shape with Text and List accepts a text or a list. A Shape is
// immutable once it is built.
type Shape struct {
	// Name makes the shape a definition of its own in the JSON Schema.
	Name string
	// Doc describes it in the schema, for editors.
	Doc    string
	Fields []Field // a map with known keys
	Map    *Entries
	List   *Elements
	Text   *Text
	Int    *Range
	Number bool // any number
	Bool   bool
}

// Field is one known key of a map.
type Field struct {
	Key      string
	Required bool
	Shape    *Shape
}

// Entries describe a map with free keys. Min is the fewest entries.
type Entries struct {
	Key   *Text
	Value *Shape
	Min   int
}

// Elements describe a list. Unique lists hold nothing twice.
type Elements struct {
	Item     *Shape
	Min, Max int
	Unique   bool
}

// Range bounds a whole number, both ends included.
type Range struct{ Min, Max int }

// Text describes a string. What completes "must be …".
type Text struct {
	What    string
	Words   []string // if not empty, one of these
	Pattern string   // RE2 and ECMA alike, anchored
	Max     int      // runes; 0 means 4096
	Quoted  bool     // has to be written in quotes
	// Check refuses what fits Pattern and yet means nothing; nil accepts.
	Check func(string) error
	re    *regexp.Regexp
}

const maxText = 4096

// NewText returns t with its pattern compiled; it panics if that cannot be.
func NewText(t Text) *Text {
	if t.Pattern != "" {
		t.re = regexp.MustCompile(t.Pattern)
	}
	if t.Max == 0 {
		t.Max = maxText
	}
	return &t
}

// Check reports everything in the document that does not fit the shape.
func (d *Document) Check(s *Shape) { d.check(d.Root, s, "the file", true) }

func (d *Document) check(n *Node, s *Shape, what string, required bool) {
	switch {
	case n.Kind == Bad:
	case n.Kind == Null:
		d.Add(n, "", what+" has no value", nullHint(s, required))
	case n.Kind == Map && s.Fields != nil:
		d.checkFields(n, s, what)
	case n.Kind == Map && s.Map != nil:
		d.checkEntries(n, s.Map, what, required)
	case n.Kind == List && s.List != nil:
		d.checkElements(n, s.List, what, required)
	case n.Kind == String && s.Text != nil:
		d.checkText(n, s.Text, what)
	case n.Kind == Int && (s.Int != nil || s.Number):
		d.checkInt(n, s.Int, what)
	case n.Kind == Number && s.Number, n.Kind == Bool && s.Bool:
	default:
		d.Add(n, "", fmt.Sprintf("%s must be %s, not %s", what, s.expected(), n.Kind), s.quoteHint(n))
	}
}

func nullHint(s *Shape, required bool) string {
	switch {
	case s.Fields != nil || s.Map != nil:
		return "write {} for an empty one"
	case required:
		return "write one"
	}
	return "write one, or remove the key"
}

func emptyHint(required bool) string {
	if required {
		return "add to it"
	}
	return "remove the key, or add to it"
}

// quoteHint helps where something else stands for a text, or a text for a list.
func (s *Shape) quoteHint(n *Node) string {
	if s.Text != nil && (n.Kind == Int || n.Kind == Number || n.Kind == Bool) {
		return `write "` + n.Text + `" in quotes`
	}
	if s.List != nil && s.Text == nil && n.Kind == String {
		return "write [" + n.Text + "]"
	}
	if s.Text != nil && n.Kind == Map {
		return "write a text that has a colon in quotes"
	}
	return ""
}

func (s *Shape) expected() string {
	var alternatives []string
	add := func(is bool, what string) {
		if is {
			alternatives = append(alternatives, what)
		}
	}
	add(s.Fields != nil || s.Map != nil, "a map")
	if s.Text != nil {
		add(true, s.Text.What)
	}
	add(s.List != nil, "a list")
	add(s.Int != nil && !s.Number, "a whole number")
	add(s.Number, "a number")
	add(s.Bool, "true or false")
	return strings.Join(alternatives, " or ")
}

func (d *Document) checkFields(n *Node, s *Shape, what string) {
	known, meant := make([]string, 0, len(s.Fields)), map[string]bool{}
	for _, f := range s.Fields {
		known = append(known, f.Key)
	}
	for i, k := range n.Keys {
		if k.Kind != String {
			continue
		}
		at := slices.Index(known, k.Text)
		if at < 0 {
			hint := Meant(k.Text, known)
			if hint == "" {
				hint = "known are " + strings.Join(known, ", ")
			}
			meant[Suggest(k.Text, known)] = true
			d.Add(k, "", "unknown key "+name.Quote(k.Text)+" in "+what, hint)
			continue
		}
		d.check(n.Values[i], s.Fields[at].Shape, k.Text, s.Fields[at].Required)
	}
	for _, f := range s.Fields {
		if f.Required && n.Key(f.Key) == nil && !meant[f.Key] {
			d.missing(n, f.Key, what)
		}
	}
}

// missing reports at the node without making it Bad: what is there is still read.
func (d *Document) missing(n *Node, key, what string) {
	d.at(n.Line, n.Column, "", what+" has no "+name.Quote(key), "add "+key+":")
}

func (d *Document) checkEntries(n *Node, e *Entries, what string, required bool) {
	if len(n.Keys) < e.Min {
		d.Add(n, "", what+" is empty", emptyHint(required))
	}
	for i, k := range n.Keys {
		if k.Kind == String {
			d.checkText(k, e.Key, "a key of "+what)
		}
		if k.Kind == String {
			d.check(n.Values[i], e.Value, k.Text, false)
		}
	}
}

func (d *Document) checkElements(n *Node, e *Elements, what string, required bool) {
	if len(n.Values) < e.Min {
		d.Add(n, "", what+" is an empty list", emptyHint(required))
	}
	if e.Max > 0 && len(n.Values) > e.Max {
		d.Add(n, "", fmt.Sprintf("%s has more than %d items", what, e.Max), "")
		return
	}
	seen := map[string]bool{}
	for _, v := range n.Values {
		d.check(v, e.Item, "an item of "+what, false)
		id := v.Kind.String() + v.Text
		if e.Unique && v.Kind != Bad && v.Kind < List && seen[id] {
			d.Add(v, "", "it is in the list twice", "remove one")
		}
		seen[id] = true
	}
}

func (d *Document) checkInt(n *Node, r *Range, what string) {
	const exact = 1 << 53
	if r == nil {
		r = &Range{-exact, exact}
	}
	v := n.Integer()
	if v != r.Min && r.Min == r.Max {
		d.Add(n, "", fmt.Sprintf("%s must be %d", what, r.Min), "")
		return
	}
	if v < r.Min || v > r.Max || v == 0 && n.Text != "0" {
		d.Add(n, "", fmt.Sprintf("%s must be a whole number from %d to %d", what, r.Min, r.Max), "")
	}
}

func (d *Document) checkText(n *Node, t *Text, what string) {
	refuse := func(rule, hint string) {
		d.Add(n, rule, fmt.Sprintf("%s must be %s, not %s", what, t.What, name.Quote(n.Text)), hint)
	}
	switch {
	case len(t.Words) > 0 && !slices.Contains(t.Words, n.Text):
		refuse("", Meant(n.Text, t.Words))
	case t.re != nil && !t.re.MatchString(n.Text), utf8.RuneCountInString(n.Text) > t.Max:
		refuse("", "")
	case t.Quoted && !n.Quoted:
		d.Add(n, RuleQuoted, what+" is written in quotes", `write "`+n.Text+`"`)
	case t.Check != nil:
		if err := t.Check(n.Text); err != nil {
			refuse(RuleFormat, "")
		}
	}
}
