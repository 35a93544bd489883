// Package operation is one run of one process for a remote caller: its life, its
// bytes and its one end. It knows frames and processes; it knows no peer, lease,
// policy or ledger.
//
// An Operation exists from the moment its ID is reserved. Run gives it a
// process; it then owns that process, and whoever else has a reason to end it
// (cancel, expiry, revocation, shutdown, …) may only call Cancel with a Cause. All
// causes converge on one ladder: close the input, Terminate, wait for the grace,
// Kill, Close. The end is computed in one place, after both outputs were drained
// or the drain budget was spent, and it never changes afterwards.
//
// Serve attaches one stream to the operation. Output that the caller has not
// acknowledged is kept, within a window that starts at protocol.MinWindow and
// doubles with each acknowledged window, so that another stream can be attached
// where the first one broke. A second attachment supplants the first.
//
// # Goroutines
//
// Run starts one goroutine that supervises (wait, ladder, drain, end, tail), one
// that reads each output, and one that writes the input, if there is any. The
// supervisor ends last and closes Done. Serve reads the stream in the caller's
// goroutine and ends after every write of its own has ended. Frames are written
// by whoever has something to say, one whole frame at a time.
//
// A panic in any of them ends this operation, with INTERNAL, and no other: its tree is
// killed and its end is recorded (broken.go).
//
// # Locks
//
// attachment.mu is held while frames of one stream are written, which is what
// orders them; Operation.mu guards all state and is held for a few steps only,
// never during I/O. Order: attachment.mu before Operation.mu before Budget.
package operation
