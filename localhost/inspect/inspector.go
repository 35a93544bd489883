package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/protocol/name"
)

// releases is what the inspector asks of the installed Connectors; *install.Store is
// one. Neither method runs or fetches anything.
type releases interface {
	Release(key name.ConnectorKey, version name.Version) (install.Release, error)
	Verify(ctx context.Context, key name.ConnectorKey, version name.Version) error
	SignersAsIs(r install.Release) ([]signature.Signer, error)
}

// Inspector looks at one store. All methods are safe for concurrent use. The owner
// must Close it.
type Inspector struct {
	depot      *depot.Depot // nil: nothing was ever installed
	releases   releases
	publishers *signature.File
	close      func() error
}

// Open opens the store in dir, an absolute path, as it is: nothing is made, and what
// dead processes left stays. A store that is not there is one in which nothing is
// installed. The owner's list of publishers is asked at each look; nil requires nothing.
func Open(dir string, publishers *signature.File) (*Inspector, error) {
	if publishers == nil {
		publishers = signature.At("")
	}
	info, err := os.Stat(filepath.Join(dir, depot.Connectors))
	if errors.Is(err, fs.ErrNotExist) {
		return &Inspector{close: func() error { return nil }}, nil
	}
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("inspect store: %w", err)
	}
	d, err := depot.OpenAsIs(dir, zerolog.Nop())
	if err != nil {
		return nil, fmt.Errorf("inspect store: %w", err)
	}
	s, err := install.Open(install.Config{Dir: dir, AsIs: true, Publishers: publishers})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("inspect store: %w", err), d.Close())
	}
	return &Inspector{
		depot: d, releases: s, publishers: publishers,
		close: func() error { return errors.Join(s.Close(), d.Close()) },
	}, nil
}

// Close lets go of the store.
func (i *Inspector) Close() error { return i.close() }

// All returns what One says of each release that is not absent, sorted by key and
// version, and one without a version for a Connector of which nothing can be listed.
// Directories that are none of a Connector are left out.
func (i *Inspector) All(ctx context.Context) []Result {
	if i.depot == nil {
		return nil
	}
	var all []Result
	slots, damaged, err := i.depot.Slots(depot.Connectors)
	if err != nil {
		return nil
	}
	for _, d := range damaged {
		if key, version := d.Of(); !key.IsZero() {
			all = append(all, Result{Connector: key, Version: version}.failed(d))
		}
	}
	for _, sl := range slots {
		key, err := name.ParseConnectorKey(sl.Owner())
		if err != nil {
			continue
		}
		version, err := name.ParseVersion(sl.Version())
		if err != nil {
			continue
		}
		if r := i.One(ctx, key, version); r.State != Absent {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Connector.String(), b.Connector.String()), cmp.Compare(a.Version.String(), b.Version.String()))
	})
	return all
}

// One reads the receipt of a release, its manifest, which must be the one that the
// receipt names, the receipt of its interpreter, and its signature, where the owner's
// list requires one. It hashes no other file.
func (i *Inspector) One(ctx context.Context, key name.ConnectorKey, version name.Version) Result {
	r := Result{Connector: key, Version: version}
	if err := ctx.Err(); err != nil {
		return r.failed(err)
	}
	if i.depot == nil || key.IsZero() || version.IsZero() {
		return r.failed(install.ErrNotInstalled)
	}
	rec, err := i.depot.Slot(depot.Connectors, key.String(), version.String()).Read()
	if err != nil {
		return r.failed(err)
	}
	if rec.Superseded {
		r = r.failed(fmt.Errorf("an update has replaced it: %w", install.ErrNotInstalled))
		r.Reason = Superseded
		return r
	}
	release, err := i.releases.Release(key, version)
	if err != nil {
		return r.failed(err)
	}
	r.State, r.Release = Present, &release
	if r = i.runtime(r, rec.Runtime); r.State != Present {
		return r
	}
	return i.signed(r)
}

// signed looks whether the owner's list of publishers lets the release start.
func (i *Inspector) signed(r Result) Result {
	if _, err := i.publishers.Load(); err != nil {
		r = r.failed(err)
		r.State, r.Reason = Indeterminate, PublishersUnreadable
		return r
	}
	if _, err := i.releases.SignersAsIs(*r.Release); err != nil {
		return r.failed(err)
	}
	return r
}

// runtime looks whether the interpreter is the one that the release was installed
// with.
func (i *Inspector) runtime(r Result, want *depot.Runtime) Result {
	if want == nil {
		return r
	}
	rec, err := i.depot.Slot(depot.Runtimes, want.Name, want.Version).Read()
	switch {
	case errors.Is(err, install.ErrNotInstalled):
		return r.failed(fmt.Errorf("%w: %s %s was removed", install.ErrNoRuntime, want.Name, want.Version))
	case err != nil:
		return r.failed(&runtimeError{want.Name + " " + want.Version, err})
	case rec.Runtime == nil || *rec.Runtime != *want:
		r = r.failed(fmt.Errorf("%w: %s %s was replaced", install.ErrNoRuntime, want.Name, want.Version))
		r.Reason = RuntimeReplaced
	}
	return r
}

// Deep is One, and then hashes every file of the release and of its interpreter. It
// heeds ctx between the two, and not in the middle of a tree.
func (i *Inspector) Deep(ctx context.Context, key name.ConnectorKey, version name.Version) Result {
	r := i.One(ctx, key, version)
	if r.State != Present {
		return r
	}
	if err := i.releases.Verify(ctx, key, version); err != nil {
		return r.failed(err)
	}
	r.Verified = true
	return r
}
