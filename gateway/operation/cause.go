package operation

import (
	"context"
	"errors"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// Cause says why an operation is being stopped. It is what context.Cause returns
// for the operation's context.
type Cause uint8 //nolint:errname // a cause, by the name that contexts have for it

// The causes.
//
//nolint:errname // causes, by the name that contexts have for them
const (
	CauseCaller   Cause = iota + 1 // the holder cancelled it
	CausePeerGone                  // detached for longer than its grace
	CauseDeadline                  // its run time is over
	CauseOutputLimit
	CauseInputLimit
	CauseInputText // input that is not text, where text is wanted
	CauseViolation
	CauseLeaseExpired
	CauseRevoked
	CausePolicy // the current policy no longer allows it
	CauseRoute  // the route was retired
	CauseShutdown
	CauseOwner // the owner stopped it
	CauseInternal
)

// Code is the reason code that an Exit carries for c.
func (c Cause) Code() protocol.Code {
	switch c {
	case CauseCaller:
		return protocol.CodeCancelled
	case CausePeerGone:
		return protocol.CodePeerGone
	case CauseDeadline:
		return protocol.CodeTimeout
	case CauseOutputLimit:
		return protocol.CodeOutputLimit
	case CauseInputLimit:
		return protocol.CodeInputLimit
	case CauseInputText:
		return protocol.CodeInputRejected
	case CauseViolation:
		return protocol.CodeProtocolViolation
	case CauseLeaseExpired:
		return protocol.CodeLeaseExpired
	case CauseRevoked:
		return protocol.CodeLeaseRevoked
	case CausePolicy:
		return protocol.CodePolicyChanged
	case CauseRoute:
		return protocol.CodeRouteRetired
	case CauseShutdown:
		return protocol.CodeShuttingDown
	case CauseOwner:
		return protocol.CodeOwnerStopped
	case CauseInternal:
		return protocol.CodeInternal
	}
	return protocol.CodeInternal
}

func (c Cause) Error() string { return "stopped: " + c.Code().String() }

// ending is everything that the end of a run is computed from.
type ending struct {
	cause error // context.Cause when the root process had exited, or nil
	lost  error // the cause that cost bytes, which counts however the child ended
	exit  route.Exit
	wait  error // of Process.Wait, other than the context's
}

// code is the one place that turns what happened into the code of the Exit.
func (e ending) code() protocol.Code {
	var c Cause
	switch {
	case errors.As(e.lost, &c):
		return c.Code()
	case errors.As(e.cause, &c):
		return c.Code()
	case errors.Is(e.cause, context.Canceled):
		return protocol.CodeInternal
	case e.exit.Retired:
		return protocol.CodeRouteRetired
	case e.exit.Limited:
		return protocol.CodeResourceLimit
	case e.wait != nil:
		return protocol.CodeInternal
	}
	return protocol.CodeOK
}
