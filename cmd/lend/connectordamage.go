package main

import (
	"errors"
	"io/fs"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/protocol/name"
)

// damagedOf finds what is damaged of one version of a Connector, or of any if version is
// zero; nil: nothing.
func damagedOf(all []*install.Damage, key name.ConnectorKey, version name.Version) *install.Damage {
	for _, d := range all {
		if k, v := d.Of(); k == key && !k.IsZero() && (version.IsZero() || v.IsZero() || v == version) {
			return d
		}
	}
	return nil
}

// damageError adds the next command to what is damaged.
func damageError(d *install.Damage) error { return &hinted{err: d, hint: damageHint(d)} }

func damageHint(d *install.Damage) string {
	key, version := d.Of()
	var fixable interface {
		error
		Fix() string
	}
	switch {
	case errors.As(d.Unwrap(), &fixable):
		return fixable.Fix()
	case d.Passing():
		return "the same command again"
	case errors.Is(d, fs.ErrPermission):
		return "make its directory readable again (owner and mode), then lend connector verify " + key.String()
	case d.Link() && !key.IsZero():
		return "put its directory back, or lend connector remove " + key.String() + ", which takes the link alone away"
	case key.IsZero() || version.IsZero():
		return "put its directory in the store back as it was, or take it away"
	case errors.Is(d, depot.ErrFormat):
		return "lend connector add --replace SOURCE, with what it was added from; or lend connector remove " + key.String()
	default:
		return "lend connector add SOURCE, with what it was added from; or lend connector remove " + key.String()
	}
}

// noteKept says what a collection left because nobody can tell what it needs.
func (a *app) noteKept(kept []*install.Damage) {
	for _, d := range kept {
		a.note("lend: damaged, so nothing that it might need was touched: %s; next: %s", name.Show(d.Error()), damageHint(d))
	}
}
