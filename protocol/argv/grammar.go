package argv

import (
	"encoding/json"
	"errors"
)

// Grammar is a command made ready to read arguments. It is immutable and safe for
// concurrent use.
type Grammar struct{}

// Compile validates the command and prepares it. The error is that of
// Command.Validate.
func (c Command) Compile(contract Contract) (*Grammar, error) {
	return nil, errors.New("compile command: not written yet")
}

// Parse reads a caller's arguments, which come after the command's name. The
// error is an *Error, and the Call is zero with it.
func (g *Grammar) Parse(args []string) (Call, error) {
	return Call{}, errors.New("parse arguments: not written yet")
}

// FromObject reads the JSON object that InputSchema describes. The Call equals
// that of Parse for the same values; Call.Input holds what was said for standard
// input. The error is an *Error, and the Call is zero with it.
func (g *Grammar) FromObject(data []byte) (Call, error) {
	return Call{}, errors.New("read object: not written yet")
}

// InputSchema describes the object that FromObject reads: JSON Schema 2020-12 in
// canonical form, narrowed. It may be wider than the grammar, never narrower.
func (g *Grammar) InputSchema() json.RawMessage { return nil }
