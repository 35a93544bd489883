package pairing_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway"
	client "github.com/lendcli/lend/gateway/client/pairing"
	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/pairing"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

const patience = 30 * time.Second

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return key
}

func idOf(key ed25519.PrivateKey) name.PeerID {
	return must(name.PeerIDFromKey(key.Public().(ed25519.PublicKey)))
}

type nothingRevoked struct{}

func (nothingRevoked) Revoked(lease.Subject) bool { return false }

// house is a gateway with a desk, and a clock.
type house struct {
	t      *testing.T
	node   *gateway.Node
	ledger *ledger.Ledger
	desk   *pairing.Desk
	issuer name.PeerID
	host   *fakehost.Host
	ahead  atomic.Int64
	log    lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (h *house) policy(peers string) *policy.Policy {
	h.t.Helper()
	p, err := policy.Parse("policy.yaml", []byte("policy: 1\nissuers:\n  owner: {id: "+h.issuer.String()+", connectors: any}\n"+peers))
	require.NoError(h.t, err)
	return p
}

func newHouse(t *testing.T, transport string) *house {
	t.Helper()
	h := &house{t: t, issuer: idOf(newKey(t)), host: &fakehost.Host{}}
	var err error
	h.ledger, err = ledger.Open(ledger.Config{Dir: t.TempDir() + "/ledger"})
	require.NoError(t, err)
	listen := map[string]string{"tcp": "/ip4/127.0.0.1/tcp/0", "quic": "/ip4/127.0.0.1/udp/0/quic-v1"}[transport]
	h.node, err = gateway.New(gateway.Config{
		Key: newKey(t), Runtime: h.host, Ledger: h.ledger, Revocations: nothingRevoked{}, Policy: h.policy(""),
		Listen: []multiaddr.Multiaddr{must(multiaddr.NewMultiaddr(listen))},
		Log:    zerolog.New(&h.log),
		Now:    func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) },
	})
	require.NoError(t, err)
	h.desk = pairing.NewDesk(h.node)
	t.Cleanup(func() {
		require.NoError(t, h.node.Close())
		require.NoError(t, h.ledger.Close())
	})
	return h
}

// invited is an invitation that runs.
type invited struct {
	*house

	link   pair.Link
	text   string
	it     *pairing.Invitation
	cancel context.CancelFunc
	ended  chan error
	mu     sync.Mutex
	told   []pairing.Snapshot
}

func (h *house) invite() *invited {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	i := &invited{house: h, cancel: cancel, ended: make(chan error, 1)}
	ready := make(chan pairing.Invited, 1)
	go func() {
		i.ended <- h.desk.Invite(ctx, pairing.MaxLife, true, func(o pairing.Invited) error {
			ready <- o
			return nil
		}, func(at pairing.Snapshot) error {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.told = append(i.told, at)
			return nil
		})
		close(i.ended)
	}()
	h.t.Cleanup(func() {
		cancel()
		<-i.ended
	})
	select {
	case o := <-ready:
		i.text, i.link = o.Link, must(pair.ParseLink(o.Link))
		i.it = must(h.desk.Find(o.ID))
	case err := <-i.ended:
		require.NoError(h.t, err)
	}
	return i
}

// until waits until the owner was told of that phase.
func (i *invited) until(p pairing.Phase) pairing.Snapshot {
	i.t.Helper()
	var at pairing.Snapshot
	require.Eventually(i.t, func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, s := range i.told {
			if s.Phase == p {
				at = s
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond, "%s", p)
	return at
}

// joined is a caller that is about to pair.
type joined struct {
	key    ed25519.PrivateKey
	digits chan string
	cancel context.CancelFunc
	done   chan struct{}
	called name.Label
	err    error
}

func (i *invited) join(key ed25519.PrivateKey, link pair.Link) *joined {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), 2*patience)
	j := &joined{key: key, digits: make(chan string, 1), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(j.done)
		j.called, j.err = client.Join(ctx, client.Config{
			Key: key, Link: link, Called: must(name.ParseLabel("mine")), Shown: func(d string) { j.digits <- d },
		})
	}()
	i.t.Cleanup(func() {
		cancel()
		<-j.done
	})
	return j
}

