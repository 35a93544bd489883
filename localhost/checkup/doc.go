// Package checkup looks at a machine and says, in rows, what is good, what is not,
// and what mends it.
//
//	Run         runs checks side by side, all of them bounded by one time
//	Machine     judges what ReadFacts found out about the system
//	Connectors  looks at what is installed: bytes, interpreters, secrets
//
// A check changes nothing that it looks at, and its rows hold nothing private: no
// value of a secret, no argument, no key. Package gateway/checkup adds the checks
// of a gateway.
package checkup
