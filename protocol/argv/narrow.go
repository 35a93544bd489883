package argv

import (
	"errors"

	"github.com/lendcli/lend/protocol/name"
)

// Narrowing says how one parameter of a command becomes narrower. A pin is a
// Schema with an Enum and Required: a parameter that may be left out is not
// pinned, because the CLI then chooses.
type Narrowing struct {
	Schema    *Schema // another one that must accept; a Type of "" is the parameter's own; nil changes nothing
	Required  bool
	Forbidden bool // the parameter is undeclared; alone
}

// Narrow returns the command with each named parameter narrowed. What the result
// accepts the receiver accepts too, with the same Call. A parameter that is not
// there, a narrowing that does not fit it and one that leaves nothing to run are
// errors: joined *DeclarationError values.
func (c Command) Narrow(by map[name.Parameter]Narrowing) (Command, error) {
	return Command{}, errors.New("narrow command: not written yet")
}
