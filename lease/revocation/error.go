package revocation

import "fmt"

// Reason names the check that refused a signed revocation. Their order is that of
// the checks, and of docs/revocation.md.
type Reason uint8

// The reasons. Those up to ReasonGateway come before the signer has shown that it
// has anything to say here: a peer gets one uniform answer for all of them.
const (
	ReasonNone        Reason = iota
	ReasonSize               // empty, or larger than lease.MaxEnvelope
	ReasonKeyType            // the signing key is not Ed25519
	ReasonSignature          // the signature is wrong, or of another domain
	ReasonPayloadType        // the envelope holds something else
	ReasonEncoding           // not the canonical encoding, or unknown fields
	ReasonField              // a field is missing or out of its bounds
	ReasonIssuerKey          // signed by another key than the issuer's
	ReasonUntrusted          // neither the owner nor an issuer that the policy lists
	ReasonGateway            // for another gateway
	ReasonNotOwn             // an issuer names the leases of another
	ReasonFuture             // signed later than now, more than the skew
	ReasonOld                // signed so long ago that all that it was about is over
	reasonEnd
)

// Precise tells whether the peer may learn the reason. spec: REVOKE-12.
func (r Reason) Precise() bool { return r > ReasonGateway && r < reasonEnd }

func (r Reason) String() string { return r.texts()[0] }

func (r Reason) texts() [2]string {
	if r >= reasonEnd {
		r = ReasonNone
	}
	return [reasonEnd][2]string{
		ReasonNone:        {"REVOCATION_UNKNOWN", "refused"},
		ReasonSize:        {"REVOCATION_SIZE", "empty, or larger than 8 KiB"},
		ReasonKeyType:     {"REVOCATION_KEY_TYPE", "not signed by an Ed25519 key"},
		ReasonSignature:   {"REVOCATION_SIGNATURE", "the signature is wrong"},
		ReasonPayloadType: {"REVOCATION_PAYLOAD_TYPE", "the envelope holds something else"},
		ReasonEncoding:    {"REVOCATION_ENCODING", "not in canonical encoding"},
		ReasonField:       {"REVOCATION_FIELD", "a field is missing or out of bounds"},
		ReasonIssuerKey:   {"REVOCATION_ISSUER_KEY", "signed by another key than the issuer's"},
		ReasonUntrusted:   {"REVOCATION_UNTRUSTED", "signed by nobody who may revoke here"},
		ReasonGateway:     {"REVOCATION_WRONG_GATEWAY", "made out for another gateway"},
		ReasonNotOwn:      {"REVOCATION_NOT_OWN", "an issuer revokes its own leases only"},
		ReasonFuture:      {"REVOCATION_FUTURE", "signed in the future: compare the clocks"},
		ReasonOld:         {"REVOCATION_OLD", "signed too long ago: sign it again"},
	}[r]
}

// Error says why a signed revocation was refused. Its text holds nothing that came
// from a peer unless it is quoted.
type Error struct {
	Reason Reason
	// Field is set with ReasonField.
	Field string
	// Detail is more for the owner, constant or quoted; may be "".
	Detail string
}

func (e *Error) Error() string {
	s := "revocation: " + e.Reason.texts()[1]
	for _, more := range []string{e.Field, e.Detail} {
		if more != "" {
			s += ": " + more
		}
	}
	return s
}

// Public is what the peer may be told; "" unless the Reason is Precise.
func (e *Error) Public() string {
	if !e.Reason.Precise() {
		return ""
	}
	return fmt.Sprintf("the revocation was not accepted: %s", e.Reason.texts()[1])
}

func refuse(r Reason, detail string) *Error { return &Error{Reason: r, Detail: detail} }

func badField(field, rule string) *Error {
	return &Error{Reason: ReasonField, Field: field, Detail: rule}
}
