package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is the registry as a reader would explain it: what is current by place,
// and which processes run under which generation.
type model struct {
	t         *rapid.T
	registry  *Registry
	launcher  *fakeLauncher
	current   map[slot]Descriptor
	running   map[uint64][]*CLIConnection // by generation
	retired   []Identity
	revision  uint64
	published uint64
}

func (m *model) draw() Descriptor {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(m.t, label) }
	return candidate(m.t, pick("key", "github", "stripe"), pick("version", "1.0.0", "2.0.0"),
		pick("connection", "home", "work"), pick("content", "a", "b"))
}

func (m *model) commit() {
	d := m.draw()
	at := d.Identity.slot()
	got, err := m.registry.Commit(context.Background(), d, m.launcher)
	require.NoError(m.t, err)
	m.published++
	require.Equal(m.t, m.published, got.Identity.Generation.Number, "generations only grow")
	m.drop(at)
	m.current[at] = got
	m.revision++
}

func (m *model) drop(at slot) {
	if old, ok := m.current[at]; ok {
		m.retired = append(m.retired, old.Identity)
		delete(m.running, old.Identity.Generation.Number)
		delete(m.current, at)
	}
}

func (m *model) remove() {
	id := m.anyIdentity()
	require.NoError(m.t, m.registry.Remove(context.Background(), id))
	if m.current[id.slot()].Identity == id {
		m.drop(id.slot())
		m.revision++
	}
}

// anyIdentity draws a current, retired or never published identity.
func (m *model) anyIdentity() Identity {
	all := slices.Clone(m.retired)
	for _, d := range m.sorted() {
		all = append(all, d.Identity)
	}
	never := m.draw().Identity
	never.Generation = Generation{m.registry.Epoch(), 1 << 40}
	return rapid.SampledFrom(append(all, never)).Draw(m.t, "identity")
}

func (m *model) start() {
	id := m.anyIdentity()
	c, err := m.registry.StartCLI(context.Background(), request(id))
	if m.current[id.slot()].Identity != id {
		require.ErrorIs(m.t, err, ErrIdentityMismatch)
		return
	}
	require.NoError(m.t, err)
	n := id.Generation.Number
	m.running[n] = append(m.running[n], c)
}

func (m *model) closeOne() {
	for n, all := range m.running {
		if len(all) > 0 {
			require.NoError(m.t, all[0].Close())
			m.running[n] = all[1:]
			return
		}
	}
}

func (m *model) resolve() {
	id := m.draw().Identity
	q := Query{Connector: id.Connector, Version: id.Version}
	if rapid.Bool().Draw(m.t, "named") {
		q.Connection = id.Connection
	}
	var want []Descriptor
	for at, d := range m.current {
		if at.connector == q.Connector && at.version == q.Version && (q.Connection.IsZero() || at.connection == q.Connection) {
			want = append(want, d)
		}
	}
	got, err := m.registry.Resolve(q)
	switch len(want) {
	case 0:
		require.ErrorIs(m.t, err, ErrNotFound)
	case 1:
		require.NoError(m.t, err)
		require.Equal(m.t, want[0], got)
	default:
		require.ErrorIs(m.t, err, ErrAmbiguous)
	}
}

func (m *model) sorted() []Descriptor {
	var all []Descriptor
	for _, d := range m.current {
		all = append(all, d)
	}
	sortKey := func(d Descriptor) string {
		return fmt.Sprintf("%s %s %s", d.Identity.Connector, d.Identity.Version, d.Identity.Connection)
	}
	slices.SortFunc(all, func(a, b Descriptor) int {
		if sortKey(a) < sortKey(b) {
			return -1
		}
		return 1
	})
	return all
}

func (m *model) check() {
	revision, all := m.registry.Snapshot()
	require.Equal(m.t, m.revision, revision)
	require.Equal(m.t, m.sorted(), append([]Descriptor(nil), all...))
	n := 0
	for _, cs := range m.running {
		n += len(cs)
	}
	require.EqualValues(m.t, n, m.launcher.live.Load(), "exactly what was started under current routes and not closed")
	require.EqualValues(m.t, len(m.retired), m.launcher.closed.Load(), "releases of retired routes are let go of")
}

func TestRegistryModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			t: t, registry: NewRegistry(), launcher: &fakeLauncher{},
			current: map[slot]Descriptor{}, running: map[uint64][]*CLIConnection{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit":  func(*rapid.T) { m.commit() },
			"remove":  func(*rapid.T) { m.remove() },
			"start":   func(*rapid.T) { m.start() },
			"close":   func(*rapid.T) { m.closeOne() },
			"resolve": func(*rapid.T) { m.resolve() },
			"":        func(*rapid.T) { m.check() },
		})
		if err := m.registry.Close(context.Background()); err != nil && !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		require.Zero(t, m.launcher.live.Load())
	})
}
