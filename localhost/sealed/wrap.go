package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/private"
)

// What a passphrase costs (argon2id, one lane), and what a file may ask for.
const (
	saltBytes       = 16
	passTime        = 3
	passMemory      = 64 << 10 // KiB
	maxTime         = 16
	maxMemory       = 1 << 20 // KiB
	minPassphrase   = 8
	maxPassphrase   = 1024
	maxIdentityFile = 64 << 10
)

const keyFileHeader = "lend-key 1\n"

// wrapping makes a new wrapping key of a source and what gives it again.
func (s *Store) wrapping(src Source) (w wrap, kek []byte, err error) {
	w, kek = wrap{ID: newID()}, newKey()
	switch src.Kind {
	case KeyFile:
		err = atomicfile.Write(s.keyFile(w.ID), []byte(keyFileHeader+hex.EncodeToString(kek)+"\n"))
	case Keyring:
		err = s.keyring.Set(w.ID, hex.EncodeToString(kek))
	case Passphrase:
		w.Salt, w.Time, w.Memory = newKey()[:saltBytes], s.cost.time, s.cost.memory
		kek, err = s.derive(w, true)
	case Age:
		w.Identity = src.Identity
		w.Box, err = s.boxFor(src.Identity, kek)
	default:
		err = ErrInvalid
	}
	if err != nil {
		return wrap{}, nil, fmt.Errorf("make a key with %s: %w", src.Kind, err)
	}
	return w, kek, nil
}

// unwrap gives the wrapping key of d again. Everything that keeps it from that is
// ErrLocked: there is no second way.
func (s *Store) unwrap(d document) ([]byte, error) {
	var kek []byte
	var err error
	switch d.Source {
	case KeyFile:
		kek, err = s.readKeyFile(d.Wrap.ID)
	case Keyring:
		var text string
		if text, err = s.keyring.Get(d.Wrap.ID); err == nil {
			kek, err = hex.DecodeString(text)
		}
	case Passphrase:
		kek, err = s.derive(d.Wrap, false)
	case Age:
		kek, err = s.openBox(d.Wrap)
	default:
		err = ErrInvalid
	}
	if err == nil && len(kek) != chacha20poly1305.KeySize {
		err = errors.New("it holds no key")
	}
	if err != nil {
		return nil, fmt.Errorf("key source %s: %w: %w", d.Source, ErrLocked, err)
	}
	return kek, nil
}

// forget removes what a wrapping that is not in use any more left with its source.
func (s *Store) forget(d document) error {
	switch d.Source {
	case KeyFile:
		if err := os.Remove(s.keyFile(d.Wrap.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case Keyring:
		return s.keyring.Delete(d.Wrap.ID)
	case Age, Passphrase:
	}
	return nil
}

// Names of key files.
const keyPrefix, keySuffix = "key-", ".secret"

func (s *Store) keyFile(id string) string { return filepath.Join(s.dir, keyPrefix+id+keySuffix) }

func (s *Store) readKeyFile(id string) ([]byte, error) {
	data, err := private.Read(s.keyFile(id), 256)
	if err != nil {
		return nil, err
	}
	text, ok := strings.CutPrefix(string(data), keyFileHeader)
	if !ok {
		return nil, errors.New("unknown format")
	}
	return hex.DecodeString(strings.TrimSuffix(text, "\n"))
}

func (s *Store) derive(w wrap, fresh bool) ([]byte, error) {
	if s.ask == nil {
		return nil, errors.New("nobody can be asked for the passphrase")
	}
	pass, err := s.ask(fresh)
	if err != nil {
		return nil, err
	}
	if len(pass) > maxPassphrase || (fresh && len(pass) < minPassphrase) {
		return nil, fmt.Errorf("a passphrase has %d to %d bytes: %w", minPassphrase, maxPassphrase, ErrInvalid)
	}
	return argon2.IDKey(pass, w.Salt, w.Time, w.Memory, 1, chacha20poly1305.KeySize), nil
}

// identities reads a file of age identities that is private and not in the store.
func (s *Store) identities(path string) ([]age.Identity, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	own, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(own, dir); err == nil && filepath.IsLocal(rel) {
		return nil, fmt.Errorf("the age identity lies in the store: %w", ErrInvalid)
	}
	data, err := private.Read(path, maxIdentityFile)
	if err != nil {
		return nil, err
	}
	ids, err := age.ParseIdentities(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s holds no age identities: %w", path, ErrInvalid) // the cause may quote a line
	}
	return ids, nil
}

func (s *Store) boxFor(path string, kek []byte) ([]byte, error) {
	ids, err := s.identities(path)
	if err != nil {
		return nil, err
	}
	var to age.Recipient
	switch id := ids[0].(type) {
	case *age.X25519Identity:
		to = id.Recipient()
	case *age.HybridIdentity:
		to = id.Recipient()
	default:
		return nil, fmt.Errorf("the first identity is of an unknown kind: %w", ErrInvalid)
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(kek); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (s *Store) openBox(w wrap) ([]byte, error) {
	ids, err := s.identities(w.Identity)
	if err != nil {
		return nil, err
	}
	r, err := age.Decrypt(bytes.NewReader(w.Box), ids...)
	if err != nil {
		return nil, errors.New("the age identity does not open the key")
	}
	return io.ReadAll(io.LimitReader(r, chacha20poly1305.KeySize+1))
}
