package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// The states of a lease in a list.
const (
	leaseValid   = "valid"
	leaseExpired = "expired"
	leaseRevoked = "revoked"
	leaseLocked  = "denied" // with all others: a lockdown, or a lost store
)

func (a *app) leaseListCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "list the leases that were issued on this machine",
		Long: `List the leases that were issued, or passed on, on this machine and are good;
with --all those that have expired in the last 30 days or were revoked, too. Of
leases of this machine's own gateway it says which were revoked and, if the
gateway runs, how many operations they have started and how many of them run
now. What another gateway has revoked is not known here. The leases themselves
are not kept.`,
		Example: "  lend lease list\n  lend lease list --all --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listLeases(cmd, all) },
	}
	c.Flags().BoolVar(&all, "all", false, "those that have expired or were revoked, too")
	return c
}

// leaseLine is one lease of the list. Used and Running are absent if they are not
// known.
type leaseLine struct {
	issued.Lease
	HolderName string `json:"holderName,omitempty"`
	State      string `json:"state"`
	Used       *int   `json:"used,omitempty"`
	Running    *int   `json:"running,omitempty"`
}

func (a *app) listLeases(cmd *cobra.Command, all bool) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	now := time.Now()
	known, err := issued.List(p.issued(), now)
	if err != nil {
		a.note("lend: some leases are not listed: %v", err)
	}
	r := struct {
		SchemaVersion int         `json:"schemaVersion"`
		Gateway       bool        `json:"gateway"` // that runs here was asked
		Leases        []leaseLine `json:"leases"`
	}{SchemaVersion: jsonSchema, Leases: []leaseLine{}}
	ours := a.ownGateway(p)
	for _, l := range a.withStates(p, known, ours, now) {
		if all || l.State == leaseValid || l.State == leaseLocked {
			r.Leases = append(r.Leases, l)
		}
	}
	if r.Gateway, err = a.withUse(cmd, p, r.Leases, ours); err != nil {
		return err
	}
	return a.show(r, func() error { return a.printLeases(r.Leases, all) })
}

// ownGateway is the ID of this machine's gateway; zero if it has none.
func (a *app) ownGateway(p paths) name.PeerID {
	key, err := loadIdentity(p)
	if err != nil {
		return name.PeerID{}
	}
	id, err := peerID(key)
	if err != nil {
		return name.PeerID{}
	}
	return id
}

func (a *app) withStates(p paths, known []issued.Lease, ours name.PeerID, now time.Time) []leaseLine {
	labels := map[name.PeerID]name.Label{}
	if pol, err := loadPolicy(p.policy()); err == nil {
		for label, id := range pol.Peers() {
			labels[id] = label
		}
	}
	store := openRevocations(p)
	locked := store.Locked() != nil
	out := make([]leaseLine, 0, len(known))
	for i := range known {
		l := leaseLine{Lease: known[i], HolderName: labels[known[i].Holder].String(), State: leaseValid}
		here := l.Gateway == ours
		switch {
		case !now.Before(l.NotAfter):
			l.State = leaseExpired
		case here && locked:
			l.State = leaseLocked
		case here && store.Revoked(l.Subject()):
			l.State = leaseRevoked
		}
		out = append(out, l)
	}
	return out
}

// withUse asks the running gateway about its leases; false: there is none.
func (a *app) withUse(cmd *cobra.Command, p paths, lines []leaseLine, ours name.PeerID) (bool, error) {
	var ask []admin.LeaseUse
	var of []*leaseLine
	for i := range lines {
		if lines[i].Gateway == ours {
			ask = append(ask, admin.LeaseUse{Lease: lines[i].ID.String(), Issuer: lines[i].Root.String()})
			of = append(of, &lines[i])
		}
	}
	c := admin.NewClient(p.socket)
	found, err := c.Leases(cmd.Context(), ask)
	switch {
	case errors.Is(err, admin.ErrNotRunning):
		return false, nil
	case err != nil:
		return false, err
	}
	for i := range found {
		of[i].Used, of[i].Running = &found[i].Used, &found[i].Running
	}
	return len(ask) > 0, nil
}

func (a *app) printLeases(lines []leaseLine, all bool) error {
	if len(lines) == 0 && all {
		return a.say("no lease was issued here lately\nlend lease issue --to PEER KEY COMMAND… makes one")
	}
	if len(lines) == 0 {
		return a.say("no lease is good now; lend lease list --all shows older ones")
	}
	rows := [][]string{{"LEASE", "STATE", "HOLDER", "GRANTS", "UNTIL", "USED", "RUNNING", "PURPOSE"}}
	for i := range lines {
		l := &lines[i]
		holder := l.HolderName
		if holder == "" {
			holder = l.Holder.String()
		}
		number := func(n *int) string {
			if n == nil {
				return "-"
			}
			return strconv.Itoa(*n)
		}
		used := number(l.Used)
		if l.Used != nil {
			used += "/" + strconv.Itoa(l.Operations)
		}
		purpose := "-"
		if l.Purpose != "" {
			purpose = name.Quote(l.Purpose)
		}
		rows = append(rows, []string{l.ID.String(), l.State, holder, grantsText(l.Grants), l.NotAfter.Local().Format("01-02 15:04:05"), used, number(l.Running), purpose})
	}
	return a.table(rows)
}

func grantsText(grants []issued.Grant) string {
	var out []string
	for _, g := range grants {
		var commands []string
		for _, c := range g.Commands {
			commands = append(commands, c.String())
		}
		out = append(out, g.Connector.String()+" "+strings.Join(commands, ","))
	}
	return strings.Join(out, "; ")
}

// rememberLease keeps what lend lease list shows, before the lease is given away.
func (a *app) rememberLease(p paths, l *lease.Lease, root name.PeerID) error {
	return issued.Keep(p.issued(), issued.Of(l, root), time.Now())
}

// rememberDelegated does it for the last link of a lease file.
func (a *app) rememberDelegated(text []byte) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	f, err := parseLease(text)
	if err != nil {
		return err
	}
	return a.rememberLease(p, &f.Links[len(f.Links)-1], f.Links[0].Issuer)
}

// notRevokedToday refuses to issue what is revoked already.
func notRevokedToday(p paths, l *lease.Lease) error {
	store := openRevocations(p)
	if err := store.Locked(); err != nil {
		return hintf("lend unlock --help", "the gateway would deny the lease: %w", err)
	}
	s := lease.Subject{Lease: l.ID, Invocation: l.Invocation, Holder: l.Holder, Issuer: l.Issuer, IssuedAt: l.IssuedAt}
	if !store.Revoked(s) {
		return nil
	}
	s.IssuedAt = l.IssuedAt.Add(lease.MaxSkew)
	if store.Revoked(s) {
		return hintf("lend lease issue … with another --invocation or holder", "such leases were revoked for good")
	}
	return hintf(fmt.Sprintf("try again in %s", lease.DefaultSkew), "what was issued until about now was revoked, and a new lease would be as well")
}
