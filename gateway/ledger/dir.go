package ledger

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/protocol/name"
)

// The names in the directory of a ledger. spec: LEDGER-1.
const (
	segmentName    = "00000000000000000000.log" // the index of its first record
	macName        = "digest.key"
	signerName     = "checkpoint.key"
	checkpointName = "checkpoint"
	reserveName    = "reserve"
	creatingName   = "creating"

	macSize     = 32
	reserveSize = 256 << 10
)

// file is what the ledger needs of its segment; tests put faults behind it.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Datasync() error
	Size() (int64, error)
	// Linked tells whether the path still names this file.
	Linked() bool
	Close() error
}

type osFile struct {
	*os.File
	path string
}

// system has a method datasync where the operating system has that call.
type system struct{}

func (f osFile) Datasync() error {
	if s, ok := any(system{}).(interface{ datasync(f *os.File) error }); ok {
		return s.datasync(f.File)
	}
	return f.Sync()
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Linked() bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.path)
	return err == nil && os.SameFile(mine, named)
}

func openOSFile(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f, path}, nil
}

// keys are what lies beside the records.
type keys struct {
	mac    []byte
	signer note.Signer
	// verifier is the public half of signer, as a verifier key.
	verifier string
}

func (k *keys) digest(parts [][]byte) [32]byte {
	h := hmac.New(sha256.New, k.mac)
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return [32]byte(h.Sum(nil))
}

// hash names a row of a view: 16 bytes of a SHA-256 over the ledger's secret and
// the fields, so that nobody can look for two that collide.
type hash [16]byte

const maxHashed = macSize + 1 + 64 + 2 + name.MaxInvocationID + name.MaxOperationID

func (k *keys) hash(tag byte, issuer, holder, a, b []byte) hash {
	buf := make([]byte, 0, maxHashed)
	buf = append(append(buf, k.mac...), tag)
	buf = append(append(buf, issuer...), holder...)
	buf = append(append(buf, byte(len(a))), a...)
	buf = append(append(buf, byte(len(b))), b...)
	sum := sha256.Sum256(buf)
	return hash(sum[:16])
}

func (k *keys) keyHash(key Key) hash {
	return k.hash('o', key.Issuer.Key(), key.Holder.Key(), []byte(key.Invocation.String()), []byte(key.Operation.String()))
}

func (k *keys) scopeHash(issuer name.PeerID, invocation name.InvocationID, holder name.PeerID) hash {
	return k.hash('s', issuer.Key(), holder.Key(), []byte(invocation.String()), nil)
}

func (k *keys) leaseHash(issuer name.PeerID, lease [16]byte) hash {
	return k.hash('l', issuer.Key(), nil, lease[:], nil)
}

// enterDir makes the directory if it is not there, takes it, and looks at who may
// read it. made tells whether a ledger has to be made in it. spec: LEDGER-1,
// LEDGER-12.
func enterDir(dir string) (unlock func() error, made bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, false, err
	}
	if !info.IsDir() {
		return nil, false, fmt.Errorf("%s is not a directory", dir)
	}
	if err := private(info); err != nil {
		return nil, false, err
	}
	if unlock, err = lockDir(dir); err != nil {
		return nil, false, err
	}
	made, err = surveyDir(dir)
	if err != nil {
		return nil, false, errors.Join(err, unlock())
	}
	return unlock, made, nil
}

// surveyDir looks at every file; it tells whether there is no ledger yet.
func surveyDir(dir string) (empty bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	there := make(map[string]bool)
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(dir, e.Name()))
		if err != nil {
			return false, err
		}
		if !info.Mode().IsRegular() {
			return false, fmt.Errorf("%s is not a regular file", e.Name())
		}
		if err := private(info); err != nil {
			return false, err
		}
		if strings.HasSuffix(e.Name(), ".log") && e.Name() != segmentName {
			return false, &damage{what: "a segment that this version does not know"}
		}
		there[e.Name()] = true
	}
	switch {
	case there[creatingName]:
		return true, nil
	case there[segmentName]:
		return false, nil
	case there[macName] || there[signerName] || there[checkpointName]:
		return false, ErrLost
	default:
		return true, nil
	}
}

// create makes a ledger. The file "creating" is there until all is durable, so
// that a ledger that was half made is not taken for one that was lost.
func create(dir string, now time.Time) error {
	if err := writeFile(dir, creatingName, nil); err != nil {
		return err
	}
	seg := segment{birth: now.UTC().Truncate(time.Millisecond)}
	mac := make([]byte, macSize)
	_, _ = rand.Read(mac)
	_, _ = rand.Read(seg.id[:])
	skey, vkey, err := note.GenerateKey(rand.Reader, origin(seg.id))
	if err != nil {
		return err
	}
	seg.verifier = vkey
	signer, err := note.NewSigner(skey)
	if err != nil {
		return err
	}
	var t tree
	payload := seg.encode(now)
	t.add(payload)
	point, err := signCheckpoint(seg.id, &t, signer)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{macName, mac},
		{signerName, []byte(skey + "\n")},
		{checkpointName, point},
		{segmentName, appendFrame(nil, payload, 0, 0)},
	} {
		if err := writeFile(dir, f.name, f.data); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, creatingName)); err != nil {
		return err
	}
	return syncDir(dir)
}

// writeFile replaces a file of the directory: durable, whole or not at all.
func writeFile(dir, base string, data []byte) error {
	tmp := filepath.Join(dir, base+".new")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, filepath.Join(dir, base)); err != nil {
		return err
	}
	return syncDir(dir)
}

// readKeys reads what lies beside the records.
func readKeys(dir string) (keys, error) {
	mac, err := readSmall(dir, macName)
	if err != nil {
		return keys{}, err
	}
	text, err := readSmall(dir, signerName)
	if err != nil {
		return keys{}, err
	}
	skey := strings.TrimSuffix(string(text), "\n")
	signer, err := note.NewSigner(skey)
	if err != nil || len(mac) != macSize {
		return keys{}, &damage{what: "a key file"}
	}
	verifier, err := verifierOf(skey)
	if err != nil {
		return keys{}, &damage{what: "a key file"}
	}
	return keys{mac: mac, signer: signer, verifier: verifier}, nil
}

// verifierOf returns the public half of a signer key, which note keeps to itself:
// "PRIVATE+KEY+name+hash+" and base64 of the algorithm's number and the seed.
func verifierOf(skey string) (string, error) {
	parts := strings.SplitN(skey, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 5 || len(raw) != 1+ed25519.SeedSize {
		return "", errors.New("not a signer key")
	}
	public, ok := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("not an Ed25519 key")
	}
	return note.NewEd25519VerifierKey(parts[2], public)
}

// readSmall reads a file that belongs to every ledger.
func readSmall(dir, base string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, base))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &damage{what: base + " is not there"}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", base, err)
	}
	if len(b) > maxCheckpoint {
		return nil, &damage{what: base + " is too long"}
	}
	return b, nil
}

// takeReserve writes the file that keeps room for ends on a full disk. Its bytes
// are random, so that no file system can store it as less than it is.
func takeReserve(dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, reserveName)); err == nil && info.Size() == reserveSize {
		return nil
	}
	b := make([]byte, reserveSize)
	_, _ = rand.Read(b)
	return writeFile(dir, reserveName, b)
}

func giveReserve(dir string) error { return os.Remove(filepath.Join(dir, reserveName)) }
