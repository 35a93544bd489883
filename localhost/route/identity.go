package route

import (
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Generation orders the routes of one boot of the host. Epoch is unguessable and
// new at every boot; Number counts from 1.
type Generation struct {
	Epoch  string
	Number uint64
}

// Identity is the exact, machine-local identity of one published route. It is
// comparable; all fields are set in a published one.
type Identity struct {
	Connection    name.ConnectionID
	Connector     name.ConnectorKey
	Version       name.Version
	ReleaseDigest string // 64 lower-case hexadecimal digits
	Generation    Generation
	ContractHash  string // "sha256:" and 64 lower-case hexadecimal digits
}

// Query asks for the one current route of a Connector. A zero Connection means
// any, and is ErrAmbiguous where there are several.
type Query struct {
	Connector  name.ConnectorKey
	Version    name.Version
	Connection name.ConnectionID
}

// Descriptor is the immutable projection of one published route. Holders must not
// change what it refers to.
type Descriptor struct {
	Identity Identity
	// DisplayName is the Connector's, for people.
	DisplayName string
	// Aliases are other words for the Connector, for finding it; see Hints.
	Aliases []string
	// Contract is what ContractHash covers.
	Contract argv.Contract
	// Probe tells whether the CLI is ready; nil if nothing does. It decides nothing
	// about the route.
	Probe *Probe
}

// Probe is one run of a CLI that tells whether it is ready: exit status 0.
type Probe struct {
	Arguments []string      // 1 to 32, 16 KiB together; they come after those of the contract
	Timeout   time.Duration // up to 30 s
}
