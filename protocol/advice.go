package protocol

// Advice returns what a caller can do about a refusal or an end with c, or whom to ask
// for what: one constant sentence without a full stop, "" if there is nothing to do or
// c is not known. It tells no more than the code does: the owner's reasons are in the
// owner's audit.
func (c Code) Advice() string {
	switch c {
	case CodeDenied:
		return "ask the owner whether the policy names this machine (lend id) and who issued the lease, and what lend audit show says"
	case CodeLeaseNotYetValid:
		return "try again when it is (lend lease show), and look at this machine's clock"
	case CodeLeaseExpired, CodeLeaseRevoked, CodeLeaseTooOld:
		return "ask whoever issued the lease for a new one"
	case CodeLeaseExhausted:
		return "ask whoever issued the lease for one with more operations"
	case CodeLeaseTooLong:
		return "ask whoever issued the lease for one with a shorter life"
	case CodeLeaseDelegation:
		return "ask the owner for a lease that is made out to this machine, or to allow passing on"
	case CodeLeaseAuthority:
		return "ask whoever issued the lease for one of the owner's authority"
	case CodeInvocationClosed:
		return "ask whoever issued the lease for one of a new invocation"
	case CodeLeaseAtOnce:
		return "wait until one of the running commands has ended, or ask for a lease that allows more at once"
	case CodeConnectorUnknown, CodeCommandUnknown:
		return "lend catalog lists what is lent; ask the owner for more"
	case CodeVersionUnknown:
		return "lend catalog lists the versions; ask the owner for a lease of the one that is installed"
	case CodeArgumentRejected:
		return "lend run --help KEY COMMAND tells what the command takes; ask the owner for more"
	case CodeInputRejected:
		return "lend run --help KEY COMMAND tells whether the command takes input, and which"
	case CodePolicyDenied, CodePolicyChanged:
		return "ask the owner to allow it again, or to tell what is allowed; lend catalog lists it"
	case CodeApprovalDenied:
		return "ask the owner"
	case CodeApprovalPending:
		return "ask the owner to decide, and try again with the same operation ID"
	case CodeOperationConflict:
		return "use a new operation ID for another request"
	case CodeOperationUnknown:
		return "ask with a lease of the same invocation"
	case CodeNotStarted:
		return "another operation ID may be tried; if it stays so, ask the owner to look at lend doctor"
	case CodeOutcomeUnknown:
		return "ask the owner what lend audit show says before it is run again under another operation ID"
	case CodeBusy, CodeRateLimited, CodeShuttingDown, CodeRouteChanged:
		return "try again later"
	case CodeRouteUnavailable:
		return "try again later; if it stays so, ask the owner to look at lend doctor"
	case CodeRouteAmbiguous:
		return "ask the owner to name a connection in the policy"
	case CodeGatewayLocked:
		return "ask the owner to look at lend status"
	case CodeOutputLimit:
		return "ask for less at once, or the owner for a higher limit"
	case CodeInputLimit:
		return "send less, or ask the owner for a higher limit"
	case CodeTimeout:
		return "ask for less at once, or the owner for more time"
	case CodeResourceLimit:
		return "ask for less at once, or the owner for more processes or memory"
	case CodeRouteRetired:
		return "lend catalog lists what is lent now; ask the owner whether the connector is disabled"
	case CodePeerGone:
		return "look at the link; the owner can let commands outlive it for longer"
	case CodeOwnerStopped:
		return "ask the owner"
	case CodeProtocolViolation, CodeUnsupported:
		return "compare lend version on both machines"
	case CodeLimitedLink:
		return "ask the owner for an address without a relay, or to allow relayed links"
	case CodeInternal:
		return "ask the owner to look at the gateway's log and at lend doctor"
	case CodeOK, CodeCancelled, CodeSupplanted:
	}
	return ""
}