func (j *joined) ended(t *testing.T) error {
	t.Helper()
	select {
	case <-j.done:
	case <-time.After(patience):
		require.Fail(t, "the caller still waits")
	}
	return j.err
}

func onBoth(t *testing.T, f func(h *house)) {
	t.Helper()
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			f(newHouse(t, transport))
		})
	}
}

func TestTwoMachinesPair(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		i := h.invite()
		key := newKey(t)
		j := i.join(key, i.link)
		digits := <-j.digits
		at := i.until(pairing.Shown)
		require.Equal(t, digits, at.Digits)
		require.Equal(t, idOf(key), at.Peer)
		require.Equal(t, "mine", at.Called.String())
		require.NoError(t, i.it.Approve())
		h.node.Reload(h.policy("peers: {laptop: " + at.Peer.String() + "}\n"))
		require.NoError(t, i.it.Settle(must(name.ParseLabel("laptop"))))
		require.NoError(t, j.ended(t))
		require.Equal(t, "laptop", j.called.String())
		require.NoError(t, <-i.ended)
		require.NotContains(t, h.log.String(), i.text)
		require.NotContains(t, h.log.String(), i.text[12:50])
		// It is spent, and nobody gets in any more.
		late := i.join(newKey(t), i.link)
		require.ErrorIs(t, late.ended(t), client.ErrNotInvited)
		_, err := h.desk.Find("")
		require.ErrorIs(t, err, pairing.ErrOver)
	})
}

func TestWhatTheCallerIsTold(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		for title, c := range map[string]struct {
			do   func(i *invited, j *joined)
			want pairing.Phase
			err  error
		}{
			"no":        {func(i *invited, _ *joined) { require.NoError(t, i.it.Refuse()) }, pairing.Refused, client.ErrRefused},
			"too late":  {func(i *invited, _ *joined) { h.ahead.Add(int64(pairing.MaxLife)) }, pairing.Expired, client.ErrExpired},
			"withdrawn": {func(i *invited, _ *joined) { i.cancel() }, pairing.Withdrawn, client.ErrWithdrawn},
			"left":      {func(_ *invited, j *joined) { j.cancel() }, pairing.Lost, context.Canceled},
			"unsettled": {func(i *invited, _ *joined) { require.NoError(t, i.it.Approve()); i.cancel() }, pairing.Unsettled, client.ErrUnknown},
			"no new file": {func(i *invited, _ *joined) {
				require.NoError(t, i.it.Approve())
				require.NoError(t, i.it.Settle(name.Label{}))
			}, pairing.Failed, client.ErrFailed},
		} {
			i := h.invite()
			j := i.join(newKey(t), i.link)
			i.until(pairing.Shown)
			<-j.digits
			c.do(i, j)
			require.ErrorIs(t, j.ended(t), c.err, title)
			i.until(c.want)
			<-i.ended
			require.Empty(t, j.called, title)
		}
	})
}

func TestWrongLinksBurnIt(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		i := h.invite()
		wrong := i.link
		wrong.Secret[0] ^= 1
		for range pairing.MaxTries {
			require.ErrorIs(t, i.join(newKey(t), wrong).ended(t), client.ErrNotInvited)
		}
		require.Equal(t, pairing.MaxTries, i.until(pairing.Burned).Tries)
		require.NoError(t, <-i.ended)
		require.ErrorIs(t, i.join(newKey(t), i.link).ended(t), client.ErrNotInvited)
	})
}

