package grant

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/lendcli/lend/policy"
)

const most = 512 // parsed ones that are remembered

// Encode returns the form in which a frozen grant is kept: a list in JSON of the
// surfaces, each as its own bytes are.
func Encode(surfaces []*policy.Surface) []byte {
	docs := make([][]byte, len(surfaces))
	for i, s := range surfaces {
		docs[i] = s.Marshal()
	}
	return slices.Concat([]byte("["), bytes.Join(docs, []byte(",")), []byte("]"))
}

func decode(b []byte) ([]*policy.Surface, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("decode frozen grant: %w", err)
	}
	out := make([]*policy.Surface, len(raw))
	for i := range raw {
		var err error
		if out[i], err = policy.ParseSurface(raw[i]); err != nil {
			return nil, fmt.Errorf("decode frozen grant: %w", err)
		}
	}
	return out, nil
}

// Cache remembers frozen grants that were parsed, by their bytes; the zero value is
// ready. It is safe for concurrent use.
type Cache struct {
	mu     sync.Mutex // guards parsed
	parsed map[[32]byte][]*policy.Surface
}

// Parse reads what Encode wrote, strictly. The caller must not change the result.
func (g *Cache) Parse(b []byte) ([]*policy.Surface, error) {
	key := sha256.Sum256(b)
	g.mu.Lock()
	s, ok := g.parsed[key]
	g.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := decode(b)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parsed == nil || len(g.parsed) >= most {
		g.parsed = map[[32]byte][]*policy.Surface{}
	}
	g.parsed[key] = s
	return s, nil
}
