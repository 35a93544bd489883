package surface

import (
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Takes returns a function that tells whether a parameter of a command accepts one
// value, or one item of a list, by the grammar itself. Nothing is accepted for
// standard input, which is not judged, and for a parameter that cannot stand alone.
// Paths count as if there were a workspace. The function is safe for concurrent use.
func Takes(c argv.Command, q argv.Parameter) func(value string) bool {
	nothing := func(string) bool { return false }
	alone, err := name.ParseCommand("alone")
	if err != nil || q.Stdin != nil {
		return nothing
	}
	q.Required = false
	if q.Position != 0 {
		q.Position = 1
	}
	if q.List != nil {
		q.List = &argv.List{MaxItems: 1}
	}
	contract := argv.Contract{Command: "alone"}
	if q.Variable != "" {
		contract.Environment = []string{q.Variable}
	}
	g, err := argv.Command{
		Name: alone, Arguments: []string{"alone"}, EndOfOptions: c.EndOfOptions, Parameters: []argv.Parameter{q},
	}.Compile(contract)
	if err != nil {
		return nothing
	}
	return func(value string) bool {
		call, err := g.Parse(said(q, value))
		return err == nil && len(call.Values) == 1
	}
}

// said is one way to say a value.
func said(q argv.Parameter, value string) []string {
	switch {
	case q.Position != 0:
		return []string{"--", value}
	case q.Variable != "":
		return []string{"--" + q.Name.String() + "=" + value}
	case len(q.Flag.Name) > 2:
		return []string{q.Flag.Name + "=" + value}
	case q.Schemas[0].Type == argv.TypeBoolean && value == "true":
		return []string{q.Flag.Name}
	}
	return []string{q.Flag.Name, value}
}
