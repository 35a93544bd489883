package revocation

import (
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/lendcli/lend/lease/envelope"
)

// kind keeps a lease, and what was signed elsewhere in libp2p, from being a
// revocation. spec: REVOKE-2.
func kind() envelope.Kind {
	return envelope.Kind{Domain: "lend/revocation/1", PayloadType: "/lend/revocation"}
}

// Seal signs s with its issuer's Ed25519 key and returns the envelope. It refuses,
// with an *Error, what no gateway would accept.
func Seal(s Statement, key crypto.PrivKey) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("seal revocation: %w", err)
	}
	b, err := s.encode()
	if err != nil {
		return nil, fmt.Errorf("seal revocation: %w", err)
	}
	sealed, err := kind().Seal(b, s.Issuer, key)
	var bad *envelope.Error
	switch {
	case errors.As(err, &bad):
		return nil, fmt.Errorf("seal revocation: %w", refusalOf(bad))
	case err != nil:
		return nil, fmt.Errorf("seal revocation: %w", err)
	}
	return sealed, nil
}

// Open reads a signed revocation: form, signature and signer's key are right, and
// nothing says that the signer may revoke anything. The error is an *Error.
// spec: REVOKE-1 to REVOKE-6.
func Open(b []byte) (Statement, error) {
	s, err := open(b)
	if err != nil {
		return Statement{}, err
	}
	return s, nil
}

func open(b []byte) (Statement, *Error) {
	m, bad := kind().Open(b)
	if bad != nil {
		return Statement{}, refusalOf(bad)
	}
	s, err := decode(m.Payload)
	if err != nil {
		return Statement{}, err
	}
	if !m.By(s.Issuer) {
		return Statement{}, refuse(ReasonIssuerKey, "")
	}
	return s, nil
}

func refusalOf(bad *envelope.Error) *Error {
	return refuse([...]Reason{
		envelope.FaultSize: ReasonSize, envelope.FaultKeyType: ReasonKeyType, envelope.FaultSignature: ReasonSignature,
		envelope.FaultPayloadType: ReasonPayloadType, envelope.FaultEncoding: ReasonEncoding, envelope.FaultSigner: ReasonIssuerKey,
	}[bad.Fault], bad.Detail)
}
