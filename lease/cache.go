package lease

import (
	"container/list"
	"crypto/sha256"
	"sync"

	"github.com/lendcli/lend/protocol/name"
)

const defaultCacheSize = 1024

// cache remembers leases that passed every check that cannot change: form,
// signature, holder and gateway. It forgets the least recently used.
type cache struct {
	mu    sync.Mutex // guards both
	order *list.List // of cacheEntry, most recently used first
	byKey map[[32]byte]*list.Element
	size  int
}

type cacheEntry struct {
	key      [32]byte
	verified *Verified
}

// chainKey hashes what decides the checks that the cache spares. The framing is
// unambiguous: the peer ID's length is fixed, every envelope is hashed alone. Only
// chains of legal shape have a key. spec: LEASE-27.
func chainKey(chain [][]byte, peer name.PeerID) (key [32]byte, ok bool) {
	if len(chain) == 0 || len(chain) > MaxChain {
		return key, false
	}
	h := sha256.New()
	h.Write([]byte(peer.String()))
	for _, b := range chain {
		if len(b) > MaxEnvelope {
			return key, false
		}
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return [32]byte(h.Sum(nil)), true
}

func (v *Verifier) store() *cache {
	v.once.Do(func() {
		size := v.CacheSize
		if size == 0 {
			size = defaultCacheSize
		}
		v.cache = &cache{order: list.New(), byKey: make(map[[32]byte]*list.Element), size: size}
	})
	return v.cache
}

func (v *Verifier) remembered(key [32]byte, cacheable bool) *Verified {
	if !cacheable {
		return nil
	}
	c := v.store()
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(cacheEntry).verified
}

func (v *Verifier) remember(key [32]byte, l *Verified) {
	c := v.store()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[key]; ok || c.size < 0 {
		return
	}
	c.byKey[key] = c.order.PushFront(cacheEntry{key, l})
	for c.order.Len() > c.size {
		last := c.order.Back()
		delete(c.byKey, last.Value.(cacheEntry).key)
		c.order.Remove(last)
	}
}
