package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

type delegateFlags struct {
	to, version, purpose, out string
	life                      time.Duration
	operations, atOnce, depth int
	pins                      []string
}

func (a *app) leaseDelegateCommand() *cobra.Command {
	var f delegateFlags
	c := &cobra.Command{
		Use:   "delegate LEASE --to PEER [KEY COMMAND…]",
		Short: "pass a part of a lease on to another peer",
		Long: `Let PEER use a part of the lease in the file LEASE, which is made out to this
machine: the named commands of the Connector KEY, or all that the lease grants.
What is written is a lease file for PEER; nobody has to be asked. It never gives
more than LEASE does: what goes beyond it is refused. PEER's operations count
against LEASE as well, and PEER can use it for as long as LEASE is good.

The gateway's owner decides whether leases may be passed on (max_depth in the
policy), and whoever issued LEASE whether this one may (--depth); "lend lease
show" says how often it still may be. What the policy does not allow PEER, it
gets no leave for by this.`,
		Example: `  lend lease delegate laptop-github.lease --to 12D3KooW…
  lend lease delegate laptop-github.lease --to 12D3KooW… --life 5m \
    --operations 3 --pin repo=acme/site github issue.list`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 2 {
				return usagef("lend lease delegate LEASE --to PEER [KEY COMMAND…]", "want a lease file, then nothing, or a Connector and its commands")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.delegateLease(f, args[0], args[1:]) },
	}
	fl := c.Flags()
	fl.StringVar(&f.to, "to", "", "the next holder: a peer ID, or a name of this machine's policy (required)")
	fl.StringVar(&f.version, "version", "", "the Connector's version (default: the only one in the lease)")
	fl.Var(moreThanNone(&f.life), "life", "how long it lives (default: 10m, or as long as the lease does)")
	fl.IntVar(&f.operations, "operations", 0, "how many operations it may start (default: as many as the lease)")
	fl.IntVar(&f.atOnce, "at-once", 0, "how many may run at the same time (default: as many as the lease)")
	fl.StringArrayVar(&f.pins, "pin", nil, "PARAMETER=VALUE that every call must have; repeat a parameter to allow several values")
	fl.IntVar(&f.depth, "depth", 0, "how often it may be passed on again")
	fl.StringVar(&f.purpose, "purpose", "", "a few words for the owner's records")
	fl.StringVar(&f.out, "out", "", "the file to write (default: PEER-KEY.lease here); - writes to a pipe")
	return c
}

func (a *app) delegateLease(f delegateFlags, path string, args []string) error {
	if f.to == "" {
		return usagef("lend lease delegate LEASE --to PEER", "--to is missing")
	}
	if f.life < 0 || f.operations < 0 || f.atOnce < 0 || f.depth < 0 {
		return usagef("lend lease delegate --help", "a number is negative")
	}
	file, err := a.readLease(path)
	if err != nil {
		return err
	}
	key, self, err := a.holderKey()
	if err != nil {
		return err
	}
	given := &file.Lease
	if err := given.Usable(self, name.PeerID{}, time.Now()); err != nil {
		return delegateError(err, path, given)
	}
	link, err := a.composeLink(f, given, args)
	if err != nil {
		return err
	}
	chain, err := lease.Delegate(file.Chain, link, key)
	if err != nil {
		return delegateError(err, path, given)
	}
	text, err := lease.Armor(chain, file.Addresses, lease.AddressRule{AllowLocal: true})
	if err != nil {
		return err
	}
	if f.out == "-" && isTerminal(a.out) {
		return usagef("lend lease delegate … --out FILE", "a lease is not written to a terminal")
	}
	written, err := parseLease(text)
	if err != nil {
		return err
	}
	if err := a.rememberDelegated(text); err != nil {
		return err
	}
	if f.out == "-" {
		_, err := a.out.Write(text)
		return err
	}
	out := f.out
	if out == "" {
		out = fileName(f.to) + "-" + link.Grants[0].Connector.String() + ".lease"
	}
	if err := ownerfile.Create(out, text); err != nil {
		if p, err := a.paths(); err == nil {
			_ = issued.Forget(p.issued(), written.Lease.ID) // nobody has it
		}
		if errors.Is(err, os.ErrExist) {
			return usagef("lend lease delegate … --out ANOTHER, or remove it first", "%s exists already", out)
		}
		return err
	}
	shown := lease.Describe(written, time.Now())
	return a.show(struct {
		SchemaVersion int    `json:"schemaVersion"`
		File          string `json:"file"`
		lease.Description
	}{jsonSchema, out, shown}, func() error {
		return a.say("%s: lease %s for %s until %s, passed on by %s", out, shown.Lease, shown.Holder, shown.NotAfter.Format(time.RFC3339), self)
	})
}

