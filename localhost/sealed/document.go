package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/localhost/internal/strictjson"
)

const (
	documentFile  = "key.json"
	schemaVersion = "1"
	maxDocument   = 256 << 10
	maxKeys       = 8
)

// document is key.json. Bytes are base64.
type document struct {
	SchemaVersion string  `json:"schemaVersion"`
	Store         string  `json:"store"` // random; part of what is authenticated
	Source        Kind    `json:"source"`
	Wrap          wrap    `json:"wrap"`
	Keys          []boxed `json:"keys"` // the last one is in use; more only during a Rotate
}

// wrap is what the source needs to give the wrapping key again.
type wrap struct {
	ID       string `json:"id"`                 // of the wrapping key: random
	Identity string `json:"identity,omitempty"` // age: path
	Box      []byte `json:"box,omitempty"`      // age: the wrapping key as an age file
	Salt     []byte `json:"salt,omitempty"`     // passphrase
	Time     uint32 `json:"time,omitempty"`     // passphrase: passes
	Memory   uint32 `json:"memory,omitempty"`   // passphrase: KiB
}

// boxed is one data key, sealed with the wrapping key.
type boxed struct {
	ID  string `json:"id"`
	Box []byte `json:"box"`
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func newKey() []byte {
	b := make([]byte, chacha20poly1305.KeySize)
	_, _ = rand.Read(b) // it never fails
	return b
}

func (s *Store) documentPath() string { return filepath.Join(s.dir, documentFile) }

// read returns key.json as it is now; without one it is ErrNoSource.
func (s *Store) read() (document, []byte, error) {
	raw, err := private.Read(s.documentPath(), maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return document{}, nil, s.noDocument()
	}
	if err != nil {
		return document{}, nil, fmt.Errorf("read key file: %w", err)
	}
	var d document
	if err := strictjson.Decode(raw, maxDocument, &d); err != nil {
		return document{}, nil, fmt.Errorf("read key file: %w: %w", ErrCorrupt, err)
	}
	if err := d.check(); err != nil {
		return document{}, nil, fmt.Errorf("read key file: %w: %w", ErrCorrupt, err)
	}
	return d, raw, nil
}

// noDocument is why there is no key.json: ErrNoSource in a store without values. One that
// has some had a source, and no other is chosen in the place of that: ErrCorrupt.
func (s *Store) noDocument() error {
	var sealed bool
	err := filepath.WalkDir(s.values(), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, sealedSuffix) {
			sealed = true
			return fs.SkipAll
		}
		return err
	})
	switch {
	case sealed:
		return fmt.Errorf("read key file: %s is gone, and there are secrets that it opens: %w", documentFile, ErrCorrupt)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read key file: %s is gone, and whether there are secrets cannot be seen: %w", documentFile, err)
	}
	return ErrNoSource
}

func (s *Store) write(d document) error {
	if err := d.check(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.documentPath(), append(raw, '\n'))
}

func (d document) source() Source { return Source{Kind: d.Source, Identity: d.Wrap.Identity} }

func (d document) check() error {
	if d.SchemaVersion != schemaVersion || !idPattern.MatchString(d.Store) || !idPattern.MatchString(d.Wrap.ID) {
		return errors.New("unknown version or identifier")
	}
	if err := d.source().check(); err != nil {
		return err
	}
	w := d.Wrap
	if (len(w.Box) > 0) != (d.Source == Age) || (len(w.Salt) > 0) != (d.Source == Passphrase) {
		return errors.New("fields of another source")
	}
	if d.Source == Passphrase && (len(w.Salt) != saltBytes || w.Time < 1 || w.Time > maxTime || w.Memory < 64 || w.Memory > maxMemory) {
		return errors.New("cost of the passphrase is out of bounds")
	}
	if len(d.Keys) < 1 || len(d.Keys) > maxKeys {
		return fmt.Errorf("want 1 to %d data keys", maxKeys)
	}
	seen := map[string]bool{}
	for _, k := range d.Keys {
		if !idPattern.MatchString(k.ID) || seen[k.ID] || len(k.Box) > 256 {
			return errors.New("malformed data key")
		}
		seen[k.ID] = true
	}
	return nil
}

// keyLabel is what is authenticated with a wrapped data key.
func (d document) keyLabel(id string) []byte {
	return label("lend sealed key v1", d.Store, string(d.Source), d.Wrap.ID, id)
}

// wrapKeys fills d.Keys with keys, in their order.
func (d *document) wrapKeys(kek []byte, order []string, keys map[string][]byte) error {
	d.Keys = nil
	for _, id := range order {
		box, err := seal(kek, keys[id], d.keyLabel(id))
		if err != nil {
			return err
		}
		d.Keys = append(d.Keys, boxed{ID: id, Box: box})
	}
	return nil
}

// unwrapKeys opens all data keys; ErrLocked if kek is not theirs.
func (d document) unwrapKeys(kek []byte) (map[string][]byte, error) {
	keys := make(map[string][]byte, len(d.Keys))
	for _, k := range d.Keys {
		key, err := open(kek, k.Box, d.keyLabel(k.ID))
		if err != nil || len(key) != chacha20poly1305.KeySize {
			return nil, fmt.Errorf("the %s does not open the data key: %w", d.Source, ErrLocked)
		}
		keys[k.ID] = key
	}
	return keys, nil
}

func (d document) order() []string {
	var ids []string
	for _, k := range d.Keys {
		ids = append(ids, k.ID)
	}
	return ids
}

func (d document) sameWrap(o document) bool {
	a, b := d.Wrap, o.Wrap
	return d.Store == o.Store && d.Source == o.Source && a.ID == b.ID && a.Identity == b.Identity && a.Time == b.Time &&
		a.Memory == b.Memory && bytes.Equal(a.Box, b.Box) && bytes.Equal(a.Salt, b.Salt)
}
