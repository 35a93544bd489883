package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol/name"
)

// lockdownPatience is how long a gateway that runs is waited for, before the mark is
// set without it.
const lockdownPatience = 5 * time.Second

func (a *app) lockdownCommand() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:   "lockdown",
		Short: "deny everything and end all that runs, until lend unlock",
		Long: `Stop lending at once: whatever runs ends within a second, and nobody may start,
attach to or look up anything. It stays so, whoever starts the gateway again,
until "lend unlock". It needs no running gateway: the next one starts locked
down. Callers are told GATEWAY_LOCKED, and those whose command was ended
OWNER_STOPPED.`,
		Example: "  lend lockdown\n  lend lockdown --why 'laptop stolen'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.lockdown(cmd.Context(), why) },
	}
	c.Flags().StringVar(&why, "why", "", "a few words for your records, of printable ASCII")
	return c
}

func (a *app) lockdown(ctx context.Context, why string) error {
	if name.Show(why) != why {
		return usagef("lend lockdown --why 'laptop stolen'", "--why: want printable ASCII, at most %d bytes", name.MaxQuoted)
	}
	p, err := a.paths()
	if err != nil {
		return err
	}
	gateway := admin.NewClient(p.socket)
	asking, cancel := context.WithTimeout(ctx, lockdownPatience)
	r, err := gateway.Lockdown(asking, admin.Lockdown{On: true, Why: why})
	cancel()
	// Whatever it answers: a gateway looks for the mark itself, also one that starts now.
	store := openRevocations(p)
	was := store.Lockdown() != nil
	markErr := store.Lock(time.Now(), why)
	switch {
	case err == nil:
	case errors.Is(err, admin.ErrNotRunning) && markErr == nil:
		r = lockdownShown(store)
		r.Was = was
	case errors.Is(err, admin.ErrNotRunning):
		return markErr
	case markErr == nil:
		return hintf("stop the process of lend serve if its callers still run", "it is locked down, but the gateway does not say so: %w", err)
	default:
		return notKept(ctx, gateway, markErr)
	}
	return a.show(r, func() error {
		switch {
		case !r.Gateway && !r.Was:
			return a.say("locked down: no gateway is running here, the next one denies everything; lend unlock ends it")
		case r.Was:
			return a.say("locked down already; lend unlock ends it")
		}
		return a.say("locked down: everything is denied, %s; lend unlock ends it", stoppedText(r.Stopped))
	})
}

// notKept says what a lockdown that cannot be written is worth.
func notKept(ctx context.Context, gateway *admin.Client, markErr error) error {
	if s, err := gateway.Status(ctx); err == nil && s.Lockdown != nil {
		return hintf("make room on the disk, then lend lockdown again", "everything is denied while this gateway runs, but the next one will not know: %w", markErr)
	}
	return hintf("stop the process of lend serve", "there is no lockdown: %w", markErr)
}

func (a *app) unlockCommand() *cobra.Command {
	var acceptLoss, yes bool
	c := &cobra.Command{
		Use:   "unlock",
		Short: "end a lockdown",
		Long: `End a lockdown: leases count again, unless they have expired or were revoked.
What was ended by it stays ended.

If the file of revocations is lost or damaged, everything is denied as well, and
lend unlock fails (exit status 1). Restore the file and say lend unlock: it
counts again if it has all that was revoked. Or say --accept-loss --yes: the
file is set aside, and every lease that was issued until now is revoked.`,
		Example: "  lend unlock\n  lend unlock --accept-loss --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case acceptLoss && !yes:
				return usagef("lend unlock --accept-loss --yes", "this revokes every lease that was issued until now, if the revocations are lost: say --yes")
			case yes && !acceptLoss:
				return usagef("lend unlock --accept-loss --yes", "--yes is for --accept-loss")
			}
			return a.unlock(cmd.Context(), acceptLoss)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do it, with --accept-loss")
	c.Flags().BoolVar(&acceptLoss, "accept-loss", false, "begin a file of revocations anew if it is lost or damaged")
	return c
}

func (a *app) unlock(ctx context.Context, acceptLoss bool) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	gateway := admin.NewClient(p.socket)
	r, err := gateway.Lockdown(ctx, admin.Lockdown{AcceptLoss: acceptLoss})
	if errors.Is(err, admin.ErrNotRunning) {
		r, err = a.unlockAlone(p, acceptLoss)
	}
	if err != nil {
		return err
	}
	if r.Lost && !acceptLoss {
		return stillDenied(ctx, gateway, p, r)
	}
	return a.show(r, func() error {
		if r.Restored {
			a.note("the file of revocations is readable again, and counts")
		}
		if r.Lost {
			a.note("the file of revocations was begun anew: every lease that was issued until now is revoked")
		}
		if !r.Was {
			return a.say("there is no lockdown")
		}
		return a.say("unlocked")
	})
}

