package revocation

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/envelope"
	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

var update = flag.Bool("update", false, "write testdata again")

// testIdentity is a fixed key pair; the letters of the tests are owner 'o', issuer
// 'i', gateway 'g', holder 'h' and others.
func testIdentity(letter byte) (crypto.PrivKey, name.PeerID) {
	key, _, err := crypto.GenerateEd25519Key(bytes.NewReader(bytes.Repeat([]byte{letter}, 64)))
	if err != nil {
		panic(err)
	}
	return key, must(name.PeerIDFromKey(must(key.GetPublic().Raw())))
}

func named(letter byte) name.PeerID {
	_, id := testIdentity(letter)
	return id
}

// statement is what the issuer 'i' says of one of its leases.
func statement(edit ...func(*Statement)) Statement {
	s := Statement{
		ID: lease.ID{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6}, Issuer: named('i'), Gateway: named('g'), At: testTime,
		Entry: Entry{Lease: lease.ID{1, 2, 3}, IssuedBefore: testTime.Add(-time.Minute)},
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func sealedBy(letter byte, edit ...func(*Statement)) []byte {
	key, id := testIdentity(letter)
	s := statement(edit...)
	s.Issuer = id
	return must(Seal(s, key))
}

// rawRecord is any payload under any domain and type.
type rawRecord struct{ domain, codec, payload string }

func (r *rawRecord) Domain() string                 { return r.domain }
func (r *rawRecord) Codec() []byte                  { return []byte(r.codec) }
func (r *rawRecord) MarshalRecord() ([]byte, error) { return []byte(r.payload), nil }
func (r *rawRecord) UnmarshalRecord([]byte) error   { return nil }

func sealRaw(r rawRecord, key crypto.PrivKey) []byte {
	return must(must(record.Seal(&r, key)).Marshal())
}

// vector is one file of testdata/vectors; docs/revocation.md §6 has the form.
type vector struct {
	name, comment  string
	expect         Reason // ReasonNone: ok
	gateway, owner name.PeerID
	issuers        []name.PeerID
	now            time.Time
	kept           string
	envelope       []byte
}

func (v *vector) text() []byte {
	var b bytes.Buffer
	put := func(k, s string) { fmt.Fprintf(&b, "%s: %s\n", k, s) }
	expect := "ok"
	if v.expect != ReasonNone {
		expect = v.expect.String()
	}
	put("comment", v.comment)
	put("expect", expect)
	put("gateway", v.gateway.String())
	if !v.owner.IsZero() {
		put("owner", v.owner.String())
	}
	for _, i := range v.issuers {
		put("issuer", i.String())
	}
	put("now", v.now.Format(time.RFC3339Nano))
	if v.kept != "" {
		put("kept", v.kept)
	}
	fmt.Fprintf(&b, "\n%s\n", hex.EncodeToString(v.envelope))
	return b.Bytes()
}

func readVector(t *testing.T, file string) *vector {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	v := &vector{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() && sc.Text() != "" {
		key, value, ok := strings.Cut(sc.Text(), ": ")
		require.True(t, ok, sc.Text())
		switch key {
		case "comment":
			v.comment = value
		case "expect":
			v.expect, ok = reasonByName(value)
			require.True(t, ok, value)
		case "gateway":
			v.gateway = must(name.ParsePeerID(value))
		case "owner":
			v.owner = must(name.ParsePeerID(value))
		case "issuer":
			v.issuers = append(v.issuers, must(name.ParsePeerID(value)))
		case "now":
			v.now = must(time.Parse(time.RFC3339Nano, value))
		case "kept":
			v.kept = value
		default:
			require.Fail(t, "unknown header", key)
		}
	}
	require.True(t, sc.Scan())
	v.envelope = must(hex.DecodeString(sc.Text()))
	require.False(t, sc.Scan())
	return v
}

func reasonByName(s string) (Reason, bool) {
	for r := ReasonNone + 1; r < reasonEnd; r++ {
		if r.String() == s {
			return r, true
		}
	}
	return ReasonNone, s == "ok"
}

func (v *vector) authority() *Authority {
	return &Authority{
		Gateway: v.gateway, Owner: v.owner, Now: func() time.Time { return v.now },
		Listed: func(p name.PeerID) bool { return slices.Contains(v.issuers, p) },
	}
}

// TestVectors checks every file, and with -update writes them again; it is an error
// if one is not among those that the test makes.
//
// spec: REVOKE-1, REVOKE-2, REVOKE-3, REVOKE-4, REVOKE-5, REVOKE-6, REVOKE-7,
// REVOKE-8, REVOKE-9, REVOKE-10, REVOKE-11
func TestVectors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "vectors")
	made := vectors()
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for _, v := range made {
			require.NoError(t, os.WriteFile(filepath.Join(dir, v.name+".txt"), v.text(), 0o644))
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	require.NoError(t, err)
	require.Len(t, files, len(made))
	seen := make(map[Reason]bool)
	for _, want := range made {
		t.Run(want.name, func(t *testing.T) {
			file := filepath.Join(dir, want.name+".txt")
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want.text()), string(b), "the same bytes are made today")
			v := readVector(t, file)
			require.Equal(t, want, v)
			seen[v.expect] = true
			e, s, err := v.authority().Accept(v.envelope)
			if v.expect == ReasonNone {
				require.NoError(t, err)
				require.Equal(t, v.kept, e.line())
				require.Equal(t, v.envelope, resealed(t, s), "accepted bytes are those that would be written")
				return
			}
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, v.expect.String(), refused.Reason.String())
			require.Equal(t, Entry{}, e)
			require.Equal(t, Statement{}, s)
		})
	}
	for r := ReasonNone; r < reasonEnd; r++ {
		require.True(t, seen[r], "a vector for %s", r)
	}
}