func TestTwoWithTheSameLink(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		i := h.invite()
		first := i.join(newKey(t), i.link)
		<-first.digits
		i.until(pairing.Shown)
		require.ErrorIs(t, i.join(newKey(t), i.link).ended(t), client.ErrUsed)
		require.Eventually(t, func() bool {
			at, _ := i.it.Watch()
			return at.Others == 1
		}, patience, time.Millisecond)
		require.NoError(t, i.it.Refuse())
		require.ErrorIs(t, first.ended(t), client.ErrRefused)
	})
}

func TestOneInvitationAtATime(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "tcp")
	i := h.invite()
	never := func(pairing.Snapshot) error { return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // one that stays open is not waited for as long as one that ends
	defer cancel()
	err := h.desk.Invite(ctx, time.Minute, true, func(pairing.Invited) error { return nil }, never)
	require.ErrorIs(t, err, pairing.ErrOpen)
	_, err = h.desk.Find("another")
	require.ErrorIs(t, err, pairing.ErrOver)
	i.cancel()
	require.ErrorIs(t, <-i.ended, context.Canceled)
	require.ErrorIs(t, h.desk.Invite(t.Context(), time.Minute, false, func(pairing.Invited) error { return nil }, never), pairing.ErrNoAddress, "loopback alone")
	require.Error(t, h.desk.Invite(t.Context(), time.Hour, true, nil, nil))
	gone := errors.New("the terminal has gone")
	require.ErrorIs(t, h.desk.Invite(t.Context(), time.Minute, true, func(pairing.Invited) error { return gone }, never), gone)
	require.ErrorIs(t, h.desk.Invite(t.Context(), time.Minute, true, func(pairing.Invited) error { return nil }, func(pairing.Snapshot) error { return gone }), gone)
	h.invite().cancel()
}

// slowToEnd is a gateway whose streams are still being told of the end until let.
type slowToEnd struct {
	pairing.Gateway
	ending, let chan struct{}
}

func (g slowToEnd) Receive(serve func(network.Stream, name.PeerID, func())) (stop func()) {
	end := g.Gateway.Receive(serve)
	return func() {
		end()
		g.ending <- struct{}{}
		<-g.let
	}
}

// TestInviteAfterOneThatEnds: who was killed with an open invitation invites again, and
// that waits for the old one's end rather than being refused.
func TestInviteAfterOneThatEnds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "tcp")
	g := slowToEnd{h.node, make(chan struct{}, 3), make(chan struct{})}
	h.desk = pairing.NewDesk(g)
	first := h.invite()
	first.cancel()
	<-g.ending

	gone, leave := context.WithCancelCause(t.Context())
	left := errors.New("left")
	leave(left)
	require.ErrorIs(t, h.desk.Invite(gone, time.Minute, true, nil, nil), left, "nobody waits for who has gone")

	opened, second := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		second <- h.desk.Invite(ctx, time.Minute, true, func(pairing.Invited) error {
			close(opened)
			return nil
		}, func(pairing.Snapshot) error { return nil })
	}()
	select {
	case err := <-second:
		require.NoError(t, err, "it is refused")
	case <-opened:
		require.Fail(t, "two are open")
	case <-time.After(2 * time.Second): // longer than a command that has gone needs to be noticed
	}
	close(g.let)
	require.ErrorIs(t, <-first.ended, context.Canceled)
	select {
	case err := <-second:
		require.NoError(t, err, "it is refused")
	case <-opened:
	case <-time.After(patience):
		require.Fail(t, "it is not opened")
	}
	cancel()
	require.ErrorIs(t, <-second, context.Canceled)
}

// TestOwnersOwnLink: a machine does not pair with itself.
func TestOwnersOwnLink(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "tcp")
	i := h.invite()
	key := newKey(t)
	link := i.link
	link.Owner = idOf(key)
	require.ErrorContains(t, i.join(key, link).ended(t), "this machine's own")
	link = i.link
	link.Addresses = []multiaddr.Multiaddr{must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/tcp/1"))}
	require.ErrorIs(t, i.join(key, link).ended(t), client.ErrUnreachable)
	_, err := client.Join(t.Context(), client.Config{Link: i.link})
	require.Error(t, err, "no key")
}

