package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/protocol/name"
)

func (p paths) publishers() *signature.File {
	return signature.AtRemembering(filepath.Join(p.config, "publishers.json"), filepath.Join(p.state, "signatures-required.json"))
}

func (a *app) publisherCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "publisher",
		Short: "trust publishers of Connectors, require their signatures, sign",
		Long: `A publisher signs releases of Connectors. The owner lists the keys that they
trust, and may require that releases are signed: of all Connectors, or of some.
The list is asked when a Connector is added and before each start of it.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(
		a.publisherAddCommand(), a.publisherListCommand(), a.publisherRemoveCommand(), a.publisherRequireCommand(),
		a.publisherNewCommand(), a.publisherSignCommand(),
	)
	return c
}

// signatureError adds the next command to what the list of publishers refuses.
func signatureError(err error) error {
	var required *signature.RequiredError
	var list *signature.FileError
	switch {
	case errors.As(err, &required):
		return &hinted{err: err, hint: required.Fix()}
	case errors.As(err, &list):
		return &hinted{err: err, hint: list.Fix()}
	case errors.Is(err, signature.ErrInvalid):
		return &hinted{err: err, hint: "get it from its publisher again; without " + signature.FileName + " it is unsigned"}
	default:
		return err
	}
}

// orHint adds a hint to an error that brings none.
func orHint(err error, hint string) error {
	var usage *usageError
	var withHint *hinted
	var unsafe *ownerfile.UnsafeError
	if err == nil || errors.As(err, &usage) || errors.As(err, &withHint) || errors.As(err, &unsafe) || secretHint(err) != "" {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) {
		hint = diskFull
	}
	return &hinted{err: err, hint: hint}
}

// diskFull is what comes next when there is no room.
const diskFull = "make room on that disk, then the same command again"

type shownPublisher struct {
	ID         string   `json:"id"`
	Key        string   `json:"key"`
	Connectors []string `json:"connectors"` // empty: all
}

type shownTrust struct {
	SchemaVersion int              `json:"schemaVersion"`
	Publishers    []shownPublisher `json:"publishers"`
	RequireAll    bool             `json:"requireAll"`
	Require       []string         `json:"require"`
	Refused       []string         `json:"refused"`        // installed releases of which nothing starts
	Lost          bool             `json:"lost,omitempty"` // the list is gone; what it required holds
}

// changeTrust edits the list, has a running gateway look at it, and shows it.
func (a *app) changeTrust(cmd *cobra.Command, change func(*signature.Trust) error) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	if err := p.makePrivate(); err != nil {
		return err
	}
	if err := p.publishers().Edit(cmd.Context(), change); err != nil {
		return orHint(signatureError(err), "lend publisher "+cmd.Name()+" --help")
	}
	if err := a.reconcileRunning(cmd.Context()); err != nil {
		return err
	}
	return a.showTrust()
}

func (a *app) showTrust() error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	t, err := p.publishers().Load()
	if err != nil {
		return signatureError(err)
	}
	state, err := p.publishers().Memory()
	if err != nil {
		return signatureError(err)
	}
	shown := shownTrust{SchemaVersion: jsonSchema, Publishers: []shownPublisher{}, RequireAll: t.RequireAll, Require: append([]string{}, t.Require...), Refused: []string{}, Lost: state == signature.Lost}
	for _, p := range t.Publishers {
		shown.Publishers = append(shown.Publishers, shownPublisher{p.ID(), p.Key, append([]string{}, p.Connectors...)})
	}
	err = a.withStore("", func(s *install.Store) error {
		releases, damaged, err := s.Releases()
		for _, d := range damaged {
			shown.Refused = append(shown.Refused, d.Error())
		}
		for _, r := range releases {
			if _, err := s.Signers(r); err != nil {
				shown.Refused = append(shown.Refused, err.Error())
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.show(shown, func() error { return a.printTrust(shown) })
}

func (a *app) printTrust(t shownTrust) error {
	if t.Lost {
		a.note("lend: warning: the list of publishers is gone; what had to be signed still has to be")
	}
	rows := [][]string{{"PUBLISHER", "CONNECTORS"}}
	for _, p := range t.Publishers {
		rows = append(rows, []string{p.ID, orAll(p.Connectors)})
	}
	if len(t.Publishers) == 0 {
		a.note("lend: no publisher is trusted; next: lend publisher add PUBLISHER")
	} else if err := a.table(rows); err != nil {
		return err
	}
	switch {
	case t.RequireAll:
		a.note("lend: every release has to be signed by one of them")
	case len(t.Require) > 0:
		a.note("lend: releases of these have to be signed by one of them: %s", strings.Join(t.Require, ", "))
	default:
		a.note("lend: no release has to be signed")
	}
	for _, r := range t.Refused {
		a.note("lend: warning: nothing starts of %s", r)
	}
	return nil
}

func orAll(connectors []string) string {
	if len(connectors) == 0 {
		return "all"
	}
	return strings.Join(connectors, ", ")
}

func (a *app) publisherAddCommand() *cobra.Command {
	var connectors []string
	c := &cobra.Command{
		Use:   "add PUBLISHER",
		Short: "trust a publisher's key, for all Connectors or some",
		Long: `Trust a publisher, by the public key that lend publisher new printed on their
