package operation

import (
	"context"
	"time"

	"github.com/lendcli/lend/protocol"
)

// guarded runs f. A panic in it is a fault of ours or of the process's pipes: it ends
// this operation with INTERNAL, and no other. What was panicked with is not kept, since
// it may hold anything. f must not panic with a lock held.
func (o *Operation) guarded(f func()) (whole bool) {
	defer func() {
		if recover() != nil {
			o.broken.Store(true)
			o.Cancel(CauseInternal)
		}
	}()
	f()
	return true
}

// pumped is pump to its end, whatever happens.
func (o *Operation) pumped(f *output) {
	if !o.guarded(func() { o.pump(f) }) {
		o.guarded(func() { o.pumpEnded(f) })
	}
}

// collapse ends what supervise could not: the tree first, then the operation. Each
// step is tried whatever the one before it did.
func (o *Operation) collapse() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o.guarded(func() { _ = o.process.Kill() })
	o.guarded(func() { _, _ = o.process.Wait(ctx) })
	o.guarded(func() { _ = o.process.Close() })
	o.guarded(o.closeInput)
	o.guarded(o.rootExited)
	if _, ended := o.Ended(); !ended {
		o.guarded(func() { o.finish(ending{cause: CauseInternal}, true) })
	}
	if _, ended := o.Ended(); !ended { // what is told of it has failed
		o.publish(protocol.Exit{Code: protocol.CodeInternal, Forced: true})
	}
	o.guarded(o.flush)
	<-o.settled
}
