// Package sealed keeps secret values at rest so that a copy of the files alone
// does not show them, and so that a value cannot be put in the place of another.
//
//	DIR/key.json                   the key source, and the data keys wrapped by it
//	DIR/key-RANDOM.secret          only with the source keyfile: what wraps them
//	DIR/values/KEY/ID/NAME.sealed  one value each, sealed with a data key
//	DIR/lock                       held while anything is written
//
// A value is sealed with XChaCha20-Poly1305 under a random data key of the store.
// What is authenticated with it: the store, the data key, the Connector key, the
// connection and the name (see Place). A file that was moved, renamed or copied
// from another store does not open: ErrCorrupt. An older value that was put back
// under its own name does open; nothing here knows time.
//
// The data keys are wrapped with a key that comes from exactly one Source, which
// the owner chose. If the source cannot be had, nothing opens (ErrLocked); no
// other source is tried. What was unwrapped stays in memory for as long as
// key.json names the same wrapping.
//
// Every file is replaced atomically and durably. Rewrap and Rotate may be stopped
// at any moment: each value opens before, between and after, and the same call
// again finishes the work. All methods of Store are safe for concurrent use, by
// several processes too; none holds its mutex over I/O. Limits: a value has at most
// 64 KiB, a store 8 data keys.
package sealed
