package checkup

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	look "github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

func TestFreshMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.want("identity-key", look.Pass, "only you", "")
	m.want("owner-key", look.Pass, "only you", "")
	m.want("directories", look.Pass, "only you", "")
	m.want("policy", look.Warn, "0 errors, 1 warnings, 0 of 0 tests fail", "lend policy check")
	m.want("gateway", look.Skip, "none is running", "lend serve")
	for _, n := range []string{"policy-in-force", "checkpoint", "addresses"} {
		m.want(n, look.Skip, "no gateway is running", "lend serve")
	}
	m.want("ledger", look.Pass, "as they were written", "")
	m.want("revocations", look.Pass, "0 are kept", "")
	m.want("lockdown", look.Pass, "there is none", "")
	m.want("leases", look.Skip, "none", "lend lease issue")
}

func TestNothingIsThere(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := filepath.Dir(m.Identity)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ledger")))
	for _, f := range []string{m.Identity, m.Owner, m.Policy, m.Revocations} {
		require.NoError(t, os.Remove(f))
	}
	m.want("identity-key", look.Fail, "no identity", "lend init")
	m.want("owner-key", look.Warn, "no owner's key", "lend init")
	m.want("directories", look.Warn, "not there yet", "lend init")
	m.want("policy", look.Fail, "no policy file", "lend init")
	m.want("ledger", look.Warn, "no record", "lend init")
	m.want("revocations", look.Skip, "no gateway here yet", "lend init")
	require.NoDirExists(t, m.Ledger, "nothing is made")
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes are of unix")
	}
	m := newMachine(t)
	require.NoError(t, os.Chmod(m.Identity, 0o644))
	m.want("identity-key", look.Fail, "others may read it", "chmod 600 "+m.Identity)
	require.NoError(t, os.Chmod(m.Owner, 0o660))
	m.want("owner-key", look.Fail, "others may write it", "chmod go-w "+m.Owner)
	require.NoError(t, os.Remove(m.Owner))
	require.NoError(t, os.WriteFile(m.Owner, []byte("canary-not-a-key"), 0o600))
	m.want("owner-key", look.Fail, "", "restore it")
	require.NotContains(t, m.row("owner-key").Detail, "canary")
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes are of unix")
	}
	m := newMachine(t)
	require.NoError(t, os.Chmod(m.Ledger, 0o755))
	m.want("directories", look.Warn, "look into it", "chmod 700 "+m.Ledger)
	require.NoError(t, os.Chmod(m.Ledger, 0o777))
	m.want("directories", look.Fail, "others may write", "chmod go-w "+m.Ledger)
	require.NoError(t, os.Chmod(m.Ledger, 0o700))
	file := filepath.Join(m.Ledger, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	m.Directories = []string{file}
	m.want("directories", look.Fail, "not a directory", "")

	// what is above is the owner's affair, too
	above := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(above, "state"), 0o700))
	require.NoError(t, os.Chmod(above, 0o777))
	m.Directories = []string{filepath.Join(above, "state")}
	m.want("directories", look.Fail, "others may write", "chmod go-w "+above)
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write(passingTest)
	m.want("policy", look.Warn, "0 errors, 2 warnings, 0 of 1 tests fail", "lend policy check")
	m.write("policy: 1\nrules: [}\n# canary\n")
	m.want("policy", look.Fail, "does not parse", "lend policy check")
	require.NotContains(t, m.row("policy").Detail, "canary")
	m.write(failingTest)
	m.want("policy", look.Fail, "1 of 1 tests fail", "lend policy check")
	m.Contracts = func() (policy.Contracts, error) { return nil, errors.New("no store") }
	m.want("policy", look.Fail, "no store", "lend connector list")
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(m.Policy, 0o666))
		m.want("policy", look.Fail, "others may write it", "chmod go-w")
	}
}

