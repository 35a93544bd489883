package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/lendcli/lend/protocol/name"
)

// MaxValueBytes bounds one value.
const MaxValueBytes = 64 << 10

// Place is where a value belongs; it is authenticated with it.
type Place struct {
	Connector  name.ConnectorKey
	Connection name.ConnectionID
	Name       name.Label
}

func (p Place) check() error {
	if p.Connector.IsZero() || p.Connection.IsZero() || p.Name.IsZero() {
		return fmt.Errorf("place of a value: %w", ErrInvalid)
	}
	return nil
}

// A value's file: this line, the data key's ID and a line end, nonce, box.
const (
	valueHeader = "lend-sealed 1\n"
	idBytes     = 32
	maxSealed   = len(valueHeader) + idBytes + 1 + chacha20poly1305.NonceSizeX + MaxValueBytes + chacha20poly1305.Overhead
)

// label joins parts so that no two lists give the same bytes.
func label(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

// seal returns a random nonce and the box.
func seal(key, plain, associated []byte) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plain)+aead.Overhead())
	_, _ = rand.Read(nonce) // it never fails
	return aead.Seal(nonce, nonce, plain, associated), nil
}

var errBox = errors.New("not authentic")

func open(key, box, associated []byte) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	if len(box) < aead.NonceSize() {
		return nil, errBox
	}
	plain, err := aead.Open(nil, box[:aead.NonceSize()], box[aead.NonceSize():], associated)
	if err != nil {
		return nil, errBox
	}
	return plain, nil
}

func (k *unlocked) valueLabel(p Place, id string) []byte {
	return label("lend sealed value v1", k.document.Store, id, p.Connector.String(), p.Connection.String(), p.Name.String())
}

// seal makes the file of a value under the data key in use.
func (k *unlocked) seal(p Place, value []byte) ([]byte, error) {
	id := k.current()
	box, err := seal(k.keys[id], value, k.valueLabel(p, id))
	if err != nil {
		return nil, err
	}
	return append([]byte(valueHeader+id+"\n"), box...), nil
}

// errUnknownKey: the value is sealed with a data key that the store has no more.
var errUnknownKey = fmt.Errorf("unknown data key: %w", ErrCorrupt)

// keyOf splits a value's file.
func keyOf(data []byte) (id string, box []byte, err error) {
	rest, ok := bytes.CutPrefix(data, []byte(valueHeader))
	if !ok || len(rest) < idBytes+1 || rest[idBytes] != '\n' || !idPattern.Match(rest[:idBytes]) {
		return "", nil, fmt.Errorf("unknown format: %w", ErrCorrupt)
	}
	return string(rest[:idBytes]), rest[idBytes+1:], nil
}

func (k *unlocked) open(p Place, data []byte) ([]byte, error) {
	id, box, err := keyOf(data)
	if err != nil {
		return nil, err
	}
	key, ok := k.keys[id]
	if !ok {
		return nil, errUnknownKey
	}
	value, err := open(key, box, k.valueLabel(p, id))
	if err != nil {
		return nil, fmt.Errorf("it was changed, or belongs elsewhere: %w", ErrCorrupt)
	}
	return value, nil
}
