package gateway

import (
	"errors"
	"fmt"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
)

// deniedError is a decision of the policy.
type deniedError struct{ decision policy.Decision }

func (e *deniedError) Error() string {
	s := "policy: " + e.decision.Reason.String()
	if r := e.decision.Rule; r.Name != "" {
		s += fmt.Sprintf(" (rule %s, line %d)", r.Name, r.Position.Line)
	}
	var grammar *argv.Error
	switch {
	case errors.As(e.decision.Err, &grammar): // a flag that nobody declared may be a value
		known := *grammar
		known.Flag = ""
		s += ": " + known.Error()
	case e.decision.Err != nil:
		s += ": " + e.decision.Err.Error()
	}
	return s
}

func (e *deniedError) Unwrap() error { return e.decision.Err }

// stateError says what the ledger knows of an operation that cannot be started.
type stateError struct{ state ledger.State }

func (e *stateError) Error() string { return "operation is " + e.state.String() }

// panicError is a panic of some stage, which denies. What was panicked with is
// not shown: it may hold anything.
type panicError struct{ stage string }

func (e *panicError) Error() string { return "panic in " + e.stage }

// refuse turns any error into what the peer is told. It is the only function
// that does. What it does not know is INTERNAL.
func refuse(err error) *protocol.Refusal {
	var (
		refusal   *protocol.Refusal
		violation *protocol.ViolationError
		leased    *lease.Error
		denied    *deniedError
		state     *stateError
		cause     operation.Cause
		revoking  *revocation.Error
	)
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &violation):
		return &protocol.Refusal{Code: protocol.CodeProtocolViolation, Cause: err}
	case errors.As(err, &leased):
		return leaseRefusal(leased, err)
	case errors.As(err, &denied):
		return denied.refusal(err)
	case errors.As(err, &state):
		return &protocol.Refusal{Code: stateCode(state.state), Cause: err}
	case errors.As(err, &cause):
		return &protocol.Refusal{Code: causeCode(cause), Cause: err}
	case errors.As(err, &revoking):
		return &protocol.Refusal{Code: revocationCode(revoking.Reason), Public: revoking.Public(), Cause: err}
	case errors.Is(err, revocations.ErrFull):
		return &protocol.Refusal{Code: protocol.CodeUnsupported, Public: revocations.ErrFull.Error(), Cause: err}
	case errors.Is(err, revocations.ErrUnreadable):
		return &protocol.Refusal{Code: protocol.CodeGatewayLocked, Cause: err}
	case errors.Is(err, ledger.ErrFull):
		return &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy, Cause: err}
	case errors.Is(err, ledger.ErrFailed), errors.Is(err, ledger.ErrCorrupt), errors.Is(err, ledger.ErrLost):
		return &protocol.Refusal{Code: protocol.CodeGatewayLocked, Cause: err}
	}
	return &protocol.Refusal{Code: routeCode(err), Cause: err}
}

// leaseRefusal tells the holder of a chain which link is at fault.
func leaseRefusal(e *lease.Error, cause error) *protocol.Refusal {
	r := &protocol.Refusal{Code: leaseCode(e.Reason), Cause: cause}
	if r.Code == protocol.CodeLeaseDelegation || e.Link > 0 && e.Reason.Precise() {
		known := *e
		known.Detail = ""
		r.Public = known.Error()
	}
	return r
}

