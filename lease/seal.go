package lease

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"

	"github.com/lendcli/lend/protocol/name"
)

// The signature covers both, so nothing that was signed elsewhere in libp2p, or
// for another purpose of lend, is a lease. spec: LEASE-2.
const (
	domain      = "lend/lease/1"
	payloadType = "/lend/lease"
)

// payload is the record.Record of a lease: bytes, so that what was signed is
// what is parsed.
type payload struct{ b []byte }

func (*payload) Domain() string                   { return domain }
func (*payload) Codec() []byte                    { return []byte(payloadType) }
func (p *payload) MarshalRecord() ([]byte, error) { return p.b, nil }
func (p *payload) UnmarshalRecord(b []byte) error { p.b = b; return nil }

// Seal signs l with its issuer's Ed25519 key and returns the envelope, at most
// MaxEnvelope bytes. It sorts what has an order and cuts times to milliseconds in
// a copy. It refuses, with an *Error, what every Verifier would refuse.
func Seal(l Lease, key crypto.PrivKey) ([]byte, error) {
	l = l.sorted()
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("seal lease: %w", err)
	}
	if err := l.acceptable(); err != nil {
		return nil, fmt.Errorf("seal lease: %w", err)
	}
	b, err := l.encode()
	if err != nil {
		return nil, err
	}
	return sealPayload(b, l.Issuer, key)
}

func sealPayload(b []byte, issuer name.PeerID, key crypto.PrivKey) ([]byte, error) {
	if key == nil || key.Type() != crypto.Ed25519 {
		return nil, fmt.Errorf("seal lease: %w", refuse(ReasonKeyType, ""))
	}
	if id, err := peerOf(key.GetPublic()); err != nil || id != issuer {
		return nil, fmt.Errorf("seal lease: %w", refuse(ReasonIssuerKey, ""))
	}
	env, err := record.Seal(&payload{b}, key)
	if err != nil {
		return nil, fmt.Errorf("seal lease: %w", err)
	}
	sealed, err := env.Marshal()
	if err != nil {
		return nil, fmt.Errorf("seal lease: %w", err)
	}
	if len(sealed) > MaxEnvelope {
		return nil, fmt.Errorf("seal lease: %w", refuse(ReasonSize, fmt.Sprintf("%d bytes", len(sealed))))
	}
	return sealed, nil
}

func peerOf(key crypto.PubKey) (name.PeerID, error) {
	raw, err := key.Raw()
	if err != nil {
		return name.PeerID{}, fmt.Errorf("read public key: %w", err)
	}
	return name.PeerIDFromKey(raw)
}

// openEnvelope checks one envelope and its payload, without any trust in the
// issuer. The order is that of docs/lease.md. spec: LEASE-1 to LEASE-15.
func openEnvelope(b []byte) (Lease, error) {
	if len(b) == 0 || len(b) > MaxEnvelope {
		return Lease{}, refuse(ReasonSize, fmt.Sprintf("%d bytes", len(b)))
	}
	if err := checkEnvelope(b); err != nil {
		return Lease{}, err
	}
	p := new(payload)
	env, err := record.ConsumeTypedEnvelope(b, p)
	if env == nil {
		return Lease{}, refuse(ReasonEncoding, "not a signed envelope")
	}
	if err != nil {
		return Lease{}, refuse(ReasonSignature, "")
	}
	if string(env.PayloadType) != payloadType {
		return Lease{}, refuse(ReasonPayloadType, "")
	}
	if again, err := env.Marshal(); err != nil || !bytes.Equal(again, b) {
		return Lease{}, refuse(ReasonEncoding, "envelope is not canonical")
	}
	l, err := decode(p.b)
	if err != nil {
		return Lease{}, err
	}
	if signer, err := peerOf(env.PublicKey); err != nil || signer != l.Issuer {
		return Lease{}, refuse(ReasonIssuerKey, "")
	}
	return l, nil
}

// openChain opens every envelope, root first, and returns the leases.
func openChain(chain [][]byte) ([]Lease, error) {
	if len(chain) == 0 || len(chain) > MaxChain {
		return nil, refuse(ReasonChain, fmt.Sprintf("%d envelopes", len(chain)))
	}
	for i, b := range chain {
		if len(b) == 0 || len(b) > MaxEnvelope {
			return nil, &Error{Reason: ReasonSize, Link: i, Detail: fmt.Sprintf("%d bytes", len(b))}
		}
	}
	leases := make([]Lease, 0, len(chain))
	for i, b := range chain {
		l, err := openEnvelope(b)
		if err != nil {
			return nil, at(i, err)
		}
		leases = append(leases, l)
	}
	return leases, nil
}

// acceptable refuses what this version does not understand. spec: LEASE-22,
// LEASE-23.
func (l *Lease) acceptable() error {
	if len(l.Critical) > 0 {
		return refuse(ReasonCritical, name.Quote(l.Critical[0]))
	}
	if l.Authority != AuthorityOwner {
		return refuse(ReasonAuthority, l.Authority.String())
	}
	return nil
}

// envelopeHash is the SHA-256 of one sealed lease: what Parent of a link names.
func envelopeHash(sealed []byte) [32]byte { return sha256.Sum256(sealed) }
