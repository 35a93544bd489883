package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/localhost/skill"
)

// attestation is who published a release, as its signature file says: nil if it has none.
type attestation struct {
	publishers *signature.File
	subject    signature.Subject
	data       []byte

	accepted atomic.Pointer[signature.Trust] // the list that accepted it last
}

func (a *attestation) check() ([]signature.Signer, error) {
	t, err := a.publishers.Load()
	if err != nil {
		return nil, err
	}
	return t.Check(a.subject, a.data)
}

// still asks the owner's list as it is now. While that is unchanged it costs one lstat.
func (a *attestation) still() error {
	t, err := a.publishers.Load()
	if err != nil || t == a.accepted.Load() {
		return err
	}
	if _, err := t.Check(a.subject, a.data); err != nil {
		return err
	}
	a.accepted.Store(t)
	return nil
}

func (s *Store) attest(m manifest.Manifest, digest string, data []byte) *attestation {
	f := s.cfg.Publishers
	if f == nil {
		f = signature.At("")
	}
	return &attestation{publishers: f, subject: signature.Subject{Key: m.Key, Version: m.Version, Digest: digest}, data: data}
}

// takeSignature checks the signature that came with an arrival, in it or beside it, and
// keeps it beside what will be installed.
func (s *Store) takeSignature(in *arrival, data []byte) error {
	data, err := besideArchive(in.src.Path, data)
	if err != nil {
		return err
	}
	if _, err := s.attest(in.manifest, in.rec.ReleaseDigest, data).check(); err != nil {
		return err
	}
	return in.keepSignature(data)
}

// keepSignature writes the signature file into the staging directory; nil is none.
func (in *arrival) keepSignature(data []byte) error {
	if data == nil {
		return nil
	}
	in.rec.Signature = sumOf(data)
	return atomicfile.Write(in.Path(signature.FileName), data)
}

