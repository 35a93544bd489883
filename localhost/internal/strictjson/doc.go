// Package strictjson decodes JSON that a person or another program wrote into a
// struct, and refuses what encoding/json lets pass: duplicate names, names in
// another case, names that the struct does not have, null, text that is not UTF-8,
// deep nesting, and anything after the value.
//
// Decode refuses unknown names; DecodeKnown ignores them, for formats of others
// that grow. Both refuse a name that differs from a known one only by case: two
// readers would disagree about it. Names of the document are quoted in messages.
// The package imports nothing of ours; its functions may be called from any
// goroutine.
package strictjson
