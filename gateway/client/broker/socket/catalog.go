package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/protocol/name"
)

const (
	// maxPage bounds the commands of one answer, in bytes of JSON; there is at least one.
	maxPage = wire.MaxAnswer / 2
	// maxLent bounds those of a session.
	maxLent = 1 << 14
)

// Page is a part of a catalogue.
type Page struct {
	// Commands are each a broker.Lent.
	Commands []json.RawMessage `json:"commands"`
	// More says that there are others.
	More bool `json:"more"`
	// Silent are the gateways that did not say.
	Silent []name.PeerID `json:"silent,omitempty"`
}

// page answers a part of the catalogue of a session.
func (s *Server) page(q Question) (*Page, error) {
	c, err := s.broker.Catalog(s.ctx, q.Session)
	if err != nil {
		return nil, err
	}
	p := &Page{Commands: []json.RawMessage{}, Silent: c.Silent}
	size := 0
	for i := max(0, q.After); i < len(c.Commands); i++ {
		data, err := json.Marshal(c.Commands[i])
		if err != nil {
			return nil, fmt.Errorf("list what is lent: %w", err)
		}
		if size += len(data); size > maxPage && len(p.Commands) > 0 {
			p.More = true
			break
		}
		p.Commands = append(p.Commands, data)
	}
	return p, nil
}

// Lent asks the broker behind a socket what a session may run: broker.ErrNoSession, or
// the errors of Ask.
func Lent(ctx context.Context, socket, session string) (c broker.Catalog, err error) {
	for {
		a, err := Ask(ctx, socket, Question{Do: DoCatalog, Session: session, After: len(c.Commands)})
		if err != nil {
			return broker.Catalog{}, err
		}
		if a.Catalog == nil || a.Catalog.More && len(a.Catalog.Commands) == 0 || len(c.Commands) > maxLent {
			return broker.Catalog{}, errors.New("list what is lent: the broker's answer is not of this version")
		}
		for _, data := range a.Catalog.Commands {
			var l broker.Lent
			if err := json.Unmarshal(data, &l); err != nil {
				return broker.Catalog{}, fmt.Errorf("list what is lent: %w", err)
			}
			c.Commands = append(c.Commands, l)
		}
		c.Silent = a.Catalog.Silent
		if !a.Catalog.More {
			return c, nil
		}
	}
}
