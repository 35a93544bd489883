package checkup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/signature"
)

// signatures looks whether the owner's list of publishers lets start what is installed.
func (p Places) signatures(context.Context) (rows []Row) {
	list := p.Publishers
	if list == nil {
		list = signature.At("")
	}
	trust, err := list.Load()
	if err != nil {
		return []Row{failed(err, listFix(err))}
	}
	rows = p.memory(list, trust)
	if !there(p.Store) {
		return append(rows, Row{Status: Skip, Detail: nothingInstalled, Fix: "lend connector add DIRECTORY"})
	}
	s, err := p.open()
	if err != nil {
		return append(rows, failed(err, "lend connector list"))
	}
	defer func() {
		if err := s.Close(); err != nil {
			rows = append(rows, failed(err, ""))
		}
	}()
	releases, _, err := s.Releases() // what is damaged is told of by the check of routes
	if err != nil {
		return []Row{failed(err, "lend connector list")}
	}
	trusted := 0
	for _, r := range releases {
		row, good := signed(s, r)
		if row != nil {
			rows = append(rows, *row)
		}
		if good {
			trusted++
		}
	}
	if len(rows) == 0 {
		rows = append(rows, Row{Status: Pass, Detail: fmt.Sprintf("%d of %d releases are signed by a publisher that you trust for them; %s", trusted, len(releases), demanded(trust))})
	}
	return rows
}

// demanded says what has to be signed.
func demanded(t *signature.Trust) string {
	switch {
	case t.RequireAll:
		return "every release has to be"
	case len(t.Require) > 0:
		return "those of " + strings.Join(t.Require, ", ") + " have to be"
	}
	return "no release has to be"
}

// memory tells whether the list is lost, or could be without anybody noticing.
func (p Places) memory(list *signature.File, t *signature.Trust) []Row {
	state, err := list.Memory()
	again := "lend publisher require " + strings.Join(t.Require, " ")
	if t.RequireAll {
		again = "lend publisher require --all"
	}
	switch {
	case err != nil:
		return []Row{failed(err, listFix(err))}
	case state == signature.Lost:
		return []Row{{
			Status: Fail, Detail: "the list of publishers is gone, so that nobody is trusted; " + demanded(t) + " signed all the same, as it was before",
			Fix: "restore it from a copy, or lend publisher add PUBLISHER, or " + strings.Replace(again, "require", "require --off", 1),
		}}
	case state == signature.Forgotten:
		return []Row{{
			Status: Warn, Detail: "what has to be signed is in the list of publishers alone: if that is lost, nothing has to be", Fix: again,
		}}
	}
	return nil
}

func listFix(err error) string {
	var file *signature.FileError
	if errors.As(err, &file) {
		return file.Fix()
	}
	return "lend publisher list"
}

// signed returns a row where something is wrong, and tells whether a trusted publisher
// signed r.
func signed(s *install.Store, r install.Release) (*Row, bool) {
	key := r.Manifest.Key.String()
	signers, err := s.Signers(r)
	if err == nil {
		for _, one := range signers {
			if one.Trusted {
				return nil, true
			}
		}
		return nil, false
	}
	fix := "lend connector remove " + key + ", then add it again"
	var required *signature.RequiredError
	if errors.As(err, &required) {
		fix = required.Fix()
	}
	row := failed(err, fix)
	row.Subject = key + " " + r.Manifest.Version.String()
	return &row, false
}
