package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol/name"
)

type revokeFlags struct {
	lease, invocation, holder, issuer, before string
	all, forGood, sign                        bool
	addresses                                 []string
}

func (a *app) leaseRevokeCommand() *cobra.Command {
	var f revokeFlags
	c := &cobra.Command{
		Use:   "revoke [FILE]",
		Short: "take leases back, and end what runs under them within a second",
		Long: `Revoke the lease in FILE, the lease of an ID (lend lease list), or all leases
that match --invocation, --holder and --issuer together, on this machine's
gateway. It is kept before this returns, and it needs no running gateway.
Several leases are those that were issued until now and, as clocks differ, in
the next 30 s; --for-good takes in what will be issued later. Nothing takes a
revocation back: issue a new lease.

With --sign, FILE is a lease of another gateway, and the revocation is signed
with the key that this machine issues leases with and sent there. The gateway
accepts it from its owner for any lease, and from an issuer that its policy
lists for that issuer's own. A lease that this machine has passed on is revoked
with the key that passed it on. This machine must be able to connect to it: as
a peer of its policy.`,
		Example: `  lend lease revoke laptop-github.lease
  lend lease revoke --lease 5f0c…
  lend lease revoke --holder laptop
  lend lease revoke --issuer buildserver --issued-before 2026-11-30T12:00:00Z
  lend lease revoke --all
  lend lease revoke --sign their.lease
  lend lease revoke --sign their.lease --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := strings.Join(args, "")
			if err := f.check(file); err != nil {
				return err
			}
			if f.sign {
				return a.revokeThere(cmd.Context(), f, file)
			}
			return a.revokeHere(cmd.Context(), f, file)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.lease, "lease", "", "the ID of one lease")
	fl.StringVar(&f.invocation, "invocation", "", "the leases of this invocation")
	fl.StringVar(&f.holder, "holder", "", "the leases made out to this peer: a name of the policy or a peer ID")
	fl.StringVar(&f.issuer, "issuer", "", "the leases of this issuer: a name of the policy or an ID")
	fl.BoolVar(&f.all, "all", false, "every lease; with --sign, every lease of this machine's key on that gateway")
	fl.StringVar(&f.before, "issued-before", "", "only those issued before this time (2026-11-30T12:00:00Z)")
	fl.BoolVar(&f.forGood, "for-good", false, "those that will be issued, too; this is kept for ever")
	fl.BoolVar(&f.sign, "sign", false, "sign it with this machine's issuing key and send it to the gateway of FILE")
	fl.StringArrayVar(&f.addresses, "address", nil, "with --sign: an address of the gateway, beside those of FILE")
	return c
}

// check wants exactly one way to say what is meant.
func (f *revokeFlags) check(file string) error {
	several := f.invocation != "" || f.holder != "" || f.issuer != ""
	ways := 0
	for _, way := range []bool{file != "" && !f.sign, f.lease != "", several, f.all} {
		if way {
			ways++
		}
	}
	const help = "lend lease revoke --help"
	switch {
	case f.sign && file == "":
		return usagef("lend lease revoke --sign FILE", "--sign wants the file of a lease of that gateway")
	case ways == 0 && !f.sign:
		return usagef(help, "say which leases: a FILE, --lease, --invocation, --holder, --issuer or --all")
	case ways > 1:
		return usagef(help, "one lease, several leases by --invocation, --holder and --issuer, and --all are three things; say one")
	case (f.forGood || f.before != "") && !several && !f.all:
		return usagef(help, "--issued-before and --for-good are for several leases")
	case f.forGood && f.before != "":
		return usagef(help, "--issued-before and --for-good exclude each other")
	case f.forGood && f.all:
		return usagef("lend lockdown", "every lease that there is and will be: that is a lockdown")
	case f.sign && f.lease != "":
		return usagef("lend lease revoke --sign FILE", "with --sign, FILE is the lease")
	case len(f.addresses) > 0 && !f.sign:
		return usagef(help, "--address is for --sign")
	}
	return nil
}

// entry is what the flags say of several leases.
func (f *revokeFlags) entry(now time.Time, peer, issuer func(string) (name.PeerID, error)) (e revocation.Entry, err error) {
	if f.invocation != "" {
		if e.Invocation, err = name.ParseInvocationID(f.invocation); err != nil {
			return e, &usageError{err: err}
		}
	}
	if f.holder != "" {
		if e.Holder, err = peer(f.holder); err != nil {
			return e, err
		}
	}
	if f.issuer != "" {
		if e.Issuer, err = issuer(f.issuer); err != nil {
			return e, err
		}
	}
	switch {
	case f.forGood:
	case f.before == "":
		e.IssuedBefore = now.Add(lease.DefaultSkew)
	default:
		if e.IssuedBefore, err = time.Parse(time.RFC3339, f.before); err != nil {
			return e, usagef("--issued-before 2026-11-30T12:00:00Z", "--issued-before %s: want a time of RFC 3339", name.Quote(f.before))
		}
		if e.IssuedBefore.After(now.Add(lease.DefaultSkew)) {
			return e, usagef("--for-good", "--issued-before %s is in the future", f.before)
		}
	}
	e.IssuedBefore = e.IssuedBefore.UTC().Truncate(time.Millisecond)
	return e, nil
}

// ofLease names one lease, whose time lets it be forgotten one day.
func ofLease(id lease.ID, issuedAt time.Time) revocation.Entry {
	return revocation.Entry{Lease: id, IssuedBefore: issuedAt.Add(time.Millisecond)}
}

// ofFile names the lease of its holder: the last link, if it was passed on.
func ofFile(f *lease.File) revocation.Entry {
	last := &f.Links[len(f.Links)-1]
	return ofLease(last.ID, last.IssuedAt)
}

// revokeHere revokes on this machine's gateway.
func (a *app) revokeHere(ctx context.Context, f revokeFlags, file string) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	e, err := a.entryHere(p, f, file)
	if err != nil {
		return err
	}
	r, err := a.keepRevocation(ctx, p, e)
	if err != nil {
		return err
	}
	return a.show(r, func() error {
		said := "revoked: " + entryText(&e)
		if !r.New {
			said = "revoked already: " + entryText(&e)
		}
		if !r.Gateway {
			return a.say("%s; no gateway is running here, the next one knows", said)
		}
		return a.say("%s; %s", said, stoppedText(r.Stopped))
	})
}

func (a *app) entryHere(p paths, f revokeFlags, file string) (revocation.Entry, error) {
	switch {
	case file != "":
		l, err := a.readLease(file)
		if err != nil {
			return revocation.Entry{}, err
		}
		key, err := loadIdentity(p)
		if err != nil {
			return revocation.Entry{}, err
		}
		if self, err := peerID(key); err != nil || self != l.Lease.Gateway {
			return revocation.Entry{}, usagef("lend lease revoke --sign FILE", "that lease is of another gateway")
		}
		return ofFile(&l), nil
	case f.lease != "":
		id, err := lease.ParseID(f.lease)
		if err != nil {
			return revocation.Entry{}, &usageError{err: err, hint: "lend lease list"}
		}
		known, _ := issued.List(p.issued(), time.Now()) // only to know when it can be forgotten
		for i := range known {
			if known[i].ID == id {
				return ofLease(id, known[i].Issued), nil
			}
		}
		return revocation.Entry{Lease: id}, nil
	}
	pol, err := loadPolicy(p.policy())
	if err != nil {
		pol = nil // IDs need none
	}
	return f.entry(time.Now(),
		func(s string) (name.PeerID, error) { return resolvePeer(pol, s) },
		func(s string) (name.PeerID, error) { return a.resolveIssuer(pol, s) })
}

// keepRevocation gives it to the running gateway, or keeps it for the next one.
func (a *app) keepRevocation(ctx context.Context, p paths, e revocation.Entry) (admin.Revoked, error) {
	q := revocationShown(&e)
	r, err := admin.NewClient(p.socket).Revoke(ctx, q)
	if !errors.Is(err, admin.ErrNotRunning) {
		return r, err
	}
	r = admin.Revoked{SchemaVersion: admin.SchemaVersion, Revoked: q}
	store, release, err := openStoreAlone(p)
	if err != nil {
		return r, err
	}
	n, err := store.Add(time.Time{}, e.Kept(time.Now()))
	r.New = n > 0
	return r, lostHint(errors.Join(err, release()))
}

// openStoreAlone opens the store where no gateway has it.
func openStoreAlone(p paths) (*revocations.Store, func() error, error) {
	release, err := folder.Take(p.ledger())
	if errors.Is(err, ledger.ErrLocked) {
		return nil, nil, hintf("lend status", "a gateway is starting or stopping here, or does not answer; try again")
	}
	if err != nil {
		return nil, nil, err
	}
	return openRevocations(p), release, nil
}

func openRevocations(p paths) *revocations.Store {
	return revocations.Open(p.revocations(), p.lockdown())
}

func lostHint(err error) error {
	if errors.Is(err, revocations.ErrUnreadable) {
		return &hinted{err: err, hint: "restore the file and lend unlock, or lend unlock --accept-loss --yes"}
	}
	return err
}

// revokeThere signs, and sends it to the gateway of a lease.
func (a *app) revokeThere(ctx context.Context, f revokeFlags, file string) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	l, err := a.readLease(file)
	if err != nil {
		return err
	}
	if identity, err := loadIdentity(p); err == nil {
		if self, err := peerID(identity); err == nil && self == l.Lease.Gateway {
			return usagef("lend lease revoke "+quoteWord(file), "that lease is of this machine's own gateway: leave out --sign")
		}
	}
	key, signer, err := revokerOf(p, &l)
	if err != nil {
		return err
	}
	private, err := crypto.UnmarshalEd25519PrivateKey(key)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	e := ofFile(&l)
	e.Issuer = l.Links[0].Issuer // so that another issuer is refused, not told of a lease that it has not
	if signer == l.Links[len(l.Links)-1].Issuer {
		e.Issuer = signer
	}
	if f.all || f.invocation != "" || f.holder != "" || f.issuer != "" {
		id := func(s string) (name.PeerID, error) {
			id, err := name.ParsePeerID(s)
			if err != nil {
				return id, usagef("lend lease show "+quoteWord(file), "%s: want a peer ID, since the names are of that gateway's policy", name.Quote(s))
			}
			return id, nil
		}
		if e, err = f.entry(now, id, id); err != nil {
			return err
		}
	}
	if f.all {
		e.Issuer = signer // not by an owner's slip of the hand everybody's
	}
	envelope, err := revocation.Seal(revocation.Statement{ID: lease.NewID(), Issuer: signer, Gateway: l.Lease.Gateway, At: now, Entry: e}, private)
	if err != nil {
		return err
	}
	c, err := a.newClientOf(runFlags{addresses: f.addresses}, l)
	if err != nil {
		return err
	}
	reply, err := c.Revoke(ctx, envelope)
	if err = joinClose(err, c.Close); err != nil {
		return notRevoked(err, signer)
	}
	r := struct {
		SchemaVersion int              `json:"schemaVersion"`
		Revoked       admin.Revocation `json:"revoked"`
		Gateway       string           `json:"gateway"`
		Signer        string           `json:"signer"`
		Stopped       uint32           `json:"stopped"`
	}{jsonSchema, revocationShown(&e), l.Lease.Gateway.String(), signer.String(), reply.Stopped}
	return a.show(r, func() error {
		return a.say("revoked on %s: %s; %s", r.Gateway, entryText(&e), stoppedText(int(r.Stopped)))
	})
}

// revokerOf is the key that revokes a lease: this machine's own, if it has passed the
// lease on, or the one that it issues leases with.
func revokerOf(p paths, l *lease.File) (key ed25519.PrivateKey, signer name.PeerID, err error) {
	if len(l.Links) > 1 {
		if key, err = loadIdentity(p); err != nil {
			return nil, signer, err
		}
		if signer, err = peerID(key); err != nil || signer == l.Links[len(l.Links)-1].Issuer {
			return key, signer, err
		}
	}
	if key, err = loadKey(p.ownerKey()); err != nil {
		return nil, signer, err
	}
	signer, err = peerID(key)
	return key, signer, err
}

func stoppedText(n int) string {
	switch n {
	case 0:
		return "nothing was running"
	case 1:
		return "1 operation is being ended"
	}
	return fmt.Sprintf("%d operations are being ended", n)
}

func notRevoked(err error, signer name.PeerID) error {
	var refused *client.RefusedError
	if errors.As(err, &refused) && refused.Code.String() == "DENIED" {
		return hintf("its policy has to list "+signer.String()+" as an issuer, or as a peer that has passed that lease on, or it is the gateway's owner", "the gateway does not accept a revocation by this machine's key")
	}
	return err
}

func revocationShown(e *revocation.Entry) admin.Revocation {
	facts := revocations.Facts(e)
	r := admin.Revocation{Lease: facts["lease"], Invocation: facts["invocation"], Holder: facts["holder"], Issuer: facts["issuer"]}
	if !e.IssuedBefore.IsZero() {
		r.IssuedBefore = &e.IssuedBefore
	}
	return r
}

// entryText says in words what an entry names.
func entryText(e *revocation.Entry) string {
	if !e.Lease.IsZero() {
		return "lease " + e.Lease.String()
	}
	words := []string{"every lease"}
	facts := revocations.Facts(e)
	for _, w := range [][2]string{{"invocation", "of invocation"}, {"holder", "made out to"}, {"issuer", "issued by"}} {
		if facts[w[0]] != "" {
			words = append(words, w[1], facts[w[0]])
		}
	}
	if e.IssuedBefore.IsZero() {
		return strings.Join(append(words, "that there is and will be"), " ")
	}
	return strings.Join(append(words, "issued before", e.IssuedBefore.Format(time.RFC3339)), " ")
}

// revocationOf is the other way round.
func revocationOf(r admin.Revocation) (e revocation.Entry, err error) {
	var errs [4]error
	if r.Lease != "" {
		e.Lease, errs[0] = lease.ParseID(r.Lease)
	}
	if r.Invocation != "" {
		e.Invocation, errs[1] = name.ParseInvocationID(r.Invocation)
	}
	if r.Holder != "" {
		e.Holder, errs[2] = name.ParsePeerID(r.Holder)
	}
	if r.Issuer != "" {
		e.Issuer, errs[3] = name.ParsePeerID(r.Issuer)
	}
	if r.IssuedBefore != nil {
		e.IssuedBefore = *r.IssuedBefore
	}
	return e, errors.Join(errs[:]...)
}

// Revoke implements admin.Revoker.
func (s *serving) Revoke(_ context.Context, r admin.Revocation) (admin.Revoked, error) {
	out := admin.Revoked{SchemaVersion: admin.SchemaVersion, Revoked: r, Gateway: true}
	e, err := revocationOf(r)
	if err != nil || s.node == nil {
		return out, cmp.Or(err, errNoNode)
	}
	now := s.node.Now()
	e = e.Kept(now)
	out.Stopped, err = s.node.Revoke(func() (string, []revocation.Entry, error) {
		n, err := s.revoked.Add(now, e)
		if out.New = n > 0; err != nil || !out.New {
			return "", nil, err
		}
		return "owner", []revocation.Entry{e}, nil
	})
	return out, err
}

// Leases implements admin.Revoker.
func (s *serving) Leases(_ context.Context, leases []admin.LeaseUse) ([]admin.LeaseUse, error) {
	if s.node == nil {
		return nil, errNoNode
	}
	running := map[lease.ID]int{}
	for _, o := range s.node.Status().Operations {
		if !o.Ended {
			running[o.Lease]++
		}
	}
	out := make([]admin.LeaseUse, 0, len(leases))
	for _, l := range leases {
		id, err := lease.ParseID(l.Lease)
		if err != nil {
			return nil, err
		}
		issuer, err := name.ParsePeerID(l.Issuer)
		if err != nil {
			return nil, err
		}
		l.Used, l.Running = 0, running[id]
		if s.ledger != nil {
			l.Used = s.ledger.Operations(issuer, id)
		}
		out = append(out, l)
	}
	return out, nil
}

// ownerOf is the public part of the owner's key, which revokes anything; zero if it is
// kept elsewhere.
func ownerOf(p paths) (name.PeerID, error) {
	key, err := loadKey(p.ownerKey())
	var usage *usageError
	if errors.As(err, &usage) { // there is none
		return name.PeerID{}, nil
	}
	if err != nil {
		return name.PeerID{}, fmt.Errorf("read the owner's key: %w", err)
	}
	return peerID(key)
}
