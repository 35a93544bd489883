package e2e

import (
	"path/filepath"
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
