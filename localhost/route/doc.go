// Package route holds what the host publishes and runs: immutable route
// descriptors, the registry with its boot epoch and generations, the fence that
// stops what an old route has started, and the connection to one running CLI.
//
// A route identity is machine-local: it never crosses the wire, and StartCLI
// accepts it only if every field equals the current route's. A newer generation
// fences the pending starts of the older one and closes its processes.
//
// The gateway uses the values of this package and nothing else below localhost:
// it can name a route, never a path, a secret or a process specification.
package route