func TestWorkspaces(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write(passingTest)
	m.want("workspaces", look.Skip, "names none", "")
	m.write("policy: 1\nworkspaces: {site: {path: /srv/site}}\n")
	m.want("workspaces", look.Pass, "1 of 1", "")
	m.Workspace = func(path string) error { return fmt.Errorf("%s: %w", path, os.ErrNotExist) }
	m.want("workspaces", look.Fail, "no command starts in it: /srv/site: ", `make the directory "/srv/site"`)
	m.Workspace = func(string) error { return errors.New("it is a link") }
	m.want("workspaces", look.Fail, "it is a link", "another directory")
	require.NotContains(t, m.row("workspaces").Fix, "make")
	require.Equal(t, "site", m.row("workspaces").Subject)
	m.write("policy: 1\nrules: [}\n")
	m.want("workspaces", look.Skip, "cannot be read", "lend policy check")
}

func TestGateway(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve()
	m.want("gateway", look.Pass, "running since", "")
	m.want("policy-in-force", look.Pass, "goes by", "")
	m.want("checkpoint", look.Pass, "1 other", "")
	f.set(func(s *admin.Status) { s.Version = "9.9.9" })
	m.want("gateway", look.Warn, "9.9.9", "start lend serve again")
	f.mu.Lock()
	f.err = errors.New("broken")
	f.mu.Unlock()
	require.Equal(t, look.Fail, m.row("gateway").Status)
	m.want("policy-in-force", look.Skip, "does not answer", "")
}

func TestGatewayThatWasKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.Socket, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	m.want("gateway", look.Warn, "left its socket behind", "lend serve")
}

func TestPolicyInForce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve()
	f.set(func(s *admin.Status) { s.Policy.State, s.Policy.Problem = "last good", "line 3 is bad" })
	m.want("policy-in-force", look.Fail, "last good", "lend policy check")
	f.set(func(s *admin.Status) { s.Policy.State, s.Policy.Digest = "in force", "of another" })
	m.want("policy-in-force", look.Warn, "has changed", "lend status")
	f.set(func(s *admin.Status) { s.Policy.File = "/elsewhere.yaml" })
	m.want("policy-in-force", look.Pass, "another file", "")
}

func TestLedger(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve()
	m.want("ledger", look.Pass, "as they were written", "")
	f.set(func(s *admin.Status) { s.Ledger.TornTail = 7 })
	m.want("ledger", look.Warn, "torn tail of 7 bytes", "")
	f.set(func(s *admin.Status) { s.Ledger.Full = true })
	m.want("ledger", look.Fail, "its disk is full: nothing starts", "make room on the disk of "+m.Ledger)
	f.set(func(s *admin.Status) { s.Ledger.Failed = "locked" })
	m.want("ledger", look.Fail, "locked", "accept-loss")
}

func TestLedgerOnDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.now = time.Now().Add(-time.Hour)
	m.want("ledger", look.Fail, "has not reached", "set the clock")
	m.MostLedger = 1
	m.want("ledger", look.Skip, "too many to verify", "lend audit verify")
	m.MostLedger = 0
	flipped := false
	require.NoError(t, filepath.WalkDir(m.Ledger, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || flipped {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil && len(b) > 100 {
			flipped = true
			b[len(b)/2] ^= 1
			return os.WriteFile(p, b, 0o600)
		}
		return err
	}))
	require.True(t, flipped)
	_, err := ledger.Verify(m.Ledger)
	require.Error(t, err)
	m.want("ledger", look.Fail, "", "accept-loss")
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve()
	f.set(func(s *admin.Status) { s.Ledger.Kept = nil })
	m.want("checkpoint", look.Warn, "no second place", "--checkpoint-file")
	f.set(func(s *admin.Status) { s.Ledger.Kept = []admin.Kept{{Where: "/mnt/copy", Problem: "no such disk"}} })
	m.want("checkpoint", look.Fail, "/mnt/copy: no such disk", "lend audit checkpoint")
	program := admin.Kept{Where: "command /usr/local/bin/keep"}
	f.set(func(s *admin.Status) { s.Ledger.Kept = []admin.Kept{program} })
	m.want("checkpoint", look.Warn, "a record that was set back is not noticed", "lend audit verify --checkpoint FILE")
	f.set(func(s *admin.Status) { s.Ledger.Kept = []admin.Kept{program, {Where: "/mnt/copy"}} })
	m.want("checkpoint", look.Pass, "2 other places", "")
}

