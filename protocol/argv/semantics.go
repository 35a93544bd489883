package argv

import "errors"

// Semantics returns what a Contract means for an invocation, for CanonicalJSON:
// public command, fixed arguments, variables, parameters with places and schemas,
// effects and timeouts. Descriptions and the order of declarations are not in it.
func (c Contract) Semantics() any { return nil }

// Semantics returns what a Command means for an invocation, as in
// Contract.Semantics.
func (c Command) Semantics() any { return nil }

// CanonicalJSON writes v, as encoding/json would, in the canonical form of RFC
// 8785. Numbers that are not finite, integers that a double cannot hold and text
// that is not UTF-8 are errors.
func CanonicalJSON(v any) ([]byte, error) {
	return nil, errors.New("encode canonical JSON: not written yet")
}
