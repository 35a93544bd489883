//go:build linux

package admin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// invitingBackend has one invitation, which ends when it is decided about.
type invitingBackend struct {
	fakeBackend
	wanted  chan InvitationWanted
	decided chan Decision
	gone    chan error
	none    error
}

func newInviting() *invitingBackend {
	return &invitingBackend{wanted: make(chan InvitationWanted, 4), decided: make(chan Decision, 4), gone: make(chan error, 4)}
}

func (f *invitingBackend) Invite(ctx context.Context, want InvitationWanted, tell func(Invitation) error) error {
	f.wanted <- want
	if f.none != nil {
		return f.none
	}
	if err := tell(Invitation{ID: "one", Link: "link", Phase: "open"}); err != nil {
		return err
	}
	select {
	case d := <-f.decided:
		return tell(Invitation{Phase: d.What, Final: true})
	case <-ctx.Done():
		f.gone <- ctx.Err()
		return ctx.Err()
	}
}

func (f *invitingBackend) Decide(_ context.Context, d Decision) error {
	if d.ID != "one" {
		return errors.New("another one")
	}
	f.decided <- d
	return nil
}

func TestInviting(t *testing.T) {
	b := newInviting()
	_, path := serve(t, b)
	c := NewClient(path)
	var seen []Invitation
	err := c.Invite(t.Context(), InvitationWanted{Seconds: 60, Local: true}, func(i Invitation) error {
		seen = append(seen, i)
		if i.Link == "" {
			return nil
		}
		require.ErrorContains(t, c.Decide(t.Context(), Decision{ID: "two", What: "approve"}), "another one")
		return c.Decide(t.Context(), Decision{ID: "one", What: "approve", Name: "laptop"})
	})
	require.NoError(t, err)
	require.Equal(t, InvitationWanted{Seconds: 60, Local: true}, <-b.wanted)
	require.Equal(t, []Invitation{
		{SchemaVersion: 1, ID: "one", Link: "link", Phase: "open"}, {SchemaVersion: 1, Phase: "approve", Final: true},
	}, seen)
	_, plain := serve(t, &fakeBackend{})
	require.Error(t, NewClient(plain).Invite(t.Context(), InvitationWanted{}, nil), "a backend that invites nobody")
	require.ErrorIs(t, NewClient(path+"2").Invite(t.Context(), InvitationWanted{}, nil), ErrNotRunning)
	require.ErrorIs(t, NewClient(path+"2").Decide(t.Context(), Decision{}), ErrNotRunning)
}

// TestInvitationEndsWithWhoeverAsked: the command, or the gateway.
func TestInvitationEndsWithWhoeverAsked(t *testing.T) {
	b := newInviting()
	s, path := serve(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	err := NewClient(path).Invite(ctx, InvitationWanted{}, func(Invitation) error {
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-b.gone, context.Canceled)

	failed := errors.New("failed")
	require.ErrorIs(t, NewClient(path).Invite(t.Context(), InvitationWanted{}, func(Invitation) error { return failed }), failed)
	require.ErrorIs(t, <-b.gone, context.Canceled)

	err = NewClient(path).Invite(t.Context(), InvitationWanted{}, func(Invitation) error {
		go func() { _ = s.Close() }()
		return nil
	})
	require.Error(t, err)
	require.ErrorIs(t, <-b.gone, context.Canceled)
	require.NoError(t, s.Close())
}

// slowBackend has invitations that take their time to end.
type slowBackend struct {
	fakeBackend
	ending, ended chan struct{}
}

func (f *slowBackend) Invite(ctx context.Context, _ InvitationWanted, tell func(Invitation) error) error {
	defer close(f.ended)
	if err := tell(Invitation{ID: "one", Link: "link", Phase: "open"}); err != nil {
		return err
	}
	<-ctx.Done()
	<-f.ending
	return ctx.Err()
}

func (f *slowBackend) Decide(context.Context, Decision) error { return nil }

// TestCloseWaitsForWhatItCutsOff: an invitation that ends slowly, as where a peer does
// not read how it ended, is no failure of the gateway, and is not left behind.
func TestCloseWaitsForWhatItCutsOff(t *testing.T) {
	b := &slowBackend{ending: make(chan struct{}), ended: make(chan struct{})}
	s, path := serve(t, b)
	s.patience = 10 * time.Millisecond
	closed := make(chan error, 1)
	err := NewClient(path).Invite(t.Context(), InvitationWanted{}, func(Invitation) error {
		go func() { closed <- s.Close() }()
		return nil
	})
	require.Error(t, err, "it was cut off")
	select {
	case err := <-closed:
		require.Fail(t, "closed before the request has ended", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(b.ending)
	require.NoError(t, <-closed)
	select {
	case <-b.ended:
	default:
		require.Fail(t, "the request goes on")
	}
}

// TestInvitationThatIsNotOpened: why is told, and escaped.
func TestInvitationThatIsNotOpened(t *testing.T) {
	b := newInviting()
	b.none = errors.New("no \x1b[31maddress")
	_, path := serve(t, b)
	err := NewClient(path).Invite(t.Context(), InvitationWanted{}, func(Invitation) error { return nil })
	require.EqualError(t, err, `"no \x1b[31maddress"`)
	for _, body := range []string{"", "{}{}", `{"secret":1}`, `{"seconds":"x"}`, strings.Repeat(" ", maxRequest+1)} {
		require.NotEqual(t, http.StatusOK, posted(t, path, "/v1/invitations", body), "%.20s", body)
		require.NotEqual(t, http.StatusOK, posted(t, path, "/v1/invitations/decision", body), "%.20s", body)
	}
	require.Len(t, b.wanted, 1)
	require.Empty(t, b.decided)
}

func posted(t *testing.T, path, url, body string) int {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway"+url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

// TestLinkIsNotLogged: the one secret on this socket.
func TestLinkIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	b := newInviting()
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "admin.sock")
	s, err := Listen(t.Context(), path, b, zerolog.New(&log))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.Error(t, NewClient(path).Invite(ctx, InvitationWanted{}, func(Invitation) error { return errors.New("stop") }))
	<-b.gone
	require.NoError(t, s.Close())
	require.NotContains(t, log.String(), "link")
}
