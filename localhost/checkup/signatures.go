package checkup

import (
	"context"
	"errors"
	"fmt"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/signature"
)

// signatures looks whether the owner's list of publishers lets start what is installed.
func (p Places) signatures(context.Context) (rows []Row) {
	const list = "lend publisher list"
	if p.Publishers != nil {
		if _, err := p.Publishers.Load(); err != nil {
			return []Row{failed(err, list)}
		}
	}
	if !there(p.Store) {
		return []Row{{Status: Skip, Detail: nothingInstalled, Fix: "lend connector add DIRECTORY"}}
	}
	s, err := p.open()
	if err != nil {
		return []Row{failed(err, "lend connector list")}
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
		rows = append(rows, Row{Status: Pass, Detail: fmt.Sprintf("%d of %d releases are signed by a publisher that you trust for them; no other has to be", trusted, len(releases))})
	}
	return rows
}

func publisherFix(key string) string {
	return "lend publisher add PUBLISHER, or lend publisher require --off " + key
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
	if errors.Is(err, signature.ErrUnsigned) || errors.Is(err, signature.ErrUntrusted) {
		fix = publisherFix(key)
	}
	row := failed(err, fix)
	row.Subject = key + " " + r.Manifest.Version.String()
	return &row, false
}
