// Package checkup has the checks of a gateway: its keys and directories, policy,
// record, revocations, leases and addresses, as the files have them and, if it
// runs, as it says itself.
//
//	Checks  makes them for package localhost/checkup, which runs them
//
// They change nothing, but for what a listing of leases forgets anyway. Rows hold no
// key, no name of a peer, no argument. Nothing of the peer side imports this.
package checkup
