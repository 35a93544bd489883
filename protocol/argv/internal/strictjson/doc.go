// Package strictjson reads JSON with no tolerance and writes it in the canonical
// form of RFC 8785.
//
//	Parse      bytes → Value      bounded; one document, nothing after it
//	Append     Value → bytes      canonical
//	Unmarshal  bytes → Go value   as encoding/json, but the keys must be exact
//
// Refused are: text that is not UTF-8, a byte order mark, unpaired surrogates,
// the escaped replacement character (it stands for text that was lost), duplicate
// keys, unknown keys and keys in another case, trailing bytes, and whatever is
// deeper or longer than the Limits say. All of it is pure and holds no state.
package strictjson
