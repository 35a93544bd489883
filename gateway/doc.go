// Package gateway is the node on the owner's machine that peers dial. It admits
// what lease and policy allow, records it, starts exactly that through a Runtime,
// and carries its bytes. It holds no path, no process specification, no secret.
//
// The way of one invocation is admit.go, in order: lease, frozen grant and policy,
// limits, reservation, pinned route, one durable record, start. Each step may
// refuse; what it refuses has not happened. A refusal before the record leaves the
// operation ID free; after it, the ID is spent and NOT_STARTED is what it answers
// from then on. A panic denies. Before a lease verifies, nothing looks at
// connector, command, argv, ledger or catalogue; until then every refusal is the
// same DENIED. refuse.go alone turns errors into what a peer may know.
//
// What was admitted is an operation (package operation), which owns its process
// and its stream. Everything else can only cancel it with a cause.
//
// # Goroutines
//
// libp2p gives each stream a goroutine, which serves it to its end; Node.work
// counts these and the sweeper. An operation's own are counted by live, which is
// empty only after the last of them has ended. Close waits for both. Timers
// (strangers, graces) run short functions and are stopped at Close.
//
// # Locks
//
// Node.mu (closing), live.mu, entry.mu and revoking.mu guard
// the fields named beside them. live.mu may be held while an operation's own lock
// is taken; no other two are held together. No I/O, callback or log happens under
// any of them. See docs/architecture.md.
package gateway
