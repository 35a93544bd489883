package main

import (
	"context"
	"errors"

	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/protocol/name"
)

// shownInstallation is what an inspection found, which runs nothing.
type shownInstallation struct {
	Installed string `json:"installed"` // present, invalid or indeterminate
	Reason    string `json:"installedReason,omitempty"`
	Error     string `json:"installedError,omitempty"`
}

func installationShown(r inspect.Result) shownInstallation {
	s := shownInstallation{Installed: string(r.State), Reason: string(r.Reason)}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	return s
}

// withInspector runs f on what is installed, as it is.
func (a *app) withInspector(f func(*inspect.Inspector) error) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	i, err := inspect.Open(p.store(), p.publishers())
	if err != nil {
		return err
	}
	return joinClose(f(i), i.Close)
}

// inspected is what is installed, with what cannot be read of it.
func (a *app) inspected(ctx context.Context) (all []inspect.Result, err error) {
	err = a.withInspector(func(i *inspect.Inspector) error {
		all = i.All(ctx)
		return nil
	})
	return all, err
}

// inspectedOne is one installed release.
func (a *app) inspectedOne(ctx context.Context, key name.ConnectorKey, version name.Version) (r inspect.Result, err error) {
	err = a.withInspector(func(i *inspect.Inspector) error {
		r = i.One(ctx, key, version)
		return nil
	})
	return r, err
}

// inspectedShown shows a release as far as it can be read.
func inspectedShown(r inspect.Result) shownRelease {
	if r.Release != nil {
		return releaseShown(*r.Release)
	}
	s := releaseShown(install.Release{})
	s.Key, s.Version = r.Connector.String(), r.Version.String()
	return s
}

// notPresent adds to what a command has shown that some of it is not what was
// installed.
func (a *app) notPresent(bad []inspect.Result, err error) error {
	for _, r := range bad {
		next := r.Fix()
		if r.State == inspect.Indeterminate && r.Reason != inspect.PublishersUnreadable {
			next = "lend doctor"
		}
		a.note("lend: %s %s: %s: %v; next: %s", r.Connector, r.Version, installedText(string(r.State), string(r.Reason)), r.Err, next)
	}
	if err == nil && len(bad) > 0 {
		return &statusError{1}
	}
	return err
}

// verifyHint is what mends a release that is not what was installed.
func verifyHint(err error) string {
	var named *hinted
	if errors.As(signatureError(err), &named) {
		return named.hint
	}
	if errors.Is(err, install.ErrNoRuntime) {
		return "lend runtime list, and lend runtime add, then lend connector add SOURCE again"
	}
	return "lend connector add SOURCE, with what it was added from, repairs it"
}
