// Package failpoint lets a test kill the process at a point that it names. Only a
// build with the tag failpoint can: in all others Hit is empty.
//
// The points of an operation's life are, in their order: "reserved" (in memory),
// "start-written" and "start-synced" (the start is in the ledger's file, and durable;
// the admission does not know yet), "recorded" (it does, nothing runs yet), "started"
// (the process runs, the caller was told nothing), "ending" (the processes are gone,
// the end is not recorded), "end-written" (it is in the file, which nobody knows),
// "ended" (the caller was not told), "told" (the Exit was written to the stream) and
// "acknowledged" (the caller has it, and the gateway does not know what to forget).
//
// Those of an installation, in the order in which an update passes them: "staged" (an
// empty staging directory), "imported" (the artifact's tree is in it), "download-begun"
// (an empty slot for an archive), "download-written" (all of its bytes are there and
// checked), "download-received" (so is the receipt), "candidate" (the slot has its
// name), "equipped" (the trees are whole), "placed" (they lie beside the current
// release), "published" (the receipt names them), "tried" (the new release could
// start), "switched" (the routes are new), "superseded" (the old release is marked),
// "promote-retired" (the old archive has left its place), "promote-current" (the new
// one is in it), "promoted" (the old one is gone).
//
// Those of a removal, in their order: "uninstall-begin" (nothing was done),
// "uninstall-written" (it is written down), "uninstall-retired" (nothing of it runs),
// "uninstall-withdrawn" (nothing leads to it), "uninstall-removed" (of each version),
// "uninstall-purged" (of each connection), "uninstall-forgotten" (its word is gone).
package failpoint
