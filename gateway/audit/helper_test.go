package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// book is a ledger that tests write.
type book struct {
	tb  testing.TB
	dir string
	*ledger.Ledger
	now time.Time
}

func newBook(tb testing.TB) *book {
	tb.Helper()
	b := &book{tb: tb, dir: filepath.Join(tb.TempDir(), "ledger"), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	b.open()
	return b
}

func (b *book) open() {
	b.tb.Helper()
	l, err := ledger.Open(ledger.Config{Dir: b.dir, Now: func() time.Time { return b.now }})
	require.NoError(b.tb, err)
	b.Ledger = l
	b.tb.Cleanup(func() { _ = l.Close() })
}

func peerID(n byte) name.PeerID {
	seed := sha256.Sum256([]byte{n})
	return must(name.PeerIDFromKey(seed[:]))
}

func (b *book) start(op string, audit string) *ledger.Reservation {
	b.tb.Helper()
	out, err := b.Reserve(ledger.Claim{
		Key: ledger.Key{
			Issuer: peerID(1), Invocation: must(name.ParseInvocationID("inv-1")), Holder: peerID(2),
			Operation: must(name.ParseOperationID(op)),
		},
		Digest: sha256.Sum256([]byte(op)), Lease: [16]byte{7}, MaxOperations: 1 << 30, Frozen: []byte("{}"),
	})
	require.NoError(b.tb, err)
	require.NotNil(b.tb, out.Reservation)
	require.NoError(b.tb, out.Reservation.Start(context.Background(), ledger.Start{
		LeaseNotAfter: b.now.Add(time.Hour), Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
		Command: must(name.ParseCommand("issue.list")), Audit: []byte(audit),
	}))
	return out.Reservation
}

func (b *book) end(r *ledger.Reservation, status int) {
	b.tb.Helper()
	require.NoError(b.tb, r.End(ledger.End{State: ledger.StateEnded, Status: status, Stdout: 12, Duration: 3 * time.Millisecond}))
}

// fill writes starts and ends until the ledger has another segment.
func (b *book) fill(tag string) {
	b.tb.Helper()
	big := must(json.Marshal(map[string]string{"rule": "big", "purpose": strings.Repeat("x", 120<<10)}))
	before := b.segments()
	for n := 0; b.segments() == before; n++ {
		b.end(b.start(fmt.Sprintf("op-%s-%016d", tag, n), string(big)), n%200)
	}
}

func (b *book) segments() int {
	return len(must(filepath.Glob(filepath.Join(b.dir, "*.log"))))
}

func (b *book) view(f Filter) *View {
	return New(Config{Dir: b.dir, Filter: f, Peers: map[name.Label]name.PeerID{must(name.ParseLabel("laptop")): peerID(2)}})
}

func all(tb testing.TB, v *View) (out []Record) {
	tb.Helper()
	require.NoError(tb, v.Rest(func(r *Record) error { out = append(out, *r); return nil }))
	return out
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	return string(must(os.ReadFile(path)))
}
