// Package manifest holds what a Connector says about itself: the strict types of
// connector-manifest.json, the hash of the contract that it declares, and the
// digest of a release.
//
//	Parse          bytes → Manifest: unknown and duplicate fields refused, all bounds
//	ContractHash   argv.Contract → "sha256:…": the meaning of an invocation, nothing else
//	ReleaseDigest  manifest + artifact tree → 64 hexadecimal digits: the exact package
//
// A manifest describes one command-line program in one of three kinds: a native
// executable of the artifact, a script that a verified interpreter runs, or an npm
// package whose whole tree a lock pins. Its commands use the one grammar of
// protocol/argv; a manifest without commands leaves them to the owner's policy.
//
// The package is pure: no files, clock, network or logger. All values are
// immutable after Parse and may be used from any goroutine. See docs/localhost.md.
package manifest