func leaseCode(r lease.Reason) protocol.Code {
	if !r.Precise() {
		return protocol.CodeDenied
	}
	switch r {
	case lease.ReasonDepth, lease.ReasonLinkHolder, lease.ReasonLink, lease.ReasonDuplicate, lease.ReasonParent,
		lease.ReasonLinkIssuer, lease.ReasonFinal, lease.ReasonDepthLeft, lease.ReasonInvocation, lease.ReasonHolderTwice:
		return protocol.CodeLeaseDelegation
	case lease.ReasonCritical:
		return protocol.CodeUnsupported
	case lease.ReasonAuthority:
		return protocol.CodeLeaseAuthority
	case lease.ReasonNotYet:
		return protocol.CodeLeaseNotYetValid
	case lease.ReasonExpired:
		return protocol.CodeLeaseExpired
	case lease.ReasonLife:
		return protocol.CodeLeaseTooLong
	case lease.ReasonRevoked:
		return protocol.CodeLeaseRevoked
	case lease.ReasonNoConnector:
		return protocol.CodeConnectorUnknown
	case lease.ReasonNoVersion:
		return protocol.CodeVersionUnknown
	case lease.ReasonNoCommand:
		return protocol.CodeCommandUnknown
	case lease.ReasonNone, lease.ReasonChain, lease.ReasonSize, lease.ReasonKeyType, lease.ReasonSignature,
		lease.ReasonPayloadType, lease.ReasonEncoding, lease.ReasonField, lease.ReasonIssuerKey,
		lease.ReasonUntrustedIssuer, lease.ReasonConnectorRule, lease.ReasonHolder, lease.ReasonGateway:
	}
	return protocol.CodeDenied
}

func revocationCode(r revocation.Reason) protocol.Code {
	if r.Precise() {
		return protocol.CodePolicyDenied
	}
	return protocol.CodeDenied
}

func (e *deniedError) refusal(cause error) *protocol.Refusal {
	r := &protocol.Refusal{Code: protocol.CodePolicyDenied, Cause: cause}
	switch e.decision.Reason {
	case policy.ReasonIssuer, policy.ReasonHolder:
		r.Code = protocol.CodeDenied // no lease of this issuer is of any use here
	case policy.ReasonRule:
	case policy.ReasonConnector:
		r.Code = protocol.CodeConnectorUnknown
	case policy.ReasonVersion:
		r.Code = protocol.CodeVersionUnknown
	case policy.ReasonCommand:
		r.Code = protocol.CodeCommandUnknown
	case policy.ReasonRoute:
		r.Code = routeCode(e.decision.Err)
	case policy.ReasonArgument:
		r.Code = protocol.CodeArgumentRejected
		var grammar *argv.Error // it never holds a caller's value unquoted
		if errors.As(e.decision.Err, &grammar) {
			r.Public = grammar.Error()
		}
	case policy.ReasonStdin:
		r.Code = protocol.CodeInputRejected
		var missing *argv.Error
		if errors.As(e.decision.Err, &missing) && missing.Kind == argv.FaultMissing {
			r.Public = "the command needs standard input"
		}
	case policy.ReasonFrozen:
		r.Public = "the owner's policy or the connector has changed since the invocation began"
	case policy.ReasonInternal:
		r.Code = protocol.CodeInternal
	}
	return r
}

func stateCode(s ledger.State) protocol.Code {
	switch s {
	case ledger.StateConflict:
		return protocol.CodeOperationConflict
	case ledger.StateExhausted:
		return protocol.CodeLeaseExhausted
	case ledger.StateUnknown:
		return protocol.CodeOutcomeUnknown
	case ledger.StateClosed:
		return protocol.CodeInvocationClosed
	case ledger.StateNotStarted:
		return protocol.CodeNotStarted
	case ledger.StatePending, ledger.StateRunning:
		return protocol.CodeBusy
	case ledger.StateNone:
		return protocol.CodeOperationUnknown
	case ledger.StateEnded:
	}
	return protocol.CodeInternal
}

// causeCode is for an operation that was stopped before anything ran.
func causeCode(c operation.Cause) protocol.Code {
	if code := c.Code(); code.CanRefuse() {
		return code
	}
	return protocol.CodeNotStarted
}

func routeCode(err error) protocol.Code {
	switch {
	case errors.Is(err, route.ErrNotFound), errors.Is(err, route.ErrUnavailable):
		return protocol.CodeRouteUnavailable
	case errors.Is(err, route.ErrAmbiguous):
		return protocol.CodeRouteAmbiguous
	case errors.Is(err, route.ErrIdentityMismatch):
		return protocol.CodeRouteChanged
	}
	return protocol.CodeInternal
}

// codeNamed finds the code that the ledger recorded by its name.
func codeNamed(s string) protocol.Code {
	if s == "" {
		return protocol.CodeOK
	}
	for c := protocol.CodeOK; c <= protocol.CodeInternal; c++ {
		if c.String() == s {
			return c
		}
	}
	return protocol.CodeInternal
}
