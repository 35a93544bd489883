// Package install keeps the Connectors and interpreters of this machine: it
// imports releases, installs npm packages from their lock, and hands out what a
// start needs, verified.
//
//	Open                      one state directory; orphans of dead processes are removed
//	Store.Add, Update, Remove one transaction each, one lock per Connector; no route changes
//	Store.AddNode, AddRuntime verified interpreters; the system's are never used
//	Store.Launch              full hash now; Launch.Verify before every start
//	Store.NewNPM, NewExec     write a Connector directory to start from
//
// Layout: connectors/KEY/VERSION/receipt.json names the digest directory beside it
// that is current; a release that is replaced or removed while a Launch of any
// process holds it stays on disk until nobody does. Every file is one that this
// package wrote itself, read-only.
//
// Update leaves the old release current until the new one is; then it is marked as
// superseded, and goes like one that was removed.
//
// Lock order: the lock of one Connector or runtime (a file lock that also excludes
// other processes), then the store's mutex. Nothing is executed here: npm runs
// through a Runner, which localhost/process provides. See docs/localhost.md.
package install
