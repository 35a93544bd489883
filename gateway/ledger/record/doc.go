// Package record holds the records of the ledger and their encoding: one byte of
// kind, then the fields of that kind in a fixed order, without tags. A record that
// Decode accepts is the one that Encode writes for the same values: numbers in
// their shortest form, nothing behind the last field. docs/ledger.md has the
// layouts. The package has no files and no clock.
package record
