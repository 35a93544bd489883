package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// sign makes a revocation by the key in a file.
func (s *served) sign(file string, gateway name.PeerID, e revocation.Entry) []byte {
	s.t.Helper()
	key, err := ownerfile.LoadKey(file)
	require.NoError(s.t, err)
	private, err := crypto.UnmarshalEd25519PrivateKey(key)
	require.NoError(s.t, err)
	raw, err := private.GetPublic().Raw()
	require.NoError(s.t, err)
	signer, err := name.PeerIDFromKey(raw)
	require.NoError(s.t, err)
	b, err := revocation.Seal(revocation.Statement{
		ID: lease.NewID(), Issuer: signer, Gateway: gateway, At: time.Now().UTC().Truncate(time.Millisecond), Entry: e,
	}, private)
	require.NoError(s.t, err)
	return b
}

// TestRevocationEndsRealRuns: processes that will not end are gone within a second
// of a signed revocation, and of a lockdown, over both transports; their callers
// are told why.
func TestRevocationEndsRealRuns(t *testing.T) {
	s := serve(t)
	socket := admin.NewClient(filepath.Join(s.vars["OWNER"], "run", "admin.sock"))
	for transport, part := range transports() {
		for _, command := range []string{"sleep", "deaf"} {
			for _, way := range []string{"signed", "lockdown"} {
				t.Run(transport+"/"+command+"/"+way, func(t *testing.T) {
					f := over(s.issue("caller", command), part)
					before := s.starts()
					cmd := s.client("CALLER", f).Command(t.Context(), "fx", command)
					require.NoError(t, cmd.Start())
					require.True(t, until(patience, func() bool { return s.starts() > before }))
					want := protocol.CodeLeaseRevoked
					messenger := s.client("OTHER", f)
					_, err := messenger.Revoke(t.Context(), []byte("hello")) // the link, before time is measured
					require.Error(t, err)
					began := time.Now()
					if way == "signed" {
						reply, err := messenger.Revoke(t.Context(), s.sign(filepath.Join(s.vars["OWNER"], "owner.pem"), f.Lease.Gateway, revocation.Entry{Lease: f.Lease.ID}))
						require.NoError(t, err)
						require.Equal(t, uint32(1), reply.Stopped)
					} else {
						want = protocol.CodeOwnerStopped
						defer func() {
							_, err := socket.Lockdown(t.Context(), admin.Lockdown{})
							require.NoError(t, err)
						}()
						r, err := socket.Lockdown(t.Context(), admin.Lockdown{On: true})
						require.NoError(t, err)
						require.Equal(t, 1, r.Stopped)
					}
					answered := time.Since(began)
					err = cmd.Wait()
					took := time.Since(began)
					var ended *client.EndedError
					require.ErrorAs(t, err, &ended)
					require.Equal(t, want, ended.Code)
					require.Less(t, took, time.Second)
					t.Logf("answered after %s, ended after %s", answered.Round(time.Millisecond), took.Round(time.Millisecond))
				})
			}
		}
	}
}

// TestIssuerRevokesFromAfar: an issuer that the policy lists, on a machine of its own,
// takes its own leases back with lend, and nobody else's.
func TestIssuerRevokesFromAfar(t *testing.T) {
	s := serve(t)
	policy, err := os.ReadFile("testdata/world/policy.yaml")
	require.NoError(t, err)
	require.NoError(t, s.setPolicy(strings.Replace(string(policy), "issuers:\n", "issuers:\n  second: {id: ${OTHER_KEY}, connectors: [fx], max_life: 1h}\n", 1)))
	key, err := ownerfile.LoadKey(filepath.Join(s.vars["OTHER"], "owner.pem"))
	require.NoError(t, err)
	private, err := crypto.UnmarshalEd25519PrivateKey(key)
	require.NoError(t, err)
	own := func(run string) lease.File {
		l := s.issue("caller", "exit", "sleep").Lease
		l.ID, l.Issuer = lease.NewID(), must(name.ParsePeerID(s.vars["OTHER_KEY"]))
		l.Invocation = must(name.ParseInvocationID(run))
		sealed, err := lease.Seal(l, private)
		require.NoError(t, err)
		text, err := lease.Armor([][]byte{sealed}, s.file.Addresses, lease.AddressRule{AllowLocal: true})
		require.NoError(t, err)
		return must(lease.ParseArmor(text, lease.AddressRule{AllowLocal: true}))
	}
	write := func(f lease.File) string {
		text, err := lease.Armor(f.Chain, f.Addresses, lease.AddressRule{AllowLocal: true})
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "lease")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	exit := func(f lease.File) error {
		c := s.client("CALLER", f)
		defer func() { require.NoError(t, c.Close()) }() // a peer may have only so many connections
		return c.Command(t.Context(), "fx", "exit", "0").Run()
	}
	one, two, three := own("run-1"), own("run-1"), own("run-2")
	require.True(t, until(patience, func() bool { return exit(one) == nil }), "the policy is taken up")

	run := s.client("CALLER", one).Command(t.Context(), "fx", "sleep")
	require.NoError(t, run.Start())
	out, err := s.lend(s.vars["OTHER"], "lease", "revoke", "--sign", write(one), "--json")
	require.NoError(t, err)
	require.Contains(t, out, `"stopped": 1`)
	var ended *client.EndedError
	require.ErrorAs(t, run.Wait(), &ended)
	require.Equal(t, protocol.CodeLeaseRevoked, ended.Code)

	_, err = s.lend(s.vars["OTHER"], "lease", "revoke", "--sign", write(s.file))
	require.ErrorContains(t, err, "an issuer revokes its own leases only")
	require.NoError(t, exit(s.file), "the owner's lease is good")
	require.NoError(t, exit(two))
	_, err = s.lend(s.vars["OTHER"], "lease", "revoke", "--sign", write(two), "--invocation", "run-1", "--for-good")
	require.NoError(t, err)
	var refused *client.RefusedError
	require.ErrorAs(t, exit(two), &refused)
	require.Equal(t, protocol.CodeLeaseRevoked, refused.Code)
	require.NoError(t, exit(three))
	_, err = s.lend(s.vars["OTHER"], "lease", "revoke", "--sign", write(two), "--all")
	require.NoError(t, err)
	require.ErrorAs(t, exit(three), &refused)
	require.NoError(t, exit(s.file))
}
