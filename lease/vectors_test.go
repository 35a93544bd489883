package lease

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
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lendcli/lend/lease/envelope"
	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

var update = flag.Bool("update", false, "write testdata again")

// vector is one file of testdata/vectors; docs/lease.md §9 has the form.
type vector struct {
	name, comment string
	expect        Reason // ReasonNone: ok
	link          int
	peer, gateway name.PeerID
	now           time.Time
	issuers       []name.PeerID
	connectors    []string
	depth         int // of the issuers' rule
	barred        []name.PeerID
	chain         [][]byte
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
	if v.link != 0 {
		put("link", fmt.Sprint(v.link))
	}
	put("peer", v.peer.String())
	put("gateway", v.gateway.String())
	put("now", v.now.Format(time.RFC3339Nano))
	for _, i := range v.issuers {
		put("issuer", i.String())
	}
	for _, c := range v.connectors {
		put("connector", c)
	}
	if v.depth != 0 {
		put("depth", fmt.Sprint(v.depth))
	}
	for _, p := range v.barred {
		put("barred", p.String())
	}
	b.WriteString("\n")
	for _, e := range v.chain {
		b.WriteString(hex.EncodeToString(e) + "\n")
	}
	return b.Bytes()
}

func reasonByName(s string) (Reason, bool) {
	for r := ReasonNone + 1; r < reasonEnd; r++ {
		if r.String() == s {
			return r, true
		}
	}
	return ReasonNone, s == "ok"
}

func readVector(tb testing.TB, file string) *vector {
	tb.Helper()
	b, err := os.ReadFile(file)
	require.NoError(tb, err)
	v := &vector{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() && sc.Text() != "" {
		key, value, ok := strings.Cut(sc.Text(), ": ")
		require.True(tb, ok, sc.Text())
		switch key {
		case "comment":
			v.comment = value
		case "expect":
			v.expect, ok = reasonByName(value)
			require.True(tb, ok, value)
		case "link":
			_, err = fmt.Sscan(value, &v.link)
		case "peer":
			v.peer, err = name.ParsePeerID(value)
		case "gateway":
			v.gateway, err = name.ParsePeerID(value)
		case "now":
			v.now, err = time.Parse(time.RFC3339Nano, value)
		case "issuer":
			v.issuers = append(v.issuers, must(name.ParsePeerID(value)))
		case "connector":
			v.connectors = append(v.connectors, value)
		case "depth":
			_, err = fmt.Sscan(value, &v.depth)
		case "barred":
			v.barred = append(v.barred, must(name.ParsePeerID(value)))
		default:
			require.Fail(tb, "unknown header", key)
		}
		require.NoError(tb, err)
	}
	for sc.Scan() {
		e, err := hex.DecodeString(sc.Text())
		require.NoError(tb, err)
		v.chain = append(v.chain, e)
	}
	return v
}

func (v *vector) verifier() *Verifier {
	rule := IssuerRule{
		AnyConnector: len(v.connectors) == 0, MaxDepth: v.depth,
		MayName: func(p name.PeerID) bool { return !slices.Contains(v.barred, p) },
	}
	for _, c := range v.connectors {
		rule.Connectors = append(rule.Connectors, connector(c))
	}
	return &Verifier{
		Gateway: v.gateway, Revoked: revokeNothing{}, Skew: DefaultSkew, Now: func() time.Time { return v.now },
		Issuers: func(p name.PeerID) (IssuerRule, bool) { return rule, slices.Contains(v.issuers, p) },
	}
}

// TestVectors checks every file, and with -update writes them again; it is an
// error if one is not among those that the test makes.
//
// spec: LEASE-1, LEASE-2, LEASE-3, LEASE-4, LEASE-5, LEASE-6, LEASE-7, LEASE-8,
// LEASE-9, LEASE-10, LEASE-11, LEASE-12, LEASE-13, LEASE-14, LEASE-15, LEASE-16,
// LEASE-17, LEASE-18, LEASE-19, LEASE-20, LEASE-21, LEASE-22, LEASE-23, LEASE-24,
// LEASE-25, LEASE-40, LEASE-41, LEASE-42, LEASE-43, LEASE-44, LEASE-45, LEASE-46
func TestVectors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "vectors")
	made := vectors(t)
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
			got, err := v.verifier().Verify(v.chain, v.peer)
			seen[v.expect] = true
			if v.expect == ReasonNone {
				require.NoError(t, err)
				require.Equal(t, v.peer, got.Holder)
				return
			}
			require.Nil(t, got)
			requireReason(t, v.expect, err)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, v.link, e.Link)
		})
	}
	for r := ReasonNone; r < ReasonRevoked; r++ {
		require.True(t, seen[r], "a vector for %s", r)
	}
}

