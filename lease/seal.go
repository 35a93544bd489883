package lease

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/lendcli/lend/lease/envelope"
	"github.com/lendcli/lend/protocol/name"
)

// kind keeps what was signed elsewhere in libp2p, or for another purpose of lend, from
// being a lease. spec: LEASE-2, LEASE-5.
func kind() envelope.Kind { return envelope.Kind{Domain: "lend/lease/1", PayloadType: "/lend/lease"} }

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
		return nil, fmt.Errorf("seal lease: %w", err)
	}
	sealed, err := kind().Seal(b, l.Issuer, key)
	var bad *envelope.Error
	switch {
	case errors.As(err, &bad):
		return nil, fmt.Errorf("seal lease: %w", refusalOf(bad))
	case err != nil:
		return nil, fmt.Errorf("seal lease: %w", err)
	}
	return sealed, nil
}

// openEnvelope checks one envelope and its payload, without any trust in the
// issuer. The order is that of docs/lease.md. spec: LEASE-1 to LEASE-15.
func openEnvelope(b []byte) (Lease, error) {
	m, bad := kind().Open(b)
	if bad != nil {
		return Lease{}, refusalOf(bad)
	}
	l, err := decode(m.Payload)
	if err != nil {
		return Lease{}, err
	}
	if !m.By(l.Issuer) {
		return Lease{}, refuse(ReasonIssuerKey, "")
	}
	return l, nil
}

// openChain opens every envelope, root first, and returns the leases. No signature is
// verified before all sizes are known to be right. spec: LEASE-1.
func openChain(chain [][]byte) ([]Lease, error) {
	if len(chain) == 0 || len(chain) > MaxChain {
		return nil, refuse(ReasonChain, fmt.Sprintf("%d envelopes", len(chain)))
	}
	for i, b := range chain {
		if bad := envelope.CheckSize(b); bad != nil {
			return nil, at(i, refusalOf(bad))
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

func refusalOf(bad *envelope.Error) *Error {
	return refuse([...]Reason{
		envelope.FaultSize: ReasonSize, envelope.FaultKeyType: ReasonKeyType, envelope.FaultSignature: ReasonSignature,
		envelope.FaultPayloadType: ReasonPayloadType, envelope.FaultEncoding: ReasonEncoding, envelope.FaultSigner: ReasonIssuerKey,
	}[bad.Fault], bad.Detail)
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
