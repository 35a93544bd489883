package name

import "fmt"

// Bounds of the value types, in bytes.
const (
	MaxConnectorKey = 128
	MaxVersion      = 64
	MaxCommand      = 128
	MaxParameter    = 64
	MinOperationID  = 16
	MaxOperationID  = 64
	MaxInvocationID = 128
	MaxConnectionID = 191
	MaxLabel        = 64
)

// InvalidError says which kind of value was refused and why. Value is what was
// given; Error shows it quoted and cut.
type InvalidError struct {
	Kind  string // "connector key", "version", …
	Value string
	Rule  string // the grammar in words
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s %s: want %s", e.Kind, Quote(e.Value), e.Rule)
}

// ConnectorKey is the public name of a Connector: 1 to 128 bytes of lower-case
// letters and digits, inside also '.', '_' and '-'.
type ConnectorKey struct{ s string }

// Version is the exact public version of a Connector: 1 to 64 bytes, a letter
// or digit first, then letters, digits, '.', '_', '+' and '-'. It is a single
// safe path segment. Versions are compared byte by byte: there are no ranges.
type Version struct{ s string }

// Command is the public name of one thing that a Connector's CLI can do
// ("issue.list"): a lower-case letter, then lower-case letters, digits, '.',
// '_' and '-', 128 bytes at most.
type Command struct{ s string }

// Parameter is the name of one parameter of a command: a lower-case letter,
// then lower-case letters, digits, '_' and '-', 64 bytes at most.
type Parameter struct{ s string }

// OperationID is chosen by the caller and names one start of one command: 16
// to 64 bytes of letters, digits, '_' and '-'.
type OperationID struct{ s string }

// InvocationID is the scope of a lease, chosen by its issuer: 1 to 128 bytes,
// a letter or digit first, then letters, digits, '.', '_', ':', '/' and '-'.
type InvocationID struct{ s string }

// ConnectionID names one account of a Connector on this machine: 1 to 191
// bytes, a letter or digit first, then letters, digits, '.', '_' and '-'. It
// never crosses the wire.
type ConnectionID struct{ s string }

// Label is a short name that an owner gives in a file of theirs (a peer, a
// group, an issuer, a workspace): a letter or digit first, then letters,
// digits, '.', '_' and '-', 64 bytes at most.
type Label struct{ s string }

type grammar struct {
	kind, rule string
	min, max   int
	first      func(byte) bool
	rest       func(byte) bool
	last       func(byte) bool // nil: as rest
}

func (g *grammar) check(s string) error {
	bad := len(s) < g.min || len(s) > g.max
	for i := 0; !bad && i < len(s); i++ {
		switch {
		case i == 0:
			bad = !g.first(s[i])
		case i == len(s)-1 && g.last != nil:
			bad = !g.last(s[i])
		default:
			bad = !g.rest(s[i])
		}
	}
	if bad {
		return &InvalidError{Kind: g.kind, Value: s, Rule: g.rule}
	}
	return nil
}

func lower(c byte) bool    { return 'a' <= c && c <= 'z' }
func upper(c byte) bool    { return 'A' <= c && c <= 'Z' }
func digit(c byte) bool    { return '0' <= c && c <= '9' }
func lowerNum(c byte) bool { return lower(c) || digit(c) }
func alnum(c byte) bool    { return lowerNum(c) || upper(c) }

func or(f func(byte) bool, extra string) func(byte) bool {
	return func(c byte) bool {
		if f(c) {
			return true
		}
		for i := 0; i < len(extra); i++ {
			if extra[i] == c {
				return true
			}
		}
		return false
	}
}

//nolint:gochecknoglobals // immutable tables
var (
	connectorKeyGrammar = grammar{
		"connector key", "1 to 128 lower-case letters and digits, inside also '.', '_' and '-'",
		1, MaxConnectorKey, lowerNum, or(lowerNum, "._-"), lowerNum,
	}
	versionGrammar = grammar{
		"version", "1 to 64 letters, digits, '.', '_', '+' and '-', a letter or digit first",
		1, MaxVersion, alnum, or(alnum, "._+-"), nil,
	}
	commandGrammar = grammar{
		"command", "a lower-case letter, then up to 127 lower-case letters, digits, '.', '_' and '-'",
		1, MaxCommand, lower, or(lowerNum, "._-"), nil,
	}
	parameterGrammar = grammar{
		"parameter", "a lower-case letter, then up to 63 lower-case letters, digits, '_' and '-'",
		1, MaxParameter, lower, or(lowerNum, "_-"), nil,
	}
	operationIDGrammar = grammar{
		"operation ID", "16 to 64 letters, digits, '_' and '-'",
		MinOperationID, MaxOperationID, or(alnum, "_-"), or(alnum, "_-"), nil,
	}
	invocationIDGrammar = grammar{
		"invocation ID", "1 to 128 letters, digits, '.', '_', ':', '/' and '-', a letter or digit first",
		1, MaxInvocationID, alnum, or(alnum, "._:/-"), nil,
	}
	connectionIDGrammar = grammar{
		"connection ID", "1 to 191 letters, digits, '.', '_' and '-', a letter or digit first",
		1, MaxConnectionID, alnum, or(alnum, "._-"), nil,
	}
	labelGrammar = grammar{
		"label", "1 to 64 letters, digits, '.', '_' and '-', a letter or digit first",
		1, MaxLabel, alnum, or(alnum, "._-"), nil,
	}
)
