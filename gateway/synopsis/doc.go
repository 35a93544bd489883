// Package synopsis reads what a gateway's catalogue says of a command as what a person
// types: which options and positions there are, and what each accepts.
//
// The text in it was written by the gateway's owner and by Connectors. It is bounded,
// but who shows it escapes it (name.Show).
package synopsis
