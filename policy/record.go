package policy

import (
	"encoding/hex"
	"slices"

	"github.com/lendcli/lend/protocol/argv"
)

// Recorded returns what the record keeps of the call, nil unless RecordArguments is
// set: the canonical arguments, and the variables that parameters set. Of a secret it
// is the keyed digest that digest makes; nil leaves secrets out. Secrets are never
// arguments: no contract that declares one so compiles.
func (d Decision) Recorded(digest func(parts ...[]byte) [32]byte) (arguments []string, variables map[string]string) {
	if !d.Allowed || !d.RecordArguments || d.Surface == nil {
		return nil, nil
	}
	parameters := d.Surface.Command().Parameters
	for _, v := range d.Call.Environment {
		value := v.Value
		open := slices.ContainsFunc(parameters, func(p argv.Parameter) bool { return p.Variable == v.Name && !p.Secret })
		switch {
		case open:
		case digest == nil:
			continue
		default:
			sum := digest([]byte("variable"), []byte(v.Name), []byte(value))
			value = "digest:" + hex.EncodeToString(sum[:])
		}
		if variables == nil {
			variables = map[string]string{}
		}
		variables[v.Name] = value
	}
	return slices.Clone(d.Call.Arguments), variables
}
