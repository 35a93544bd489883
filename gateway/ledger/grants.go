package ledger

import "sync/atomic"

const (
	keptGrants    = 64
	keptGrantSize = 16 << 10 // in bytes; larger ones are read each time
)

// grants are some of the frozen grants that were read last. What is at an offset of
// the ledger never becomes something else, so that none grows old; of an invocation
// that is closed Reserve says so, whatever is kept. The zero value is empty.
type grants [keptGrants]atomic.Pointer[grant]

type grant struct {
	at     int64 // offset of the start that recorded it
	frozen []byte
}

func (g *grants) place(at int64) *atomic.Pointer[grant] {
	return &g[uint64(at)*0x9e3779b97f4a7c15>>58] // offsets are no random numbers
}

// grantAt returns the frozen grant that the start at this offset recorded. The caller
// must not change it.
func (l *Ledger) grantAt(at int64) ([]byte, error) {
	p := l.grants.place(at)
	if g := p.Load(); g != nil && g.at == at {
		return g.frozen, nil
	}
	s, err := l.readStart(at)
	if err != nil {
		return nil, err
	}
	if len(s.Frozen) <= keptGrantSize {
		p.Store(&grant{at: at, frozen: s.Frozen})
	}
	return s.Frozen, nil
}
