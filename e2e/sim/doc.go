// Package sim holds tests that run the real client and the real gateway node over a
// network that fails on a plan.
//
// The simulation has its own packets, its own clock (testing/synctest) and its own
// processes; only the ledger is a real directory. A fault happens at each frame
// of a run, before, within and after it, in both directions; and several of them
// as a seed says. What is always true, whatever the plan: no success without an
// Exit, no byte wrong, no operation started twice, one recorded end, an end within
// a bound of time, and no goroutine left. After faults that heal in time the run
// must succeed. A failure prints its plan, which LEND_SIM_PLAN runs again; the
// order of goroutines is the scheduler's, so a plan is repeated, not a trace.
//
// The other half cuts TCP connections on the loopback, in real time, at each
// record of the secure channel and inside it.
package sim
