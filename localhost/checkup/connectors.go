package checkup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/localhost/signature"
)

// Places are where a machine keeps its Connectors; absolute paths.
type Places struct {
	Store       string // of package install
	Connections string // of package connection
	// Publishers is the owner's list of them; nil trusts nobody and requires nothing.
	Publishers *signature.File
}

// Connectors returns the checks of what is installed: each route that a gateway
// would have, the interpreters, and the key of the secrets. They hash what is
// installed.
func Connectors(p Places) []Check {
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

func failed(err error, fix string) Row {
	return Row{Status: Fail, Detail: err.Error(), Fix: fix}
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
			Subject: subject, Status: Fail, Detail: fmt.Sprintf("%s (%s): %v", r.State, r.Reason, r.Err), Fix: releaseFix(r),
		}}
	}
	if !there(p.Connections) {
		return []Row{{Subject: subject, Status: Pass, Detail: "as installed; no connection yet"}}
	}
	root, err := connection.Open(p.Connections)
	if err != nil {
		return []Row{failed(err, "chmod 700 the directory of the connections")}
	}
	if row, ok := unwanted(root, r); ok {
		row.Subject = subject
		return []Row{row}
	}
	all, err := root.List(r.Connector)
	if err != nil {
		row := failed(err, "")
		row.Subject = subject
		return []Row{row}
	}
	if len(all) == 0 {
		return []Row{{Subject: subject, Status: Pass, Detail: "as installed; its connection is made by lend serve"}}
	}
	var rows []Row
	for _, c := range all {
		row := account(c, *r.Release)
		row.Subject = subject + " " + c.ID().String()
		rows = append(rows, row)
	}
	return rows
}

// unwanted is a row where the owner does not want the release to be lent, or nobody can
// tell.
func unwanted(root *connection.Root, r inspect.Result) (Row, bool) {
	want, err := root.Intent(r.Connector).Read()
	switch {
	case err != nil:
		return failed(fmt.Errorf("nothing of it is lent: %w", err), ""), true
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

// releaseFix says what mends an installation that is not present.
func releaseFix(r inspect.Result) string {
	switch r.Reason {
	case inspect.RuntimeAbsent, inspect.RuntimeReplaced:
		runtime := "NAME"
		if r.Release != nil {
			runtime, _, _ = strings.Cut(r.Release.Runtime, "@")
		}
		return "lend runtime add " + runtime + ", then lend connector add DIRECTORY again"
	case inspect.FilesChanged, inspect.ReceiptInvalid:
		return "lend connector remove " + r.Connector.String() + ", then add it again"
	case inspect.SignatureRequired:
		return publisherFix(r.Connector.String())
	case inspect.SignatureInvalid:
		return "lend connector remove " + r.Connector.String() + ", then add it again"
	case inspect.PublishersUnreadable:
		return "lend publisher list"
	case inspect.NotInstalled, inspect.Superseded, inspect.Unreadable, inspect.Interrupted:
	}
	return "lend connector verify " + r.Connector.String()
}

// account looks at the settings and secrets of one connection, never at a value.
func account(c *connection.Connection, r install.Release) Row {
	config, err := c.Config()
	if err != nil {
		return failed(err, "lend connector setting list "+r.Manifest.Key.String())
	}
	if config.Disabled {
		return Row{
			Status: Skip, Detail: "disabled by the owner",
			Fix: fmt.Sprintf("lend connector enable %s --connection %s", r.Manifest.Key, c.ID()),
		}
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
		return failed(err, "lend runtime add NAME")
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
	root, err := connection.Open(p.Connections)
	if err != nil {
		return failed(err, "chmod 700 the directory of the connections")
	}
	store := root.Sealed()
	source, err := store.Source()
	if errors.Is(err, sealed.ErrNoSource) {
		return Row{Status: Skip, Detail: "no key source is chosen, so no secret can be kept", Fix: "lend init --key-source keyring"}
	}
	if err != nil {
		return failed(err, "lend connector secret key --help")
	}
	err = store.Check()
	switch {
	case errors.Is(err, sealed.ErrLocked):
		return Row{Status: Warn, Detail: "the key comes from " + string(source.Kind) + ", which is locked here"}
	case err != nil:
		return failed(err, "lend connector secret key --help")
	case source.Weak():
		return Row{
			Status: Warn, Detail: "the key lies in a file beside the secrets: who copies the directory has both",
			Fix: "lend connector secret key --help",
		}
	}
	return Row{Status: Pass, Detail: "the key comes from " + string(source.Kind)}
}