func resealed(t *testing.T, s Statement) []byte {
	t.Helper()
	for _, letter := range []byte("oixhg") {
		if key, id := testIdentity(letter); id == s.Issuer {
			return must(Seal(s, key))
		}
	}
	require.Fail(t, "signed by a key of no test")
	return nil
}

func vectors() []*vector {
	var out []*vector
	add := func(label, comment string, expect Reason, envelope []byte) *vector {
		v := &vector{
			name: label, comment: comment, expect: expect, gateway: named('g'), owner: named('o'),
			now: testTime, issuers: []name.PeerID{named('i')}, envelope: envelope,
		}
		out = append(out, v)
		return v
	}
	accepted := func(label, comment string, envelope []byte) *vector {
		v := add(label, comment, ReasonNone, envelope)
		s := must(Open(envelope))
		if s.Issuer != v.owner {
			s.Entry.Issuer = s.Issuer
		}
		v.kept = ptr(s.Entry.Kept(v.now)).line()
		return v
	}
	good := sealedBy('i')
	issuer, _ := testIdentity('i')
	text := string(must(ptr(statement()).encode()))

	accepted("ok", "an issuer revokes one of its leases", good)
	accepted("ok-invocation", "an issuer's invocation, for good", sealedBy('i', func(s *Statement) { s.Entry = Entry{Invocation: invocation("run-1")} }))
	accepted("ok-holder", "an issuer's leases for one holder", sealedBy('i', func(s *Statement) { s.Entry = Entry{Holder: named('h')} }))
	accepted("ok-own", "an issuer names itself", sealedBy('i', func(s *Statement) { s.Entry = Entry{Issuer: named('i')} }))
	accepted("ok-all", "an issuer's leases until now and the skew", sealedBy('i', func(s *Statement) { s.Entry = Entry{IssuedBefore: testTime.Add(MaxAhead)} }))
	accepted("ok-owner", "the owner revokes another's lease", sealedBy('o', func(s *Statement) { s.Entry.Issuer = named('x') }))
	accepted("ok-owner-all", "the owner revokes everything", sealedBy('o', func(s *Statement) { s.Entry = Entry{IssuedBefore: testTime} }))
	accepted("ok-skew", "signed 30 s after now", sealedBy('i', func(s *Statement) { s.At = testTime.Add(lease.DefaultSkew) }))
	accepted("ok-old", "signed 24 h and 30 s before", sealedBy('i', func(s *Statement) {
		s.At = testTime.Add(-lease.HardCap - lease.DefaultSkew)
		s.Entry.IssuedBefore = time.Time{}
	}))

	add("size-empty", "an empty envelope", ReasonSize, []byte{})
	add("size-8193", "8193 bytes", ReasonSize, append(bytes.Clone(good), make([]byte, lease.MaxEnvelope+1-len(good))...))
	add("encoding-no-envelope", "not a message", ReasonEncoding, []byte("hello"))
	add("encoding-truncated", "the last byte is gone", ReasonEncoding, good[:len(good)-1])
	add("encoding-envelope-trailing", "an unknown field after the signature", ReasonEncoding, append(bytes.Clone(good), 0x30, 0x01))
	add("key-secp256k1", "a secp256k1 key", ReasonKeyType, sealRaw(rawRecord{kind().Domain, kind().PayloadType, text}, must(crypto.UnmarshalSecp256k1PrivateKey(bytes.Repeat([]byte{7}, 32)))))
	add("signature-flipped", "one bit of the signature", ReasonSignature, flip(good, len(good)-1))
	add("signature-gateway-flipped", "one bit of the gateway", ReasonSignature, flip(good, bytes.Index(good, []byte(named('g').String()))+20))
	add("signature-lease-domain", "signed as a lease", ReasonSignature, sealRaw(rawRecord{"lend/lease/1", kind().PayloadType, text}, issuer))
	add("payload-type", "signed under the domain, but of another type", ReasonPayloadType, sealRaw(rawRecord{kind().Domain, "/lend/lease", text}, issuer))
	for label, p := range map[string]string{
		"not-a-message":   "\xff\xff",
		"unknown-field":   text + string(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)),
		"duplicate-field": text + "\x08\x01",
		"long-varint":     "\x08\x81\x00" + text[2:],
		"default-value":   text + "\x42\x00",
		"order":           text[2:] + text[:2],
	} {
		add("encoding-"+label, "payload "+strings.ReplaceAll(label, "-", " "), ReasonEncoding, sealRaw(rawRecord{kind().Domain, kind().PayloadType, p}, issuer))
	}
	for label, change := range brokenFields() {
		m := new(lendv1.Revocation)
		if err := proto.Unmarshal([]byte(text), m); err != nil {
			panic(err)
		}
		change(m)
		add("field-"+label, "field "+strings.ReplaceAll(label, "-", " "), ReasonField,
			sealRaw(rawRecord{kind().Domain, kind().PayloadType, string(must(envelope.Encode(m)))}, issuer))
	}
	other, _ := testIdentity('x')
	add("issuer-key", "signed by another key", ReasonIssuerKey, sealRaw(rawRecord{kind().Domain, kind().PayloadType, text}, other))
	add("untrusted", "the policy lists another issuer", ReasonUntrusted, good).issuers = []name.PeerID{named('x')}
	add("untrusted-no-owner", "the owner's key is not known", ReasonUntrusted, sealedBy('o')).owner = name.PeerID{}
	add("untrusted-gateway", "signed by the gateway's own key", ReasonUntrusted, sealedBy('g'))
	add("gateway", "for another gateway", ReasonGateway, sealedBy('i', func(s *Statement) { s.Gateway = named('x') }))
	add("gateway-owner", "the owner's, for another of its gateways", ReasonGateway, sealedBy('o', func(s *Statement) { s.Gateway = named('x') }))
	add("not-own", "an issuer names another's leases", ReasonNotOwn, sealedBy('i', func(s *Statement) { s.Entry.Issuer = named('x') }))
	add("not-own-owner", "an issuer names the owner's leases", ReasonNotOwn, sealedBy('i', func(s *Statement) { s.Entry.Issuer = named('o') }))
	add("future", "signed 30.001 s after now", ReasonFuture, sealedBy('i', func(s *Statement) { s.At = testTime.Add(lease.DefaultSkew + time.Millisecond) }))
	add("old", "signed 24 h, 30 s and 1 ms before", ReasonOld, sealedBy('i', func(s *Statement) {
		s.At = testTime.Add(-lease.HardCap - lease.DefaultSkew - time.Millisecond)
		s.Entry.IssuedBefore = time.Time{}
	}))
	add("old-owner", "the same, of the owner", ReasonOld, sealedBy('o', func(s *Statement) {
		s.At = testTime.Add(-lease.HardCap - lease.DefaultSkew - time.Millisecond)
		s.Entry.IssuedBefore = time.Time{}
	}))
	slices.SortFunc(out, func(a, b *vector) int { return strings.Compare(a.name, b.name) })
	return out
}