// holderKey is this machine's identity, which leases name as their holder.
func (a *app) holderKey() (crypto.PrivKey, name.PeerID, error) {
	p, err := a.paths()
	if err != nil {
		return nil, name.PeerID{}, err
	}
	identity, err := loadIdentity(p)
	if err != nil {
		return nil, name.PeerID{}, err
	}
	self, err := peerID(identity)
	if err != nil {
		return nil, name.PeerID{}, err
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(identity)
	return key, self, err
}

// composeLink says what of a lease is passed on.
func (a *app) composeLink(f delegateFlags, given *lease.Lease, args []string) (lease.Lease, error) {
	var l lease.Lease
	var err error
	if l.Holder, err = a.resolveNext(f.to); err != nil {
		return l, err
	}
	if l.Grants, err = grantsToPassOn(given, f.version, args); err != nil {
		return l, err
	}
	pins, err := parsePins(f.pins)
	if err != nil {
		return l, err
	}
	for i := range l.Grants {
		l.Grants[i].Pins = pins
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	left := given.NotAfter.Sub(now)
	life := f.life
	switch {
	case life == 0:
		life = min(lease.DefaultLife, left)
	case life > left:
		return l, usagef(fmt.Sprintf("--life %s", left.Truncate(time.Second)), "the lease itself lives for %s", left.Truncate(time.Second))
	}
	l.IssuedAt, l.NotBefore, l.NotAfter = now, now, now.Add(life)
	if given.NotBefore.After(now) {
		l.NotBefore = given.NotBefore
	}
	l.MaxOperations, l.MaxConcurrent = given.MaxOperations, given.MaxConcurrent
	if f.operations > 0 {
		l.MaxOperations = f.operations
	}
	if f.atOnce > 0 {
		l.MaxConcurrent = f.atOnce
	}
	l.DepthLeft, l.Purpose = f.depth, f.purpose
	return l, nil
}

// resolveNext takes a peer ID, or a name of the policy, if this machine has one.
func (a *app) resolveNext(to string) (name.PeerID, error) {
	if id, err := name.ParsePeerID(to); err == nil {
		return id, nil
	}
	p, err := a.paths()
	if err != nil {
		return name.PeerID{}, err
	}
	pol, err := loadPolicy(p.policy())
	if err != nil {
		return name.PeerID{}, usagef("lend id, on the peer's machine, prints its ID", "%s is no peer ID", name.Quote(to))
	}
	return resolvePeer(pol, to)
}

// grantsToPassOn are those of a lease that a command line names; all of them, if
// it names none.
func grantsToPassOn(given *lease.Lease, version string, args []string) ([]lease.Grant, error) {
	if len(args) == 0 {
		if version != "" {
			return nil, usagef("lend lease delegate LEASE --to PEER KEY COMMAND…", "--version is of a Connector that is not named")
		}
		if len(given.Grants) == 0 {
			return nil, usagef("lend lease show LEASE", "the lease grants nothing")
		}
		return slices.Clone(given.Grants), nil
	}
	g := lease.Grant{}
	var err error
	if g.Connector, err = name.ParseConnectorKey(args[0]); err != nil {
		return nil, &usageError{err: err}
	}
	if g.Version, err = versionIn(given, g.Connector, version); err != nil {
		return nil, err
	}
	for _, s := range args[1:] {
		c, err := name.ParseCommand(s)
		if err != nil {
			return nil, &usageError{err: err}
		}
		g.Commands = append(g.Commands, c)
	}
	return withFinish(given, g), nil
}

// withFinish lets those of the commands finish that the lease lets; what it does
// not grant is for lease.Delegate to refuse.
func withFinish(given *lease.Lease, g lease.Grant) []lease.Grant {
	finish := g
	finish.Finish, finish.Commands = true, nil
	stop := g
	stop.Commands = nil
	for _, c := range g.Commands {
		if whole, err := given.Grant(g.Connector, g.Version, c); err == nil && whole.Finish {
			finish.Commands = append(finish.Commands, c)
			continue
		}
		stop.Commands = append(stop.Commands, c)
	}
	return slices.DeleteFunc([]lease.Grant{finish, stop}, func(g lease.Grant) bool { return len(g.Commands) == 0 })
}

func versionIn(given *lease.Lease, key name.ConnectorKey, version string) (name.Version, error) {
	if version != "" {
		v, err := name.ParseVersion(version)
		if err != nil {
			return v, &usageError{err: err}
		}
		return v, nil
	}
	var found []name.Version
	for _, g := range given.Grants {
		if g.Connector == key && !slices.Contains(found, g.Version) {
			found = append(found, g.Version)
		}
	}
	switch len(found) {
	case 0:
		return name.Version{}, usagef("lend lease show LEASE says what it grants", "the lease grants nothing of %s", key)
	case 1:
		return found[0], nil
	}
	return name.Version{}, usagef(fmt.Sprintf("--version %s", found[0]), "the lease has several versions of %s: choose one", key)
}

// delegateError says what to do about a lease that cannot be passed on like this.
func delegateError(err error, path string, given *lease.Lease) error {
	var e *lease.Error
	if !errors.As(err, &e) {
		return err
	}
	hint := fmt.Sprintf("lend lease show %s says what it gives", path)
	switch e.Reason {
	case lease.ReasonHolder:
		hint = fmt.Sprintf("only its holder can pass it on: the machine where lend id prints %s", given.Holder)
	case lease.ReasonFinal:
		hint = "whoever issued it has to let it: lend lease issue --depth 1, with max_depth in the policy"
	case lease.ReasonExpired, lease.ReasonNotYet:
		hint = "ask for another lease"
	default:
	}
	return &usageError{err: err, hint: hint}
}
