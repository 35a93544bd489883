// Package schema reads the part of JSON Schema in which gateways say what a command takes
// (protocol/argv writes it). It judges nothing: who reads it for people is lenient, and who
// makes a grammar of it is strict.
package schema
