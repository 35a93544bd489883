package lease

import (
	"bytes"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// testIdentity is a fixed key pair; the letters of the tests are issuer 'i',
// holder 'h', gateway 'g' and others.
func testIdentity(tb testing.TB, letter byte) (crypto.PrivKey, name.PeerID) {
	tb.Helper()
	key, _, err := crypto.GenerateEd25519Key(bytes.NewReader(bytes.Repeat([]byte{letter}, 64)))
	require.NoError(tb, err)
	return key, must(name.PeerIDFromKey(must(key.GetPublic().Raw())))
}

func testPeer(tb testing.TB, letter byte) name.PeerID {
	tb.Helper()
	_, id := testIdentity(tb, letter)
	return id
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func commands(names ...string) []name.Command {
	var out []name.Command
	for _, n := range names {
		out = append(out, must(name.ParseCommand(n)))
	}
	return out
}

func connector(s string) name.ConnectorKey  { return must(name.ParseConnectorKey(s)) }
func version(s string) name.Version         { return must(name.ParseVersion(s)) }
func parameter(s string) name.Parameter     { return must(name.ParseParameter(s)) }
func invocation(s string) name.InvocationID { return must(name.ParseInvocationID(s)) }

func testLease(tb testing.TB) Lease {
	tb.Helper()
	return Lease{
		ID:     ID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		Issuer: testPeer(tb, 'i'), Holder: testPeer(tb, 'h'), Gateway: testPeer(tb, 'g'),
		Invocation: invocation("run-1"), Authority: AuthorityOwner,
		Grants: []Grant{
			{
				Connector: connector("github"), Version: version("2.40.1"), Commands: commands("issue.list", "issue.view"),
				Pins: map[name.Parameter][]string{parameter("repo"): {"acme/a", "acme/b"}, parameter("state"): {"open"}},
			},
			{Connector: connector("json5"), Version: version("2.2.3"), Commands: commands("format"), Pins: map[name.Parameter][]string{}, Finish: true},
		},
		IssuedAt: testTime, NotBefore: testTime, NotAfter: testTime.Add(DefaultLife),
		MaxOperations: 100, MaxConcurrent: 4, Purpose: "nightly triage",
	}
}

// rawRecord is any payload under any domain and type.
type rawRecord struct{ domain, codec, payload string }

func (r *rawRecord) Domain() string                 { return r.domain }
func (r *rawRecord) Codec() []byte                  { return []byte(r.codec) }
func (r *rawRecord) MarshalRecord() ([]byte, error) { return []byte(r.payload), nil }
func (r *rawRecord) UnmarshalRecord([]byte) error   { return nil }

func sealRaw(tb testing.TB, r rawRecord, key crypto.PrivKey) []byte {
	tb.Helper()
	env, err := record.Seal(&r, key)
	require.NoError(tb, err)
	b, err := env.Marshal()
	require.NoError(tb, err)
	return b
}

// sealUnchecked signs what Seal would refuse.
func sealUnchecked(tb testing.TB, l Lease) []byte {
	tb.Helper()
	b, err := l.encode()
	require.NoError(tb, err)
	key, _ := testIdentity(tb, 'i')
	return sealRaw(tb, rawRecord{kind().Domain, kind().PayloadType, string(b)}, key)
}

func sealed(tb testing.TB, l Lease) []byte {
	tb.Helper()
	key, _ := testIdentity(tb, 'i')
	b, err := Seal(l, key)
	require.NoError(tb, err)
	return b
}

type revokeNothing struct{}

func (revokeNothing) Revoked(Subject) bool { return false }

type revokeFunc func(Subject) bool

func (f revokeFunc) Revoked(s Subject) bool { return f(s) }

func trustIssuer(tb testing.TB, rule IssuerRule) func(name.PeerID) (IssuerRule, bool) {
	tb.Helper()
	issuer := testPeer(tb, 'i')
	return func(p name.PeerID) (IssuerRule, bool) { return rule, p == issuer }
}

func testVerifier(tb testing.TB) *Verifier {
	tb.Helper()
	return &Verifier{
		Gateway: testPeer(tb, 'g'), Issuers: trustIssuer(tb, IssuerRule{AnyConnector: true}),
		Revoked: revokeNothing{}, Now: func() time.Time { return testTime }, Skew: DefaultSkew,
	}
}

func requireReason(tb testing.TB, want Reason, err error) {
	tb.Helper()
	var e *Error
	require.ErrorAs(tb, err, &e)
	require.Equal(tb, want.String(), e.Reason.String())
}
