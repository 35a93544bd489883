package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) leaseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lease",
		Short: "issue, pass on and read leases",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.leaseIssueCommand(), a.leaseAcceptCommand(), a.leaseDelegateCommand(), a.leaseShowCommand(), a.leaseListCommand(), a.leaseRevokeCommand())
	return c
}

type issueFlags struct {
	to, version, invocation, purpose, out string
	life                                  time.Duration
	operations, atOnce, depth             int
	addresses, pins                       []string
	localAddresses, finish, force         bool
}

func (a *app) leaseIssueCommand() *cobra.Command {
	var f issueFlags
	c := &cobra.Command{
		Use:   "issue --to PEER KEY COMMAND…",
		Short: "sign a lease for one peer and write it to a file of mode 0600",
		Long: `Sign a lease with this machine's owner key: PEER may run the named commands of
the Connector KEY on this gateway until the lease expires. What the policy does
not allow that peer today is refused. The file is the lease: give it to that
peer; it is of no use to any other. The addresses of the running gateway that
another machine could use are put in: issue leases while lend serve runs. To use
it on this machine, with no network, add --local-addresses.

The gateway asks its policy again for every call: a lease gives no more than
that.`,
		Example: `  lend lease issue --to laptop github issue.list issue.view
  lend lease issue --to laptop --life 1h --out l.lease github issue.list
  lend lease issue --to 12D3KooW… --pin repo=acme/site github issue.list`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.issueLease(cmd, f, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.to, "to", "", "the holder: a name of the policy or a peer ID (required)")
	fl.StringVar(&f.version, "version", "", "the Connector's version (default: the only installed one)")
	f.life = lease.DefaultLife
	fl.Var(moreThanNone(&f.life), "life", "how long the lease lives")
	fl.StringVar(&f.invocation, "invocation", "", "the invocation that it is for (default: a new one)")
	fl.IntVar(&f.operations, "operations", 1000, "how many operations it may start")
	fl.IntVar(&f.atOnce, "at-once", 8, "how many may run at the same time")
	fl.StringArrayVar(&f.pins, "pin", nil, "PARAMETER=VALUE that every call must have; repeat a parameter to allow several values")
	fl.BoolVar(&f.finish, "finish", false, "let an operation that runs at the expiry finish")
	fl.IntVar(&f.depth, "depth", 0, "how often its holder and those after it may pass it on, 2 at most")
	fl.StringVar(&f.purpose, "purpose", "", "a few words for the owner's records")
	fl.StringArrayVar(&f.addresses, "address", nil, "an address of the gateway (default: those of the running one)")
	fl.BoolVar(&f.localAddresses, "local-addresses", false, "keep loopback and link-local addresses")
	fl.BoolVar(&f.force, "force", false, "replace the file if it exists")
	fl.StringVar(&f.out, "out", "", "the file to write (default: PEER-KEY.lease here); - writes to a pipe")
	return c
}

func (a *app) issueLease(cmd *cobra.Command, f issueFlags, args []string) error {
	if f.to == "" {
		return usagef("lend lease issue --to PEER KEY COMMAND", "--to is missing")
	}
	if f.depth < 0 || f.depth > lease.MaxDepth {
		return usagef("--depth 1", "--depth %d: want 0 to %d", f.depth, lease.MaxDepth)
	}
	p, err := a.paths()
	if err != nil {
		return err
	}
	pol, err := loadPolicy(p.policy())
	if err != nil {
		return err
	}
	if err := ledgerTakes(cmd.Context(), p); err != nil {
		return err
	}
	l, owner, err := a.composeLease(p, pol, f, args)
	if err != nil {
		return err
	}
	envelope, err := lease.Seal(l, owner)
	if err != nil {
		return fmt.Errorf("sign the lease: %w", err)
	}
	chain, rule := [][]byte{envelope}, lease.AddressRule{AllowLocal: f.localAddresses}
	addresses, err := a.leaseAddresses(cmd, p, l.Gateway, f, func(addr string) bool {
		_, err := lease.Armor(chain, []string{addr}, rule)
		return err == nil
	})
	if err != nil {
		return err
	}
	text, err := lease.Armor(chain, addresses, rule)
	if err != nil {
		return &usageError{err: err, hint: "loopback addresses need --local-addresses"}
	}
	if f.out == "-" && isTerminal(a.out) {
		return usagef("lend lease issue … --out FILE", "a lease is not written to a terminal")
	}
	out := f.out
	if out == "" {
		out = fileName(f.to) + "-" + args[0] + ".lease"
	}
	create := ownerfile.Create
	if f.force && out != "-" {
		if err := replaceable("--out", out); err != nil {
			return err
		}
		create = func(path string, data []byte) error { return replaceFile("--out", path, data) }
	}
	if err := a.rememberLease(p, &l, l.Issuer); err != nil {
		return err
	}
	if out == "-" {
		_, err := a.out.Write(text)
		return err
	}
	if err := create(out, text); err != nil {
		_ = issued.Forget(p.issued(), l.ID) // nobody has it
		if errors.Is(err, os.ErrExist) {
			return usagef("lend lease issue … --out ANOTHER, or remove it first", "%s exists already", out)
		}
		return err
	}
	a.noteOldPolicy(cmd.Context(), p.policy(), pol.Digest())
	if len(addresses) == 0 {
		a.note("lend: hint: the lease holds no address, since no gateway runs here that another machine could reach;")
		a.note("lend: hint: start lend serve first, or give --address or --local-addresses")
	}
	shown := lease.Describe(lease.File{Chain: chain, Lease: l, Addresses: addresses}, time.Now())
	return a.show(struct {
		SchemaVersion int    `json:"schemaVersion"`
		File          string `json:"file"`
		lease.Description
	}{jsonSchema, out, shown}, func() error {
		return a.say("%s: lease %s for %s until %s", out, l.ID, l.Holder, l.NotAfter.Format(time.RFC3339))
	})
}

// ledgerTakes refuses while the gateway that runs here is locked for the sake of its
// ledger, as notRevokedToday does under a lockdown.
func ledgerTakes(ctx context.Context, p paths) error {
	s, err := admin.NewClient(p.socket).Status(ctx)
	if err != nil || s.Ledger.Failed == "" {
		return nil //nolint:nilerr // without a gateway the next one finds out
	}
	return hintf("lend status", "the gateway would deny the lease: the ledger is not usable: %s", s.Ledger.Failed)
}

// fileName makes a label or a peer ID short enough for a file name.
func fileName(s string) string {
	if len(s) > 20 {
		s = s[len(s)-8:]
	}
	return filepath.Base(s)
}

func (a *app) composeLease(p paths, pol *policy.Policy, f issueFlags, args []string) (lease.Lease, crypto.PrivKey, error) {
	var none lease.Lease
	holder, err := resolvePeer(pol, f.to)
	if err != nil {
		return none, nil, err
	}
	identity, err := loadIdentity(p)
	if err != nil {
		return none, nil, err
	}
	gateway, err := peerID(identity)
	if err != nil {
		return none, nil, err
	}
	ownerKey, err := loadKey(p.ownerKey())
	if err != nil {
		return none, nil, err
	}
	owner, err := peerID(ownerKey)
	if err != nil {
		return none, nil, err
	}
	signer, err := crypto.UnmarshalEd25519PrivateKey(ownerKey)
	if err != nil {
		return none, nil, err
	}
	grant, err := a.composeGrant(f, args)
	if err != nil {
		return none, nil, err
	}
	invocation, err := invocationOf(f.invocation)
	if err != nil {
		return none, nil, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	l := lease.Lease{
		ID: lease.NewID(), Issuer: owner, Holder: holder, Gateway: gateway, Invocation: invocation,
		Authority: lease.AuthorityOwner, Grants: []lease.Grant{grant},
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(f.life),
		MaxOperations: f.operations, MaxConcurrent: f.atOnce, Purpose: f.purpose, DepthLeft: f.depth,
	}
	if err := notRevokedToday(p, &l); err != nil {
		return none, nil, err
	}
	return l, signer, a.allowedToday(pol, l, now)
}

func invocationOf(s string) (name.InvocationID, error) {
	if s == "" {
		var b [12]byte
		_, _ = rand.Read(b[:])
		s = "inv-" + hex.EncodeToString(b[:])
	}
	id, err := name.ParseInvocationID(s)
	if err != nil {
		return id, &usageError{err: err}
	}
	return id, nil
}

func (a *app) composeGrant(f issueFlags, args []string) (lease.Grant, error) {
	var g lease.Grant
	var err error
	if g.Connector, err = name.ParseConnectorKey(args[0]); err != nil {
		return g, &usageError{err: err}
	}
	if g.Version, err = a.chooseVersion(g.Connector, f.version); err != nil {
		return g, err
	}
	for _, s := range args[1:] {
		c, err := name.ParseCommand(s)
		if err != nil {
			return g, &usageError{err: err}
		}
		g.Commands = append(g.Commands, c)
	}
	g.Finish = f.finish
	g.Pins, err = parsePins(f.pins)
	return g, err
}

// parsePins reads the values of --pin; nil if there are none.
func parsePins(given []string) (pins map[name.Parameter][]string, err error) {
	for _, pin := range given {
		key, value, ok := strings.Cut(pin, "=")
		parameter, err := name.ParseParameter(key)
		if !ok || err != nil {
			return nil, usagef("--pin repo=acme/site", "--pin %s: want PARAMETER=VALUE", name.Quote(pin))
		}
		if pins == nil {
			pins = map[name.Parameter][]string{}
		}
		pins[parameter] = append(pins[parameter], value)
	}
	return pins, nil
}

// allowedToday refuses a lease that the policy would not honour now.
func (a *app) allowedToday(pol *policy.Policy, l lease.Lease, now time.Time) error {
	rule, ok := pol.Issuer(l.Issuer)
	if !ok {
		return hintf("lend policy check", "the policy does not list this machine's owner key as an issuer")
	}
	if !rule.MayName(l.Holder) {
		return hintf("lend policy check", "the policy does not let issuer %s name that holder", rule.Name)
	}
	if l.NotAfter.Sub(l.IssuedAt) > rule.MaxLife {
		return usagef(fmt.Sprintf("--life %s", rule.MaxLife), "the policy lets issuer %s lease for %s at most", rule.Name, rule.MaxLife)
	}
	if l.DepthLeft > rule.MaxDepth {
		hint := fmt.Sprintf("--depth %d", rule.MaxDepth)
		if rule.MaxDepth == 0 {
			hint = fmt.Sprintf("max_depth: %d of the issuer %s in the policy lets them be passed on", l.DepthLeft, rule.Name)
		}
		return usagef(hint, "the policy lets leases of %s be passed on %s", rule.Name, [...]string{"never", "once", "twice"}[rule.MaxDepth])
	}
	contracts, err := a.installedContracts()
	if err != nil {
		return err
	}
	for _, g := range l.Grants {
		for _, c := range g.Commands {
			target := policy.Target{Connector: g.Connector, Version: g.Version, Command: c}
			surfaces := pol.Freeze(l.Issuer, l.Holder, now, []policy.Target{target}, contracts)
			if len(surfaces) == 0 {
				return hintf(fmt.Sprintf("lend policy explain --peer %s -- %s %s", l.Holder, g.Connector, c),
					"the policy does not allow %s %s of %s to that peer today", g.Connector, c, g.Version)
			}
			if err := usefulPins(surfaces, g.Pins); err != nil {
				return usagef("lend connector show "+g.Connector.String(), "%s %s: %w", g.Connector, c, err)
			}
		}
	}
	return nil
}

// usefulPins refuses pins under which no rule would let anything run.
func usefulPins(surfaces []*policy.Surface, pins map[name.Parameter][]string) error {
	var errs []error
	for _, s := range surfaces {
		_, err := s.InputSchema(pins)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaseAddresses takes those of the command line as they are, or those of the
// running gateway that another machine could use.
func (a *app) leaseAddresses(cmd *cobra.Command, p paths, gateway name.PeerID, f issueFlags, useful func(string) bool) ([]string, error) {
	given := f.addresses
	if len(given) == 0 {
		s, err := admin.NewClient(p.socket).Status(cmd.Context())
		if err != nil && !errors.Is(err, admin.ErrNotRunning) {
			return nil, err
		}
		given = s.Addresses
	}
	suffix := "/p2p/" + gateway.String()
	var out []string
	for _, s := range given {
		s = strings.TrimSuffix(s, suffix) + suffix
		if len(f.addresses) > 0 || useful(s) && len(out) < lease.MaxAddresses {
			out = append(out, s)
		}
	}
	return out, nil
}

func (a *app) leaseShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "print what a lease says",
		Long: `Print the content of a lease file, after its signature was checked. Whether a
gateway honours it is for its owner's policy to say. FILE - is standard input.`,
		Example: "  lend lease show laptop-github.lease\n  lend lease show - --json < laptop-github.lease",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := a.readLease(args[0])
			if err != nil {
				return err
			}
			d := lease.Describe(file, time.Now())
			return a.show(struct {
				SchemaVersion int `json:"schemaVersion"`
				lease.Description
			}{jsonSchema, d}, func() error { return a.say("%s", strings.TrimRight(d.String(), "\n")) })
		},
	}
}

// readLease reads a lease file that nobody else may read; "-" is standard input.
func (a *app) readLease(path string) (lease.File, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(io.LimitReader(a.in, lease.MaxFile+1))
	} else {
		data, err = ownerfile.Read(path, ownerfile.Private, lease.MaxFile)
	}
	if err != nil {
		return lease.File{}, &usageError{err: err, hint: unsafeHint(err)}
	}
	return parseLease(data)
}

// parseLease accepts local addresses: the holder was handed the file.
func parseLease(data []byte) (lease.File, error) {
	f, err := lease.ParseArmor(data, lease.AddressRule{AllowLocal: true})
	if err != nil {
		return f, &usageError{err: err}
	}
	return f, nil
}