func brokenFields() map[string]func(*lendv1.Revocation) {
	type m = *lendv1.Revocation
	return map[string]func(m){
		"version-0":            func(r m) { r.Version = 0 },
		"version-2":            func(r m) { r.Version = 2 },
		"id-absent":            func(r m) { r.RevocationId = nil },
		"id-15":                func(r m) { r.RevocationId = r.GetRevocationId()[:15] },
		"id-zero":              func(r m) { r.RevocationId = make([]byte, 16) },
		"issuer-absent":        func(r m) { r.Issuer = "" },
		"issuer-space":         func(r m) { r.Issuer += " " },
		"gateway-absent":       func(r m) { r.Gateway = "" },
		"gateway-rsa":          func(r m) { r.Gateway = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N" },
		"signed-absent":        func(r m) { r.IssuedAtMs, r.IssuedBeforeMs = 0, 0 },
		"signed-negative":      func(r m) { r.IssuedAtMs = -1 },
		"signed-year-9999":     func(r m) { r.IssuedAtMs = 253370764800000 },
		"nothing":              func(r m) { r.LeaseId, r.IssuedBeforeMs = nil, 0 },
		"lease-15":             func(r m) { r.LeaseId = r.GetLeaseId()[:15] },
		"lease-zero":           func(r m) { r.LeaseId = make([]byte, 16) },
		"invocation-space":     func(r m) { r.Invocation = "run 1" },
		"holder-space":         func(r m) { r.Holder = named('h').String() + " " },
		"lease-issuer-invalid": func(r m) { r.LeaseIssuer = "owner" },
		"before-negative":      func(r m) { r.IssuedBeforeMs = -1 },
		"before-far":           func(r m) { r.IssuedBeforeMs = r.GetIssuedAtMs() + MaxAhead.Milliseconds() + 1 },
	}
}

func ptr[T any](v T) *T { return &v }

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}
