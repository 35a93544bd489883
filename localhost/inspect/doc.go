// Package inspect says what is installed on this machine, from receipts and files
// alone. It starts nothing, fetches nothing and writes nothing, and what it finds
// says nothing about whether a Connector works: that is readiness.
//
//	Inspector.All    each release that has a receipt: receipt and manifest agree
//	Inspector.One    one release, the same way
//	Inspector.Deep   the same, and every byte hashed again, the interpreter's too
//
// A release is present, absent, invalid or indeterminate, and each but the first has
// a reason. Only Present may be taken for installed: Indeterminate means that nobody
// could tell, not that it is well. See docs/localhost.md.
package inspect
