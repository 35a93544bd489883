//go:build linux

// Command bench measures what lending a command costs, beside what it could cost:
// the same command started locally, the transport alone, and OpenSSH.
//
//	go run ./e2e/bench -out docs/performance    everything, in eight minutes; writes .json, .md and .svg
//	go run ./e2e/bench -quick -reps 1           a look, in a minute or two
//	go run ./e2e/bench -only start,output       some groups
//
// What fails is named in the tables, the rest goes on, and the exit status is 1. The last
// lines say of each goal what came out.
//
// The long links are lines of e2e/shaper between namespaces of the network: they need
// root. It builds lend, starts a gateway of a new owner with its real policy, ledger and
// supervisors, and is itself the caller; sshd, if there is one, gets keys of its
// own. Everything is on loopback and goes when the program ends. The cases take
// turns within each repetition, in an order that is rotated, so that a machine that
// drifts does so for all. A ratio is the median of the ratios within a repetition:
// only ratios of one run say something about the programs, and not the machine. Run
// nothing else meanwhile.
package main
