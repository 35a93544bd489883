// Package uninstall removes a Connector, in an order that leaves nothing running of
// what is gone, and that any process may take up where another one died:
//
//  1. the removal is written down (package intent): from then on no host publishes a
//     route of it, and none starts
//  2. the running host retires its routes, and ends what runs of them
//  3. what leads to it goes, such as shims, if no version of it stays
//  4. the installed releases go, one after another
//  5. with Purge, and only then, each connection: its secrets, then its directories
//  6. the word of the removal goes
//
// Everything else stays: the ledger and the audit, what the policy has frozen for
// invocations, interpreters, and without Purge the connections, with their secrets,
// settings and homes, and whether the owner has disabled the Connector. Files that
// another live process still has open for a route go when it lets go of them.
//
// See docs/localhost.md.
package uninstall
