package checkup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/gateway/policyfile"
	"github.com/lendcli/lend/gateway/revocations"
	look "github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const emptyPolicy = "policy: 1\nissuers:\n  owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: any}\n"

// failingTest expects what no rule allows.
const failingTest = emptyPolicy + `peers:
  laptop: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j
tests:
  - {name: it works, peer: laptop, run: [tool, list], want: allow}
`

// noContracts is a machine on which nothing is installed.
type noContracts struct{}

func (noContracts) Contract(name.ConnectorKey, name.Version, name.ConnectionID) (argv.Contract, string, error) {
	return argv.Contract{}, "", errors.New("not installed")
}

// machine is an initialised gateway in a directory.
type machine struct {
	t *testing.T
	Config
	now time.Time
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "lend") //nolint:usetesting // short, because of the socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	in := func(elem string) string { return filepath.Join(dir, elem) }
	m := &machine{t: t, now: time.Now(), Config: Config{
		Identity: in("identity.pem"), Owner: in("owner.pem"), Policy: in("policy.yaml"), Ledger: in("ledger"),
		Revocations: in("revocations"), Lockdown: in("lockdown"), Issued: in("issued"), Socket: in("run/admin.sock"),
		Directories: []string{dir, dir, in("ledger"), in("run")}, Version: "1.2.3",
		Contracts: func() (policy.Contracts, error) { return noContracts{}, nil },
		Workspace: func(string) error { return nil },
	}}
	m.Now = func() time.Time { return m.now }
	require.NoError(t, os.MkdirAll(in("run"), 0o700))
	for _, file := range []string{m.Identity, m.Owner} {
		_, err := ownerfile.CreateKey(file)
		require.NoError(t, err)
	}
	m.write(emptyPolicy)
	require.NoError(t, revocations.Create(m.Revocations))
	l, err := ledger.Open(ledger.Config{Dir: m.Ledger})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return m
}

func (m *machine) write(pol string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(m.Policy, []byte(pol), 0o600))
}

// row runs all checks and returns the one row of a name.
func (m *machine) row(name string) look.Row {
	m.t.Helper()
	rows := m.rows(name)
	require.Len(m.t, rows, 1, name)
	return rows[0]
}

func (m *machine) rows(name string) (out []look.Row) {
	m.t.Helper()
	for _, r := range look.Run(m.t.Context(), time.Minute, Checks(m.Config)).Rows {
		if r.Name == name {
			out = append(out, r)
		}
	}
	return out
}

// want checks one row.
func (m *machine) want(name string, status look.Status, detail, fix string) {
	m.t.Helper()
	r := m.row(name)
	require.Equal(m.t, status, r.Status, "%s: %s", name, r.Detail)
	require.Contains(m.t, r.Detail, detail, name)
	require.Contains(m.t, r.Fix, fix, name)
	if status != look.Pass {
		require.NotEmpty(m.t, r.Detail, name)
	}
}

// fake is a gateway that says what the test wants.
type fake struct {
	admin.Backend
	mu     sync.Mutex
	status admin.Status
	err    error
}

func (f *fake) Status(context.Context) (admin.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, f.err
}

func (f *fake) set(change func(*admin.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

// serve starts a gateway that is fine.
func (m *machine) serve() *fake {
	m.t.Helper()
	p, err := policy.Parse(m.Policy, []byte(emptyPolicy))
	require.NoError(m.t, err)
	f := &fake{status: admin.Status{
		Version: "1.2.3", Started: m.now,
		Policy: admin.Policy{File: m.Policy, Digest: p.Digest(), State: policyfile.InForce.String()},
		Ledger: admin.Ledger{Kept: []admin.Kept{{Where: "/mnt/copy"}}},
	}}
	f.status.Addresses = []string{m.listen()}
	s, err := admin.Listen(m.t.Context(), m.Socket, f, zerolog.Nop())
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, s.Close()) })
	return f
}

// listen is a loopback address that answers.
func (m *machine) listen() string {
	m.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = l.Close() })
	port := 0
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		port = a.Port
	}
	return fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", port)
}

const passingTest = `policy: 1
issuers:
  owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: [tool]}
peers:
  laptop: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j
tests:
  - {name: nothing works, peer: laptop, run: [tool, list], want: deny}
`
