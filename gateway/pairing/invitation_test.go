package pairing

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Process-wide workers of the libraries, started once.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		goleak.IgnoreAnyFunction("github.com/quic-go/quic-go.(*Transport).runSendQueue"),
	)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func peerOf(b byte) name.PeerID { return must(name.PeerIDFromKey(bytes.Repeat([]byte{b}, 32))) }

// clock is moved by hand.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func opened(t require.TestingT, life time.Duration) (*Invitation, *clock) {
	c := &clock{time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	i, err := NewInvitation(peerOf(1), life, c.now)
	require.NoError(t, err)
	return i, c
}

// guest is one that has the link.
type guest struct {
	parties pair.Parties
	nonce   pair.Nonce
	called  name.Label
}

func newGuest(b byte) *guest {
	return &guest{pair.Parties{Owner: peerOf(1), Caller: peerOf(b)}, pair.Nonce(bytes.Repeat([]byte{b}, 32)), must(name.ParseLabel("laptop"))}
}

func (g *guest) hello(s pair.Secret) pair.Hello {
	c := g.parties.Commit(g.nonce)
	return pair.Hello{Commitment: c, Proof: g.parties.CallerProof(s, c, g.called), Called: g.called}
}

// greet brings an invitation to the digits and returns those of the guest.
func (g *guest) greet(t require.TestingT, i *Invitation) string {
	answer, why := i.Hello(g.parties.Caller, g.hello(i.Secret()))
	require.Zero(t, why)
	require.True(t, answer.Proof.Equal(g.parties.OwnerProof(i.Secret(), g.parties.Commit(g.nonce), g.called, answer.Nonce)))
	require.Zero(t, i.Reveal(g.parties.Caller, pair.Reveal{Nonce: g.nonce}))
	return g.parties.CheckDigits(answer.Nonce, g.nonce)
}

func phase(i *Invitation) Phase {
	at, _ := i.Watch()
	return at.Phase
}

func TestPairing(t *testing.T) {
	t.Parallel()
	i, _ := opened(t, MaxLife)
	_, changed := i.Watch()
	g := newGuest(2)
	digits := g.greet(t, i)
	<-changed
	at, _ := i.Watch()
	require.Equal(t, Snapshot{Phase: Shown, Peer: peerOf(2), Called: g.called, Digits: digits}, at)
	require.ErrorIs(t, i.Settle(g.called), ErrOver, "nobody has approved")
	require.NoError(t, i.Approve())
	require.ErrorIs(t, i.Approve(), ErrOver)
	require.ErrorIs(t, i.Refuse(), ErrOver)
	desk := must(name.ParseLabel("desk"))
	require.NoError(t, i.Settle(desk))
	at, _ = i.Watch()
	require.Equal(t, Paired, at.Phase)
	require.Equal(t, desk, at.Name)
	require.ErrorIs(t, i.Settle(desk), ErrOver)
}