// inherit keeps the signature of an installed release for the same content that comes
// without one. One that cannot be read is not kept.
func (in *arrival) inherit(sl depot.Slot, old depot.Receipt) error {
	if in.rec.Signature != "" {
		return nil
	}
	data, err := readSignature(sl, old)
	if err != nil {
		return nil //nolint:nilerr // it is being repaired, and nothing requires it
	}
	return in.keepSignature(data)
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// readSignature reads the signature file of an installed release; it must be the one
// that was installed.
func readSignature(sl depot.Slot, rec depot.Receipt) ([]byte, error) {
	if rec.Signature == "" {
		return nil, nil
	}
	data, err := atomicfile.Read(sl.Tree(rec, signature.FileName), signature.MaxBytes)
	if err == nil && sumOf(data) != rec.Signature {
		err = errors.New("its signature is not the one that was installed")
	}
	if err != nil {
		return nil, tampered(rec.Name, rec.Version, err)
	}
	return data, nil
}

// installedAttestation is that of what a slot holds; r is what releaseFrom gives for it.
func (s *Store) installedAttestation(sl depot.Slot, rec depot.Receipt, r Release) (*attestation, error) {
	data, err := readSignature(sl, rec)
	if err != nil {
		return nil, err
	}
	return s.attest(r.Manifest, r.Digest, data), nil
}

// besideArchive is the signature of an archive: in it (inside), or in a file beside it.
func besideArchive(src string, inside []byte) ([]byte, error) {
	info, err := os.Stat(src)
	if err != nil || info.IsDir() {
		return inside, err
	}
	data, err := atomicfile.Read(src+signature.Suffix, signature.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return inside, nil
	}
	if err == nil && inside != nil {
		err = &artifact.RefusedError{Path: signature.FileName, Reason: "there is another signature beside the archive: take one of them away"}
	}
	return data, err
}

// Signers says who signed an installed release, as the owner's list of publishers is
// now. Errors match ErrNotInstalled, ErrTampered, and those of signature.Trust.Check.
func (s *Store) Signers(r Release) ([]signature.Signer, error) {
	sl := s.depot.Slot(depot.Connectors, r.Manifest.Key.String(), r.Manifest.Version.String())
	rec, l, err := sl.Use()
	if err != nil {
		return nil, fmt.Errorf("signers of %s: %w", sl.Name(), err)
	}
	defer func() { _ = l.Close() }()
	return s.signers(sl, rec, r)
}

// SignersAsIs is Signers without anything written to the store, and without holding the
// release: what removes it meanwhile makes it ErrNotInstalled or ErrTampered.
func (s *Store) SignersAsIs(r Release) ([]signature.Signer, error) {
	sl := s.depot.Slot(depot.Connectors, r.Manifest.Key.String(), r.Manifest.Version.String())
	rec, err := sl.Read()
	if err != nil {
		return nil, fmt.Errorf("signers of %s: %w", sl.Name(), err)
	}
	return s.signers(sl, rec, r)
}

func (s *Store) signers(sl depot.Slot, rec depot.Receipt, r Release) ([]signature.Signer, error) {
	if rec.ReleaseDigest != r.Digest {
		return nil, fmt.Errorf("signers of %s: %w: another release of this version is", sl.Name(), ErrNotInstalled)
	}
	a, err := s.installedAttestation(sl, rec, r)
	if err != nil {
		return nil, fmt.Errorf("signers of %s: %w", sl.Name(), err)
	}
	return a.check()
}

// Identify reads the Connector at path, absolute, as Add would, for any system, and
// installs nothing. It returns what a publisher signs, and the signature file that it
// has already, nil if none. Errors about the source are those of Add.
func (s *Store) Identify(ctx context.Context, path string, p Progress) (signature.Subject, []byte, error) {
	subject, data, err := s.identify(ctx, path, p)
	if err != nil {
		return signature.Subject{}, nil, fmt.Errorf("identify release: %w", err)
	}
	return subject, data, nil
}

func (s *Store) identify(ctx context.Context, path string, p Progress) (subject signature.Subject, data []byte, err error) {
	g, err := s.depot.Stage(ctx)
	if err != nil {
		return subject, nil, err
	}
	defer g.Drop()
	m, snap, data, err := importSource(ctx, g, path, p, func(tree fs.FS, _ manifest.Manifest) ([]string, error) { return nil, skill.Check(tree) })
	if err != nil {
		return subject, nil, err
	}
	all := []manifest.Implementation{m.CLI.Implementation}
	for _, i := range m.CLI.Targets {
		all = append(all, i)
	}
	for _, i := range all {
		if _, _, ok := snap.File(i.Entrypoint); i.Entrypoint != "" && i.Archive == nil && !ok {
			return subject, nil, &artifact.RefusedError{Path: i.Entrypoint, Reason: "the manifest's entrypoint is not there"}
		}
	}
	digest, err := manifest.ReleaseDigest(m, snap.Digest())
	if err != nil {
		return subject, nil, err
	}
	data, err = besideArchive(path, data)
	return signature.Subject{Key: m.Key, Version: m.Version, Digest: digest}, data, err
}

// Sign signs the Connector at path, a directory or archive, with the private key in
// keyFile, and returns the file that it wrote: in the directory, or beside the archive.
// Signatures of the same release that are there stay.
func (s *Store) Sign(ctx context.Context, path, keyFile string, p Progress) (signature.Subject, string, error) {
	subject, before, err := s.Identify(ctx, path, p)
	if err != nil {
		return signature.Subject{}, "", err
	}
	data, err := signature.Sign(keyFile, subject, before)
	if err != nil {
		return signature.Subject{}, "", err
	}
	file := path + signature.Suffix
	if info, err := os.Stat(path); err != nil {
		return signature.Subject{}, "", err
	} else if info.IsDir() {
		file = filepath.Join(path, signature.FileName)
	}
	if err := atomicfile.Write(file, data); err != nil {
		return signature.Subject{}, "", err
	}
	return subject, file, nil
}