// stillDenied is the error of an unlock that lets nothing through, since the revocations
// are lost.
func stillDenied(ctx context.Context, gateway *admin.Client, p paths, r admin.Lockdown) error {
	why := "the revocations are not readable, or lack some"
	if s, err := gateway.Status(ctx); err == nil && s.Revocations.Failed != "" {
		why = s.Revocations.Failed
	} else if err := openRevocations(p).Unreadable(); err != nil {
		why = err.Error()
	}
	ended := ""
	if r.Was {
		ended = "the lockdown is over, but "
	}
	return hintf("restore "+p.revocations()+" and lend unlock again, or lend unlock --accept-loss --yes", "%severything stays denied: %s", ended, why)
}

func (a *app) unlockAlone(p paths, acceptLoss bool) (admin.Lockdown, error) {
	store, release, err := openStoreAlone(p)
	if err != nil {
		return admin.Lockdown{}, err
	}
	r, err := unlocked(store, time.Now(), acceptLoss)
	return r, errors.Join(err, release())
}

// unlocked ends a lockdown, takes a store that is readable again, and with acceptLoss
// begins one anew that is not.
func unlocked(store *revocations.Store, now time.Time, acceptLoss bool) (admin.Lockdown, error) {
	was, err := store.Unlock()
	if err != nil {
		return admin.Lockdown{}, err
	}
	lost := store.Unreadable() != nil
	restored := lost && store.Restore()
	if lost = lost && !restored; lost && acceptLoss {
		if lost, err = store.Renew(now); err != nil {
			return admin.Lockdown{}, fmt.Errorf("begin the revocations anew: %w", err)
		}
	}
	r := lockdownShown(store)
	r.Was, r.Lost, r.Restored = was, lost, restored
	return r, nil
}

func lockdownShown(store *revocations.Store) admin.Lockdown {
	r := admin.Lockdown{SchemaVersion: admin.SchemaVersion}
	if l := store.Lockdown(); l != nil {
		r.On, r.Why = true, l.Why
		if !l.Since.IsZero() {
			r.Since = &l.Since
		}
	}
	return r
}

// Lockdown implements admin.Revoker.
func (s *serving) Lockdown(_ context.Context, want admin.Lockdown) (admin.Lockdown, error) {
	if s.node == nil {
		return admin.Lockdown{}, errNoNode
	}
	was := s.revoked.Lockdown() != nil
	var r admin.Lockdown
	stopped, err := s.node.Revoke(func() (_ string, _ []revocation.Entry, err error) {
		if want.On {
			err = s.revoked.Lock(time.Now(), want.Why)
			r = lockdownShown(s.revoked)
			r.Was = was
		} else {
			r, err = unlocked(s.revoked, s.node.Now(), want.AcceptLoss)
		}
		return "", nil, err
	})
	r.Gateway, r.Stopped = true, stopped
	return r, err
}

// revocationsShown adds to a status what is denied.
func (s *serving) revocationsShown(out *admin.Status) {
	s.revoked.Refresh()
	out.Revocations.Entries = len(s.revoked.Entries())
	deniedShown(s.revoked, out)
	if out.Lockdown != nil {
		out.Lockdown.Gateway = true
	}
}

// deniedShown adds why everything is denied, by whichever gateway.
func deniedShown(store *revocations.Store, out *admin.Status) {
	if r := lockdownShown(store); r.On {
		out.Lockdown = &r
	}
	if err := store.Unreadable(); err != nil {
		out.Revocations.Failed = err.Error()
	}
}

// noGateway says that none runs here, and what the next one will deny.
func noGateway(p paths) error {
	var next admin.Status
	deniedShown(openRevocations(p), &next)
	if _, err := os.Lstat(p.identityKey()); errors.Is(err, os.ErrNotExist) {
		next.Revocations.Failed = "" // before lend init there are none
	}
	text, hint := "no gateway is running here", "lend serve"
	for _, row := range deniedRows(&next) {
		text += "; " + strings.Join(row[1:], ": ")
		hint = "lend unlock --help, then lend serve"
	}
	return hintf(hint, "%s", text)
}

// deniedRows are what a status begins with if nothing is lent.
func deniedRows(s *admin.Status) (rows [][]string) {
	if l := s.Lockdown; l != nil {
		text := "LOCKED DOWN"
		if l.Since != nil {
			text += " since " + l.Since.Local().Format(time.RFC3339)
		}
		row := []string{"LOCKDOWN", text + ": everything is denied until lend unlock"}
		if l.Why != "" {
			row = append(row, l.Why)
		}
		rows = append(rows, row)
	}
	if s.Revocations.Failed != "" {
		rows = append(rows, []string{"LOCKED", s.Revocations.Failed + "; lend unlock --help"})
	}
	if n := s.Revocations.Entries; n > 0 {
		rows = append(rows, []string{"revoked", count(n, "revocation is", "revocations are") + " kept"})
	}
	return rows
}
