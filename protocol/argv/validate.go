package argv

import (
	"errors"

	"github.com/lendcli/lend/protocol/name"
)

// Validate checks the Contract and each of its commands. The error joins
// *DeclarationError values.
func (c Contract) Validate() error {
	return errors.New("validate contract: not written yet")
}

// Lookup finds the command named n among those that the Contract declares.
func (c Contract) Lookup(n name.Command) (Command, bool) {
	for i := range c.Commands {
		if c.Commands[i].Name == n {
			return c.Commands[i], true
		}
	}
	return Command{}, false
}

// Validate checks the command, which need not be one of the Contract's own. The
// error joins *DeclarationError values.
func (c Command) Validate(contract Contract) error {
	return errors.New("validate command: not written yet")
}
