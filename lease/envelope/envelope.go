package envelope

import (
	"bytes"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"

	"github.com/lendcli/lend/protocol/name"
)

// MaxSize bounds a sealed envelope, in bytes.
const MaxSize = 8 << 10

// Kind is one kind of statement. The signature covers both, so that nothing that was
// signed elsewhere in libp2p, or as another kind, is one of this kind. Neither is
// empty.
type Kind struct{ Domain, PayloadType string }

// Message is an envelope that was opened.
type Message struct {
	// Payload is what was signed. It does not share memory with the envelope.
	Payload []byte
	signer  crypto.PubKey
}

// By tells whether the key of a peer signed the message. The zero Message is nobody's.
func (m Message) By(id name.PeerID) bool { return m.signer != nil && Owns(id, m.signer) }

// Owns tells whether a public key is that of a peer. No key is that of the zero ID.
func Owns(id name.PeerID, key crypto.PubKey) bool {
	raw, err := key.Raw()
	return err == nil && !id.IsZero() && bytes.Equal(raw, id.Key())
}

// payload is the record.Record: bytes, so that what was signed is what is parsed.
type payload struct {
	kind Kind
	b    []byte
}

func (p *payload) Domain() string                 { return p.kind.Domain }
func (p *payload) Codec() []byte                  { return []byte(p.kind.PayloadType) }
func (p *payload) MarshalRecord() ([]byte, error) { return p.b, nil }
func (p *payload) UnmarshalRecord(b []byte) error { p.b = b; return nil }

// Seal signs a payload with the Ed25519 key of issuer and returns the envelope, at
// most MaxSize bytes. The error is an *Error with FaultKeyType, FaultSigner or
// FaultSize, or one of the key's.
func (k Kind) Seal(b []byte, issuer name.PeerID, key crypto.PrivKey) ([]byte, error) {
	if key == nil || key.Type() != crypto.Ed25519 {
		return nil, refuse(FaultKeyType, "")
	}
	if !Owns(issuer, key.GetPublic()) {
		return nil, refuse(FaultSigner, "")
	}
	env, err := record.Seal(&payload{k, b}, key)
	if err != nil {
		return nil, fmt.Errorf("sign envelope: %w", err)
	}
	sealed, err := env.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	if e := CheckSize(sealed); e != nil {
		return nil, e
	}
	return sealed, nil
}

// start is how every canonical envelope with an Ed25519 key begins: the key message
// of 36 bytes, type 1, 32 bytes of key.
const start = "\x0a\x24\x08\x01\x12\x20"

// Open checks the form of an envelope and its signature, without any trust in whoever
// signed. The first check that fails decides. Keys of other types are costly to
// verify: they are refused before any cryptography.
func (k Kind) Open(b []byte) (Message, *Error) {
	if e := CheckSize(b); e != nil {
		return Message{}, e
	}
	switch {
	case b[0] != start[0]:
		return Message{}, refuse(FaultEncoding, "not a signed envelope")
	case !bytes.HasPrefix(b, []byte(start)):
		return Message{}, refuse(FaultKeyType, "")
	}
	p := &payload{kind: k}
	env, err := record.ConsumeTypedEnvelope(b, p)
	switch {
	case env == nil:
		return Message{}, refuse(FaultEncoding, "not a signed envelope")
	case err != nil:
		return Message{}, refuse(FaultSignature, "")
	case string(env.PayloadType) != k.PayloadType:
		return Message{}, refuse(FaultPayloadType, "")
	case !writes(env, b):
		return Message{}, refuse(FaultEncoding, "envelope is not canonical")
	}
	return Message{p.b, env.PublicKey}, nil
}

// CheckSize refuses, with FaultSize, what Open would refuse for its size alone: of
// several envelopes all can be looked at before the first signature is verified.
func CheckSize(b []byte) *Error {
	if len(b) == 0 || len(b) > MaxSize {
		return refuse(FaultSize, fmt.Sprintf("%d bytes", len(b)))
	}
	return nil
}

// writes tells whether b is what a writer of env writes.
func writes(env *record.Envelope, b []byte) bool {
	again, err := env.Marshal()
	return err == nil && bytes.Equal(again, b)
}
