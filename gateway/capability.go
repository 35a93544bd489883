package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// capability is the right to start one command once: for one holder in one
// invocation of one issuer, under one pinned route and one frozen grant. Only
// admit.go makes one, after the durable record; the start port accepts nothing
// else.
type capability struct {
	issuer     name.PeerID
	invocation name.InvocationID
	holder     name.PeerID
	operation  name.OperationID
	route      route.Identity
	frozen     []byte
	call       argv.Call
	workspace  name.Label
	place      string // of the workspace
	limits     route.Limits
	stdin      bool
}

var errNoCapability = errors.New("start without a capability")

// startPort is the only way to a process.
type startPort struct{ runtime Runtime }

func (p startPort) start(ctx context.Context, c *capability) (route.Process, error) {
	if c == nil || c.holder.IsZero() || c.route == (route.Identity{}) || len(c.frozen) == 0 || !c.workspace.IsZero() && c.place == "" {
		return nil, errNoCapability
	}
	return p.runtime.Start(ctx, route.StartRequest{
		Identity:  c.route,
		Workspace: c.workspace.String(),
		Place:     c.place,
		Call:      c.call,
		Limits:    c.limits,
		Stdin:     c.stdin,
	})
}

// contracts shows a Runtime's current routes to the policy.
type contracts struct{ runtime Runtime }

// Contract resolves the one route that matches.
func (c contracts) Contract(key name.ConnectorKey, version name.Version, connection name.ConnectionID) (argv.Contract, string, error) {
	d, err := c.runtime.Resolve(route.Query{Connector: key, Version: version, Connection: connection})
	if err != nil {
		return argv.Contract{}, "", err
	}
	return d.Contract, d.Identity.ContractHash, nil
}

const maxGrants = 512 // parsed ones that are remembered

// encodeSurfaces is the form in which a frozen grant is kept.
func encodeSurfaces(surfaces []*policy.Surface) ([]byte, error) {
	raw := make([]json.RawMessage, len(surfaces))
	for i, s := range surfaces {
		raw[i] = s.Marshal()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a surface is kept as its bytes are
	if err := e.Encode(raw); err != nil {
		return nil, fmt.Errorf("encode frozen grant: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func decodeSurfaces(b []byte) ([]*policy.Surface, error) {
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

// grants remembers frozen grants that were parsed, by their bytes.
type grants struct {
	mu     sync.Mutex // guards parsed
	parsed map[[32]byte][]*policy.Surface
}

func (g *grants) parse(b []byte) ([]*policy.Surface, error) {
	key := sha256.Sum256(b)
	g.mu.Lock()
	s, ok := g.parsed[key]
	g.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := decodeSurfaces(b)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parsed == nil || len(g.parsed) >= maxGrants {
		g.parsed = map[[32]byte][]*policy.Surface{}
	}
	g.parsed[key] = s
	return s, nil
}
