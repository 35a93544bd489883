// Package form reads what a catalogue says of a command as a form: one JSON object that
// an agent fills in, and that becomes the canonical arguments of the command.
//
// The catalogue's schema is turned back into grammars of protocol/argv, and those judge
// the object, as strictly as a gateway would: it is the project's one grammar from the
// other end. Where JSON Schema could not say all that the gateway knows, the gateway
// refuses; the form is never wider than the schema that it shows.
package form