func vectors(tb testing.TB) []*vector {
	tb.Helper()
	var out []*vector
	add := func(label, comment string, expect Reason, chain ...[]byte) *vector {
		v := &vector{
			name: label, comment: comment, expect: expect, peer: testPeer(tb, 'h'), gateway: testPeer(tb, 'g'),
			now: testTime, issuers: []name.PeerID{testPeer(tb, 'i')}, chain: chain,
		}
		out = append(out, v)
		return v
	}
	good := sealed(tb, testLease(tb))
	payload := string(must(ptr(testLease(tb)).encode()))
	issuer, _ := testIdentity(tb, 'i')
	add("ok", "the lease of most cases", ReasonNone, good)
	add("ok-skew", "29.999 s before not-before", ReasonNone, good).now = testTime.Add(-29999 * time.Millisecond)
	add("ok-last-moment", "1 ms before not-after", ReasonNone, good).now = testTime.Add(DefaultLife - time.Millisecond)
	add("ok-connectors", "the issuer may issue for both", ReasonNone, good).connectors = []string{"github", "json5"}
	add("chain-empty", "no lease", ReasonChain)
	add("chain-of-four", "four envelopes", ReasonChain, good, good, good, good)
	add("size-empty", "an empty envelope", ReasonSize, []byte{})
	add("size-8193", "8193 bytes", ReasonSize, append(bytes.Clone(good), make([]byte, MaxEnvelope+1-len(good))...))
	add("size-in-chain", "the second is empty", ReasonSize, good, []byte{}).link = 1

	add("encoding-no-envelope", "not a message", ReasonEncoding, []byte("hello"))
	add("encoding-first-field", "the key is not the first field", ReasonEncoding, []byte("\x12\x01x"))
	add("encoding-first-type", "the first field is a number", ReasonEncoding, []byte("\x08\x01"))
	add("encoding-truncated", "the last byte is gone", ReasonEncoding, good[:len(good)-1])
	add("encoding-envelope-trailing", "an unknown field after the signature", ReasonEncoding, append(bytes.Clone(good), 0x30, 0x01))
	add("encoding-envelope-repeated", "the payload type twice", ReasonEncoding,
		append(bytes.Clone(good), protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte(kind().PayloadType))...))
	add("key-secp256k1", "a secp256k1 key", ReasonKeyType, sealRaw(tb, rawRecord{kind().Domain, kind().PayloadType, payload}, foreignKey(tb)))
	add("signature-flipped", "one bit of the signature", ReasonSignature, flip(good, len(good)-1))
	add("signature-payload-flipped", "one bit of the purpose", ReasonSignature, flip(good, bytes.Index(good, []byte("nightly"))))
	add("signature-other-domain", "signed as something else", ReasonSignature, sealRaw(tb, rawRecord{"lend/revocation/1", kind().PayloadType, payload}, issuer))
	add("payload-type", "signed under the domain, but of another type", ReasonPayloadType, sealRaw(tb, rawRecord{kind().Domain, "/lend/other", payload}, issuer))

	for label, p := range brokenPayloads(tb) {
		add(label, "payload "+strings.ReplaceAll(strings.TrimPrefix(label, "encoding-"), "-", " "), ReasonEncoding,
			sealRaw(tb, rawRecord{kind().Domain, kind().PayloadType, p}, issuer))
	}
	for label, change := range brokenFields() {
		m := new(lendv1.Lease)
		require.NoError(tb, proto.Unmarshal([]byte(payload), m))
		change(m)
		add("field-"+label, "field "+strings.ReplaceAll(label, "-", " "), ReasonField,
			sealRaw(tb, rawRecord{kind().Domain, kind().PayloadType, string(must(envelope.Encode(m)))}, issuer))
	}
	other, _ := testIdentity(tb, 'x')
	add("issuer-key", "signed by another key", ReasonIssuerKey, sealRaw(tb, rawRecord{kind().Domain, kind().PayloadType, payload}, other))
	add("issuer-untrusted", "the policy lists another issuer", ReasonUntrustedIssuer, good).issuers = []name.PeerID{testPeer(tb, 'x')}
	add("issuer-connector", "the issuer may issue for github only", ReasonConnectorRule, good).connectors = []string{"github"}
	add("holder", "presented by another peer", ReasonHolder, good).peer = testPeer(tb, 'x')
	add("gateway", "presented to another gateway", ReasonGateway, good).gateway = testPeer(tb, 'x')

	chainVectors(tb, add)
	add("critical", "names a rule", ReasonCritical, sealChanged(tb, func(l *Lease) { l.Critical = []string{"two-person"} }))
	add("authority-unset", "authority absent", ReasonAuthority, sealChanged(tb, func(l *Lease) { l.Authority = 0 }))
	add("authority-unknown", "authority 2", ReasonAuthority, sealChanged(tb, func(l *Lease) { l.Authority = 2 }))
	add("not-yet", "1 ms more than the skew before", ReasonNotYet, good).now = testTime.Add(-30*time.Second - time.Millisecond)
	add("expired", "at not-after", ReasonExpired, good).now = testTime.Add(DefaultLife)
	add("life", "1 h and 1 ms", ReasonLife, sealChanged(tb, func(l *Lease) { l.NotAfter = testTime.Add(time.Hour + time.Millisecond) }))
	add("life-postdated", "10 min, but signed 1 h before", ReasonLife, sealChanged(tb, func(l *Lease) { l.IssuedAt = testTime.Add(-time.Hour) }))
	slices.SortFunc(out, func(a, b *vector) int { return strings.Compare(a.name, b.name) })
	return out
}

