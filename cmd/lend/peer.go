package main

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/pairing"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/edit"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

func (a *app) peerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "peer",
		Short: "invite another machine, list the policy's peers, and remove one",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.peerInviteCommand(), a.peerListCommand(), a.peerRemoveCommand())
	return c
}

type inviteFlags struct {
	name  string
	ttl   time.Duration
	local bool
}

func (a *app) peerInviteCommand() *cobra.Command {
	var f inviteFlags
	c := &cobra.Command{
		Use:   "invite",
		Short: "invite another machine to pair: a link, and digits to compare",
		Long: `Have the running gateway open an invitation, and print its link, as a QR code
too where the terminal is wide enough. On the other machine, lend pair takes the
link. Both then show six check digits: if they are the same, and you say so, the
policy file gets that machine's name and peer ID, and nothing else. What it may
run is still for lend policy allow and lend lease issue.

An invitation is used once, and is over after ten minutes, five wrong tries, or
when this command ends. Meanwhile peers that nobody knows can reach the gateway,
for pairing alone. Hand the link over in a way that others do not read: it is a
secret until it is used. Whoever gets hold of it can ask in the other's place,
but cannot show your digits there.

The question needs a terminal. Without one, the digits that the other machine
shows have to be given on standard input. Exit status 1: nothing has changed.`,
		Example: `  lend peer invite --name laptop
  lend peer invite --name laptop --ttl 2m
  lend peer invite --name laptop --json < digits`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.invite(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "what to call the machine (default: as it asks, or a part of its ID)")
	fl.DurationVar(&f.ttl, "ttl", pairing.MaxLife, "for how long; 10m at most")
	fl.BoolVar(&f.local, "local-addresses", false, "keep loopback and link-local addresses in the link")
	return c
}

func (a *app) peerListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "list the peers that the policy names",
		Example: "  lend peer list\n  lend peer list --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := a.policyFile(nil)
			if err != nil {
				return err
			}
			p, err := loadPolicy(file)
			if err != nil {
				return err
			}
			type row struct {
				Name   string `json:"name"`
				PeerID string `json:"peerId"`
			}
			r := struct {
				SchemaVersion int   `json:"schemaVersion"`
				Peers         []row `json:"peers"`
			}{jsonSchema, []row{}}
			rows, peers := [][]string{{"NAME", "PEER ID"}}, p.Peers()
			for _, n := range slices.SortedFunc(maps.Keys(peers), func(x, y name.Label) int { return strings.Compare(x.String(), y.String()) }) {
				r.Peers = append(r.Peers, row{n.String(), peers[n].String()})
				rows = append(rows, []string{n.String(), peers[n].String()})
			}
			return a.show(r, func() error {
				if len(peers) == 0 {
					a.note("lend: the policy names no peer; next: lend peer invite --name NAME")
					return nil
				}
				return a.table(rows)
			})
		},
	}
}

// invitation is one from the owner's terminal.
type invitation struct {
	*app

	client  *admin.Client
	file    string
	called  name.Label // by the owner; zero: as the peer asks
	id      string
	seen    admin.Invitation
	answers chan bool
	change  *edit.Result
	text    policyText
	as      name.Label
	written bool // the policy has the peer
}