machine: NAME+ID+KEY. With --connector the key is trusted for those Connectors
only. Adding a key again changes which these are.`,
		Example: `  lend publisher add example.com+1b2c3d4e+Ae…
  lend publisher add example.com+1b2c3d4e+Ae… --connector github`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			one := signature.Publisher{Key: args[0], Connectors: connectors}
			if err := connectorKeys(connectors); err != nil {
				return err
			}
			return a.changeTrust(cmd, func(t *signature.Trust) error {
				t.Publishers = slices.DeleteFunc(t.Publishers, func(p signature.Publisher) bool { return p.Key == one.Key })
				t.Publishers = append(t.Publishers, one)
				return nil
			})
		},
	}
	c.Flags().StringArrayVar(&connectors, "connector", nil, "trust it for this Connector only (repeatable)")
	return c
}

// connectorKeys refuses what no Connector can be called.
func connectorKeys(keys []string) error {
	for _, k := range keys {
		if _, err := name.ParseConnectorKey(k); err != nil {
			return &usageError{err: err, hint: "lend connector list"}
		}
	}
	return nil
}

func (a *app) publisherListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "list the trusted publishers, and what has to be signed",
		Example: "  lend publisher list --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.showTrust() },
	}
}

func (a *app) publisherRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove PUBLISHER",
		Short: "trust a publisher no longer",
		Long: `Take a publisher's key, NAME+ID, off the list. Where signatures are required,
nothing starts any more of what only that key signed, and a running gateway
takes its routes away.`,
		Example: "  lend publisher remove example.com+1b2c3d4e",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeTrust(cmd, func(t *signature.Trust) error {
				n := len(t.Publishers)
				t.Publishers = slices.DeleteFunc(t.Publishers, func(p signature.Publisher) bool { return p.ID() == args[0] || p.Key == args[0] })
				if len(t.Publishers) == n {
					return hintf("lend publisher list", "no publisher %s is trusted", name.Quote(args[0]))
				}
				return nil
			})
		},
	}
}

func (a *app) publisherRequireCommand() *cobra.Command {
	var all, off bool
	c := &cobra.Command{
		Use:   "require [KEY…] [--all]",
		Short: "say which Connectors have to be signed by a trusted publisher",
		Long: `Require that the releases of some Connectors, or of all, are signed by a
publisher that is trusted for them. Others are not added, and nothing starts of
those that are installed already. With --off they need not be signed any more;
while --all is on, none can be let off alone.