func ptr[T any](v T) *T { return &v }

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

// foreignKey is a fixed key of another type.
func foreignKey(tb testing.TB) crypto.PrivKey {
	tb.Helper()
	key, err := crypto.UnmarshalSecp256k1PrivateKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(tb, err)
	return key
}

func sealChanged(tb testing.TB, change func(*Lease)) []byte {
	tb.Helper()
	l := testLease(tb)
	change(&l)
	return sealUnchecked(tb, l)
}

// delegated is a link below root, of its holder 'h' for another peer.
func delegated(tb testing.TB, root Lease, to byte) []byte {
	tb.Helper()
	return link(tb, sealed(tb, root), root, 'h', to, nil)
}

// link seals a link below parent, whose envelope is above; change may break it.
func link(tb testing.TB, above []byte, parent Lease, from, to byte, change func(*Lease)) []byte {
	tb.Helper()
	l := parent
	l.ID[0] += 0x10
	l.Issuer, l.Holder, l.DepthLeft, l.Parent = testPeer(tb, from), testPeer(tb, to), max(0, parent.DepthLeft-1), envelopeHash(above)
	if change != nil {
		change(&l)
	}
	key, _ := testIdentity(tb, from)
	return sealRaw(tb, rawRecord{kind().Domain, kind().PayloadType, string(must(ptr(l.sorted()).encode()))}, key)
}

// brokenPayloads are encodings of good values that are not the canonical one.
func brokenPayloads(tb testing.TB) map[string]string {
	tb.Helper()
	good := string(must(ptr(testLease(tb)).encode()))
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	m := new(lendv1.Lease)
	require.NoError(tb, proto.Unmarshal([]byte(good), m))
	m.GetGrants()[0].GetPins()[0].ProtoReflect().SetUnknown(unknown)
	nested := string(must(envelope.Encode(m)))
	return map[string]string{
		"encoding-not-a-message":        "\xff\xff",
		"encoding-unknown-field":        good + string(unknown),
		"encoding-unknown-field-nested": nested,
		"encoding-duplicate-field":      good + "\x08\x01",
		"encoding-long-varint":          "\x08\x81\x00" + good[2:],
		"encoding-default-value":        good + "\x78\x00",
		"encoding-order":                good[2:] + good[:2],
	}
}

