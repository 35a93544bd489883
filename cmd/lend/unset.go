package main

import (
	"fmt"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/route"
)

// unsetSecrets says which secrets of the routes their manifests declare, and nobody
// has set: the command runs without them.
func (o *ownersSide) unsetSecrets(routes []route.Descriptor) (warnings []string) {
	for _, d := range routes {
		r, err := o.store.Release(d.Identity.Connector, d.Identity.Version)
		if err != nil {
			continue // the route itself will say so
		}
		c, err := o.root.Get(d.Identity.Connector, d.Identity.Connection)
		if err != nil {
			continue
		}
		all, err := c.Secrets(connection.DeclaredBy(r.Manifest))
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s (%s): its secrets cannot be looked at", d.Identity.Connector, d.Identity.Connection))
			continue
		}
		for _, s := range all {
			if !s.Set {
				warnings = append(warnings, fmt.Sprintf("%s (%s): secret %s is not set: lend connector secret set %s %s --connection %s",
					d.Identity.Connector, d.Identity.Connection, s.Name, d.Identity.Connector, s.Name, d.Identity.Connection))
			}
		}
	}
	return warnings
}