What has to be signed is remembered in a second place: a list of publishers that
is lost or deleted requires what it required, and trusts nobody.`,
		Example: `  lend publisher require github
  lend publisher require --off github
  lend publisher require --all
  lend publisher require --off --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				again := "lend publisher require "
				if off {
					again += "--off "
				}
				return usagef(again+"--all, or "+again+"KEY", "name Connectors, or say --all")
			}
			if err := connectorKeys(args); err != nil {
				return err
			}
			return a.changeTrust(cmd, func(t *signature.Trust) error { return requireSigned(t, args, all, off) })
		},
	}
	c.Flags().BoolVar(&all, "all", false, "of all Connectors")
	c.Flags().BoolVar(&off, "off", false, "no longer")
	return c
}

// requireSigned changes what has to be signed.
func requireSigned(t *signature.Trust, keys []string, all, off bool) error {
	switch {
	case all:
		t.RequireAll = !off
		return nil
	case off && t.RequireAll:
		return hintf("lend publisher require --off --all, then lend publisher require KEY… for those that have to be",
			"every release has to be signed, so that %s cannot be let off alone", strings.Join(keys, ", "))
	}
	t.Require = slices.DeleteFunc(t.Require, func(k string) bool { return slices.Contains(keys, k) })
	if !off {
		slices.Sort(keys)
		t.Require = append(t.Require, slices.Compact(keys)...)
	}
	return nil
}

func (a *app) publisherNewCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "make a publisher's key",
		Long: `Make a key to sign releases with: the private part in a new file that only you
can read, the public part printed, for lend publisher add on the owners'
machines. NAME is what they will see: a domain of yours, for example.`,
		Example: "  lend publisher new example.com --out publisher.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("lend publisher new "+args[0]+" --out FILE", "say where to keep the private key")
			}
			file, err := filepath.Abs(out)
			if err != nil {
				return err
			}
			key, err := signature.NewKey(file, args[0])
			if err != nil {
				return orHint(err, "lend publisher new example.com --out FILE, a file that is not there")
			}
			r := struct {
				SchemaVersion int    `json:"schemaVersion"`
				ID            string `json:"id"`
				Key           string `json:"key"`
				File          string `json:"file"`
			}{jsonSchema, signature.Publisher{Key: key}.ID(), key, file}
			return a.show(r, func() error {
				a.note("lend: the private key is in %s; next: lend publisher sign DIRECTORY --key %s", name.Quote(out), name.Quote(out))
				return a.say("%s", key)
			})
		},
	}
	c.Flags().StringVar(&out, "out", "", "the file to make for the private key")
	return c
}

func (a *app) publisherSignCommand() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use:   "sign DIRECTORY | ARCHIVE",
		Short: "sign a release",
		Long: `Sign a Connector: its manifest and every byte of its files, for all systems that
it is for. The signature is written to ` + signature.FileName + ` in the directory, which may
then be packed, or beside the archive, with ` + signature.Suffix + ` after its name,
and goes where that goes. It is no part of the release: others can add theirs.`,
		Example: "  lend publisher sign ./github --key publisher.key\n  lend publisher sign github-2.40.1.tar.gz --key publisher.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return usagef("lend publisher sign "+args[0]+" --key FILE", "name the file with the private key")
			}
			path, err := fullPath(args[0])
			if err != nil {
				return err
			}
			keyFile, err := filepath.Abs(key)
			if err != nil {
				return err
			}
			return a.withStore("", func(s *install.Store) error {
				subject, file, err := s.Sign(cmd.Context(), path, keyFile, a.progress())
				if err != nil {
					return orHint(sourceError(path, err), signFix(keyFile, err))
				}
				r := struct {
					SchemaVersion int    `json:"schemaVersion"`
					Key           string `json:"key"`
					Version       string `json:"version"`
					Digest        string `json:"digest"`
					File          string `json:"file"`
				}{jsonSchema, subject.Key.String(), subject.Version.String(), subject.Digest, file}
				return a.show(r, func() error { return a.say("%s %s signed: %s", r.Key, r.Version, name.Quote(file)) })
			})
		},
	}
	c.Flags().StringVar(&key, "key", "", "the file with the private key")
	return c
}

