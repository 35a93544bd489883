package revocation

import (
	"bytes"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// The signature covers both, so that neither a lease nor anything that was signed
// elsewhere in libp2p is a revocation. spec: REVOKE-2.
const (
	domain      = "lend/revocation/1"
	payloadType = "/lend/revocation"
)

// payload is the record.Record: bytes, so that what was signed is what is parsed.
type payload struct{ b []byte }

func (*payload) Domain() string                   { return domain }
func (*payload) Codec() []byte                    { return []byte(payloadType) }
func (p *payload) MarshalRecord() ([]byte, error) { return p.b, nil }
func (p *payload) UnmarshalRecord(b []byte) error { p.b = b; return nil }

// Seal signs s with its issuer's Ed25519 key and returns the envelope. It refuses,
// with an *Error, what no gateway would accept.
func Seal(s Statement, key crypto.PrivKey) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("seal revocation: %w", err)
	}
	b, err := s.encode()
	if err != nil {
		return nil, err
	}
	if key == nil || key.Type() != crypto.Ed25519 {
		return nil, fmt.Errorf("seal revocation: %w", refuse(ReasonKeyType, ""))
	}
	if id, err := peerOf(key.GetPublic()); err != nil || id != s.Issuer {
		return nil, fmt.Errorf("seal revocation: %w", refuse(ReasonIssuerKey, ""))
	}
	env, err := record.Seal(&payload{b}, key)
	if err != nil {
		return nil, fmt.Errorf("seal revocation: %w", err)
	}
	sealed, err := env.Marshal()
	if err != nil {
		return nil, fmt.Errorf("seal revocation: %w", err)
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

// envelopeStart is how every canonical envelope with an Ed25519 key begins; keys of
// other types are costly to verify, and refused before.
const envelopeStart = "\x0a\x24\x08\x01\x12\x20"

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
	switch {
	case len(b) == 0 || len(b) > lease.MaxEnvelope:
		return Statement{}, refuse(ReasonSize, fmt.Sprintf("%d bytes", len(b)))
	case len(b) < 2 || b[0] != envelopeStart[0]:
		return Statement{}, refuse(ReasonEncoding, "not a signed envelope")
	case !bytes.HasPrefix(b, []byte(envelopeStart)):
		return Statement{}, refuse(ReasonKeyType, "")
	}
	p := new(payload)
	env, err := record.ConsumeTypedEnvelope(b, p)
	switch {
	case env == nil:
		return Statement{}, refuse(ReasonEncoding, "not a signed envelope")
	case err != nil:
		return Statement{}, refuse(ReasonSignature, "")
	case string(env.PayloadType) != payloadType:
		return Statement{}, refuse(ReasonPayloadType, "")
	}
	if again, err := env.Marshal(); err != nil || !bytes.Equal(again, b) {
		return Statement{}, refuse(ReasonEncoding, "envelope is not canonical")
	}
	s, bad := decode(p.b)
	if bad != nil {
		return Statement{}, bad
	}
	if signer, err := peerOf(env.PublicKey); err != nil || signer != s.Issuer {
		return Statement{}, refuse(ReasonIssuerKey, "")
	}
	return s, nil
}
