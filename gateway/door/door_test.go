package door

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func someone(t *testing.T, n byte) (peer.ID, name.PeerID) {
	t.Helper()
	who, err := name.PeerIDFromKey(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	id, err := peer.Decode(who.String())
	require.NoError(t, err)
	back, ok := PeerName(id)
	require.True(t, ok)
	require.Equal(t, who, back)
	return id, who
}

// rules are a policy that names peer 1, with strangers or without.
func rules(t *testing.T, strangers bool, limits string) *policy.Policy {
	t.Helper()
	_, issuer := someone(t, 100)
	_, named := someone(t, 1)
	holders := ""
	if strangers {
		holders = ", holders: any"
	}
	p, err := policy.Parse("policy.yaml", []byte(fmt.Sprintf(`
policy: 1
issuers:
  owner: {id: %s, connectors: any%s}
peers:
  agent: %s
limits: {%s}
`, issuer, holders, named, limits)))
	require.NoError(t, err)
	return p
}

// gone collects the peers that were disconnected.
type gone struct {
	mu  sync.Mutex
	ids []peer.ID
}

func (g *gone) add(p peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ids = append(g.ids, p)
}

func (g *gone) has(p peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range g.ids {
		if id == p {
			return true
		}
	}
	return false
}

func TestAdmission(t *testing.T) {
	named, _ := someone(t, 1)
	stranger, _ := someone(t, 2)
	g := &gone{}

	d := New(rules(t, false, "operations: 100"), g.add)
	require.True(t, d.admit(named))
	require.False(t, d.admit(stranger))
	require.False(t, d.admit(peer.ID("another kind of key")))
	d.Close()
	require.False(t, d.admit(named), "closed")

	require.False(t, New(nil, g.add).admit(named), "without a policy nobody comes in")
	require.Zero(t, LimitsOf(nil))
}

func TestStrangersHaveATimeAndAPool(t *testing.T) {
	g := &gone{}
	d := New(rules(t, true, "operations: 100"), g.add)
	defer d.Close()
	d.Grace = time.Hour
	for n := range byte(MaxStrangers) {
		id, _ := someone(t, 10+n)
		require.True(t, d.admit(id))
		d.connected(id)
	}
	late, _ := someone(t, 50)
	require.False(t, d.admit(late), "the pool is full")
	named, _ := someone(t, 1)
	require.True(t, d.admit(named), "others do not need it")

	proved, _ := someone(t, 10)
	d.Proved(proved)
	require.True(t, d.admit(late), "who has shown a lease makes room")
	d.Grace = time.Millisecond
	d.connected(late)
	require.Eventually(t, func() bool { return g.has(late) }, 10*time.Second, time.Millisecond)
	require.False(t, g.has(proved))

	d.disconnected(late)
	d.disconnected(proved)
	require.Zero(t, d.Unread(proved))
	require.Len(t, d.known, MaxStrangers-1, "who holds nothing is forgotten")
}

func TestStreamsWithoutARequestAreCounted(t *testing.T) {
	d := New(rules(t, false, "operations: 100"), (&gone{}).add)
	id, _ := someone(t, 1)
	var release []func()
	for range MaxUnread {
		done, ok := d.Reading(id)
		require.True(t, ok)
		release = append(release, done)
	}
	_, ok := d.Reading(id)
	require.False(t, ok)
	release[0]()
	release[0]() // again does nothing
	require.Equal(t, MaxUnread-1, d.Unread(id))
	_, ok = d.Reading(id)
	require.True(t, ok)
}

func code(t *testing.T, err error) protocol.Code {
	t.Helper()
	var r *protocol.Refusal
	require.ErrorAs(t, err, &r)
	require.Positive(t, r.RetryAfter)
	return r.Code
}

func TestSlots(t *testing.T) {
	one, _ := someone(t, 1)
	two, _ := someone(t, 2)
	d := New(rules(t, true, "operations: 3, operations_per_peer: 2"), (&gone{}).add)
	var release []func()
	take := func(id peer.ID) error {
		done, err := d.Slot(id)
		if err == nil {
			release = append(release, done)
		}
		return err
	}
	require.NoError(t, take(one))
	require.NoError(t, take(one))
	require.Equal(t, protocol.CodeBusy, code(t, take(one)), "the peer's limit")
	require.NoError(t, take(two))
	require.Equal(t, protocol.CodeBusy, code(t, take(two)), "the gateway's limit")
	release[0]()
	release[0]()
	require.NoError(t, take(two))
	require.Equal(t, protocol.CodeBusy, code(t, take(one)))
}

func TestStartsAMinute(t *testing.T) {
	one, _ := someone(t, 1)
	d := New(rules(t, false, "starts_per_minute: 2"), (&gone{}).add)
	for range 2 {
		done, err := d.Slot(one)
		require.NoError(t, err)
		done()
	}
	_, err := d.Slot(one)
	require.Equal(t, protocol.CodeRateLimited, code(t, err))
	d.Prune()
	require.Contains(t, d.known, one, "its starts are remembered")
	d.Swap(rules(t, false, "starts_per_minute: 3"))
	done, err := d.Slot(one)
	require.NoError(t, err, "a reload holds at once")
	done()
	_, err = d.Slot(one)
	require.Equal(t, protocol.CodeRateLimited, code(t, err))
}

// However many peers are busy, those that run nothing find a slot; a peer alone has
// all that it may.
func TestSlotsAreLeftForOthers(t *testing.T) {
	d := New(rules(t, false, "operations: 16, operations_per_peer: 6, starts_per_minute: 60000"), (&gone{}).add)
	busy := func(n byte) (got int, release []func()) {
		id, _ := someone(t, n)
		for range 20 {
			done, err := d.Slot(id)
			if err != nil {
				require.Equal(t, protocol.CodeBusy, code(t, err))
				return got, release
			}
			got++
			release = append(release, done)
		}
		return got, release
	}
	first, release := busy(1)
	require.Equal(t, 6, first, "one peer alone")
	two, _ := busy(2)
	three, _ := busy(3)
	require.Equal(t, []int{6, 2}, []int{two, three}, "busy peers leave two")
	for n := range byte(2) {
		got, _ := busy(4 + n)
		require.Equal(t, 1, got, "one that runs nothing finds a slot")
	}
	none, _ := busy(6)
	require.Zero(t, none, "the limit in all is one")
	release[0]()
	got, _ := busy(6)
	require.Equal(t, 1, got)
	require.Zero(t, reserve(policy.Limits{Operations: 10, OperationsPerPeer: 10}), "if one peer may have all, it may")
	require.Zero(t, reserve(policy.Limits{}))
}

func TestSwapSaysWhoIsUnwelcome(t *testing.T) {
	named, _ := someone(t, 1)
	stranger, _ := someone(t, 2)
	d := New(rules(t, true, "operations: 100"), (&gone{}).add)
	defer d.Close()
	d.connected(named)
	d.connected(stranger)
	require.Empty(t, d.Unwelcome())
	d.Swap(rules(t, false, "operations: 100"))
	require.Equal(t, []peer.ID{stranger}, d.Unwelcome())
	d.Swap(nil)
	require.ElementsMatch(t, []peer.ID{named, stranger}, d.Unwelcome())
}

func resources(l policy.Limits, stranger func(peer.ID) bool) (network.ResourceManager, error) {
	var at atomic.Pointer[Transport]
	derived := TransportOf(l)
	at.Store(&derived)
	return newResources(&at, stranger, func(peer.ID) bool { return false })
}

func TestResourcesLieAboveThePolicy(t *testing.T) {
	for _, l := range []policy.Limits{{}, {OperationsPerPeer: 4096, Operations: 4096}} {
		for _, stranger := range []bool{false, true} {
			r, err := resources(l, func(peer.ID) bool { return stranger })
			require.NoError(t, err)
			id, _ := someone(t, 1)
			for range max(MaxUnread, l.OperationsPerPeer) + 40 {
				_, err := r.OpenStream(id, network.DirInbound)
				require.NoError(t, err)
			}
			require.NoError(t, r.Close())
		}
	}
}

func TestResourcesOfOneAreNotThoseOfAnother(t *testing.T) {
	hostile, _ := someone(t, 1)
	r, err := resources(policy.Limits{OperationsPerPeer: 32, Operations: 128}, func(p peer.ID) bool { return p == hostile })
	require.NoError(t, err)
	defer r.Close()
	held := map[int]int{}
	for i := 1; i <= 40; i++ {
		id, _ := someone(t, byte(i))
		for ; ; held[i]++ {
			s, err := r.OpenStream(id, network.DirInbound)
			if err != nil {
				break
			}
			require.NoError(t, s.ReserveMemory(streamMemory, network.ReservationPriorityAlways))
		}
	}
	for i, n := range held {
		if i == 1 {
			require.Equal(t, streamsPerStranger, n)
			continue
		}
		require.Equal(t, streamsPerPeer, n, "of one peer, whatever the others hold")
	}
}

// TestRelisten: a listener that has given up is brought back on its address.
func TestRelisten(t *testing.T) {
	d := New(rules(t, false, ""), func(peer.ID) {})
	defer d.Close()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	h, err := d.Host(HostConfig{Key: key})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	for range 2 {
		m, err := multiaddr.NewMultiaddr("/ip4/127.0.0.1/tcp/0")
		require.NoError(t, err)
		require.NoError(t, Listen(h, []multiaddr.Multiaddr{m}))
	}
	on := h.Network().ListenAddresses()
	require.Len(t, on, 2)
	again, err := Relisten(h, on)
	require.NoError(t, err)
	require.Empty(t, again)
	s, ok := h.Network().(*swarm.Swarm)
	require.True(t, ok)
	for _, a := range on {
		s.ListenClose(a)
		require.NotContains(t, h.Network().ListenAddresses(), a)
		again, err = Relisten(h, on)
		require.NoError(t, err)
		require.Equal(t, []multiaddr.Multiaddr{a}, again)
		require.ElementsMatch(t, on, h.Network().ListenAddresses())
	}
	require.NoError(t, h.Close())
	_, err = Relisten(h, on)
	require.ErrorContains(t, err, swarm.ErrSwarmClosed.Error())
}

// A stranger that the policy names while its time runs is no stranger any more.
func TestStrangerThatIsNamed(t *testing.T) {
	cut := make(chan peer.ID, 2)
	d := New(rules(t, true, ""), func(p peer.ID) { cut <- p })
	defer d.Close()
	d.Grace = 50 * time.Millisecond
	named, _ := someone(t, 1)
	other, _ := someone(t, 2)
	_, issuer := someone(t, 100)
	nobody, err := policy.Parse("policy.yaml", []byte(fmt.Sprintf("policy: 1\nissuers:\n  owner: {id: %s, connectors: any, holders: any}\n", issuer)))
	require.NoError(t, err)
	d.Swap(nobody)
	d.connected(named)
	d.connected(other)
	d.Swap(rules(t, true, ""))
	require.Equal(t, other, <-cut)
	require.Empty(t, d.Unwelcome())
	pause := time.NewTimer(3 * d.Grace)
	defer pause.Stop()
	select {
	case p := <-cut:
		require.NotEqual(t, named, p)
	case <-pause.C:
	}
}
