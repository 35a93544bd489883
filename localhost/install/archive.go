package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/download"
	"github.com/lendcli/lend/localhost/install/admit"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// ErrNoArchive means that a release is made of an archive from elsewhere, that nothing
// fetches it here, and that none was given.
var ErrNoArchive = errors.New("its archive is not here, and nothing fetches it")

// Fetcher writes the bytes of an archive to w; remote.Client has one. Whoever calls it
// checks size and digest.
type Fetcher func(ctx context.Context, a manifest.Archive, w io.Writer, progress func(done, total int64)) error

func pin(a manifest.Archive) download.Pin { return download.Pin{SHA256: a.SHA256, Size: a.Size} }

// unpackArchive brings what the manifest's archive holds into the package tree. The
// lock of the Connector is held.
func (s *Store) unpackArchive(ctx context.Context, in *arrival, p Progress) error {
	cli, from, strip := in.manifest.CLI, in.from, 0
	if from == "" {
		at, err := s.downloads.Prepare(ctx, in.manifest.Key, pin(*cli.Archive), s.fill(in, p))
		if err != nil {
			return err
		}
		from, strip = at, cli.Archive.Strip
	}
	stage := p.at("unpack archive")
	err := artifact.Import(ctx, from, in.Path(packageTree), artifact.Options{
		Limits: artifact.ConnectorLimits(), Strip: strip, Progress: func(done int64) { stage(done, 0) },
		Inspect: func(tree fs.FS) ([]string, error) {
			return []string{cli.Entrypoint}, admit.Native(tree, cli.Entrypoint)
		},
	})
	if err != nil {
		return err
	}
	snap, err := artifact.Open(in.Path(packageTree), artifact.ConnectorLimits())
	if err != nil {
		return err
	}
	if _, sum, _ := snap.File(cli.Entrypoint); sum != cli.SHA256 {
		return &artifact.RefusedError{Path: cli.Entrypoint, Reason: "its SHA-256 is " + sum + ", the manifest says another"}
	}
	return in.installed(snap)
}

// fill says where the archive comes from, if the cache does not have it.
func (s *Store) fill(in *arrival, p Progress) download.Fill {
	switch {
	case in.src.Archive != "":
		return download.FromFile(in.src.Archive)
	case s.cfg.Fetch == nil:
		return func(context.Context, io.Writer) error { return ErrNoArchive }
	}
	return func(ctx context.Context, w io.Writer) error {
		return s.cfg.Fetch(ctx, *in.manifest.CLI.Archive, w, p.at("fetch archive"))
	}
}

// checkProgram looks whether the executable that an archive brought is the one that the
// manifest pins, whatever the receipt says.
func checkProgram(cli manifest.CLI, trees map[string]*artifact.Snapshot) error {
	tree := trees[packageTree]
	if tree == nil {
		return errors.New("what its archive brought is not there")
	}
	if _, sum, ok := tree.File(cli.Entrypoint); !ok || sum != cli.SHA256 {
		return errors.New("its program is not the one that the manifest pins")
	}
	return nil
}

// keepArchive makes what r was made of the current archive of its Connector, and removes
// those that nothing is made of any more. It is only for the next repair: what goes wrong
// is told, and the release stays.
func (s *Store) keepArchive(ctx context.Context, r Release) {
	if a := r.Manifest.CLI.Archive; a != nil {
		if err := s.downloads.Promote(ctx, r.Manifest.Key, pin(*a)); err != nil {
			s.cfg.Log.Warn().Str("problem", name.Show(err.Error())).Str("connector", r.Manifest.Key.String()).Msg("archive-not-kept")
			return
		}
	}
	s.dropUnused(ctx, r.Manifest.Key)
}

// tidyArchives removes the archives of a Connector that no installed release is made of;
// a release that cannot be read keeps all. The lock of the Connector is held.
func (s *Store) tidyArchives(ctx context.Context, key name.ConnectorKey, remove bool) ([]download.Unused, error) {
	var used []download.Pin
	versions, err := s.Versions(key)
	if err != nil {
		return nil, nil //nolint:nilerr // nobody knows what they are made of
	}
	for _, v := range versions {
		sl := s.depot.Slot(depot.Connectors, key.String(), v.String())
		rec, err := sl.Read()
		var r Release
		if err == nil { // a superseded one that still runs may be gone back to
			r, err = s.releaseFrom(sl, rec)
		}
		if err != nil && !rec.Superseded && !errors.Is(err, ErrNotInstalled) {
			return nil, nil // nobody knows what it is made of
		}
		if a := r.Manifest.CLI.Archive; a != nil {
			used = append(used, pin(*a))
		}
	}
	return s.downloads.Tidy(ctx, key, used, remove)
}

// dropUnused removes what an installation, or its failure, has left. What goes wrong is
// told, and left to the next one.
func (s *Store) dropUnused(ctx context.Context, key name.ConnectorKey) {
	if _, err := s.tidyArchives(context.WithoutCancel(ctx), key, true); err != nil {
		s.cfg.Log.Warn().Str("problem", name.Show(err.Error())).Str("connector", key.String()).Msg("archive-left")
	}
}

// collectArchives is tidyArchives for every Connector that nobody changes at this moment.
func (s *Store) collectArchives(ctx context.Context, remove bool) (out []Garbage, errs error) {
	for _, owner := range s.depot.List(depot.Downloads) {
		key, err := name.ParseConnectorKey(owner)
		if err != nil {
			continue
		}
		l, err := s.depot.TryLock(depot.Connectors, owner)
		if err != nil {
			continue
		}
		found, err := s.tidyArchives(ctx, key, remove)
		for _, u := range found {
			out = append(out, Garbage{"orphan", path.Join(depot.Downloads, u.Path), u.Bytes})
		}
		errs = errors.Join(errs, err, l.Close())
	}
	return out, errs
}

func (s *Store) dropArchives(key name.ConnectorKey) error {
	if err := s.downloads.Drop(key); err != nil {
		return fmt.Errorf("drop archives: %w", err)
	}
	return nil
}