// stranger dials the gateway by hand.
func (h *house) stranger(key ed25519.PrivateKey) (host.Host, error) {
	h.t.Helper()
	s, err := libp2p.New(libp2p.Identity(must(crypto.UnmarshalEd25519PrivateKey(key))), libp2p.NoListenAddrs)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = s.Close() })
	to := must(peer.AddrInfosFromP2pAddrs(h.node.Addrs()...))[0]
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	return s, s.Connect(ctx, to)
}

func (h *house) open(s host.Host, id string) (network.Stream, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	to := must(peer.AddrInfosFromP2pAddrs(h.node.Addrs()...))[0]
	return s.NewStream(network.WithNoDial(ctx, "test"), to.ID, core.ID(id))
}

// TestGuestsGetPairingAndNothingElse: no Run, control or catalogue stream is even read.
func TestGuestsGetPairingAndNothingElse(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		if s, err := h.stranger(newKey(t)); err == nil { // the client end may be told after it was built
			_, err := h.open(s, pair.ID)
			require.Error(t, err, "as closed as ever without an invitation")
		}
		i := h.invite()
		key := newKey(t)
		s, err := h.stranger(key)
		require.NoError(t, err)
		for _, id := range []string{protocol.RunID, protocol.ControlID, protocol.CatalogID} {
			stream, err := h.open(s, id)
			if err != nil {
				continue // reset so soon
			}
			_ = stream.SetDeadline(time.Now().Add(patience))
			got, err := io.ReadAll(stream)
			require.Error(t, err, id)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Empty(t, got, id)
		}
		require.Zero(t, h.host.Resolves.Load())
		stream, err := h.open(s, pair.ID)
		require.NoError(t, err)
		require.NoError(t, pair.Write(stream, pair.Reveal{}))
		f, err := pair.Read(stream)
		require.NoError(t, err)
		require.Equal(t, pair.Outcome{Result: pair.Violation}, f)
		// When it is over, guests are sent away, and the protocol is not there any more.
		i.cancel()
		<-i.ended
		require.Eventually(t, func() bool { return len(s.Network().Peers()) == 0 }, patience, 10*time.Millisecond)
		// A peer that the policy names is answered, and finds no such protocol.
		h.node.Reload(h.policy("peers: {laptop: " + idOf(key).String() + "}\n"))
		to := must(peer.AddrInfosFromP2pAddrs(h.node.Addrs()...))[0]
		require.NoError(t, s.Connect(t.Context(), to))
		_, err = h.open(s, pair.ID)
		require.Error(t, err)
		stream, err = h.open(s, protocol.ControlID)
		require.NoError(t, err)
		require.NoError(t, stream.CloseWrite())
		reply, err := protocol.ReadControlReply(stream)
		require.NoError(t, err)
		require.IsType(t, &protocol.Refused{}, reply)
	})
}

