// Package kept keeps the beginning of an output, to be shown in a result: whole characters
// if it is text, and its bytes in base64 if it is not.
package kept
