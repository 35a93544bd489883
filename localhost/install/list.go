package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// Damage is a Connector, or a release of it, that cannot be read. It is an error.
type Damage = depot.Damage //nolint:errname // see there

// Releases lists what is installed, by key and version, without hashing anything, and
// apart from it what cannot be read: that keeps nobody from the others. What an update
// has replaced is neither. The error means that nothing at all could be listed.
func (s *Store) Releases() ([]Release, []*Damage, error) {
	slots, damaged, err := s.depot.Slots(depot.Connectors)
	if err != nil {
		return nil, nil, fmt.Errorf("list releases: %w", err)
	}
	var out []Release
	for _, sl := range slots {
		rec, err := sl.Read()
		if errors.Is(err, ErrNotInstalled) || err == nil && rec.Superseded {
			continue
		}
		var r Release
		if err == nil {
			r, err = s.releaseFrom(sl, rec)
		}
		if err != nil {
			damaged = append(damaged, sl.Damaged(err))
			continue
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Release) int {
		if c := strings.Compare(a.Manifest.Key.String(), b.Manifest.Key.String()); c != 0 {
			return c
		}
		return strings.Compare(a.Manifest.Version.String(), b.Manifest.Version.String())
	})
	return out, damaged, nil
}

// Versions names what is installed of a Connector, sorted, whether it can be read or
// not. A Connector whose directory cannot be listed is an error, a *Damage.
func (s *Store) Versions(key name.ConnectorKey) ([]name.Version, error) {
	if key.IsZero() {
		return nil, nil
	}
	slots, damaged := s.depot.SlotsOf(depot.Connectors, key.String())
	var out []name.Version
	for _, d := range damaged {
		if d.Version == "" {
			return nil, d
		}
		if _, version := d.Of(); !version.IsZero() {
			out = append(out, version) // a link is in its place
		}
	}
	for _, sl := range slots {
		version, err := name.ParseVersion(sl.Version())
		if err != nil {
			continue // not ours
		}
		if _, err := sl.Read(); !errors.Is(err, ErrNotInstalled) {
			out = append(out, version)
		}
	}
	slices.SortFunc(out, func(a, b name.Version) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// Release returns one installed release, ErrNotInstalled, or a *Damage.
func (s *Store) Release(key name.ConnectorKey, version name.Version) (Release, error) {
	sl := s.depot.Slot(depot.Connectors, key.String(), version.String())
	if key.IsZero() || version.IsZero() {
		return Release{}, fmt.Errorf("connector: %w", ErrNotInstalled)
	}
	rec, err := sl.Read()
	if err == nil && rec.Superseded {
		err = fmt.Errorf("%w: another version has taken its place", ErrNotInstalled)
	}
	if errors.Is(err, ErrNotInstalled) {
		return Release{}, fmt.Errorf("connector %s: %w", sl.Name(), err)
	}
	var r Release
	if err == nil {
		r, err = s.releaseFrom(sl, rec)
	}
	if err != nil {
		return Release{}, sl.Damaged(err)
	}
	return r, nil
}

// releaseFrom reads the installed manifest; it must give what the receipt says.
func (s *Store) releaseFrom(sl depot.Slot, rec depot.Receipt) (Release, error) {
	b, err := atomicfile.Read(sl.Tree(rec, artifactTree, manifest.FileName), manifest.MaxBytes)
	if err != nil {
		return Release{}, tampered(rec.Name, rec.Version, err)
	}
	m, err := manifest.Parse(b)
	if err == nil {
		m, err = m.For(interpreter.Target())
	}
	if err != nil {
		return Release{}, tampered(rec.Name, rec.Version, err)
	}
	r := Release{Manifest: m, Contract: m.CLI.Contract, HasScripts: rec.HasScripts}
	if r.Digest, err = manifest.ReleaseDigest(m, rec.ArtifactDigest); err != nil {
		return Release{}, tampered(rec.Name, rec.Version, err)
	}
	if r.ContractHash, err = manifest.ManagedCLIContractHash(r.Contract); err != nil {
		return Release{}, tampered(rec.Name, rec.Version, err)
	}
	if r.Digest != rec.ReleaseDigest || m.Key.String() != rec.Name || m.Version.String() != rec.Version {
		return Release{}, tampered(rec.Name, rec.Version, errors.New("the manifest is not the one that was installed"))
	}
	if rec.Runtime != nil {
		r.Runtime = rec.Runtime.Name + "@" + rec.Runtime.Version
	}
	return r, nil
}

// Verify hashes every file of an installed release and of its interpreter again,
// and checks its signature. Errors match ErrNotInstalled, ErrTampered, ErrNoRuntime, and
// those of signature.Trust.Check.
func (s *Store) Verify(ctx context.Context, key name.ConnectorKey, version name.Version) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify connector %s: %w", key, err)
	}
	sl := s.depot.Slot(depot.Connectors, key.String(), version.String())
	rec, l, err := sl.Use()
	if err != nil {
		return fmt.Errorf("verify connector %s %s: %w", key, version, err)
	}
	defer func() { _ = l.Close() }()
	if err := s.fullCheck(sl, rec); err != nil {
		return fmt.Errorf("verify connector: %w", err)
	}
	r, err := s.releaseFrom(sl, rec)
	if err == nil {
		_, err = s.Signers(r)
	}
	if err != nil {
		return fmt.Errorf("verify connector: %w", err)
	}
	return nil
}

// fullCheck hashes all that runs for a release.
func (s *Store) fullCheck(sl depot.Slot, rec depot.Receipt) error {
	trees, err := s.openTrees(sl, rec)
	if err != nil {
		return err
	}
	if _, err := readSignature(sl, rec); err != nil {
		return err
	}
	r, err := s.releaseFrom(sl, rec)
	if err != nil {
		return err
	}
	if r.Manifest.CLI.Archive != nil {
		if err := checkProgram(r.Manifest.CLI, trees); err != nil {
			return tampered(rec.Name, rec.Version, err)
		}
	}
	if rec.Runtime == nil {
		return nil
	}
	rsl := s.depot.Slot(depot.Runtimes, rec.Runtime.Name, rec.Runtime.Version)
	rt, l, err := rsl.Use()
	if err != nil {
		return fmt.Errorf("%w: %s %s: %w", ErrNoRuntime, rec.Runtime.Name, rec.Runtime.Version, err)
	}
	defer func() { _ = l.Close() }()
	if rt.Runtime == nil || *rt.Runtime != *rec.Runtime {
		return fmt.Errorf("%w: %s %s was replaced: add the Connector again", ErrNoRuntime, rec.Runtime.Name, rec.Runtime.Version)
	}
	return s.fullCheckRuntime(rsl, rt)
}

// openTrees hashes the release's own trees and compares them with the receipt.
func (s *Store) openTrees(sl depot.Slot, rec depot.Receipt) (trees map[string]*artifact.Snapshot, err error) {
	trees = make(map[string]*artifact.Snapshot)
	want := map[string]string{artifactTree: rec.ArtifactDigest}
	if rec.PackageDigest != "" {
		want[packageTree] = rec.PackageDigest
	}
	for tree, digest := range want {
		snap, err := artifact.Open(sl.Tree(rec, tree), artifact.ConnectorLimits())
		if err != nil {
			return nil, tampered(rec.Name, rec.Version, err)
		}
		if snap.Digest() != digest {
			return nil, tampered(rec.Name, rec.Version, fmt.Errorf("the digest of its %s tree differs", tree))
		}
		trees[tree] = snap
	}
	return trees, nil
}
