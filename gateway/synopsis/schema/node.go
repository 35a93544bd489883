package schema

import (
	"encoding/json"
	"strings"
)

// Node is one schema. Other keywords are ignored. The text in it is the gateway's.
type Node struct {
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Properties  map[string]Node   `json:"properties"`
	Required    []string          `json:"required"`
	AllOf       []Node            `json:"allOf"`
	Items       *Node             `json:"items"`
	MinItems    int               `json:"minItems"`
	MaxItems    int               `json:"maxItems"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Pattern     string            `json:"pattern"`
	MinLength   *int              `json:"minLength"`
	MaxLength   *int              `json:"maxLength"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	// Where is a Place, if it can be read: Placed reads it.
	Where json.RawMessage `json:"x-lend-place"`
	// Words are what a command line begins with.
	Words []string `json:"x-lend-arguments"`
}

// Place says how a parameter is said on a command line.
type Place struct {
	Flag      string   `json:"flag"`
	Aliases   []string `json:"aliases"`
	Separator string   `json:"separator"`
	Position  int      `json:"position"`
	Stdin     bool     `json:"stdin"`
	Rest      bool     `json:"rest"`
}

// Placed returns the place of a parameter; false if none is said that can be read.
func (n *Node) Placed() (p Place, ok bool) {
	if len(n.Where) == 0 || string(n.Where) == "null" || json.Unmarshal(n.Where, &p) != nil {
		return Place{}, false
	}
	return p, true
}

const patternStart, patternEnd = "^(?:", ")$"

// Bare is the Pattern as it was declared: for the whole of a value.
func (n *Node) Bare() string {
	if inner, ok := strings.CutPrefix(n.Pattern, patternStart); ok && strings.HasSuffix(inner, patternEnd) {
		return strings.TrimSuffix(inner, patternEnd)
	}
	return n.Pattern
}
