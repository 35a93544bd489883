package envelope

import (
	"bytes"
	"errors"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

var kind = Kind{"lend/test/1", "/lend/test"}

func identity(tb testing.TB, letter byte) (crypto.PrivKey, name.PeerID) {
	tb.Helper()
	key, _, err := crypto.GenerateEd25519Key(bytes.NewReader(bytes.Repeat([]byte{letter}, 64)))
	require.NoError(tb, err)
	raw, err := key.GetPublic().Raw()
	require.NoError(tb, err)
	id, err := name.PeerIDFromKey(raw)
	require.NoError(tb, err)
	return key, id
}

func foreignKey(tb testing.TB) crypto.PrivKey {
	tb.Helper()
	key, err := crypto.UnmarshalSecp256k1PrivateKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(tb, err)
	return key
}

func seal(tb testing.TB, payload string) []byte {
	tb.Helper()
	key, id := identity(tb, 'i')
	b, err := kind.Seal([]byte(payload), id, key)
	require.NoError(tb, err)
	return b
}

func TestSealedIsOpened(t *testing.T) {
	t.Parallel()
	_, id := identity(t, 'i')
	_, other := identity(t, 'x')
	for _, payload := range []string{"", "said"} {
		sealed := seal(t, payload)
		m, refused := kind.Open(sealed)
		require.Nil(t, refused)
		require.Equal(t, payload, string(m.Payload))
		require.True(t, m.By(id))
		require.False(t, m.By(other))
		require.False(t, m.By(name.PeerID{}))
		clear(sealed)
		require.Equal(t, payload, string(m.Payload), "of its own")
	}
	require.False(t, Message{}.By(id))
	require.False(t, Message{}.By(name.PeerID{}))
}

// TestOpenRefuses: each fault, by its own name and words.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	good := seal(t, "said")
	changed := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	foreign, err := record.Seal(&payload{kind, []byte("said")}, foreignKey(t))
	require.NoError(t, err)
	foreignBytes, err := foreign.Marshal()
	require.NoError(t, err)
	key, _ := identity(t, 'i')
	otherType, err := record.Seal(&payload{Kind{kind.Domain, "/lend/other"}, nil}, key)
	require.NoError(t, err)
	otherTypeBytes, err := otherType.Marshal()
	require.NoError(t, err)
	for title, c := range map[string]struct {
		b    []byte
		want Error
	}{
		"empty":         {nil, Error{FaultSize, "0 bytes"}},
		"large":         {append(bytes.Clone(good), make([]byte, MaxSize+1-len(good))...), Error{FaultSize, "8193 bytes"}},
		"text":          {[]byte("hello"), Error{FaultEncoding, "not a signed envelope"}},
		"one-byte":      {good[:1], Error{FaultKeyType, ""}},
		"foreign-key":   {foreignBytes, Error{FaultKeyType, ""}},
		"long-key":      {changed(1), Error{FaultKeyType, ""}},
		"cut":           {good[:len(good)-1], Error{FaultEncoding, "not a signed envelope"}},
		"signature":     {changed(len(good) - 1), Error{FaultSignature, ""}},
		"payload":       {changed(bytes.Index(good, []byte("said"))), Error{FaultSignature, ""}},
		"other-type":    {otherTypeBytes, Error{FaultPayloadType, ""}},
		"unknown-field": {append(bytes.Clone(good), 0x30, 0x01), Error{FaultEncoding, "envelope is not canonical"}},
	} {
		m, refused := kind.Open(c.b)
		require.Equal(t, &c.want, refused, title)
		require.Equal(t, Message{}, m, title)
	}
	_, refused := Kind{"lend/other/1", kind.PayloadType}.Open(good)
	require.Equal(t, &Error{FaultSignature, ""}, refused, "another domain")
	require.Nil(t, CheckSize(good))
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	key, id := identity(t, 'i')
	_, other := identity(t, 'x')
	for title, c := range map[string]struct {
		payload []byte
		issuer  name.PeerID
		key     crypto.PrivKey
		want    Fault
	}{
		"no-key":      {nil, id, nil, FaultKeyType},
		"foreign-key": {nil, id, foreignKey(t), FaultKeyType},
		"other-key":   {nil, other, key, FaultSigner},
		"nobody":      {nil, name.PeerID{}, key, FaultSigner},
		"large":       {make([]byte, MaxSize), id, key, FaultSize},
	} {
		b, err := kind.Seal(c.payload, c.issuer, c.key)
		var e *Error
		require.ErrorAs(t, err, &e, title)
		require.Equal(t, c.want, e.Fault, title)
		require.Nil(t, b, title)
	}
}

