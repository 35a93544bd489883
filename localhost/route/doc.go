// Package route holds what the host publishes and runs: immutable route
// descriptors, the registry with its boot epoch and generations, the fence that
// stops what an old route has started, and the connection to one running CLI.
//
// A route identity is machine-local: it never crosses the wire, and StartCLI
// accepts it only if every field equals the current route's. A newer generation
// fences the pending starts of the older one and closes its processes.
//
//	Registry.Commit    candidate becomes current, the old route is fenced and closed
//	Registry.Remove    the same without a successor; a failed close is kept for Settle
//	Registry.Drain     no starts any more; what runs ends by itself
//	Registry.Resolve   exactly one current route, or ErrNotFound or ErrAmbiguous
//	Registry.StartCLI  exact identity → a CLIConnection that the route owns
//	Registry.Next      all routes, whenever they are newer than what was seen
//	Registry.Activity  what each route has started, current or retiring
//
// Each route has a group that owns its pending starts and running processes. A
// start that the fence overtakes is refused if nothing runs yet, and else retired
// like the others; so after a successful retirement none lives, and an error of a
// start means that nothing ran.
//
// Watching is by revision: each change raises one, whoever waits for more than what
// it has seen finds the newest state, and nobody is queued for. Waiting costs one
// channel, however many changes there are.
//
// Lock order: Registry.mu, group.mu, CLIConnection.mu; those of the revisions are
// leaves. Nothing blocks under them.
//
// The gateway uses the values of this package and nothing else below localhost:
// it can name a route, never a path, a secret or a process specification.
package route
