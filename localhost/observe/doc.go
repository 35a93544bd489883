// Package observe keeps what really is on this machine: what is on the disk, which
// routes are current, what runs of them or of routes that went before, and what the
// newest reconciliation said of each.
//
//	New              looks, and goes on looking in a goroutine of its own, until Close
//	Observer.Now     the newest snapshot; immutable, with a revision
//	Observer.Next    waits for one that is newer than what was seen
//	Observer.Refresh looks at everything again, now
//
// It asks and watches; it decides, starts and changes nothing, and nothing decides by
// it. Changes that come close together are one snapshot: the newest is never left
// out. What is wanted is elsewhere (policy, settings); what is here is what is so.
// See docs/localhost.md.
package observe
