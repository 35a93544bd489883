package gateway

import (
	"errors"
	"time"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// locked is the book of a gateway whose ledger is lost or corrupt: whoever has
// shown a good lease is told so, and nothing starts.
type locked struct{ why error }

func (l locked) refusal() error {
	return &protocol.Refusal{Code: protocol.CodeGatewayLocked, Cause: l.why}
}

func (l locked) Reserve(ledger.Claim) (ledger.Outcome, error) {
	return ledger.Outcome{}, l.refusal()
}

func (l locked) Lookup(ledger.Key) (ledger.Outcome, error) {
	return ledger.Outcome{}, l.refusal()
}

func (l locked) Frozen(name.PeerID, name.InvocationID, name.PeerID) ([]byte, bool, error) {
	return nil, false, l.refusal()
}

func (l locked) Digest(...[]byte) [32]byte           { return [32]byte{} }
func (l locked) Birth() time.Time                    { return time.Time{} }
func (l locked) High() time.Time                     { return time.Time{} }
func (l locked) Refuse(ledger.Refusal) error         { return l.why }
func (l locked) Event(ledger.Event) error            { return l.why }
func (l locked) Walk(func(ledger.Entry) error) error { return l.why }
func (l locked) Err() error                          { return l.why }

// noteFull records that the ledger has no room, and that it has again, as its Probe
// says, and tells whether it has none. A ledger that has failed is neither.
func (n *Node) noteFull(why error) (full bool) {
	full = errors.Is(why, ledger.ErrFull)
	switch was := n.full.Swap(full); {
	case was == full:
	case full:
		n.fullLog.Warn().Msg("the disk of the ledger is full: nothing starts until there is room")
		n.Record(ledger.Event{Name: "degraded", Facts: map[string]string{"what": "the ledger"}})
	case why == nil:
		n.fullLog.Warn().Msg("the ledger has room again")
		n.Record(ledger.Event{Name: "recovered", Facts: map[string]string{"what": "the ledger"}})
	}
	return full
}
