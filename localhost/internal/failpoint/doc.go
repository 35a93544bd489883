// Package failpoint lets a test kill the process at a point of an installation that it
// names. Only a build with the tag failpoint can: in all others Hit is empty.
//
// The points, in the order in which an update passes them: "staged" (an empty staging
// directory), "imported" (the artifact's tree is in it), "download-begun" (an empty
// slot for an archive), "download-written" (all of its bytes are there and checked),
// "download-received" (so is the receipt), "candidate" (the slot has its name),
// "equipped" (the trees are whole), "placed" (they lie beside the current release),
// "published" (the receipt names them), "tried" (the new release could start),
// "switched" (the routes are new), "superseded" (the old release is marked),
// "promote-retired" (the old archive has left its place), "promote-current" (the new
// one is in it), "promoted" (the old one is gone).
package failpoint
