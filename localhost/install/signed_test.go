package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/stretchr/testify/require"
)

// press is a publisher with a key, and an owner's list in a file.
type press struct {
	t      *testing.T
	key    string // file of the private key
	public string
	list   string
	owner  *signature.File
}

func newPress(t *testing.T) *press {
	t.Helper()
	p := &press{t: t, key: filepath.Join(t.TempDir(), "key"), list: filepath.Join(t.TempDir(), "publishers.json")}
	var err error
	p.public, err = signature.NewKey(p.key, "press")
	require.NoError(t, err)
	p.owner = signature.At(p.list)
	return p
}

func (p *press) edit(change func(*signature.Trust)) {
	p.t.Helper()
	require.NoError(p.t, signature.At(p.list).Edit(p.t.Context(), func(t *signature.Trust) error { change(t); return nil }))
}

func (p *press) trust() {
	p.edit(func(t *signature.Trust) { t.Publishers = []signature.Publisher{{Key: p.public}} })
}

func (p *press) require() { p.edit(func(t *signature.Trust) { t.RequireAll = true }) }

// sign signs the Connector at path as a publisher would, on a machine of its own.
func (p *press) sign(path string) []byte {
	p.t.Helper()
	s := openStore(p.t, Config{})
	subject, before, err := s.Identify(p.t.Context(), path, nil)
	require.NoError(p.t, err)
	require.Empty(p.t, staged(p.t, s))
	sig, err := signature.Sign(p.key, subject, before)
	require.NoError(p.t, err)
	return sig
}

// signed is f with its signature in it.
func (p *press) signed(f files) files {
	p.t.Helper()
	return f.with(signature.FileName, string(p.sign(f.dir(p.t))))
}

func (p *press) refused(s *Store, path string, want error) {
	p.t.Helper()
	_, err := s.Add(p.t.Context(), Source{Path: path, Replace: true}, nil)
	require.ErrorIs(p.t, err, want)
	require.Empty(p.t, staged(p.t, s))
}

// The signature travels with the release, in what it comes in or beside it, and is no
// part of its digest.
func TestAddSigned(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.trust()
	plain := printer("1.0.0")
	signed := p.signed(plain)
	unsigned := add(t, openStore(t, Config{}), plain.dir(t))
	tgz := filepath.Join(t.TempDir(), "a.tar.gz")
	require.NoError(t, os.WriteFile(tgz, signed.tgz(t, "./"), 0o600))
	beside := plain.zip(t)
	require.NoError(t, os.WriteFile(beside+signature.Suffix, []byte(signed[signature.FileName]), 0o600))
	p.require()
	for n, src := range map[string]string{"directory": signed.dir(t), "zip": signed.zip(t), "tar-gz": tgz, "beside": beside} {
		s := openStore(t, Config{Publishers: p.owner})
		r := add(t, s, src)
		require.Equal(t, unsigned.Digest, r.Digest, n)
		by, err := s.Signers(r)
		require.NoError(t, err)
		require.Equal(t, []signature.Signer{{ID: signature.Publisher{Key: p.public}.ID(), Trusted: true}}, by, n)
		require.NoError(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version))
		l, err := s.Launch(r)
		require.NoError(t, err)
		require.NoError(t, l.Verify())
		require.NoFileExists(t, filepath.Join(l.ContractDir, signature.FileName))
		require.NoError(t, l.Close())
		require.Equal(t, r, add(t, s, src), "again changes nothing")
	}

	both := signed.zip(t)
	require.NoError(t, os.WriteFile(both+signature.Suffix, []byte(signed[signature.FileName]), 0o600))
	var refused *artifact.RefusedError
	_, err := openStore(t, Config{}).Add(t.Context(), Source{Path: both}, nil)
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "another signature beside the archive")
}

// What the owner requires: absent, unknown and wrong are refused, and nothing changes.
func TestAddRefusesSignatures(t *testing.T) {
	t.Parallel()
	p, stranger := newPress(t), newPress(t)
	p.trust()
	s := openStore(t, Config{Publishers: p.owner})
	plain := printer("1.0.0")
	first := add(t, s, plain.dir(t))
	by, err := s.Signers(first)
	require.NoError(t, err)
	require.Empty(t, by)
	_, err = s.Add(t.Context(), Source{Path: stranger.signed(printer("0.9.0")).dir(t)}, nil)
	require.NoError(t, err, "a stranger's is as good as none")

	// A wrong one is refused by everybody.
	next := p.signed(printer("1.0.1"))
	p.refused(s, next.with("doc/readme", "changed").dir(t), signature.ErrInvalid)
	p.refused(s, next.with("connector-manifest.json", strings.Replace(next["connector-manifest.json"], "Printer", "Printer 2", 1)).dir(t), signature.ErrInvalid)
	p.refused(s, plain.with(signature.FileName, next[signature.FileName]).dir(t), signature.ErrInvalid)
	p.refused(s, plain.with(signature.FileName, "").dir(t), signature.ErrInvalid)
	for _, text := range []string{"\n", "signed", next[signature.FileName] + "x"} {
		p.refused(s, plain.with(signature.FileName, text).dir(t), signature.ErrInvalid)
	}
	at := plain.zip(t)
	require.NoError(t, os.WriteFile(at+signature.Suffix, []byte("signed"), 0o600))
	p.refused(s, at, signature.ErrInvalid)

	p.edit(func(t *signature.Trust) { t.Require = []string{"printer"} })
	p.refused(s, plain.dir(t), signature.ErrUnsigned)
	p.refused(s, printer("1.0.2").dir(t), signature.ErrUnsigned)
	p.refused(s, stranger.signed(printer("1.0.2")).dir(t), signature.ErrUntrusted)
	p.edit(func(t *signature.Trust) { t.Publishers[0].Connectors = []string{"scanner"} })
	p.refused(s, next.dir(t), signature.ErrUntrusted)
	all := releases(t, s)
	require.Len(t, all, 2)
	require.Equal(t, first, all[1])

	p.edit(func(t *signature.Trust) { t.Publishers[0].Connectors = []string{"printer"} })
	add(t, s, next.dir(t))

	// A list that cannot be read lets nothing in.
	require.NoError(t, os.WriteFile(p.list, []byte("{"), 0o600))
	_, err = s.Add(t.Context(), Source{Path: p.signed(printer("2.0.0")).dir(t)}, nil)
	require.ErrorContains(t, err, "list of publishers")
	_, err = s.Launch(first)
	require.ErrorContains(t, err, "list of publishers")
}