// peerEvent is one line of lend peer invite --json.
type peerEvent struct {
	SchemaVersion int    `json:"schemaVersion"`
	Event         string `json:"event"` // invited, shown, paired
	// Link goes with invited; it is a secret until it is used.
	Link    string     `json:"link,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	// Peer goes with shown and paired; Called is how it would like to be called.
	Peer   string `json:"peerId,omitempty"`
	Called string `json:"called,omitempty"`
	// Name, File, Diff and Gateway go with paired, as with lend policy allow.
	Name    string `json:"name,omitempty"`
	File    string `json:"file,omitempty"`
	Diff    string `json:"diff,omitempty"`
	Gateway string `json:"gateway,omitempty"`
}

func (a *app) event(e peerEvent) error {
	e.SchemaVersion = jsonSchema
	return json.NewEncoder(a.out).Encode(e)
}

func (a *app) invite(ctx context.Context, f inviteFlags) error {
	if f.ttl < time.Second || f.ttl > pairing.MaxLife {
		return usagef("--ttl 10m", "--ttl: want 1s to %s", pairing.MaxLife)
	}
	p, err := a.paths()
	if err != nil {
		return err
	}
	i := &invitation{app: a, client: admin.NewClient(p.socket), answers: make(chan bool, 1)}
	status, err := i.client.Status(ctx)
	if errors.Is(err, admin.ErrNotRunning) {
		return hintf("lend serve", "%w: the other machine pairs with a gateway that runs", err)
	}
	if err != nil {
		return err
	}
	i.file = status.Policy.File
	if err := i.checkName(f.name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, ended := make(chan admin.Invitation), make(chan error, 1)
	go func() { // ends with ctx
		ended <- i.client.Invite(ctx, admin.InvitationWanted{Seconds: int(f.ttl.Seconds()), Local: f.local}, func(at admin.Invitation) error {
			select {
			case changes <- at:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return i.until(ctx, changes, ended)
}

// checkName looks before anybody waits whether the name is free.
func (i *invitation) checkName(s string) error {
	if s == "" {
		return nil
	}
	var err error
	if i.called, err = name.ParseLabel(s); err != nil {
		return &usageError{err: err, hint: "--name laptop"}
	}
	p, err := loadPolicy(i.file)
	if err != nil {
		return err
	}
	_, peer := p.Peers()[i.called]
	if _, group := p.Content().Groups[i.called]; peer || group {
		return usagef("--name ANOTHER", "the policy has the name %s already", i.called)
	}
	return nil
}

// until follows an invitation to its end.
func (i *invitation) until(ctx context.Context, changes <-chan admin.Invitation, ended <-chan error) error {
	for {
		select {
		case at := <-changes:
			if at.Final {
				return i.over(ctx, at)
			}
			if err := i.follow(ctx, at); err != nil {
				return err
			}
			i.seen = at
		case yes := <-i.answers:
			if told, err := i.decide(ctx, yes); err != nil {
				return err
			} else if i.written && !told {
				return i.paired(ctx)
			}
		case err := <-ended:
			if i.written { // nothing takes it back
				return i.paired(ctx)
			}
			if ctx.Err() != nil {
				return errors.New("the invitation is withdrawn, and nothing has changed")
			}
			return notInvited(err)
		}
	}
}

func notInvited(err error) error {
	if err == nil {
		return hintf("lend peer list", "the gateway did not say how the invitation ended")
	}
	return fmt.Errorf("%w; nothing has changed", err)
}

// follow shows what is new; several things may be.
func (i *invitation) follow(ctx context.Context, at admin.Invitation) error {
	if at.Link != "" {
		i.id = at.ID
		return i.showLink(at)
	}
	if at.Tries > i.seen.Tries {
		i.note("lend: somebody tried with a wrong link (%d of %d)", at.Tries, pairing.MaxTries)
	}
	if at.Others > i.seen.Others {
		i.note("lend: ANOTHER MACHINE HAS THIS LINK TOO: say yes only if the digits are the same")
	}
	if at.Phase == pairing.Shown.String() && i.seen.Phase != at.Phase {
		return i.ask(ctx, at)
	}
	return nil
}

func (i *invitation) showLink(at admin.Invitation) error {
	if i.json {
		return i.event(peerEvent{Event: "invited", Link: at.Link, Expires: at.Expires})
	}
	if os.Getenv("TERM") != "dumb" {
		_, _ = fmt.Fprint(i.err, qrText(at.Link, terminalWidth(i.err)))
	}
	if err := i.say("%s", at.Link); err != nil {
		return err
	}
	i.note("lend: on the other machine: lend pair, and this link; open until %s", at.Expires.Local().Format(time.TimeOnly))
	return nil
}

// ask shows what would change, and asks whether the digits are the same.
func (i *invitation) ask(ctx context.Context, at admin.Invitation) error {
	if err := i.prepare(at); err != nil {
		_ = i.client.Decide(ctx, admin.Decision{ID: i.id, What: "refuse"}) // the reason is told here
		return fmt.Errorf("%w; nothing has changed", err)
	}
	typed := i.json || !isTerminal(i.in)
	if i.json {
		if err := i.event(peerEvent{Event: "shown", Peer: at.Peer, Called: at.Called}); err != nil {
			return err
		}
	} else {
		report := editReport{Diff: i.diff(), Changes: i.change.Changes, Notes: i.change.Notes} // that no rule is about it goes without saying
		if err := i.printEdit(report, false); err != nil {
			return err
		}
	}
	i.note("lend: %s would be in the policy as %s", at.Peer, i.as)
	if typed {
		i.note("lend: give the six digits that it shows, on standard input")
	} else {
		if err := forgetTyped(i.in); err != nil { // it cannot be about digits that nobody has seen
			_ = i.client.Decide(ctx, admin.Decision{ID: i.id, What: "refuse"})
			return fmt.Errorf("ask on the terminal: %w; nothing has changed", err)
		}
		i.note("\n  check digits   %s\n", spaced(at.Digits))
		_, _ = fmt.Fprint(i.err, "does the other machine show the same digits? [y/N] ")
	}
	go func() { // a read of a terminal cannot be ended: it ends with the program
		line, _ := bufio.NewReader(io.LimitReader(i.in, 64)).ReadString('\n')
		i.answers <- agreed(line, at.Digits, typed)
	}()
	return nil
}

// agreed reads an answer: yes, or where the digits are to be typed, the digits.
func agreed(line, digits string, typed bool) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	if !typed {
		return line == "y" || line == "yes"
	}
	line = strings.ReplaceAll(line, " ", "")
	return len(digits) == pair.Digits && subtle.ConstantTimeCompare([]byte(line), []byte(digits)) == 1
}

// spaced makes digits easier to compare.
func spaced(digits string) string {
	if len(digits) != pair.Digits {
		return name.Quote(digits)
	}
	return digits[:3] + " " + digits[3:]
}

// prepare makes the change of the file, without writing it.
func (i *invitation) prepare(at admin.Invitation) error {
	id, err := name.ParsePeerID(at.Peer)
	if err != nil {
		return err
	}
	if i.as = i.called; i.as.IsZero() {
		asked := at.Called
		if asked == "" {
			asked = "peer-" + at.Peer[len(at.Peer)-6:]
		}
		if i.as, err = name.ParseLabel(asked); err != nil {
			return err
		}
	}
	if i.text, err = i.openPolicy(i.file); err != nil {
		return err
	}
	p, err := policy.Parse(i.text.file, i.text.data)
	if err != nil {
		return &usageError{err: err}
	}
	if known := p.Content().NameOf(id); known != at.Peer {
		return hintf("lend lease issue --to "+known+" …", "that machine is in the policy already, as %s", known)
	}
	contracts, err := i.installedContracts()
	if err != nil {
		return err
	}
	r, err := edit.Introduce(i.text.file, i.text.data, edit.Newcomer{Name: i.as, ID: id}, contracts)
	var refused *edit.RefusedError
	if errors.As(err, &refused) {
		hint := refused.Hint
		if strings.HasPrefix(hint, "--") {
			hint = "lend peer invite --name ANOTHER"
		}
		return &hinted{err: err, hint: hint}
	}
	i.change = &r
	return err
}

func (i *invitation) diff() string {
	return string(diff.Diff(i.text.file, i.text.data, i.text.file+" (new)", i.change.Text))
}

// decide passes the owner's answer on. From the approval on nothing takes it back but a
// file that cannot be written, and the gateway is told of either, if it can be.
func (i *invitation) decide(ctx context.Context, yes bool) (told bool, err error) {
	approved := yes
	if yes {
		err := i.client.Decide(ctx, admin.Decision{ID: i.id, What: "approve"})
		if approved = err == nil; !approved {
			i.note("lend: not approved: %v", err)
		}
	}
	if !approved {
		_ = i.client.Decide(ctx, admin.Decision{ID: i.id, What: "refuse"}) // its end is told, whatever it was
		return true, nil
	}
	ctx = context.WithoutCancel(ctx)
	settled := admin.Decision{ID: i.id, What: "settle"}
	failed := i.replace(i.text, i.change.Text)
	if i.written = failed == nil; i.written {
		settled.Name = i.as.String()
	}
	err = i.client.Decide(ctx, settled)
	if err != nil && i.written {
		i.note("lend: the policy has %s, but the other machine was not told: %v", i.as, err)
	}
	return err == nil, failed
}

// paired says that the policy has the peer.
func (i *invitation) paired(ctx context.Context) error {
	gateway, id := i.noteTaken(context.WithoutCancel(ctx), i.file, i.change.Policy.Digest()), i.seen.Peer
	i.note("lend: %s may run nothing yet; next: lend policy allow --to %s KEY COMMAND, then lend lease issue --to %s", i.as, i.as, i.as)
	if i.json {
		return i.event(peerEvent{Event: "paired", Peer: id, Name: i.as.String(), File: i.file, Diff: i.diff(), Gateway: gateway})
	}
	return i.say("paired with %s %s", i.as, id)
}

// over says how it ended.
func (i *invitation) over(ctx context.Context, at admin.Invitation) error {
	if i.written { // whatever the other machine was told
		return i.paired(ctx)
	}
	switch at.Phase {
	case pairing.Paired.String():
		return i.paired(ctx)
	case pairing.Refused.String():
		return errors.New("refused, and nothing has changed")
	case pairing.Expired.String():
		return errors.New("the invitation has expired, and nothing has changed")
	case pairing.Burned.String():
		return hintf("lend peer invite", "there were %d wrong tries: the invitation is burned, and nothing has changed", pairing.MaxTries)
	case pairing.Lost.String():
		return hintf("lend peer invite", "the other machine has left, so the invitation is spent, and nothing has changed")
	case pairing.Mismatched.String():
		return hintf("lend peer invite", "the other machine broke the protocol: somebody may be in between; nothing has changed")
	case pairing.Withdrawn.String():
		return errors.New("the gateway ends, and the invitation with it; nothing has changed")
	}
	return fmt.Errorf("the invitation ended (%s); next: lend peer list", name.Show(at.Phase))
}
