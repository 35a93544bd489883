package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/download/remote"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/process/cgroup"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// openStore opens the installed Connectors. What npm needs is run by transport;
// nil refuses that.
func (a *app) openStore(p paths, transport *process.Transport, registry string, log zerolog.Logger) (*install.Store, error) {
	if err := p.makePrivate(); err != nil {
		return nil, err
	}
	c := install.Config{
		Dir: p.store(), Log: log, Registry: registry, Publishers: p.publishers(),
		CAFile: cmp.Or(os.Getenv("LEND_CA_FILE"), os.Getenv("SSL_CERT_FILE")), Proxy: os.Getenv("HTTPS_PROXY"),
	}
	c.Fetch = (&remote.Client{CAFile: c.CAFile}).Fetch
	if c.Registry == "" {
		c.Registry = os.Getenv("NPM_CONFIG_REGISTRY")
	}
	if transport != nil {
		c.Runner = install.NewRunner(transport)
	}
	return openInstalled(c)
}

// openStoreAsIs opens the store without taking orphans away, for the commands that
// tell of them.
func (a *app) openStoreAsIs(p paths, log zerolog.Logger) (*install.Store, error) {
	if err := p.makePrivate(); err != nil {
		return nil, err
	}
	return openInstalled(install.Config{Dir: p.store(), Log: log, AsIs: true, Publishers: p.publishers()})
}

func openInstalled(c install.Config) (*install.Store, error) {
	s, err := install.Open(c)
	if err != nil {
		return nil, fmt.Errorf("open the installed connectors: %w", err)
	}
	return s, nil
}

// installed implements policy.Contracts from what is installed, for the tools
// that need no running gateway.
type installed struct {
	releases []install.Release
	damaged  []*install.Damage
	root     *connection.Root
}

func (a *app) installedContracts() (policy.Contracts, error) {
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(p.store()); errors.Is(err, os.ErrNotExist) {
		return installed{}, nil // nothing was ever installed here
	}
	s, err := a.openStore(p, nil, "", zerolog.Nop())
	if err != nil {
		return nil, err
	}
	releases, damaged, err := s.Releases()
	if err = joinClose(err, s.Close); err != nil {
		return nil, fmt.Errorf("list the installed connectors: %w", err)
	}
	root, err := a.connections(p)
	if err != nil {
		return nil, err
	}
	return installed{releases, damaged, root}, nil
}

// Contract answers as the running host would once it has reconciled.
func (i installed) Contract(key name.ConnectorKey, version name.Version, id name.ConnectionID) (argv.Contract, string, error) {
	at := slices.IndexFunc(i.releases, func(r install.Release) bool { return r.Manifest.Key == key && r.Manifest.Version == version })
	if at < 0 {
		if d := damagedOf(i.damaged, key, version); d != nil {
			return argv.Contract{}, "", d
		}
		return argv.Contract{}, "", fmt.Errorf("%s %s: %w", key, version, install.ErrNotInstalled)
	}
	connections, err := i.root.List(key)
	if err != nil {
		return argv.Contract{}, "", err
	}
	switch {
	case id.IsZero() && len(connections) > 1:
		return argv.Contract{}, "", fmt.Errorf("%s has several connections and the rule names none", key)
	case !id.IsZero() && id.String() != connection.Default &&
		!slices.ContainsFunc(connections, func(c *connection.Connection) bool { return c.ID() == id }):
		return argv.Contract{}, "", fmt.Errorf("%s has no connection %s", key, id)
	}
	return i.releases[at].Contract, i.releases[at].ContractHash, nil
}

// versionList names the first of some versions.
func versionList(all []name.Version, most int) string {
	var names []string
	for _, v := range all[:min(len(all), most)] {
		names = append(names, v.String())
	}
	if len(all) > most {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// chooseVersion takes the named version, or the only one that is installed.
func (a *app) chooseVersion(key name.ConnectorKey, s string) (name.Version, error) {
	if s != "" {
		v, err := name.ParseVersion(s)
		if err != nil {
			return v, &usageError{err: err, hint: hintInstalled}
		}
		return v, nil
	}
	p, err := a.paths()
	if err != nil {
		return name.Version{}, err
	}
	store, err := a.openStore(p, nil, "", zerolog.Nop())
	if err != nil {
		return name.Version{}, err
	}
	releases, damaged, err := store.Releases()
	if err = joinClose(err, store.Close); err != nil {
		return name.Version{}, err
	}
	var found []name.Version
	for _, r := range releases {
		if r.Manifest.Key == key {
			found = append(found, r.Manifest.Version)
		}
	}
	switch len(found) {
	case 0:
		if d := damagedOf(damaged, key, name.Version{}); d != nil {
			return name.Version{}, damageError(d)
		}
		return name.Version{}, hintf("lend connector add DIRECTORY", "connector %s is not installed", key)
	case 1:
		return found[0], nil
	default:
		const most = 8
		return name.Version{}, usagef("--version "+found[len(found)-1].String(), "connector %s is installed in %d versions: %s", key, len(found), versionList(found, most))
	}
}

// workspace maps a name of the policy of now to a directory; without a policy there
// are none.
func (o *ownersSide) workspace(s string) (string, bool) {
	if p := o.policy.Load(); p != nil {
		for _, w := range p.Workspaces() {
			if w.Name.String() == s {
				return w.Path, true
			}
		}
	}
	return "", false
}

// ownersSide is everything below the gateway.
type ownersSide struct {
	transport *process.Transport
	store     *install.Store
	root      *connection.Root
	host      *localhost.Host
	cgroup    *cgroup.Tree // nil: none
	policy    atomic.Pointer[policy.Policy]
}

// openOwnersSide also closes this process to the commands that it will run: they are
// processes of the same user, and it holds keys and the owner's environment.
func (a *app) openOwnersSide(p paths, pol *policy.Policy, log zerolog.Logger) (*ownersSide, error) {
	return a.openOwnersSideIn(nil, p, pol, log)
}

// openOwnersSideIn runs each operation in a group of its own below a cgroup, which
// it takes over, if that is not nil.
func (a *app) openOwnersSideIn(tree *cgroup.Tree, p paths, pol *policy.Policy, log zerolog.Logger) (*ownersSide, error) {
	if err := process.Harden(); err != nil {
		return nil, fmt.Errorf("keep other processes out of this one's memory: %w", err)
	}
	o := &ownersSide{transport: process.New(process.Config{Log: log, Most: mostProcesses, Cgroup: tree}), cgroup: tree}
	o.policy.Store(pol)
	var err error
	if o.store, err = a.openStore(p, o.transport, "", log); err == nil {
		o.root, err = a.connections(p)
	}
	if err == nil {
		o.host, err = localhost.New(localhost.Config{
			Store: o.store, Transport: o.transport, Connections: o.root, Workspaces: o.workspace, Log: log,
			Private: []string{p.config, p.state},
		})
	}
	if err != nil {
		return nil, joinClose(err, o.closeStore, o.transport.Close, o.closeCgroup)
	}
	return o, nil
}

// close ends what runs, then what it runs on.
func (o *ownersSide) close() error {
	return joinClose(nil, o.host.Close, o.closeStore, o.transport.Close, o.closeCgroup)
}

func (o *ownersSide) closeCgroup() error {
	if o.cgroup == nil {
		return nil
	}
	return o.cgroup.Close()
}

func (o *ownersSide) closeStore() error {
	if o.store == nil {
		return nil
	}
	return o.store.Close()
}
