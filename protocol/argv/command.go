package argv

import (
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Contract is the public surface of one CLI: what a route promises and what a
// policy may narrow. It is a value; the commands are sorted by name.
type Contract struct {
	// Command is the public name of the CLI ("gh"), for shims and for messages.
	Command string
	// Arguments come before those of every command, in this order.
	Arguments []string
	// Environment lists the variables that a parameter may set. A parameter with
	// another variable is refused.
	Environment []string
	// Timeout bounds a run of a command that names none; 0 means none is named.
	Timeout time.Duration
	// Commands are those that the Connector's manifest declares; none means that
	// an owner's policy declares them.
	Commands []Command
}

// Command is one thing that a CLI can do, with everything that a caller may say.
type Command struct {
	Name        name.Command
	Description string // one line, for people and agents; no effect
	Effect      Effect
	// Arguments are the fixed arguments that come before everything the caller
	// said. In a command that a policy declares they are not empty.
	Arguments  []string
	Parameters []Parameter
	// Rest allows further positional arguments after the declared positions; nil
	// means none.
	Rest *Rest
	// EndOfOptions puts "--" between flags and positional arguments, for CLIs
	// that understand it.
	EndOfOptions bool
	// Timeout bounds one run; 0 means that the Contract's holds.
	Timeout time.Duration
}

// Effect says what a command does to the world, in the owner's judgement.
type Effect string

// The effects. An empty effect counts as EffectWrite.
const (
	EffectRead  Effect = "read"
	EffectWrite Effect = "write"
)

// Parameter is one thing that a caller may say. Exactly one of Flag, Position,
// Stdin and Variable is its place.
type Parameter struct {
	Name        name.Parameter
	Description string
	Required    bool
	// Secret keeps the value out of argv: its place is standard input or a
	// variable.
	Secret bool
	// List makes the value an array of scalars that each pass Schema.
	List *List
	// Schemas must all accept a value: the declared one first, then those that
	// narrow it. There is at least one, and all have the same Type.
	Schemas []Schema

	Flag     *Flag
	Position int // 1, 2, …; 0 means that this is not its place
	Stdin    *Stdin
	Variable string // the name of an environment variable of the child
}

// Flag is the spelling of an option. Name is the canonical one ("--repo", "-R").
type Flag struct {
	Name    string
	Aliases []string
	Render  Render
	// Repeat allows a List to be given as repeated flags; otherwise Separator
	// (one byte) joins its items.
	Repeat    bool
	Separator string
}

// Render says how a flag's value is written in canonical form. Booleans are
// written as "--x" or "--x=false" in either.
type Render string

// The renderings. There is no default: an empty one is RenderEquals for a name
// that begins with "--" and RenderSpace for one that does not.
const (
	RenderEquals Render = "equals"
	RenderSpace  Render = "space"
)

// List bounds an array. MaxItems is 1 to 256.
type List struct {
	MinItems int
	MaxItems int
}

// Stdin says that a command reads standard input, and how much of it.
type Stdin struct {
	MaxBytes int64 `json:"max_bytes,omitempty" yaml:"max_bytes,omitempty"` // 1 to 1 TiB; 0 means 1 MiB
	Text     bool  `json:"text,omitempty" yaml:"text,omitempty"`           // valid UTF-8 only, checked as it passes
}

// Rest bounds an open-ended tail of positional arguments: each item matches
// Pattern (RE2, the whole item), is not option-like and not a file reference.
type Rest struct {
	MaxItems int    `json:"max_items" yaml:"max_items"` // 1 to 256
	Pattern  string `json:"pattern" yaml:"pattern"`
}

// Type is the type of a scalar.
type Type string

// The types. Numbers are decimal and finite; integers fit in 53 bits.
const (
	TypeString  Type = "string"
	TypeInteger Type = "integer"
	TypeNumber  Type = "number"
	TypeBoolean Type = "boolean"
)

// Schema constrains one scalar. Absent fields constrain nothing, but a string
// that has none of Enum, Const, Pattern and Kind must say FreeText.
type Schema struct {
	Type      Type
	Enum      []string // canonical spellings; present but empty accepts nothing
	Const     *string
	Pattern   string // RE2, matches the whole value
	MinLength *int   // runes
	MaxLength *int   // runes
	Minimum   *float64
	Maximum   *float64
	FreeText  bool
	Kind      Kind
}

// Kind is a meaning of a string beyond its characters.
type Kind string

// KindPath is a relative path inside the workspace that the policy binds; where
// none is bound it accepts nothing.
const KindPath Kind = "path"

// Value is what a caller said for one parameter, in canonical spelling, already
// checked. A scalar has one item.
type Value struct {
	Parameter name.Parameter
	Items     []string
}

// Call is what a command starts with: made only by Grammar.Parse and
// Grammar.FromObject, so that the child never sees a caller's spelling.
type Call struct {
	// Arguments are the Contract's fixed arguments, the command's, and the
	// canonical rendering of the values, in that order.
	Arguments []string
	// Environment holds the variables that parameters set, sorted by name.
	Environment []Variable
	// Stdin is nil where the command reads none.
	Stdin *Stdin
	// Input is the text that an object gave for standard input; nil where the
	// caller streams it, and always nil after Grammar.Parse.
	Input *string
	// Values are what was said, in the order of the declaration.
	Values []Value
	// Paths are the positions in Arguments and the relative path of each value of
	// KindPath, for the host that resolves them inside the workspace.
	Paths []Path
}

// Variable is one environment variable of the child.
type Variable struct{ Name, Value string }

// Path is one workspace path inside Call.Arguments.
type Path struct {
	Index  int    // in Call.Arguments
	Offset int    // of the path inside that argument, in bytes
	Path   string // relative, cleaned, with slashes
}
