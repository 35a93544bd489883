package pairing

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// Errors of Invite.
var (
	// ErrOpen: there is one invitation at a time.
	ErrOpen = errors.New("an invitation is open already")
	// ErrNoAddress: nothing that another machine could reach.
	ErrNoAddress = errors.New("the gateway has no address that another machine could reach (for this machine: --local-addresses)")
)

const (
	tickEvery     = 250 * time.Millisecond
	revealTimeout = 10 * time.Second
	noticeTime    = time.Second      // until a command that has gone is noticed
	endTimeout    = 15 * time.Second // an end waits for who does not read it, less than that
	writeTimeout  = 10 * time.Second
)

// Gateway is what a Desk needs of one.
type Gateway interface {
	ID() name.PeerID
	Addrs() []multiaddr.Multiaddr
	Now() time.Time
	Record(e ledger.Event)
	// Receive has serve called for each pairing stream until stop, which waits a moment
	// for those that are open. keep says that the peer may stay; it ends the deadline
	// of the stream.
	Receive(serve func(s network.Stream, peer name.PeerID, keep func())) (stop func())
}

// Desk opens invitations at one gateway, one at a time. It is safe for concurrent use.
type Desk struct {
	gateway Gateway

	mu      sync.Mutex // guards what follows
	current *Invitation
	id      string
	free    chan struct{} // closed by shut
}

// NewDesk returns the desk of a gateway, which the caller closes after each Invite.
func NewDesk(g Gateway) *Desk { return &Desk{gateway: g} }

// Invited is what Invite opened.
type Invited struct {
	ID      string // names it to Decide; no secret
	Link    string // a secret until it is used
	Expires time.Time
}

// Invite opens an invitation, calls opened once, then tell with each change, the last
// being final, and returns. It withdraws the invitation when ctx is done, or one of
// the two fails. An invitation that ends is waited for, 15 s at most; one that does not
// end within a second is ErrOpen. local keeps loopback and link-local addresses in the link.
func (d *Desk) Invite(ctx context.Context, life time.Duration, local bool, opened func(Invited) error, tell func(Snapshot) error) error {
	i, text, id, err := d.openNext(ctx, life, local)
	if err != nil {
		return err
	}
	defer d.shut()
	defer d.gateway.Receive(session{i}.serve)()
	d.gateway.Record(ledger.Event{Name: "peer.invited", Facts: map[string]string{"until": i.Expires().UTC().Format(time.RFC3339)}})
	err = opened(Invited{ID: id, Link: text, Expires: i.Expires()})
	if err != nil {
		i.Withdraw()
	}
	last := follow(ctx, i, func(at Snapshot) {
		if err == nil {
			err = tell(at)
		}
		if err != nil {
			i.Withdraw()
		}
	})
	d.record(last)
	if err == nil && last.Phase == Withdrawn {
		err = context.Cause(ctx)
	}
	return err
}

// follow calls see with what i is and becomes, and returns the final one. It withdraws i
// when ctx is done.
func follow(ctx context.Context, i *Invitation, see func(Snapshot)) Snapshot {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var seen Snapshot
	done := ctx.Done()
	for {
		at, changed := i.Watch()
		if at != seen {
			seen = at
			see(at)
			if at.Phase.Final() {
				return at
			}
			continue // see may have changed it
		}
		select {
		case <-changed:
		case <-tick.C:
			i.Tick()
		case <-done:
			i.Withdraw()
			done = nil
		}
	}
}

// openNext opens an invitation when the one before it, which ends, has ended.
func (d *Desk) openNext(ctx context.Context, life time.Duration, local bool) (i *Invitation, text, id string, err error) {
	notice, end := time.NewTimer(noticeTime), time.NewTimer(endTimeout)
	defer notice.Stop()
	defer end.Stop()
	noticed := false
	for {
		d.mu.Lock()
		before, free := d.current, d.free
		d.mu.Unlock()
		if before == nil {
			if i, text, id, err = d.open(life, local); !errors.Is(err, ErrOpen) {
				return i, text, id, err
			}
			continue // another was faster
		}
		at, changed := before.Watch()
		if at.Phase.Final() {
			changed = nil // free is what comes
		} else if noticed {
			return nil, "", "", ErrOpen
		}
		select {
		case <-changed:
		case <-free:
		case <-notice.C:
			noticed = true
		case <-end.C:
			return nil, "", "", ErrOpen
		case <-ctx.Done():
			return nil, "", "", context.Cause(ctx)
		}
	}
}

