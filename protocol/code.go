package protocol

import "strconv"

// Code is a stable reason code: why an operation was refused, or why it ended
// other than by itself. Numbers are never reused. A receiver accepts a number
// that it does not know. spec: CODE-1
type Code uint16

// Stage names the check or the time that a code belongs to: "lease",
// "connector", "arguments", "policy", "operation", "route", "run", "link" or
// "gateway"; "" for a code that is not known.
type Stage string

// ResetBase is added to a code to make the number of a stream reset. A reset
// only repeats what a frame said. spec: CODE-3
const ResetBase = 0x10000

// The codes. Their texts, stages and exit statuses are in the table below and in
// docs/codes.md.
const (
	CodeOK Code = 0

	CodeDenied            Code = 100
	CodeLeaseNotYetValid  Code = 101
	CodeLeaseExpired      Code = 102
	CodeLeaseRevoked      Code = 103
	CodeLeaseExhausted    Code = 104
	CodeLeaseTooLong      Code = 105
	CodeLeaseTooOld       Code = 106
	CodeLeaseDelegation   Code = 107
	CodeLeaseAuthority    Code = 108
	CodeInvocationClosed  Code = 109
	CodeLeaseAtOnce       Code = 110
	CodeConnectorUnknown  Code = 200
	CodeVersionUnknown    Code = 201
	CodeCommandUnknown    Code = 202
	CodeArgumentRejected  Code = 300
	CodeInputRejected     Code = 301
	CodePolicyDenied      Code = 302
	CodeApprovalDenied    Code = 303
	CodeApprovalPending   Code = 304
	CodeOperationConflict Code = 400
	CodeOperationUnknown  Code = 401
	CodeNotStarted        Code = 402
	CodeOutcomeUnknown    Code = 403
	CodeSupplanted        Code = 404
	CodeBusy              Code = 500
	CodeRateLimited       Code = 501
	CodeRouteChanged      Code = 502
	CodeRouteUnavailable  Code = 503
	CodeRouteAmbiguous    Code = 504
	CodeGatewayLocked     Code = 505
	CodeShuttingDown      Code = 506
	CodeOutputLimit       Code = 600
	CodeInputLimit        Code = 601
	CodeTimeout           Code = 602
	CodeCancelled         Code = 603
	CodePolicyChanged     Code = 604
	CodeRouteRetired      Code = 605
	CodePeerGone          Code = 606
	CodeOwnerStopped      Code = 607
	CodeResourceLimit     Code = 608
	CodeProtocolViolation Code = 700
	CodeLimitedLink       Code = 701
	CodeUnsupported       Code = 702
	CodeInternal          Code = 703
)

// Exit statuses of lend run and the shims, beside the remote ones.
const (
	exitRetry     = 75
	exitStopped   = 124
	exitNotSent   = 125
	exitRefused   = 126
	exitNotFound  = 127
	exitCancelled = 130
	exitUnknown   = 255
)

// codeInfo is one row. refused and ended are the exit statuses of the code as a
// refusal (nothing ran) and as an end; 0 means that it is not used so.
type codeInfo struct {
	code           Code
	name           string
	stage          Stage
	retry          bool
	refused, ended int
	public         string
}

