package client

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/lendcli/lend/lease"
)

// mostOpened is how many chains are remembered: those of a client's invocations.
const mostOpened = 64

// opened remembers what chains say, so that each is opened once: that costs a signature
// for each link, and depends on the bytes alone. What it returns is shared and must not
// be changed.
type opened struct {
	mu sync.Mutex // guards by
	by map[[sha256.Size]byte]lease.Lease
}

func (o *opened) open(chain [][]byte) (lease.Lease, error) {
	key := chainKey(chain)
	o.mu.Lock()
	l, ok := o.by[key]
	o.mu.Unlock()
	if ok {
		return l, nil
	}
	l, err := lease.Open(chain)
	if err != nil {
		return l, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil || len(o.by) >= mostOpened {
		o.by = map[[sha256.Size]byte]lease.Lease{}
	}
	o.by[key] = l
	return l, nil
}

// chainKey is a digest of the links and of where each ends.
func chainKey(chain [][]byte) (key [sha256.Size]byte) {
	h := sha256.New()
	var n [8]byte
	for _, link := range chain {
		binary.BigEndian.PutUint64(n[:], uint64(len(link)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(link)
	}
	h.Sum(key[:0])
	return key
}
