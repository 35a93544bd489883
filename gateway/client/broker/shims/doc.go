// Package shims keeps the directory of a caller's shims: names of CLIs that lead to
// lend-shim, for the PATH, and beside them which Connector each stands for.
//
//	bin/gh    a symbolic link to lend-shim
//	gh.json   the record: the Connector, and where the link must lead
//
// A name is ours if there is a record and the link leads where it says; nothing else is
// ever replaced or removed. A shim itself holds nothing: the broker reads the record.
package shims
