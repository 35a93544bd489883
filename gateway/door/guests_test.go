package door

import (
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

// TestGuestsComeInByInvitationAlone: and the policy's peers and strangers as before.
func TestGuestsComeInByInvitationAlone(t *testing.T) {
	t.Parallel()
	d := New(rules(t, false, ""), func(peer.ID) {})
	defer d.Close()
	named, _ := someone(t, 1)
	guest, _ := someone(t, 2)
	require.True(t, d.enter(named))
	require.False(t, d.enter(guest))
	require.True(t, d.Welcome(named))
	require.False(t, d.Welcome(guest))

	d.Invite(true)
	require.True(t, d.enter(guest))
	d.connected(guest)
	require.False(t, d.Welcome(guest), "for pairing alone")
	require.Empty(t, d.Unwelcome())
	d.Keep(guest)
	require.True(t, d.known[guest].kept)
	require.Nil(t, d.known[guest].expires)

	d.Invite(false)
	require.False(t, d.known[guest].kept)
	require.Equal(t, []peer.ID{guest}, d.Unwelcome())
	other, _ := someone(t, 3)
	require.False(t, d.enter(other))
	d.Keep(guest)
	require.False(t, d.known[guest].kept, "nobody is kept without an invitation")
	d.disconnected(guest)
	require.False(t, d.enter(guest))
}

// TestGuestThatIsNamedIsWelcome: when the policy has got its name.
func TestGuestThatIsNamedIsWelcome(t *testing.T) {
	t.Parallel()
	p := rules(t, false, "")
	d := New(nil, func(peer.ID) {})
	defer d.Close()
	d.Invite(true)
	id, _ := someone(t, 1)
	require.True(t, d.enter(id))
	d.connected(id)
	require.True(t, d.guest(id))
	d.Swap(p)
	require.False(t, d.guest(id))
	d.Swap(nil)
	require.True(t, d.Welcome(id), "who was admitted is told the ends of what it has")
	d.Invite(false)
	require.Equal(t, []peer.ID{id}, d.Unwelcome())
	d.disconnected(id)
	require.False(t, d.Welcome(id))
}

// TestGuestsAreFewAndLeaveSoon: what a flood of keys gets.
func TestGuestsAreFewAndLeaveSoon(t *testing.T) {
	t.Parallel()
	var left gone
	d := New(nil, left.add)
	defer d.Close()
	d.Grace = 50 * time.Millisecond
	d.Invite(true)
	var first peer.ID
	for n := range byte(MaxGuests) {
		id, _ := someone(t, n+1)
		require.True(t, d.enter(id))
		d.connected(id)
		if n == 0 {
			first = id
			d.Keep(id)
			d.connected(id) // over the other transport
		}
	}
	late, _ := someone(t, 200)
	require.False(t, d.enter(late))
	require.True(t, d.enter(first), "one that is here may have another connection")
	d.connected(late) // it came in before the others were counted
	require.Eventually(t, func() bool { return left.has(late) }, 30*time.Second, time.Millisecond)
	for n := range byte(MaxGuests - 1) {
		id, _ := someone(t, n+2)
		require.Eventually(t, func() bool { return left.has(id) }, 30*time.Second, time.Millisecond)
	}
	require.False(t, left.has(first), "who has shown the invitation stays")
	// Who connects in the moment in which the invitation ends leaves at once.
	d.Invite(false)
	moment, _ := someone(t, 201)
	d.Grace = time.Hour
	d.connected(moment)
	require.Eventually(t, func() bool { return left.has(moment) }, 30*time.Second, time.Millisecond)
}

// TestStrangerThatIsKept: strangers of the policy may pair, too.
func TestStrangerThatIsKept(t *testing.T) {
	t.Parallel()
	var left gone
	d := New(rules(t, true, ""), left.add)
	defer d.Close()
	id, _ := someone(t, 2)
	d.Invite(true)
	require.True(t, d.enter(id))
	d.connected(id)
	require.True(t, d.Welcome(id))
	d.Keep(id)
	require.Nil(t, d.known[id].expires)
	require.Empty(t, d.Unwelcome())
	d.Invite(false)
	require.Equal(t, []peer.ID{id}, d.Unwelcome())
}

// TestGuestsHoldLittle: until they are named.
func TestGuestsHoldLittle(t *testing.T) {
	t.Parallel()
	d := New(nil, func(peer.ID) {})
	defer d.Close()
	d.Invite(true)
	id, _ := someone(t, 1)
	r, err := newResources(&d.transport, d.stranger, d.guest)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	var held []network.StreamManagementScope
	open := func() error {
		s, err := r.OpenStream(id, network.DirInbound)
		if err == nil {
			held = append(held, s)
		}
		return err
	}
	for range streamsPerGuest {
		require.NoError(t, open())
	}
	require.Error(t, open())
	d.Swap(rules(t, false, ""))
	require.NoError(t, open())
	for _, s := range held {
		s.Done()
	}
	l := &limiter{of: &d.transport, stranger: d.stranger, guest: d.guest}
	other, _ := someone(t, 9)
	require.Equal(t, connsPerGuest, l.GetPeerLimits(other).GetConnLimit(network.DirInbound))
	require.Equal(t, int64(guestMemory), l.GetPeerLimits(other).GetMemoryLimit())
	require.Less(t, int64(guestMemory), TransportOf(policy.Limits{}).MemoryPerStranger/8)
}
