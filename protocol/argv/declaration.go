package argv

import (
	"errors"

	"github.com/lendcli/lend/protocol/name"
)

// Declaration is a command as files spell it: the same keys in a Connector's
// JSON manifest and in an owner's YAML policy. Declaration.Command turns it into
// a checked value.
type Declaration struct {
	Summary      string                          `json:"summary,omitempty" yaml:"summary,omitempty"`
	Effect       Effect                          `json:"effect,omitempty" yaml:"effect,omitempty"`
	Arguments    []string                        `json:"arguments,omitempty" yaml:"arguments,omitempty"`
	Timeout      string                          `json:"timeout,omitempty" yaml:"timeout,omitempty"` // "2m"
	EndOfOptions bool                            `json:"end_of_options,omitempty" yaml:"end_of_options,omitempty"`
	Rest         *Rest                           `json:"rest,omitempty" yaml:"rest,omitempty"`
	Parameters   map[string]ParameterDeclaration `json:"parameters,omitempty" yaml:"parameters,omitempty"`
}

// ParameterDeclaration is one parameter as files spell it. Enum and Const hold
// strings, numbers and booleans, as the type says.
type ParameterDeclaration struct {
	Description string `json:"description,omitempty" yaml:"description,omitempty"`
	Required    bool   `json:"required,omitempty" yaml:"required,omitempty"`
	Secret      bool   `json:"secret,omitempty" yaml:"secret,omitempty"`

	Flag      string   `json:"flag,omitempty" yaml:"flag,omitempty"`
	Aliases   []string `json:"aliases,omitempty" yaml:"aliases,omitempty"`
	Render    Render   `json:"render,omitempty" yaml:"render,omitempty"`
	Repeat    int      `json:"repeat,omitempty" yaml:"repeat,omitempty"`
	Separator string   `json:"separator,omitempty" yaml:"separator,omitempty"`
	Position  int      `json:"position,omitempty" yaml:"position,omitempty"`
	Stdin     *Stdin   `json:"stdin,omitempty" yaml:"stdin,omitempty"`
	Env       string   `json:"env,omitempty" yaml:"env,omitempty"`

	Type      Type     `json:"type,omitempty" yaml:"type,omitempty"` // "" means string
	Enum      []any    `json:"enum,omitempty" yaml:"enum,omitempty"`
	Const     any      `json:"const,omitempty" yaml:"const,omitempty"`
	Pattern   string   `json:"pattern,omitempty" yaml:"pattern,omitempty"`
	MinLength *int     `json:"min_length,omitempty" yaml:"min_length,omitempty"`
	MaxLength *int     `json:"max_length,omitempty" yaml:"max_length,omitempty"`
	Minimum   *float64 `json:"minimum,omitempty" yaml:"minimum,omitempty"`
	Maximum   *float64 `json:"maximum,omitempty" yaml:"maximum,omitempty"`
	FreeText  bool     `json:"free_text,omitempty" yaml:"free_text,omitempty"`
	Kind      Kind     `json:"kind,omitempty" yaml:"kind,omitempty"`
	MinItems  int      `json:"min_items,omitempty" yaml:"min_items,omitempty"`
	MaxItems  int      `json:"max_items,omitempty" yaml:"max_items,omitempty"`
}

// Command turns the declaration into a command named n. The error joins
// *DeclarationError values. What depends on the Contract is checked by
// Command.Validate.
func (d Declaration) Command(n name.Command) (Command, error) {
	return Command{}, errors.New("declare command: not written yet")
}

// Narrowing turns the declaration into a narrowing of base: only the keys of a
// schema and required may be there; a type that is absent is base's. The error
// joins *DeclarationError values.
func (d ParameterDeclaration) Narrowing(base Parameter) (Narrowing, error) {
	return Narrowing{}, errors.New("declare narrowing: not written yet")
}
