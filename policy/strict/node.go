package strict

import (
	"encoding/json"
	"strconv"
)

// Kind is what a Node is.
type Kind uint8

// The kinds. Bad is the zero value: a node about which a problem was reported.
const (
	Bad Kind = iota
	Null
	Bool
	Int
	Number
	String
	List
	Map
)

// String returns the kind in words that fit "must be … , not …".
func (k Kind) String() string {
	return [...]string{"unreadable", "empty", "true or false", "a whole number", "a number", "text", "a list", "a map"}[k]
}

// Node is one value of a document. The methods accept a nil Node and one of
// another kind: they return nothing then, so that a reader may go on after a
// problem was reported.
type Node struct {
	Kind   Kind
	Line   int
	Column int
	// Text is a scalar in its one accepted spelling, unquoted.
	Text string
	// Quoted tells whether a String was written in quotes or as a block.
	Quoted bool
	// Keys are those of a Map, all of kind String, in the order of the file.
	Keys []*Node
	// Values are those of a Map, or the items of a List.
	Values []*Node
}

// Get returns the value under a key of a Map.
func (n *Node) Get(key string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	for i, k := range n.Keys {
		if k.Text == key {
			return n.Values[i]
		}
	}
	return nil
}

// Key returns the node of a key of a Map.
func (n *Node) Key(key string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	for _, k := range n.Keys {
		if k.Text == key {
			return k
		}
	}
	return nil
}

// Pairs calls f with each key and value of a Map whose key is readable.
func (n *Node) Pairs(f func(key, value *Node)) {
	if n == nil || n.Kind != Map {
		return
	}
	for i, k := range n.Keys {
		if k.Kind == String {
			f(k, n.Values[i])
		}
	}
}

// Items returns the readable items of a List.
func (n *Node) Items() []*Node {
	if n == nil || n.Kind != List {
		return nil
	}
	var out []*Node
	for _, v := range n.Values {
		if v.Kind != Bad {
			out = append(out, v)
		}
	}
	return out
}

// Str returns the text of a String, "" for anything else.
func (n *Node) Str() string {
	if n == nil || n.Kind != String {
		return ""
	}
	return n.Text
}

// Integer returns an Int, 0 for anything else.
func (n *Node) Integer() int {
	if n == nil || n.Kind != Int {
		return 0
	}
	i, err := strconv.Atoi(n.Text)
	if err != nil {
		return 0
	}
	return i
}

// Value returns the node as encoding/json would decode it: map[string]any, []any,
// string, float64, bool or nil. Of a key that is there twice the last one counts.
func (n *Node) Value() any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case Map:
		m := make(map[string]any, len(n.Keys))
		for i, k := range n.Keys {
			m[k.Text] = n.Values[i].Value()
		}
		return m
	case List:
		l := make([]any, 0, len(n.Values))
		for _, v := range n.Values {
			l = append(l, v.Value())
		}
		return l
	case Int, Number:
		f, err := strconv.ParseFloat(n.Text, 64)
		if err != nil {
			return nil
		}
		return f
	case Bool:
		return n.Text == "true"
	case String:
		return n.Text
	case Null, Bad:
	}
	return nil
}

// Decode writes the node into v by the JSON tags of v's type. Unknown keys are
// ignored: Document.Check refuses them before.
func (n *Node) Decode(v any) error {
	b, err := json.Marshal(n.Value())
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
