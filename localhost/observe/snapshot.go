package observe

import (
	"slices"
	"time"

	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
)

// Receipt is what a reconciliation said of one release and connection.
type Receipt struct {
	// Identity says of what; its generation is zero unless there was a route.
	Identity route.Identity
	State    string // of package localhost: "published", "failed", …
	// Problem says that it had an error, which the owner's log has.
	Problem bool
	At      time.Time
}

// Connection is what is so of one release and connection. It is comparable.
type Connection struct {
	Connector name.ConnectorKey
	Version   name.Version
	// Connection is zero for a release that nobody has made a connection of.
	Connection name.ConnectionID

	// Installed and Reason are what the disk says, without hashing; Digest is the
	// release's there, "" if nobody can tell.
	Installed inspect.State
	Reason    inspect.Reason
	Digest    string

	// Route is the identity of the current route; zero if there is none.
	Route route.Identity
	// Starting and Running are of the current route.
	Starting, Running int
	// Leaving counts what is left of routes that are not current any more. Draining are
	// those among them that an update lets end by themselves.
	Leaving, Draining int

	// Receipt is the newest; its At is zero if there was none.
	Receipt Receipt
}

// Current tells whether there is a route.
func (c Connection) Current() bool { return c.Route != route.Identity{} }

// Outdated tells whether the current route is of another release than the disk has,
// or of one that the disk does not have: a reconciliation would change it.
func (c Connection) Outdated() bool {
	return c.Current() && (c.Installed != inspect.Present || c.Digest != c.Route.ReleaseDigest)
}

// Snapshot is what was so at one moment. It is a value of its own: changing it
// changes nothing else.
type Snapshot struct {
	Revision uint64    // raised by every snapshot that says something new
	At       time.Time // when it was found
	// Problem says why the disk could not be looked at; "" if it could. It can hold
	// paths.
	Problem string
	// Connections are sorted by Connector, version and connection. MaxConnections at
	// most; More tells how many were left out.
	Connections []Connection
	More        int
}

func (s Snapshot) clone() Snapshot {
	s.Connections = slices.Clone(s.Connections)
	return s
}

// same tells whether a newer snapshot says nothing new.
func (s Snapshot) same(o Snapshot) bool {
	return s.Problem == o.Problem && s.More == o.More && slices.Equal(s.Connections, o.Connections)
}
