package route

import (
	"cmp"
	"slices"

	"github.com/lendcli/lend/protocol/name"
)

// Hint helps to find the Connector that somebody means. It is made of the
// descriptors of one Connector and decides nothing: what may run is the policy's.
type Hint struct {
	Connector name.ConnectorKey
	// DisplayName, Aliases and Command are those of the newest generation.
	DisplayName string
	Aliases     []string
	Command     string
	// Versions and Connections that have a route, sorted, each once.
	Versions    []name.Version
	Connections []name.ConnectionID
}

// Hints returns one hint for each Connector of the descriptors, sorted by key. The
// result shares nothing with them.
func Hints(routes []Descriptor) []Hint {
	newest := make(map[name.ConnectorKey]uint64)
	byKey := make(map[name.ConnectorKey]*Hint)
	for _, d := range routes {
		id := d.Identity
		h := byKey[id.Connector]
		if h == nil {
			h = &Hint{Connector: id.Connector}
			byKey[id.Connector] = h
		}
		if id.Generation.Number >= newest[id.Connector] {
			newest[id.Connector] = id.Generation.Number
			h.DisplayName, h.Aliases, h.Command = d.DisplayName, slices.Clone(d.Aliases), d.Contract.Command
		}
		h.Versions = append(h.Versions, id.Version)
		h.Connections = append(h.Connections, id.Connection)
	}
	all := make([]Hint, 0, len(byKey))
	for _, h := range byKey {
		slices.SortFunc(h.Versions, func(a, b name.Version) int { return cmp.Compare(a.String(), b.String()) })
		slices.SortFunc(h.Connections, func(a, b name.ConnectionID) int { return cmp.Compare(a.String(), b.String()) })
		h.Versions, h.Connections = slices.Compact(h.Versions), slices.Compact(h.Connections)
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Hint) int { return cmp.Compare(a.Connector.String(), b.Connector.String()) })
	return all
}