func TestRevocationsAndLockdown(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	require.NoError(t, revocations.Open(m.Revocations, m.Lockdown).Lock(m.now, "stolen"))
	m.want("lockdown", look.Warn, "everything is denied", "lend unlock")
	m.want("revocations", look.Pass, "0 are kept", "")
	_, err := revocations.Open(m.Revocations, m.Lockdown).Add(m.now, revocation.Entry{Lease: lease.ID{1}}.Kept(m.now))
	require.NoError(t, err)
	m.want("revocations", look.Pass, "1 is kept", "")
	require.NoError(t, os.Remove(m.Lockdown))
	require.NoError(t, os.WriteFile(m.Revocations, []byte("not one"), 0o600))
	m.want("revocations", look.Fail, "", "lend unlock --accept-loss")
	require.NoError(t, os.Remove(m.Revocations))
	m.want("revocations", look.Fail, "", "restore the file")
}

func TestLeases(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	keep := func(id byte, left time.Duration) {
		l := lease.Lease{
			ID: lease.ID{id}, Issuer: peer(t), Holder: peer(t), Gateway: peer(t), Invocation: invocation(t),
			Grants:   []lease.Grant{{Connector: must(name.ParseConnectorKey("tool")), Version: must(name.ParseVersion("1.0.0")), Commands: []name.Command{must(name.ParseCommand("list"))}}},
			IssuedAt: m.now.Add(-time.Hour).Truncate(time.Millisecond), NotAfter: m.now.Add(left).Truncate(time.Millisecond),
			MaxOperations: 1, Purpose: "canary",
		}
		require.NoError(t, issued.Keep(m.Issued, issued.Of(&l, l.Issuer), m.now))
	}
	keep(1, -time.Minute)
	m.want("leases", look.Skip, "none", "lend lease issue")
	keep(2, 2*time.Hour)
	m.want("leases", look.Pass, "1 have not expired", "")
	keep(3, 5*time.Minute)
	m.want("leases", look.Warn, lease.ID{3}.String()+" ends at", "lend lease issue")
	require.NotContains(t, m.row("leases").Detail, "canary")
	require.NoError(t, os.WriteFile(filepath.Join(m.Issued, lease.ID{4}.String()+".json"), []byte("{"), 0o600))
	m.want("leases", look.Fail, "", "lend lease list")
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve()
	m.want("addresses", look.Warn, "only this machine", "--announce")
	good := f.status.Addresses[0]
	set := func(all ...string) { f.set(func(s *admin.Status) { s.Addresses = all }) }
	set(good, "/ip4/192.0.2.1/tcp/5363", "/dns4/lend.example.org/udp/5363/quic-v1")
	m.want("addresses", look.Pass, "1 of 3 can be tried from here, and answer", "")
	set(good, "/ip4/127.0.0.1/tcp/1")
	r := m.row("addresses")
	require.Equal(t, look.Fail, r.Status)
	require.Equal(t, "/ip4/127.0.0.1/tcp/1", r.Subject)
	set()
	m.want("addresses", look.Fail, "has none", "--listen")
	set("nonsense")
	m.want("addresses", look.Fail, "not an address", "--announce")
}

func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a, err := parseAddress(m.listen())
	require.NoError(t, err)
	m.Port = int(a.port)
	m.want("addresses", look.Warn, "taken by another program", "--listen")
}

func peer(t *testing.T) name.PeerID {
	t.Helper()
	id, err := name.ParsePeerID("12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4")
	require.NoError(t, err)
	return id
}

func invocation(t *testing.T) name.InvocationID {
	t.Helper()
	id, err := name.ParseInvocationID("inv-0000000000000001")
	require.NoError(t, err)
	return id
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