func (d *Desk) open(life time.Duration, local bool) (i *Invitation, text, id string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		return nil, "", "", ErrOpen
	}
	if i, err = NewInvitation(d.gateway.ID(), life, d.gateway.Now); err != nil {
		return nil, "", "", err
	}
	link := pair.Link{Owner: d.gateway.ID(), Addresses: reachable(d.gateway.Addrs(), local), Secret: i.Secret()}
	if len(link.Addresses) == 0 {
		return nil, "", "", ErrNoAddress
	}
	if text, err = link.Text(); err == nil {
		d.current, d.id, d.free = i, rand.Text(), make(chan struct{})
	}
	return i, text, d.id, err
}

func (d *Desk) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current, d.id = nil, ""
	close(d.free)
}

// Find returns the open invitation of that ID; ErrOver if it is another, or none.
func (d *Desk) Find(id string) (*Invitation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil || id != d.id {
		return nil, ErrOver
	}
	return d.current, nil
}

// record keeps how an invitation ended. Nobody who did not have the link is in it.
func (d *Desk) record(at Snapshot) {
	e := ledger.Event{Name: "peer.refused", Facts: map[string]string{"why": at.Phase.String()}}
	if at.Phase == Paired {
		e = ledger.Event{Name: "peer.paired", Facts: map[string]string{"name": at.Name.String()}}
	}
	if !at.Peer.IsZero() {
		e.Facts["peer"] = at.Peer.String()
	}
	if !at.Called.IsZero() {
		e.Facts["called"] = name.Quote(at.Called.String())
	}
	d.gateway.Record(e)
}

// reachable are the addresses for a link, without the peer ID.
func reachable(all []multiaddr.Multiaddr, local bool) (out []multiaddr.Multiaddr) {
	for _, a := range all {
		if rest, last := multiaddr.SplitLast(a); last != nil && last.Protocol().Code == multiaddr.P_P2P {
			a = rest
		}
		if len(out) < pair.MaxAddresses && pair.Addressable(a) && (local || !isLocal(a)) && !slices.ContainsFunc(out, a.Equal) {
			out = append(out, a)
		}
	}
	return out
}

func isLocal(a multiaddr.Multiaddr) bool {
	ip, _ := netip.ParseAddr(a[0].Value()) // a name is not local
	return ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified()
}

// session serves the streams of one invitation.
type session struct{ invitation *Invitation }

// serve is one peer's exchange. The stream has a deadline for the first frame.
func (s session) serve(stream network.Stream, peer name.PeerID, keep func()) {
	if out := s.exchange(stream, peer, keep); out.Result != 0 {
		_ = stream.SetWriteDeadline(time.Now().Add(writeTimeout))
		_ = pair.Write(stream, out) // who does not get it knows that, and nothing else
	}
}

// exchange returns what the peer is told at the end; nothing if there is nobody to tell.
func (s session) exchange(stream network.Stream, peer name.PeerID, keep func()) pair.Outcome {
	f, err := pair.Read(stream)
	hello, ok := f.(pair.Hello)
	if err != nil || !ok {
		return violated(err)
	}
	answer, result := s.invitation.Hello(peer, hello)
	if result != 0 {
		return pair.Outcome{Result: result}
	}
	keep()
	_ = stream.SetDeadline(time.Now().Add(revealTimeout))
	if err := pair.Write(stream, answer); err != nil {
		s.invitation.Leave(peer, false)
		return pair.Outcome{}
	}
	f, err = pair.Read(stream)
	reveal, ok := f.(pair.Reveal)
	if err != nil || !ok {
		out := violated(err)
		s.invitation.Leave(peer, out.Result == pair.Violation)
		return out
	}
	if result := s.invitation.Reveal(peer, reveal); result != 0 {
		return pair.Outcome{Result: result}
	}
	_ = stream.SetDeadline(time.Time{})
	return s.decided(stream, peer)
}

// violated is what is told about something that is not the frame that comes now.
func violated(err error) pair.Outcome {
	if err == nil || errors.Is(err, pair.ErrViolation) {
		return pair.Outcome{Result: pair.Violation}
	}
	return pair.Outcome{}
}

// decided waits for the end. The peer has nothing more to say: whatever comes from it is
// its leaving.
func (s session) decided(stream network.Stream, peer name.PeerID) pair.Outcome {
	left := make(chan struct{})
	go func() {
		defer close(left)
		n, _ := io.ReadFull(stream, make([]byte, 1))
		s.invitation.Leave(peer, n > 0)
	}()
	defer func() {
		_ = stream.SetReadDeadline(time.Now()) // the goroutine ends
		<-left
		_ = stream.SetReadDeadline(time.Time{})
	}()
	for {
		at, changed := s.invitation.Watch()
		if at.Phase.Final() {
			return pair.Outcome{Result: at.Phase.result(), Name: at.Name}
		}
		<-changed
	}
}