// signFix is what mends a signature that could not be made.
func signFix(keyFile string, err error) string {
	switch info, look := os.Stat(keyFile); {
	case look != nil:
		return "--key with the file that lend publisher new wrote"
	case info.Mode().Perm()&0o077 != 0 && errors.Is(err, connection.ErrUnsafe):
		return "chmod 600 " + keyFile
	}
	return "lend publisher sign --help"
}

type shownSigner struct {
	ID      string `json:"id"`
	Trusted bool   `json:"trusted"`
}

type shownProbe struct {
	Arguments []string `json:"arguments"`
	Timeout   string   `json:"timeout"`
}

// shownAbout is what a release says about itself beyond its commands, and who signed
// it. Nothing enforces permissions, and nothing fetches the icon.
type shownAbout struct {
	IconURL          string        `json:"iconUrl,omitempty"`
	Permissions      []string      `json:"permissions"`
	Aliases          []string      `json:"aliases"`
	Targets          []string      `json:"targets"` // empty: one implementation for all
	Probe            *shownProbe   `json:"readinessProbe,omitempty"`
	Signers          []shownSigner `json:"signers"`
	SignatureProblem string        `json:"signatureProblem,omitempty"` // then nothing starts
}

func aboutShown(s *install.Store, r install.Release) shownAbout {
	m := r.Manifest
	out := shownAbout{
		IconURL: m.IconURL, Permissions: append([]string{}, m.Permissions...), Aliases: append([]string{}, m.Aliases...),
		Targets: append([]string{}, slices.Sorted(maps.Keys(m.CLI.Targets))...), Signers: []shownSigner{},
	}
	if p := m.CLI.Probe; p != nil {
		out.Probe = &shownProbe{p.Arguments, p.Timeout.String()}
	}
	signers, err := s.Signers(r)
	if err != nil {
		out.SignatureProblem = err.Error()
	}
	for _, one := range signers {
		out.Signers = append(out.Signers, shownSigner(one))
	}
	return out
}

func (s shownAbout) rows() [][]string {
	var rows [][]string
	for _, one := range s.Signers {
		state := "not a publisher that you trust for it"
		if one.Trusted {
			state = "trusted"
		}
		rows = append(rows, []string{"signed by", name.Quote(one.ID) + "  " + state})
	}
	switch {
	case s.SignatureProblem != "":
		rows = append(rows, []string{"signature", s.SignatureProblem})
	case len(s.Signers) == 0:
		rows = append(rows, []string{"signed by", "nobody"})
	}
	if len(s.Targets) > 0 {
		rows = append(rows, []string{"systems", strings.Join(s.Targets, ", ")})
	}
	if s.IconURL != "" {
		rows = append(rows, []string{"icon", name.Quote(s.IconURL)})
	}
	for _, p := range s.Permissions {
		rows = append(rows, []string{"permission", p + "  (its author says so; not enforced)"})
	}
	for _, alias := range s.Aliases {
		rows = append(rows, []string{"alias", name.Quote(alias)})
	}
	if s.Probe != nil {
		rows = append(rows, []string{"probe", fmt.Sprintf("%s, at most %s", count(len(s.Probe.Arguments), "argument", "arguments"), s.Probe.Timeout)})
	}
	return rows
}

// noteSigned says who signed what was added.
func (a *app) noteSigned(s shownAbout) {
	for _, one := range s.Signers {
		if one.Trusted {
			a.note("lend: signed by %s, which you trust", one.ID)
		} else {
			a.note("lend: signed by %s, which you do not trust for it: that proves nothing", name.Quote(one.ID))
		}
	}
}
