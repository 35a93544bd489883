package argv

import (
	"strconv"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Fault is the kind of a refusal of arguments. It is a stable word that may be
// shown, logged and compared.
type Fault string

// The faults of a caller's arguments.
const (
	FaultFlag     Fault = "undeclared-flag" // abbreviations too
	FaultCluster  Fault = "flag-cluster"    // "-abc", "-ovalue", "-o=value"
	FaultRepeat   Fault = "repeated-flag"
	FaultExtra    Fault = "extra-argument" // a positional argument that has no place
	FaultMissing  Fault = "missing"        // a required parameter, or the value of a flag
	FaultOption   Fault = "option-like"    // a value that begins with '-'
	FaultDash     Fault = "lone-dash"
	FaultFile     Fault = "file-reference" // "@file", "file://…"
	FaultControl  Fault = "control-character"
	FaultEncoding Fault = "not-utf-8"
	FaultEmpty    Fault = "empty"
	FaultNumber   Fault = "not-a-number" // not the strict decimal spelling
	FaultValue    Fault = "not-allowed"  // a schema says no
	FaultPath     Fault = "not-a-path"
	FaultItems    Fault = "item-count"
	FaultTooMany  Fault = "too-many"  // more than MaxArguments
	FaultTooLong  Fault = "too-long"  // one is longer than MaxArgument
	FaultTooLarge Fault = "too-large" // together more than MaxTotal
	FaultObject   Fault = "object"    // not the JSON object that InputSchema describes
)

// Error is a refusal of a caller's arguments; nothing may start. It holds no
// value that the caller gave: Flag is the option's name alone, and Error shows it
// quoted.
type Error struct {
	Kind      Fault
	Parameter name.Parameter // zero where none is known
	Flag      string         // as the caller wrote it, without a value; "" where there is none
	Index     int            // in the caller's arguments; -1 where there is none
	Rule      string         // what would be accepted, in words; may be ""
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("refuse ")
	switch {
	case e.Index >= 0:
		b.WriteString("argument " + strconv.Itoa(e.Index+1))
	case e.Parameter.IsZero():
		b.WriteString("arguments")
	}
	if !e.Parameter.IsZero() {
		if e.Index >= 0 {
			b.WriteString(", ")
		}
		b.WriteString("parameter " + e.Parameter.String())
	}
	if e.Flag != "" {
		b.WriteString(" " + name.Quote(e.Flag))
	}
	b.WriteString(": " + string(e.Kind))
	if e.Rule != "" {
		b.WriteString(": " + e.Rule)
	}
	return b.String()
}

// DeclarationError is one fault of a declaration. Validate, Narrow, Compile and
// Declaration.Command return all that they find, joined with errors.Join.
type DeclarationError struct {
	Path string // "commands.issue.list.parameters.repo.enum[2]"; the keys are those of Declaration
	Msg  string // what is wrong and what would be right; quoted where it shows text of the file
	// Bare marks a string that nothing constrains and that does not say free_text.
	Bare bool
}

func (e *DeclarationError) Error() string {
	if e.Path == "" {
		return e.Msg
	}
	return e.Path + ": " + e.Msg
}
