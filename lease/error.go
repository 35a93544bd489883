package lease

import (
	"errors"
	"fmt"

	"github.com/lendcli/lend/protocol/name"
)

// Reason names the check that refused a lease. The names (String) and their
// order, which is the order of the checks, are those of docs/lease.md.
type Reason uint8

// The reasons. Those up to ReasonGateway come before the holder has shown that
// the lease is its own, for this gateway, from an issuer that the owner trusts:
// a peer gets one uniform answer for all of them. The later ones are precise.
const (
	ReasonNone            Reason = iota
	ReasonChain                  // no lease, or more than MaxChain envelopes
	ReasonSize                   // an envelope is empty or larger than MaxEnvelope
	ReasonKeyType                // the signing key is not Ed25519
	ReasonSignature              // the signature is wrong, or of another domain
	ReasonPayloadType            // the envelope holds something else
	ReasonEncoding               // not the canonical encoding, or unknown fields
	ReasonField                  // a field is missing or out of its bounds
	ReasonIssuerKey              // signed by another key than the issuer's
	ReasonUntrustedIssuer        // the owner's policy does not list the issuer
	ReasonConnectorRule          // the issuer may not issue for this Connector
	ReasonHolder                 // presented by another peer than the holder
	ReasonGateway                // for another gateway
	ReasonDepth                  // more links than the policy lets the issuer's leases have
	ReasonLinkHolder             // a holder above the last is not one that the issuer may name
	ReasonLink                   // the root has a parent: it is no root
	ReasonDuplicate              // two links have the same lease ID
	ReasonParent                 // a link names another parent than the one above it
	ReasonLinkIssuer             // a link is not signed by the holder of its parent
	ReasonFinal                  // the parent may not be passed on
	ReasonDepthLeft              // a link leaves no fewer links than its parent
	ReasonInvocation             // a link is for another invocation than its parent
	ReasonHolderTwice            // a holder is in the chain twice
	ReasonCritical               // names a rule that this gateway does not know
	ReasonAuthority              // authority unset or unknown
	ReasonNotYet                 // before not-before, less the skew
	ReasonExpired                // at or after not-after
	ReasonLife                   // lives longer than the issuer may grant
	ReasonRevoked                // revoked
	ReasonNoConnector            // the lease grants no such Connector
	ReasonNoVersion              // … or not this version of it
	ReasonNoCommand              // … or not this command
	reasonEnd
)

// Precise tells whether the peer may learn the reason. spec: LEASE-32.
func (r Reason) Precise() bool { return r > ReasonGateway && r < reasonEnd }

func (r Reason) String() string { return r.text().code }

type reasonText struct{ code, text string }

func (r Reason) text() reasonText {
	if r >= reasonEnd {
		return reasonText{"LEASE_UNKNOWN", "refused"}
	}
	return [reasonEnd]reasonText{
		ReasonNone:            {"LEASE_UNKNOWN", "refused"},
		ReasonChain:           {"LEASE_CHAIN", "no lease, or too many envelopes"},
		ReasonSize:            {"LEASE_SIZE", "empty, or larger than 8 KiB"},
		ReasonKeyType:         {"LEASE_KEY_TYPE", "not signed by an Ed25519 key"},
		ReasonSignature:       {"LEASE_SIGNATURE", "the signature is wrong"},
		ReasonPayloadType:     {"LEASE_PAYLOAD_TYPE", "the envelope holds something else"},
		ReasonEncoding:        {"LEASE_ENCODING", "not in canonical encoding"},
		ReasonField:           {"LEASE_FIELD", "a field is missing or out of bounds"},
		ReasonIssuerKey:       {"LEASE_ISSUER_KEY", "signed by another key than the issuer's"},
		ReasonUntrustedIssuer: {"LEASE_UNTRUSTED_ISSUER", "the issuer is not trusted"},
		ReasonConnectorRule:   {"LEASE_ISSUER_CONNECTOR", "the issuer may not issue for this Connector"},
		ReasonHolder:          {"LEASE_NOT_HOLDER", "made out to another peer"},
		ReasonGateway:         {"LEASE_WRONG_GATEWAY", "made out for another gateway"},
		ReasonDepth:           {"LEASE_DEPTH", "passed on more often than the policy lets its issuer's leases"},
		ReasonLinkHolder:      {"LEASE_LINK_HOLDER", "passed on by a holder whom the issuer may not name"},
		ReasonLink:            {"LEASE_LINK", "the chain is incomplete: its root is missing"},
		ReasonDuplicate:       {"LEASE_DUPLICATE", "two links have the same ID"},
		ReasonParent:          {"LEASE_PARENT", "made for another parent than the link above it"},
		ReasonLinkIssuer:      {"LEASE_LINK_ISSUER", "not passed on by the holder of the link above it"},
		ReasonFinal:           {"LEASE_FINAL", "the link above it may not be passed on"},
		ReasonDepthLeft:       {"LEASE_DEPTH_LEFT", "leaves no fewer links than the one above it"},
		ReasonInvocation:      {"LEASE_INVOCATION", "for another invocation than the link above it"},
		ReasonHolderTwice:     {"LEASE_HOLDER_TWICE", "a holder is in the chain twice"},
		ReasonCritical:        {"LEASE_CRITICAL", "names a rule that the gateway does not know"},
		ReasonAuthority:       {"LEASE_AUTHORITY", "authority is unset or unknown"},
		ReasonNotYet:          {"LEASE_NOT_YET", "not valid yet"},
		ReasonExpired:         {"LEASE_EXPIRED", "expired"},
		ReasonLife:            {"LEASE_LIFE", "lives longer than its issuer may grant"},
		ReasonRevoked:         {"LEASE_REVOKED", "revoked"},
		ReasonNoConnector:     {"LEASE_NO_CONNECTOR", "grants no such Connector"},
		ReasonNoVersion:       {"LEASE_NO_VERSION", "does not grant this version"},
		ReasonNoCommand:       {"LEASE_NO_COMMAND", "does not grant this command"},
	}[r]
}

// Error says why a lease was refused. Its text holds nothing that came from a
// peer unless it is quoted; it is for the audit, not for a peer whose Reason is
// not Precise.
type Error struct {
	Reason Reason
	// Link is the position of the envelope in its chain, 0 for the root.
	Link int
	// Field is set with ReasonField: "holder", "grants[3].version", …
	Field string
	// Detail is more for the owner, constant or quoted; may be "".
	Detail string
}

func (e *Error) Error() string {
	s := "lease " + e.Reason.text().text
	if e.Link > 0 {
		s += fmt.Sprintf(" (link %d)", e.Link)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// at says which link of a chain err is about, if it is an *Error.
func at(link int, err error) error {
	var e *Error
	if link == 0 || !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Link = link
	return &c
}

func refuse(r Reason, detail string) *Error { return &Error{Reason: r, Detail: detail} }

func badField(field, rule string) *Error {
	return &Error{Reason: ReasonField, Field: field, Detail: rule}
}

func quotedPeer(p name.PeerID) string { return name.Quote(p.String()) }