// brokenKey cannot say what it is, or says it and an error.
type brokenKey struct {
	crypto.PubKey
	raw []byte
	err error
}

func (k brokenKey) Raw() ([]byte, error) { return k.raw, k.err }

// TestKeyThatCannotBeRead is nobody's, and in no envelope.
func TestKeyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	key, id := identity(t, 'i')
	broken := errors.New("broken")
	require.True(t, Owns(id, brokenKey{key.GetPublic(), id.Key(), nil}))
	require.False(t, Owns(id, brokenKey{key.GetPublic(), id.Key(), broken}))
	require.False(t, Owns(id, brokenKey{key.GetPublic(), nil, nil}))
	require.False(t, Owns(name.PeerID{}, brokenKey{key.GetPublic(), nil, nil}), "nobody has no key")
	env, err := record.Seal(&payload{kind, nil}, key)
	require.NoError(t, err)
	b, err := env.Marshal()
	require.NoError(t, err)
	require.True(t, writes(env, b))
	env.PublicKey = brokenKey{env.PublicKey, nil, broken}
	require.False(t, writes(env, nil), "what cannot be written is not nothing")
}

// TestDecodeAcceptsOneEncoding: what is wrong is said, at any depth.
func TestDecodeAcceptsOneEncoding(t *testing.T) {
	t.Parallel()
	m := &lendv1.Lease{Version: 1, Purpose: "said", Grants: []*lendv1.LeaseGrant{{Connector: "a"}, {Connector: "b"}}}
	good, err := Encode(m)
	require.NoError(t, err)
	more := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	m.GetGrants()[0].ProtoReflect().SetUnknown(more)
	nested, err := Encode(m)
	require.NoError(t, err)
	frame := &lendv1.RunFrame{Frame: &lendv1.RunFrame_Start{Start: &lendv1.Start{Version: "1"}}}
	frame.GetStart().ProtoReflect().SetUnknown(more)
	deep, err := Encode(frame)
	require.NoError(t, err)
	for title, c := range map[string]struct {
		b    []byte
		into proto.Message
		want string
	}{
		"cut":         {good[:len(good)-1], new(lendv1.Lease), "not a protobuf message of this kind"},
		"not-utf-8":   {bytes.Replace(good, []byte("said"), []byte("s\xffid"), 1), new(lendv1.Lease), "not a protobuf message of this kind"},
		"more":        {append(bytes.Clone(good), more...), new(lendv1.Lease), "unknown fields"},
		"more-nested": {nested, new(lendv1.Lease), "unknown fields"},
		"more-deep":   {deep, new(lendv1.RunFrame), "unknown fields"},
		"twice":       {append(bytes.Clone(good), good[:2]...), new(lendv1.Lease), "payload is not canonical"},
	} {
		require.Equal(t, &Error{FaultEncoding, c.want}, Decode(c.b, c.into), title)
	}
	require.Nil(t, Decode(good, new(lendv1.Lease)))
}

// TestWhatIsNotTextIsNotEncoded, and its encoding is not the empty one.
func TestWhatIsNotTextIsNotEncoded(t *testing.T) {
	t.Parallel()
	m := &lendv1.Lease{Purpose: "\xff"}
	b, err := Encode(m)
	require.Error(t, err)
	require.Nil(t, b)
	require.False(t, encodes(m, nil))
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "envelope: refused", (&Error{}).Error())
	require.Equal(t, "envelope: empty, or larger than 8 KiB: 0 bytes", CheckSize(nil).Error())
	require.Equal(t, "envelope: signed by another key", (&Error{Fault: FaultSigner}).Error())
	require.Equal(t, "envelope: signed by another key", (&Error{Fault: 200}).Error())
}

func FuzzOpen(f *testing.F) {
	f.Add(seal(f, ""))
	f.Add(seal(f, "said"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, refused := kind.Open(b)
		if refused != nil {
			require.Equal(t, Message{}, m)
			return
		}
		require.LessOrEqual(t, len(b), MaxSize)
		require.True(t, bytes.HasPrefix(b, []byte(start)))
	})
}
