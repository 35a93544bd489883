package ownerfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	maxKeyFile = 4 << 10
	keyBlock   = "PRIVATE KEY"
)

// ErrKeyFormat says that a file does not hold exactly one Ed25519 key.
var ErrKeyFormat = errors.New("not a PKCS #8 Ed25519 key file")

// LoadKey reads an Ed25519 key from a private file: one PKCS #8 block in PEM and
// nothing else. Errors: those of Read, ErrKeyFormat.
func LoadKey(path string) (ed25519.PrivateKey, error) {
	b, err := Read(path, Private, maxKeyFile)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	block, rest := pem.Decode(b)
	if block == nil || block.Type != keyBlock || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrKeyFormat)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil { // which may tell bytes of the key
		return nil, fmt.Errorf("%s: %w: its key cannot be read", path, ErrKeyFormat)
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w: its key is of another type", path, ErrKeyFormat)
	}
	return key, nil
}

// CreateKey makes a fresh Ed25519 key in a new private file. An existing file is
// os.ErrExist and stays as it is.
func CreateKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	if err := Create(path, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})); err != nil {
		return nil, err
	}
	return key, nil
}