// TestHostileGuests send what they like: the invitation stands, and is still of use.
func TestHostileGuests(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		i := h.invite()
		for title, junk := range map[string][]byte{
			"nothing":      nil,
			"noise":        bytes.Repeat([]byte{0xa7}, 4096),
			"huge":         {0xff, 0x7f},
			"half a frame": {0x4e, 0x0a},
			"zero":         make([]byte, 1<<20),
		} {
			s, err := h.stranger(newKey(t))
			require.NoError(t, err, title)
			stream, err := h.open(s, pair.ID)
			require.NoError(t, err, title)
			_ = stream.SetDeadline(time.Now().Add(patience))
			_, _ = stream.Write(junk)
			_ = stream.CloseWrite()
			got, _ := io.ReadAll(stream)
			require.LessOrEqual(t, len(got), 16, title)
			require.NoError(t, s.Close())
		}
		at, _ := i.it.Watch()
		require.Equal(t, pairing.Snapshot{Phase: pairing.Open}, at, "junk is no try")

		// A flood of keys fills the guests' places, and no more, and is sent away soon.
		var floods []host.Host
		for range 2 * door.MaxGuests {
			if s, err := h.stranger(newKey(t)); err == nil {
				floods = append(floods, s)
				_, _ = h.open(s, pair.ID) // and says nothing
			}
		}
		require.LessOrEqual(t, len(h.node.Status().Peers), door.MaxGuests)
		for _, s := range floods { // slow ones are cut off, not waited for
			require.Eventually(t, func() bool { return len(s.Network().Peers()) == 0 }, 2*patience, 50*time.Millisecond)
		}
		j := i.join(newKey(t), i.link)
		<-j.digits
		i.until(pairing.Shown)
		require.NoError(t, i.it.Refuse())
		require.ErrorIs(t, j.ended(t), client.ErrRefused)
	})
}

// TestGuestThatBreaksTheProtocol after it has proved that it has the link: the invitation
// is spent.
func TestGuestThatBreaksTheProtocol(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		for title, c := range map[string]struct {
			then func(s network.Stream, nonce pair.Nonce)
			want pairing.Phase
		}{
			"another nonce": {func(s network.Stream, _ pair.Nonce) { _ = pair.Write(s, pair.Reveal{Nonce: pair.Nonce{7}}) }, pairing.Mismatched},
			"another frame": {func(s network.Stream, _ pair.Nonce) { _ = pair.Write(s, pair.Answer{}) }, pairing.Mismatched},
			"junk":          {func(s network.Stream, _ pair.Nonce) { _, _ = s.Write([]byte{0}) }, pairing.Mismatched},
			"leaves":        {func(s network.Stream, _ pair.Nonce) { _ = s.Reset() }, pairing.Lost},
			"closes":        {func(s network.Stream, _ pair.Nonce) { _ = s.CloseWrite() }, pairing.Lost},
			"talks on": {func(s network.Stream, n pair.Nonce) {
				_ = pair.Write(s, pair.Reveal{Nonce: n})
				_ = pair.Write(s, pair.Reveal{Nonce: n})
			}, pairing.Mismatched},
			"leaves with the digits": {func(s network.Stream, n pair.Nonce) {
				_ = pair.Write(s, pair.Reveal{Nonce: n})
				_ = s.Close()
			}, pairing.Lost},
		} {
			i := h.invite()
			key := newKey(t)
			s, err := h.stranger(key)
			require.NoError(t, err)
			stream, err := h.open(s, pair.ID)
			require.NoError(t, err)
			parties, nonce := pair.Parties{Owner: h.node.ID(), Caller: idOf(key)}, pair.Nonce{1}
			commitment := parties.Commit(nonce)
			require.NoError(t, pair.Write(stream, pair.Hello{Commitment: commitment, Proof: parties.CallerProof(i.link.Secret, commitment, name.Label{})}))
			f, err := pair.Read(stream)
			require.NoError(t, err)
			require.IsType(t, pair.Answer{}, f, title)
			c.then(stream, nonce)
			at := i.until(c.want)
			require.Equal(t, idOf(key), at.Peer, title)
			require.NoError(t, <-i.ended)
			require.NoError(t, s.Close())
		}
	})
}

// TestGatewayThatEnds takes the invitation with it.
func TestGatewayThatEnds(t *testing.T) {
	onBoth(t, func(h *house) {
		t := h.t
		i := h.invite()
		j := i.join(newKey(t), i.link)
		<-j.digits
		i.until(pairing.Shown)
		closed := make(chan error, 1)
		go func() { closed <- h.node.Close() }()
		i.until(pairing.Lost)
		require.NoError(t, <-closed)
		require.ErrorIs(t, j.ended(t), client.ErrUnknown)
	})
}
