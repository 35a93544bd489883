package checkup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/localhost/signature"
)

// Places are where a machine keeps its Connectors; absolute paths.
type Places struct {
	Store       string // of package install
	Connections string // of package connection
	// Publishers is the owner's list of them; nil trusts nobody and requires nothing.
	Publishers *signature.File
	// Ask knows the passphrase, if it was given. nil: nobody asks for it, and secrets
	// that it seals are not opened.
	Ask sealed.Ask

	opened func() (*connection.Root, error) // once for all checks: a passphrase is paid for once
}

// Connectors returns the checks of what is installed: each route that a gateway
// would have, the interpreters, and the key of the secrets. They hash what is
// installed.
func Connectors(p Places) []Check {
	p.opened = sync.OnceValues(func() (*connection.Root, error) { return connection.OpenAsking(p.Connections, p.Ask) })
	return []Check{
		{Name: "route", Run: p.routes},
		{Name: "signatures", Run: p.signatures},
		One("runtimes", p.runtimes),
		One("secrets-key", p.secretsKey),
	}
}

const nothingInstalled = "no Connector is installed"

// there tells whether a directory exists: opening a store would make it.
func there(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// within tells whether path, or where its directory leads, is below dir.
func within(dir, path string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	at, errAt := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil || errAt != nil {
		return false
	}
	rel, err := filepath.Rel(dir, at)
	return err == nil && filepath.IsLocal(rel)
}

func failed(err error, fix string) Row {
	return Row{Status: Fail, Detail: strings.ReplaceAll(err.Error(), "\n", "; "), Fix: fix}
}

// open opens the store as it is, without anything that could fetch or run.
func (p Places) open() (*install.Store, error) {
	return install.Open(install.Config{Dir: p.Store, Log: zerolog.Nop(), AsIs: true, Publishers: p.Publishers})
}

func (p Places) routes(ctx context.Context) (rows []Row) {
	if !there(p.Store) {
		return []Row{{Status: Skip, Detail: nothingInstalled, Fix: "lend connector add DIRECTORY"}}
	}
	i, err := inspect.Open(p.Store, p.Publishers)
	if err != nil {
		return []Row{failed(err, "lend connector list")}
	}
	defer func() {
		if err := i.Close(); err != nil {
			rows = append(rows, failed(err, ""))
		}
	}()
	for _, r := range i.All(ctx) {
		rows = append(rows, p.release(ctx, i, r)...)
	}
	if len(rows) == 0 {
		rows = append(rows, Row{Status: Skip, Detail: nothingInstalled, Fix: "lend connector add DIRECTORY"})
	}
	return rows
}

// release looks at one release and at each connection that would have its route.
func (p Places) release(ctx context.Context, i *inspect.Inspector, r inspect.Result) []Row {
	subject := strings.TrimSpace(r.Connector.String() + " " + r.Version.String())
	if r.State == inspect.Present {
		r = i.Deep(ctx, r.Connector, r.Version)
	}
	switch {
	case r.Reason == inspect.Interrupted:
		return []Row{{Subject: subject, Status: Skip, Detail: "the time was over before its turn", Fix: "lend connector verify " + r.Connector.String()}}
	case r.State == inspect.Absent:
		return []Row{{Subject: subject, Status: Skip, Detail: "removed meanwhile"}}
	case r.State != inspect.Present || r.Release == nil:
		return []Row{{
			Subject: subject, Status: Fail, Detail: fmt.Sprintf("%s (%s): %v", r.State, r.Reason, r.Err), Fix: r.Fix(),
		}}
	}
	if !there(p.Connections) {
		return []Row{{Subject: subject, Status: Pass, Detail: "as installed; no connection yet"}}
	}
	root, err := p.opened()
	if err != nil {
		return []Row{failed(err, PrivateFix(p.Connections))}
	}
	if row, ok := unwanted(root, r); ok {
		row.Subject = subject
		return []Row{row}
	}
	all, err := root.List(r.Connector)
	if err != nil {
		row := failed(err, PrivateFix(p.Connections))
		row.Subject = subject
		return []Row{row}
	}
	if len(all) == 0 {
		return []Row{{Subject: subject, Status: Pass, Detail: "as installed; its connection is made by lend serve"}}
	}
	var rows []Row
	for _, c := range all {
		row := p.account(ctx, root, c, *r.Release)
		row.Subject = subject + " " + c.ID().String()
		rows = append(rows, row)
	}
	return rows
}

// unwanted is a row where the owner does not want the release to be lent, or nobody can
// tell.
func unwanted(root *connection.Root, r inspect.Result) (Row, bool) {
	want, err := root.Intent(r.Connector).Read()
	var damage *intent.DamagedError
	switch {
	case errors.As(err, &damage):
		return failed(fmt.Errorf("nothing of it is lent: %w", err), damage.Fix()), true
	case err != nil:
		return failed(fmt.Errorf("nothing of it is lent: %w", err), "lend doctor again"), true
	case want.Removes(r.Version):
		return Row{
			Status: Warn, Detail: "its removal was interrupted; nothing of it is lent",
			Fix: "lend connector remove " + r.Connector.String(),
		}, true
	case want.Disabled:
		return Row{Status: Skip, Detail: "disabled by the owner", Fix: "lend connector enable " + r.Connector.String()}, true
	}
	return Row{}, false
}

// account looks at the settings, secrets and home of one connection; it shows no value.
func (p Places) account(ctx context.Context, root *connection.Root, c *connection.Connection, r install.Release) Row {
	if config, err := c.Config(); err == nil && config.Disabled {
		return Row{
			Status: Skip, Detail: "disabled by the owner",
			Fix: fmt.Sprintf("lend connector enable %s --connection %s", r.Manifest.Key, c.ID()),
		}
	}
	var unready *UnreadyError
	switch err := Unready(ctx, root, c, r.Manifest); {
	case errors.Is(err, sealed.ErrLocked) && p.unasked(root):
		return Row{Status: Warn, Detail: "as installed; its secrets were not looked at: the passphrase is not given", Fix: givePassphrase}
	case errors.As(err, &unready):
		return failed(fmt.Errorf("nothing starts of it: %w", unready.Err), unready.Fix)
	case err != nil:
		return failed(err, "lend connector show "+r.Manifest.Key.String())
	}
	missing, err := c.Missing(connection.DeclaredBy(r.Manifest))
	if err != nil {
		return failed(err, "lend connector secret list "+r.Manifest.Key.String())
	}
	if len(missing) > 0 {
		return Row{
			Status: Warn, Detail: "as installed, but not set: " + strings.Join(missing, ", "),
			Fix: fmt.Sprintf("lend connector secret set %s %s --connection %s", r.Manifest.Key, missing[0], c.ID()),
		}
	}
	return Row{Status: Pass, Detail: "ready"}
}

const givePassphrase = "LEND_PASSPHRASE_FD=3 lend doctor 3< FILE"

// unasked tells whether secrets are locked because nobody gave the passphrase to this
// process: a gateway may have it.
func (p Places) unasked(root *connection.Root) bool {
	source, err := root.Sealed().Source()
	return err == nil && source.Kind == sealed.Passphrase && p.Ask == nil
}

func (p Places) runtimes(context.Context) Row {
	if !there(p.Store) {
		return Row{Status: Skip, Detail: nothingInstalled}
	}
	s, err := p.open()
	if err != nil {
		return failed(err, "lend runtime list")
	}
	all, err := s.Runtimes()
	if err = errors.Join(err, s.Close()); err != nil {
		return failed(err, "lend runtime add the one that is named again")
	}
	if len(all) == 0 {
		return Row{Status: Skip, Detail: "none is installed; only scripts and npm packages need one"}
	}
	names := make([]string, 0, len(all))
	for _, r := range all {
		names = append(names, r.Name+" "+r.Version)
	}
	return Row{Status: Pass, Detail: strings.Join(names, ", ")}
}

func (p Places) secretsKey(context.Context) Row {
	if !there(p.Connections) {
		return Row{Status: Skip, Detail: "there are no secrets"}
	}
	root, err := p.opened()
	if err != nil {
		return failed(err, PrivateFix(p.Connections))
	}
	store := root.Sealed()
	source, err := store.Source()
	if errors.Is(err, sealed.ErrNoSource) {
		return Row{Status: Skip, Detail: "no key source is chosen, so no secret can be kept", Fix: "lend init"}
	}
	if err != nil {
		return failed(err, KeyFix(root))
	}
	err = store.Check()
	switch {
	case errors.Is(err, sealed.ErrLocked) && p.unasked(root):
		return Row{Status: Warn, Detail: "the key comes from the passphrase, which is not given here", Fix: givePassphrase}
	case err != nil:
		return failed(err, KeyFix(root))
	case source.Kind == sealed.Age && within(filepath.Dir(p.Connections), source.Identity):
		return Row{
			Status: Warn, Detail: "the age identity lies beside the secrets: who copies the directory has both",
			Fix: "move it elsewhere, as to another disk, and: lend connector secret key set age:FILE",
		}
	case source.Weak():
		return Row{
			Status: Warn, Detail: "the key lies in a file beside the secrets: who copies the directory has both",
			Fix: "lend connector secret key set age:FILE, or passphrase, or keyring",
		}
	}
	return Row{Status: Pass, Detail: "the key comes from " + string(source.Kind)}
}
