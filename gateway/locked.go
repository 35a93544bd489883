package gateway

import (
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