// The owner's list holds for what is installed already, from the next start on.
func TestPublishersAreAskedBeforeEachStart(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.trust()
	s := openStore(t, Config{Publishers: p.owner})
	r := add(t, s, p.signed(printer("1.0.0")).dir(t))
	other := add(t, s, printer("1.0.1").dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	l2, err := s.Launch(other)
	require.NoError(t, err)
	defer func() { require.NoError(t, l2.Close()) }()

	p.require()
	require.NoError(t, l.Verify())
	require.ErrorIs(t, l2.Verify(), signature.ErrUnsigned)
	_, err = s.Launch(other)
	require.ErrorIs(t, err, signature.ErrUnsigned)
	require.ErrorIs(t, s.Verify(t.Context(), other.Manifest.Key, other.Manifest.Version), signature.ErrUnsigned)

	p.edit(func(t *signature.Trust) { t.Publishers = nil })
	require.ErrorIs(t, l.Verify(), signature.ErrUntrusted)
	_, err = s.Launch(r)
	require.ErrorIs(t, err, signature.ErrUntrusted)
	_, err = s.Signers(r)
	require.ErrorIs(t, err, signature.ErrUntrusted)

	p.edit(func(t *signature.Trust) { t.RequireAll = false })
	require.NoError(t, l.Verify())
	require.NoError(t, l2.Verify())
	by, err := s.Signers(r)
	require.NoError(t, err)
	require.False(t, by[0].Trusted)
}

// A signature can be added to what is installed; the same content without one does not
// take it away, also where it repairs.
func TestSignatureOfInstalledRelease(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.trust()
	s := openStore(t, Config{Publishers: p.owner})
	plain := printer("1.0.0")
	first := add(t, s, plain.dir(t))
	signed := p.signed(plain)
	require.Equal(t, first, add(t, s, signed.dir(t)), "it is the same release")
	trusted := func() {
		t.Helper()
		by, err := s.Signers(first)
		require.NoError(t, err)
		require.Len(t, by, 1)
		require.True(t, by[0].Trusted)
	}
	trusted()
	add(t, s, plain.dir(t))
	trusted()
	l, err := s.Launch(first)
	require.NoError(t, err)
	flip(t, filepath.Join(l.ContractDir, "doc", "readme"), 0)
	require.NoError(t, l.Close())
	add(t, s, plain.dir(t))
	require.NoError(t, s.Verify(t.Context(), first.Manifest.Key, first.Manifest.Version))
	trusted()

	// One that was changed or taken away on the disk is noticed.
	found, err := filepath.Glob(filepath.Join(s.cfg.Dir, "connectors", "printer", "1.0.0", "*", signature.FileName))
	require.NoError(t, err)
	require.Len(t, found, 1)
	flip(t, found[0], 3)
	_, err = s.Signers(first)
	require.ErrorIs(t, err, ErrTampered)
	_, err = s.Launch(first)
	require.ErrorIs(t, err, ErrTampered)
	require.NoError(t, os.Remove(found[0]))
	require.ErrorIs(t, s.Verify(t.Context(), first.Manifest.Key, first.Manifest.Version), ErrTampered)
	add(t, s, signed.dir(t))
	trusted()
}

// A publisher signs for all systems, on any of them.
func TestIdentify(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.trust()
	p.require()
	s := openStore(t, Config{Publishers: p.owner})
	elsewhere := portable(others()...)
	subject, sig, err := s.Identify(t.Context(), elsewhere.dir(t), nil)
	require.NoError(t, err, "also what does not run here")
	require.Equal(t, "printer", subject.Key.String())
	require.Nil(t, sig)
	all := portable(append(others(), interpreter.Target())...)
	add(t, s, p.signed(all).dir(t))

	delete(all, others()[0]+"/printer")
	_, _, err = s.Identify(t.Context(), all.dir(t), nil)
	require.ErrorContains(t, err, "entrypoint is not there")
	_, _, err = s.Identify(t.Context(), files{"a": "A"}.dir(t), nil)
	require.ErrorContains(t, err, "connector-manifest.json")
	_, _, err = s.Identify(t.Context(), filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Empty(t, staged(t, s))
}