func brokenFields() map[string]func(*lendv1.Lease) {
	type m = *lendv1.Lease
	long := strings.Repeat("x", 4097)
	return map[string]func(m){
		"version-0":             func(l m) { l.Version = 0 },
		"version-2":             func(l m) { l.Version = 2 },
		"lease-id-absent":       func(l m) { l.LeaseId = nil },
		"lease-id-15":           func(l m) { l.LeaseId = l.GetLeaseId()[:15] },
		"lease-id-zero":         func(l m) { l.LeaseId = make([]byte, 16) },
		"issuer-absent":         func(l m) { l.Issuer = "" },
		"holder-absent":         func(l m) { l.Holder = "" },
		"holder-space":          func(l m) { l.Holder += " " },
		"gateway-absent":        func(l m) { l.Gateway = "" },
		"gateway-rsa":           func(l m) { l.Gateway = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N" },
		"invocation-absent":     func(l m) { l.Invocation = "" },
		"invocation-space":      func(l m) { l.Invocation = "run 1" },
		"grants-absent":         func(l m) { l.Grants = nil },
		"grants-65":             func(l m) { l.Grants = manyGrants(65) },
		"grants-order":          func(l m) { slices.Reverse(l.GetGrants()) },
		"grants-twice":          func(l m) { l.Grants = append(l.GetGrants()[:1], l.GetGrants()...) },
		"grant-overlap":         func(l m) { l.Grants = append(l.GetGrants()[:1], overlap(l.GetGrants()[0]), l.GetGrants()[1]) },
		"grant-connector":       func(l m) { l.Grants[0].Connector = "GitHub" },
		"grant-version":         func(l m) { l.Grants[0].Version = "^2" },
		"grant-no-commands":     func(l m) { l.Grants[0].Commands = nil },
		"grant-65-commands":     func(l m) { l.Grants[0].Commands = manyCommands(65) },
		"grant-commands-order":  func(l m) { slices.Reverse(l.GetGrants()[0].GetCommands()) },
		"grant-command":         func(l m) { l.Grants[0].Commands[0] = "issue list" },
		"pin-33":                func(l m) { l.Grants[0].Pins = manyPins(33) },
		"pin-order":             func(l m) { slices.Reverse(l.GetGrants()[0].GetPins()) },
		"pin-twice":             func(l m) { l.Grants[0].Pins[1] = l.GetGrants()[0].GetPins()[0] },
		"pin-name":              func(l m) { l.Grants[0].Pins[0].Parameter = "--repo" },
		"pin-nothing":           func(l m) { l.Grants[0].Pins[0].Allowed = nil },
		"pin-65-literals":       func(l m) { l.Grants[0].Pins[0].Allowed = manyCommands(65) },
		"pin-literal-order":     func(l m) { slices.Reverse(l.GetGrants()[0].GetPins()[0].GetAllowed()) },
		"pin-literal-4097":      func(l m) { l.Grants[0].Pins[0].Allowed = []string{long} },
		"pin-literal-nul":       func(l m) { l.Grants[0].Pins[0].Allowed = []string{"a\x00b"} },
		"issued-absent":         func(l m) { l.IssuedAtMs = 0 },
		"issued-negative":       func(l m) { l.IssuedAtMs = -1 },
		"not-before-issued":     func(l m) { l.NotBeforeMs = l.GetIssuedAtMs() - 1 },
		"not-after-absent":      func(l m) { l.NotAfterMs = 0 },
		"not-after-start":       func(l m) { l.NotAfterMs = l.GetNotBeforeMs() },
		"not-after-year-10000":  func(l m) { l.NotAfterMs = 253402300800000 },
		"operations-absent":     func(l m) { l.MaxOperations = 0 },
		"operations-1000001":    func(l m) { l.MaxOperations = 1000001 },
		"operations-4294967295": func(l m) { l.MaxOperations = 1<<32 - 1 },
		"concurrent-absent":     func(l m) { l.MaxConcurrent = 0 },
		"concurrent-1025":       func(l m) { l.MaxConcurrent = 1025 },
		"purpose-257":           func(l m) { l.Purpose = long[:257] },
		"purpose-escape":        func(l m) { l.Purpose = "\x1b[2J" },
		"purpose-bidi":          func(l m) { l.Purpose = "a\u202eb" },
		"depth-3":               func(l m) { l.DepthLeft = 3 },
		"parent-31":             func(l m) { l.Parent = make([]byte, 31) },
		"parent-zero":           func(l m) { l.Parent = make([]byte, 32) },
		"critical-17":           func(l m) { l.Critical = manyCommands(17) },
		"critical-order":        func(l m) { l.Critical = []string{"b", "a"} },
	}
}

func manyGrants(n int) (out []*lendv1.LeaseGrant) {
	for i := range n {
		out = append(out, &lendv1.LeaseGrant{Connector: fmt.Sprintf("c%03d", i), Version: "1", Commands: []string{"x"}})
	}
	return out
}

func overlap(g *lendv1.LeaseGrant) *lendv1.LeaseGrant {
	return &lendv1.LeaseGrant{Connector: g.GetConnector(), Version: g.GetVersion(), Commands: g.GetCommands()[1:]}
}

func manyCommands(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("c%03d", i))
	}
	return out
}

func manyPins(n int) (out []*lendv1.LeasePin) {
	for i := range n {
		out = append(out, &lendv1.LeasePin{Parameter: fmt.Sprintf("p%03d", i), Allowed: []string{"x"}})
	}
	return out
}