// TestWaysToEnd: each without a change, on a clock that is moved by hand.
func TestWaysToEnd(t *testing.T) {
	t.Parallel()
	g, other := newGuest(2), newGuest(3)
	me := g.parties.Caller
	for title, c := range map[string]struct {
		do   func(t require.TestingT, i *Invitation, c *clock)
		want Phase
	}{
		"nobody comes": {func(_ require.TestingT, i *Invitation, c *clock) {
			c.at = c.at.Add(MaxLife - 1)
			i.Tick()
			if phase(i) == Open {
				c.at = c.at.Add(1)
				i.Tick()
			}
		}, Expired},
		"too late a hello": {func(t require.TestingT, i *Invitation, c *clock) {
			c.at = c.at.Add(MaxLife)
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Equal(t, pair.NotInvited, why)
		}, Expired},
		"too late a reveal": {func(t require.TestingT, i *Invitation, c *clock) {
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Zero(t, why)
			c.at = c.at.Add(MaxLife)
			require.Equal(t, pair.Expired, i.Reveal(me, pair.Reveal{Nonce: g.nonce}))
		}, Expired},
		"too late a yes": {func(t require.TestingT, i *Invitation, c *clock) {
			g.greet(t, i)
			c.at = c.at.Add(MaxLife)
			require.ErrorIs(t, i.Approve(), ErrOver)
		}, Expired},
		"a yes in time, and a slow disk": {func(t require.TestingT, i *Invitation, c *clock) {
			g.greet(t, i)
			require.NoError(t, i.Approve())
			c.at = c.at.Add(MaxLife)
			i.Tick()
			require.NoError(t, i.Settle(g.called))
		}, Paired},
		"no": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			require.NoError(t, i.Refuse())
		}, Refused},
		"a yes before the digits": {func(t require.TestingT, i *Invitation, _ *clock) {
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Zero(t, why)
			require.ErrorIs(t, i.Approve(), ErrOver)
		}, Greeted},
		"a yes to nobody": {func(t require.TestingT, i *Invitation, _ *clock) { require.ErrorIs(t, i.Approve(), ErrOver) }, Open},
		"the guest leaves": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			i.Leave(me, false)
			require.ErrorIs(t, i.Approve(), ErrOver)
		}, Lost},
		"the guest leaves early": {func(t require.TestingT, i *Invitation, _ *clock) {
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Zero(t, why)
			i.Leave(me, false)
			require.Equal(t, pair.NotInvited, i.Reveal(me, pair.Reveal{Nonce: g.nonce}))
		}, Lost},
		"somebody else leaves": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			i.Leave(other.parties.Caller, false)
		}, Shown},
		"the guest leaves after the yes": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			require.NoError(t, i.Approve())
			i.Leave(me, true)
		}, Approved},
		"the guest talks": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			i.Leave(me, true)
		}, Mismatched},
		"another nonce": {func(t require.TestingT, i *Invitation, _ *clock) {
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Zero(t, why)
			require.Equal(t, pair.Violation, i.Reveal(me, pair.Reveal{Nonce: other.nonce}))
			require.Equal(t, pair.Violation, i.Reveal(me, pair.Reveal{Nonce: g.nonce}), "there is no second try")
		}, Mismatched},
		"another's reveal": {func(t require.TestingT, i *Invitation, _ *clock) {
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Zero(t, why)
			require.NotZero(t, i.Reveal(other.parties.Caller, pair.Reveal{Nonce: g.nonce}))
		}, Greeted},
		"a reveal without a hello": {func(t require.TestingT, i *Invitation, _ *clock) {
			require.NotZero(t, i.Reveal(name.PeerID{}, pair.Reveal{}))
		}, Open},
		"the owner's side leaves": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			i.Withdraw()
			i.Withdraw()
		}, Withdrawn},
		"the owner's side leaves after the yes": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			require.NoError(t, i.Approve())
			i.Withdraw()
		}, Unsettled},
		"the file cannot be written": {func(t require.TestingT, i *Invitation, _ *clock) {
			g.greet(t, i)
			require.NoError(t, i.Approve())
			require.NoError(t, i.Settle(name.Label{}))
		}, Failed},
		"burned": {func(t require.TestingT, i *Invitation, _ *clock) {
			for n := range MaxTries {
				require.Equal(t, Open, phase(i), n)
				_, why := i.Hello(me, g.hello(pair.Secret{byte(n)}))
				require.Equal(t, pair.NotInvited, why)
			}
			_, why := i.Hello(me, g.hello(i.Secret()))
			require.Equal(t, pair.NotInvited, why, "the right one comes too late")
		}, Burned},
		"the gateway itself": {func(t require.TestingT, i *Invitation, _ *clock) {
			self := newGuest(1)
			_, why := i.Hello(peerOf(1), self.hello(i.Secret()))
			require.Equal(t, pair.NotInvited, why)
		}, Open},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			i, clock := opened(t, MaxLife)
			c.do(t, i, clock)
			require.Equal(t, c.want, phase(i))
		})
	}
}

// TestTwoRace: the first has it, and the owner is told of the second.
//
// spec: PAIR-7
func TestTwoRace(t *testing.T) {
	t.Parallel()
	i, _ := opened(t, MaxLife)
	first, second := newGuest(2), newGuest(3)
	_, why := i.Hello(first.parties.Caller, first.hello(i.Secret()))
	require.Zero(t, why)
	_, why = i.Hello(second.parties.Caller, second.hello(i.Secret()))
	require.Equal(t, pair.Used, why)
	_, why = i.Hello(first.parties.Caller, first.hello(i.Secret()))
	require.Equal(t, pair.Used, why, "a replay, or a second try")
	_, why = i.Hello(second.parties.Caller, first.hello(i.Secret()))
	require.Equal(t, pair.NotInvited, why, "what the first said is of no use to another")
	at, _ := i.Watch()
	require.Equal(t, 1, at.Others)
	require.Zero(t, at.Tries, "who has used it cannot be burned by others")
	require.Zero(t, i.Reveal(first.parties.Caller, pair.Reveal{Nonce: first.nonce}))
	i.Leave(first.parties.Caller, false)
	_, why = i.Hello(second.parties.Caller, second.hello(i.Secret()))
	require.Equal(t, pair.NotInvited, why, "it is spent, whatever has become of the first")
}

// TestSomebodyInBetween has the link and sits between: the digits differ, whichever order
// they choose.
func TestSomebodyInBetween(t *testing.T) {
	t.Parallel()
	same := 0
	for range 200 {
		i, _ := opened(t, MaxLife) // the real one
		evil, err := NewInvitation(peerOf(9), MaxLife, i.now)
		require.NoError(t, err)
		// The caller was given a link of theirs, and talks to their key.
		caller := newGuest(2)
		caller.parties.Owner = peerOf(9)
		answer, why := evil.Hello(peerOf(2), caller.hello(evil.Secret()))
		require.Zero(t, why)
		seen := caller.parties.CheckDigits(answer.Nonce, caller.nonce)
		// They use the real link, with the caller's nonce or any other.
		middle := newGuest(9)
		middle.nonce = caller.nonce
		shown := middle.greet(t, i)
		at, _ := i.Watch()
		require.Equal(t, shown, at.Digits)
		if shown == seen {
			same++
		}
	}
	require.LessOrEqual(t, same, 1, "one in a million")
}

