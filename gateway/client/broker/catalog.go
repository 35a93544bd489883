package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// catalogWait bounds how long the gateways of a session are asked what they lend.
const catalogWait = 8 * time.Second

// Catalog is what a session may run now.
type Catalog struct {
	Commands []Lent
	// Silent are the gateways that did not say.
	Silent []name.PeerID
}

// Lent is one command of a Catalog.
type Lent struct {
	Gateway name.PeerID
	Entry   protocol.CatalogEntry
	// Until is when the lease ends.
	Until time.Time
}

// Catalog asks the gateways of a session what it may run, and believes what they said
// lately: ErrNoSession. Commands are in the order of leases. Of two leases for one
// command on one gateway the one that lives longer counts.
func (b *Broker) Catalog(ctx context.Context, text string) (Catalog, error) {
	s, err := b.session(text)
	if err != nil {
		return Catalog{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, catalogWait)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	all := s.all()
	said := make([][]protocol.CatalogEntry, len(all))
	failed := make([]error, len(all))
	var wg sync.WaitGroup
	for i, h := range all {
		wg.Go(func() { said[i], failed[i] = h.catalog(ctx, false) })
	}
	wg.Wait()
	if s.ctx.Err() != nil {
		return Catalog{}, ErrNoSession // it was closed meanwhile
	}
	type place struct {
		gateway   name.PeerID
		connector name.ConnectorKey
		version   name.Version
		command   name.Command
	}
	var out Catalog
	at := map[place]int{}
	for i, h := range all {
		f := h.current().Lease
		if failed[i] != nil {
			b.learn(s, h, failed[i])
			if !slices.Contains(out.Silent, f.Gateway) {
				out.Silent = append(out.Silent, f.Gateway)
			}
			continue
		}
		for _, e := range said[i] {
			p := place{f.Gateway, e.Connector, e.Version, e.Command}
			n, ok := at[p]
			switch {
			case !ok:
				at[p] = len(out.Commands)
				out.Commands = append(out.Commands, Lent{f.Gateway, e, f.NotAfter})
			case f.NotAfter.After(out.Commands[n].Until):
				out.Commands[n] = Lent{f.Gateway, e, f.NotAfter}
			}
		}
	}
	return out, nil
}

// Watch waits until something has changed of what a session may run since it was at seen,
// or until ctx is done, and returns what it is at now: 0 is before everything. The error
// is ErrNoSession, also if the session ends meanwhile. What a gateway changes by itself is
// not noticed.
func (b *Broker) Watch(ctx context.Context, text string, seen uint64) (uint64, error) {
	s, err := b.session(text)
	if err != nil {
		return 0, err
	}
	now := s.board.Wait(ctx, seen)
	if s.ctx.Err() != nil {
		return 0, ErrNoSession
	}
	return now, nil
}
