package observe

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/protocol/name"
)

// MaxConnections bounds a snapshot.
const MaxConnections = 4096

// retired is the state of a receipt after which nothing is wanted of a connection.
const retired = "retired"

// disk is what was installed at one look.
type disk struct {
	releases []inspect.Result
	err      error // nothing could be looked at
}

// inspected looks at the store as it is.
func inspected(ctx context.Context, dir string, publishers *signature.File) (d disk) {
	i, err := inspect.Open(dir, publishers)
	if err != nil {
		return disk{err: err}
	}
	d.releases = i.All(ctx)
	d.err = i.Close()
	return d
}

type release struct {
	connector name.ConnectorKey
	version   name.Version
}

// place is where one Connection is looked up.
type place struct {
	release
	connection name.ConnectionID
}

func placeOf(id route.Identity) place {
	return place{release{id.Connector, id.Version}, id.Connection}
}

// composed makes the connections of what was found. Routes and what they run are
// there in any case; what is on the disk is there once for each connection that a
// receipt or a route names, and once without one if none does.
func composed(d disk, routes []route.Descriptor, activity []route.Activity, receipts []Receipt) []Connection {
	all := make(map[place]*Connection)
	at := func(p place) *Connection {
		c := all[p]
		if c == nil {
			c = &Connection{Connector: p.connector, Version: p.version, Connection: p.connection}
			all[p] = c
		}
		return c
	}
	for _, r := range routes {
		at(placeOf(r.Identity)).Route = r.Identity
	}
	for _, a := range activity {
		p := placeOf(a.Identity)
		switch c := all[p]; {
		case c != nil && c.Route == a.Identity:
			c.Starting, c.Running = a.Starting, a.Running
		case a.Starting+a.Running > 0:
			c := at(p)
			c.Leaving += a.Starting + a.Running
			if a.Draining {
				c.Draining += a.Starting + a.Running
			}
		}
	}
	onDisk := make(map[release]inspect.Result)
	for _, r := range d.releases {
		onDisk[release{r.Connector, r.Version}] = r
	}
	newest := make(map[place]Receipt)
	for _, r := range receipts { // oldest first
		p := placeOf(r.Identity)
		newest[p] = r
		if !p.connection.IsZero() { // it could be read again
			delete(newest, place{release: p.release})
		}
	}
	for p, r := range newest {
		_, there := onDisk[p.release]
		if c := all[p]; c != nil {
			c.Receipt = r
		} else if there && r.State != retired {
			at(p).Receipt = r
		}
	}
	return joined(d, all, onDisk)
}

// joined says of each connection what the disk has, and adds releases without one.
func joined(d disk, all map[place]*Connection, onDisk map[release]inspect.Result) []Connection {
	out := make([]Connection, 0, len(all))
	named := make(map[release]bool)
	for p, c := range all {
		named[p.release] = true
		r, there := onDisk[p.release]
		switch {
		case there:
			c.installed(r)
		case d.err != nil:
			c.Installed, c.Reason = inspect.Indeterminate, inspect.Unreadable
		case c.Draining > 0: // only an update lets what runs end by itself
			c.Installed, c.Reason = inspect.Absent, inspect.Superseded
		default:
			c.Installed, c.Reason = inspect.Absent, inspect.NotInstalled
		}
		out = append(out, *c)
	}
	for at, r := range onDisk {
		if !named[at] {
			c := Connection{Connector: at.connector, Version: at.version}
			c.installed(r)
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Connection) int {
		return cmp.Or(
			cmp.Compare(a.Connector.String(), b.Connector.String()),
			cmp.Compare(a.Version.String(), b.Version.String()),
			cmp.Compare(a.Connection.String(), b.Connection.String()),
		)
	})
	return out
}

func (c *Connection) installed(r inspect.Result) {
	c.Installed, c.Reason = r.State, r.Reason
	if r.Release != nil {
		c.Digest = r.Release.Digest
	}
}

// interrupted tells whether a look at the disk was not finished.
func (d disk) interrupted() bool {
	return errors.Is(d.err, context.Canceled) ||
		slices.ContainsFunc(d.releases, func(r inspect.Result) bool { return r.Reason == inspect.Interrupted })
}
