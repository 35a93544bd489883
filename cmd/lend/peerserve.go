package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/pairing"
	"github.com/lendcli/lend/protocol/name"
)

// Invite implements admin.Inviter.
func (s *serving) Invite(ctx context.Context, want admin.InvitationWanted, tell func(admin.Invitation) error) error {
	if why := s.revoked.Locked(); why != nil {
		return fmt.Errorf("everything is denied: %w", why)
	}
	return s.desk.Invite(ctx, time.Duration(want.Seconds)*time.Second, want.Local,
		func(i pairing.Invited) error {
			if why := s.revoked.Locked(); why != nil { // since, while it waited for the one before
				return fmt.Errorf("everything is denied: %w", why)
			}
			return tell(admin.Invitation{ID: i.ID, Link: i.Link, Expires: &i.Expires, Phase: pairing.Open.String()})
		},
		func(at pairing.Snapshot) error {
			return tell(admin.Invitation{
				Phase: at.Phase.String(), Final: at.Phase.Final(), Tries: at.Tries, Others: at.Others,
				Peer: at.Peer.String(), Called: at.Called.String(), Digits: at.Digits,
			})
		})
}

var errDecision = errors.New("no such decision")

// Decide implements admin.Inviter.
func (s *serving) Decide(_ context.Context, d admin.Decision) error {
	i, err := s.desk.Find(d.ID)
	if err != nil {
		return err
	}
	switch d.What {
	case "approve":
		if why := s.revoked.Locked(); why != nil {
			return fmt.Errorf("everything is denied: %w", why)
		}
		return i.Approve()
	case "refuse":
		return i.Refuse()
	case "settle":
		var called name.Label
		if d.Name != "" {
			if called, err = name.ParseLabel(d.Name); err != nil {
				return err
			}
		}
		return i.Settle(called)
	}
	return errDecision
}
