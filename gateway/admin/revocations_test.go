//go:build linux

package admin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// revokingBackend remembers what it was asked.
type revokingBackend struct {
	fakeBackend
	revoked Revocation
	wanted  Lockdown
	asked   []int // how many leases at once
}

func (f *revokingBackend) Revoke(_ context.Context, r Revocation) (Revoked, error) {
	f.revoked = r
	return Revoked{SchemaVersion: SchemaVersion, Revoked: r, New: true, Stopped: 3, Gateway: true}, f.err
}

func (f *revokingBackend) Lockdown(_ context.Context, want Lockdown) (Lockdown, error) {
	f.wanted = want
	return Lockdown{SchemaVersion: SchemaVersion, On: want.On, Why: want.Why, Gateway: true}, f.err
}

func (f *revokingBackend) Leases(_ context.Context, l []LeaseUse) ([]LeaseUse, error) {
	f.asked = append(f.asked, len(l))
	out := append([]LeaseUse{}, l...)
	for i := range out {
		out[i].Used = i
	}
	return out, f.err
}

func TestRevoking(t *testing.T) {
	b := &revokingBackend{}
	_, path := serve(t, b)
	c := NewClient(path)
	at := time.Date(2026, 11, 30, 12, 0, 0, int(time.Millisecond), time.UTC)
	want := Revocation{Lease: "01", Invocation: "run", Holder: "h", Issuer: "i", IssuedBefore: &at}
	got, err := c.Revoke(t.Context(), want)
	require.NoError(t, err)
	require.Equal(t, want, b.revoked)
	require.Equal(t, Revoked{SchemaVersion: 1, Revoked: want, New: true, Stopped: 3, Gateway: true}, got)

	locked, err := c.Lockdown(t.Context(), Lockdown{On: true, Why: "because"})
	require.NoError(t, err)
	require.Equal(t, Lockdown{On: true, Why: "because"}, b.wanted)
	require.True(t, locked.On)

	leases := make([]LeaseUse, 2*MaxLeases+1)
	found, err := c.Leases(t.Context(), leases)
	require.NoError(t, err)
	require.Len(t, found, len(leases))
	require.Equal(t, []int{MaxLeases, MaxLeases, 1}, b.asked)
	require.Equal(t, MaxLeases-1, found[2*MaxLeases-1].Used)
	found, err = c.Leases(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, found)

	b.err = errors.New("no")
	_, err = c.Revoke(t.Context(), want)
	require.ErrorContains(t, err, "no")
	_, err = NewClient(path+"2").Lockdown(t.Context(), Lockdown{On: true})
	require.ErrorIs(t, err, ErrNotRunning)
}

// A request that is not one JSON value of this form does nothing.
func TestRevokingRefuses(t *testing.T) {
	b := &revokingBackend{}
	_, path := serve(t, b)
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	for _, url := range []string{"/v1/revocations", "/v1/lockdown", "/v1/leases"} {
		for _, body := range []string{"", "{", "{}{}", `{"everything": true}`, "[]", strings.Repeat(" ", maxRequest) + "{}"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway"+url, bytes.NewBufferString(body))
			require.NoError(t, err)
			res, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusInternalServerError, res.StatusCode, "%s %.20q", url, body)
		}
	}
	require.Equal(t, Revocation{}, b.revoked)
	require.Empty(t, b.asked)
	require.Equal(t, Lockdown{}, b.wanted)
}

// A backend that cannot revoke has no such questions.
func TestNoRevoker(t *testing.T) {
	_, path := serve(t, &fakeBackend{})
	_, err := NewClient(path).Revoke(t.Context(), Revocation{})
	require.Error(t, err)
}
