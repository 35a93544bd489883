// Package localhost is the implementation host of the Connector runtime on the
// owner's machine: it makes routes of what is installed, and starts exactly the
// CLI of one route. Nothing here knows leases, policies, peers or the network.
//
//	Host.Reconcile    installed releases × their connections → published routes
//	Host.Resolve      key + version (+ connection) → exactly one current route
//	Host.StartCLI     exact identity, absolute directory, canonical arguments → process
//	Host.Start        StartCLI in a workspace, or in a private directory that is
//	                  dropped when the operation has ended
//
// The caller of StartCLI chooses nothing but arguments, the variables that the
// contract lists, and the working directory. Executable, fixed prefix, home,
// settings and secrets come from the route. A Call's Arguments already begin with
// the contract's and the command's fixed arguments (protocol/argv renders them),
// so the host adds only what the installed release needs before them: argv is
// the executable, Launch.Prefix (a script), then the request's Arguments.
//
// Before every start the release is verified again; the bytes that were verified
// are the bytes that run. A failure is route.ErrUnavailable: the cause goes to
// the owner's log, and no peer may be shown it, since it can name paths.
//
// A host limits no run time: Descriptor.Contract holds the timeouts, and the
// gateway, which owns the operation, enforces them.
//
// Locks: one lane per Connector, in which its routes change one after another;
// other Connectors go on. Host.mu is held for memory only. See docs/localhost.md.
package localhost
