package signature

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/protocol/name"
	"golang.org/x/mod/sumdb/note"
)

// Of the file that holds the signatures of a release.
const (
	// FileName is its place in a Connector's directory or archive: the root.
	FileName = "release.sig"
	// Suffix follows an archive's name where it lies beside the archive.
	Suffix = ".release.sig"
	// MaxBytes bounds it.
	MaxBytes = 16 << 10
)

// Subject is the release that a signature is of.
type Subject struct {
	Key     name.ConnectorKey
	Version name.Version
	Digest  string // 64 lower-case hexadecimal digits, of manifest.ReleaseDigest
}

const domain = "lend connector release v1\n"

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// text is what is signed.
func (s Subject) text() (string, error) {
	if s.Key.IsZero() || s.Version.IsZero() || !digest.MatchString(s.Digest) {
		return "", errors.New("want a Connector's key, its version and a release digest")
	}
	return domain + s.Key.String() + " " + s.Version.String() + "\n" + s.Digest + "\n", nil
}

const maxKeyFile = 4 << 10

// publisherName is what a note may carry and every terminal can show.
var publisherName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)

// NewKey makes a key pair for a publisher: the private key in the new file at path,
// mode 0600, and the public one as text, "NAME+ID+KEY".
func NewKey(path, publisher string) (public string, err error) {
	if !publisherName.MatchString(publisher) {
		return "", fmt.Errorf("make key: want a name of 1 to 128 letters, digits and . _ - /, such as \"example.com\", not %s", name.Quote(publisher))
	}
	secret, public, err := note.GenerateKey(rand.Reader, publisher)
	if err != nil {
		return "", fmt.Errorf("make key: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make key: %w", err)
	}
	_, err = f.WriteString(secret + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("make key: %w", errors.Join(err, os.Remove(path)))
	}
	return public, nil
}

// Sign returns the signature file of s: that of the private key in keyFile, which only
// this user may read, added to those in before if they are of the same release.
func Sign(keyFile string, s Subject, before []byte) ([]byte, error) {
	text, err := s.text()
	if err != nil {
		return nil, fmt.Errorf("sign release: %w", err)
	}
	secret, err := private.Read(keyFile, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("sign release: read key: %w", err)
	}
	signer, err := note.NewSigner(strings.TrimSuffix(string(secret), "\n"))
	if err != nil {
		return nil, fmt.Errorf("sign release: read key %s: it is no key of lend publisher new", filepath.Base(keyFile))
	}
	n := &note.Note{Text: text}
	if len(before) > 0 && len(before) <= MaxBytes {
		if old, err := open(before, nil); err == nil && old.Text == text {
			n.UnverifiedSigs = old.UnverifiedSigs
		}
	}
	out, err := note.Sign(n, signer)
	if err != nil {
		return nil, fmt.Errorf("sign release: %w", err)
	}
	if len(out) > MaxBytes {
		return nil, fmt.Errorf("sign release: more than %d bytes of signatures", MaxBytes)
	}
	return out, nil
}

// open reads a note. Signatures by other keys than the given are unverified; one by a
// given key that does not hold is an error.
func open(data []byte, known []note.Verifier) (*note.Note, error) {
	n, err := note.Open(data, note.VerifierList(known...))
	var unverified *note.UnverifiedNoteError
	if errors.As(err, &unverified) {
		n, err = unverified.Note, nil
	}
	if err != nil {
		return nil, err
	}
	for _, sig := range slices.Concat(n.Sigs, n.UnverifiedSigs) { // in their one spelling
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return nil, errors.New("malformed note")
		}
	}
	return n, nil
}