//nolint:gochecknoglobals // immutable table
var codes = []codeInfo{
	{CodeOK, "OK", "run", false, 0, 0, "the command ended by itself"},

	{CodeDenied, "DENIED", "lease", false, exitRefused, 0, "not permitted"},
	{CodeLeaseNotYetValid, "LEASE_NOT_YET_VALID", "lease", false, exitRefused, 0, "the lease is not valid yet"},
	{CodeLeaseExpired, "LEASE_EXPIRED", "lease", false, exitRefused, exitStopped, "the lease has expired"},
	{CodeLeaseRevoked, "LEASE_REVOKED", "lease", false, exitRefused, exitStopped, "the lease was revoked"},
	{CodeLeaseExhausted, "LEASE_EXHAUSTED", "lease", false, exitRefused, 0, "the lease allows no more operations"},
	{CodeLeaseTooLong, "LEASE_TOO_LONG", "lease", false, exitRefused, 0, "the lease lasts longer than the owner allows"},
	{CodeLeaseTooOld, "LEASE_TOO_OLD", "lease", false, exitRefused, 0, "the lease is older than the gateway's records"},
	{CodeLeaseDelegation, "LEASE_DELEGATION", "lease", false, exitRefused, 0, "the lease may not be passed on like this"},
	{CodeLeaseAuthority, "LEASE_AUTHORITY", "lease", false, exitRefused, 0, "the lease is for another authority"},
	{CodeInvocationClosed, "INVOCATION_CLOSED", "lease", false, exitRefused, 0, "the invocation is closed"},
	{CodeLeaseAtOnce, "LEASE_AT_ONCE", "lease", true, exitRetry, 0, "the lease allows no more operations at once"},

	{CodeConnectorUnknown, "CONNECTOR_UNKNOWN", "connector", false, exitNotFound, 0, "no such connector in the lease"},
	{CodeVersionUnknown, "VERSION_UNKNOWN", "connector", false, exitNotFound, 0, "no such version of the connector"},
	{CodeCommandUnknown, "COMMAND_UNKNOWN", "connector", false, exitNotFound, 0, "no such command of the connector"},

	{CodeArgumentRejected, "ARGUMENT_REJECTED", "arguments", false, exitRefused, 0, "an argument is not allowed"},
	{CodeInputRejected, "INPUT_REJECTED", "arguments", false, exitRefused, exitStopped, "the standard input is not allowed"},
	{CodePolicyDenied, "POLICY_DENIED", "policy", false, exitRefused, 0, "the owner's policy does not allow it"},
	{CodeApprovalDenied, "APPROVAL_DENIED", "policy", false, exitRefused, 0, "the owner declined"},
	{CodeApprovalPending, "APPROVAL_PENDING", "policy", true, exitRetry, 0, "the owner has not decided yet"},

	{CodeOperationConflict, "OPERATION_CONFLICT", "operation", false, exitRefused, 0, "the operation ID was used for another request"},
	{CodeOperationUnknown, "OPERATION_UNKNOWN", "operation", false, exitRefused, 0, "no such operation"},
	{CodeNotStarted, "NOT_STARTED", "operation", false, exitRefused, exitRefused, "the command could not be started; nothing ran"},
	{CodeOutcomeUnknown, "OUTCOME_UNKNOWN", "operation", false, exitUnknown, exitUnknown, "the command was started and its end is not known"},
	{CodeSupplanted, "SUPPLANTED", "operation", false, 0, exitUnknown, "another stream follows the operation now"},

	{CodeBusy, "BUSY", "gateway", true, exitRetry, 0, "the gateway is busy"},
	{CodeRateLimited, "RATE_LIMITED", "gateway", true, exitRetry, 0, "too many starts in a short time"},
	{CodeRouteChanged, "ROUTE_CHANGED", "route", true, exitRetry, 0, "the connector is being replaced"},
	{CodeRouteUnavailable, "ROUTE_UNAVAILABLE", "route", true, exitRetry, 0, "the connector is not ready"},
	{CodeRouteAmbiguous, "ROUTE_AMBIGUOUS", "route", false, exitRefused, 0, "several connections match; the owner must choose one"},
	{CodeGatewayLocked, "GATEWAY_LOCKED", "gateway", false, exitRefused, 0, "the gateway is locked until its owner acts"},
	{CodeShuttingDown, "SHUTTING_DOWN", "gateway", true, exitRetry, exitStopped, "the gateway is shutting down"},

	{CodeOutputLimit, "OUTPUT_LIMIT", "run", false, 0, exitStopped, "the command wrote more than is allowed"},
	{CodeInputLimit, "INPUT_LIMIT", "run", false, 0, exitStopped, "the input is longer than is allowed"},
	{CodeTimeout, "TIMEOUT", "run", false, 0, exitStopped, "the command ran longer than is allowed"},
	{CodeCancelled, "CANCELLED", "run", false, exitCancelled, exitCancelled, "cancelled by the caller"},
	{CodePolicyChanged, "POLICY_CHANGED", "run", false, 0, exitStopped, "the owner's policy no longer allows it"},
	{CodeRouteRetired, "ROUTE_RETIRED", "run", false, 0, exitStopped, "its owner replaced, disabled or removed the connector"},
	{CodePeerGone, "PEER_GONE", "run", false, 0, exitStopped, "the caller was gone for too long"},
	{CodeOwnerStopped, "OWNER_STOPPED", "run", false, 0, exitStopped, "the owner stopped it"},
	{CodeResourceLimit, "RESOURCE_LIMIT", "run", false, 0, exitStopped, "the command took more processes or memory than is allowed"},

	{CodeProtocolViolation, "PROTOCOL_VIOLATION", "link", false, exitRefused, exitStopped, "the caller broke the protocol"},
	{CodeLimitedLink, "LIMITED_LINK", "link", false, exitRefused, 0, "relayed links are not allowed"},
	{CodeUnsupported, "UNSUPPORTED", "link", false, exitRefused, 0, "the gateway does not do this"},
	{CodeInternal, "INTERNAL", "gateway", false, exitRefused, exitStopped, "the gateway failed"},
}

// Codes returns all codes that there are, in the order of the table. The caller owns
// the slice.
func Codes() []Code {
	out := make([]Code, len(codes))
	for i := range codes {
		out[i] = codes[i].code
	}
	return out
}

// info returns the row of c; a code that is not known is final, and refused or
// stopped. spec: CODE-1
func (c Code) info() codeInfo {
	for i := range codes {
		if codes[i].code == c {
			return codes[i]
		}
	}
	return codeInfo{
		code: c, name: "CODE_" + strconv.Itoa(int(c)),
		refused: exitRefused, ended: exitStopped, public: "a reason that this version does not know",
	}
}

// String returns the stable name ("LEASE_EXPIRED"), "CODE_n" if c is not known.
func (c Code) String() string { return c.info().name }

// Stage returns what the code belongs to, "" if c is not known.
func (c Code) Stage() Stage { return c.info().stage }

// Retryable tells whether the same request may succeed later.
func (c Code) Retryable() bool { return c.info().retry }

// Public returns the constant text for people.
func (c Code) Public() string { return c.info().public }

// CanRefuse tells whether a Refused frame may carry c.
func (c Code) CanRefuse() bool { return c != CodeOK && c.info().refused != 0 }

// CanEnd tells whether an Exit frame may carry c.
func (c Code) CanEnd() bool { return c == CodeOK || c.info().ended != 0 }

// ExitStatus returns the exit status of lend run when a refusal carries c; for a
// code that only ends operations it is EndStatus.
func (c Code) ExitStatus() int {
	if i := c.info(); i.refused != 0 {
		return i.refused
	}
	return c.EndStatus()
}

// EndStatus returns the exit status of lend run when an Exit carries c, 0 if c
// never does.
func (c Code) EndStatus() int { return c.info().ended }
