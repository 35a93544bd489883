// Package draft writes a Connector's directory to start from: a manifest without
// commands, which leaves them to the owner's policy until its author declares some.
//
//	NPM    a package, with the lock of its whole tree
//	Exec   an executable, copied, with its SHA-256
//
// What it writes is ordinary files that an author edits; nothing here is trusted
// later. Store.New in package install is the way in.
package draft