func TestLifeOfAnInvitation(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, -time.Second, MaxLife + 1} {
		_, err := NewInvitation(peerOf(1), d, time.Now)
		require.Error(t, err)
	}
	a, c := opened(t, time.Minute)
	b, _ := opened(t, time.Minute)
	require.NotEqual(t, a.Secret(), b.Secret())
	require.NotEqual(t, a.nonce, b.nonce)
	require.NotEqual(t, pair.Secret{}, a.Secret())
	require.Equal(t, c.at.Add(time.Minute), a.Expires())
}

func TestEveryPhaseHasAWordAndAResult(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for p := Open; p <= Unsettled; p++ {
		require.NotEmpty(t, p.String())
		words[p.String()] = true
		require.NotZero(t, p.result())
		require.Equal(t, p == Paired, p.result() == pair.Paired, p)
	}
	require.Len(t, words, int(Unsettled))
	require.Empty(t, (Unsettled + 1).String())
	require.Empty(t, Phase(0).String())
}

// TestNothingLeadsPastTheOwner: whatever order anything happens in, nobody is paired
// without a right proof, a nonce that fits, a yes to the digits and a name, all in time;
// one peer at most has it, and what is final stays so.
func TestNothingLeadsPastTheOwner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		i, c := opened(t, MaxLife)
		guests := []*guest{newGuest(2), newGuest(3), newGuest(4)}
		var proved, revealed name.PeerID
		wrong := 0
		approved, settled := false, false
		var last Snapshot
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			g := guests[rapid.IntRange(0, 2).Draw(t, "guest")]
			me := g.parties.Caller
			before, _ := i.Watch()
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1:
				if _, why := i.Hello(me, g.hello(i.Secret())); why == 0 {
					require.True(t, proved.IsZero())
					proved = me
				}
			case 2:
				_, why := i.Hello(me, g.hello(pair.Secret{1}))
				require.Equal(t, pair.NotInvited, why)
				if before.Phase == Open && c.at.Before(i.Expires()) {
					wrong++
				}
			case 3, 4:
				if i.Reveal(me, pair.Reveal{Nonce: g.nonce}) == 0 {
					require.Equal(t, proved, me)
					revealed = me
				}
			case 5:
				if i.Approve() == nil {
					require.False(t, revealed.IsZero())
					require.True(t, c.at.Before(i.Expires()))
					approved = true
				}
			case 6:
				if i.Settle(g.called) == nil {
					require.True(t, approved)
					settled = true
				}
			case 7:
				i.Leave(me, rapid.Bool().Draw(t, "violated"))
			case 8:
				c.at = c.at.Add(time.Duration(rapid.IntRange(0, int(MaxLife/4)).Draw(t, "time")))
				i.Tick()
			case 9:
				_ = i.Refuse()
			}
			at, _ := i.Watch()
			if last.Phase.Final() {
				require.Equal(t, last, at)
			}
			require.Equal(t, settled, at.Phase == Paired)
			require.Equal(t, proved, at.Peer)
			require.Equal(t, at.Digits != "", !revealed.IsZero())
			require.Equal(t, wrong >= MaxTries, at.Phase == Burned)
			require.GreaterOrEqual(t, at.Phase, last.Phase)
			last = at
		}
	})
}

func TestAddressesOfALink(t *testing.T) {
	t.Parallel()
	var all []multiaddr.Multiaddr
	for _, a := range []string{
		"/ip4/127.0.0.1/tcp/1", "/ip4/169.254.1.1/tcp/1", "/ip4/0.0.0.0/tcp/1", "/ip6/::1/tcp/1", "/ip6/fe80::1/tcp/1",
		"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/udp/1/quic-v1", "/dns4/lend.example.org/tcp/1", "/ip4/192.0.2.1/tcp/1/ws",
	} {
		all = append(all, must(multiaddr.NewMultiaddr(a+"/p2p/"+peerOf(1).String())))
	}
	texts := func(local bool) (out []string) {
		for _, a := range reachable(all, local) {
			out = append(out, a.String())
		}
		return out
	}
	far := []string{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/udp/1/quic-v1", "/dns4/lend.example.org/tcp/1"}
	require.Equal(t, far, texts(false))
	require.Equal(t, append([]string{"/ip4/127.0.0.1/tcp/1", "/ip4/169.254.1.1/tcp/1", "/ip4/0.0.0.0/tcp/1", "/ip6/::1/tcp/1", "/ip6/fe80::1/tcp/1"}, far...), texts(true))
	for p := range 2 * pair.MaxAddresses {
		all = append(all, must(multiaddr.NewMultiaddr(fmt.Sprintf("/ip4/192.0.2.9/tcp/%d", p+1))))
	}
	require.Len(t, texts(false), pair.MaxAddresses)
}
