package shims

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/protocol/name"
)

// Errors of a Dir.
var (
	// ErrName: no name that a shim can have.
	ErrName = errors.New("not a name for a shim: want letters, digits, \".\", \"_\" and \"-\", 64 at most, and not lend's own")
	// ErrForeign: something of that name is there that is not ours, or not any more.
	ErrForeign = errors.New("it is not a shim of lend's, so it is left alone")
	// ErrTaken: the shim stands for another Connector.
	ErrTaken = errors.New("the shim stands for another connector")
	// ErrNone: there is no such shim.
	ErrNone = errors.New("there is no such shim")
)

const (
	maxName   = 64
	maxRecord = 8 << 10
	maxShims  = 1024
	schema    = 1
)

// Shim is one of them.
type Shim struct {
	Name      string
	Connector name.ConnectorKey
	// Foreign says that the link is not the one that was made, or gone.
	Foreign bool
}

// record is the content of NAME.json.
type record struct {
	SchemaVersion int    `json:"schemaVersion"`
	Connector     string `json:"connector"`
	Target        string `json:"target"`
}

// Dir is the directory; the zero value is none. Its methods may be called from any
// goroutine and process.
type Dir struct{ path string }

// New returns the directory at path. Nothing is made or read.
func New(path string) Dir { return Dir{path} }

// Bin is what belongs on the PATH.
func (d Dir) Bin() string { return filepath.Join(d.path, "bin") }

// CheckName returns ErrName for what cannot be a shim's name.
func CheckName(s string) error {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	own := strings.EqualFold(s, "lend") || strings.EqualFold(s, "lend-shim")
	if s == "" || len(s) > maxName || own || strings.ContainsRune(".-", rune(s[0])) || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return ErrName
	}
	return nil
}

// Add makes a shim as that leads to target, the path of lend-shim. One that is there
// with the same meaning stays. Errors: ErrName, ErrForeign, ErrTaken.
func (d Dir) Add(as string, key name.ConnectorKey, target string) error {
	if err := CheckName(as); err != nil {
		return err
	}
	if !filepath.IsAbs(target) {
		return fmt.Errorf("add shim: %s is not an absolute path", name.Quote(target))
	}
	for _, dir := range []string{d.path, d.Bin()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("add shim: %w", err)
		}
		if err := ownerfile.CheckDirectory(dir); err != nil {
			return err
		}
	}
	want := record{schema, key.String(), target}
	have, err := d.record(as)
	switch {
	case err == nil && have.Connector != want.Connector:
		return ErrTaken
	case err == nil && !d.leads(as, have.Target) && d.exists(as), errors.Is(err, ErrNone) && d.exists(as):
		return ErrForeign
	case err == nil && have != want: // another lend-shim: the old link goes
		if err := os.Remove(d.link(as)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("add shim: %w", err)
		}
	case err != nil && !errors.Is(err, ErrNone):
		return err
	}
	text, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("add shim: %w", err)
	}
	if err := ownerfile.Replace(d.file(as), append(text, '\n')); err != nil {
		return err
	}
	if d.leads(as, target) {
		return nil
	}
	if err := os.Symlink(target, d.link(as)); err != nil { // fails if anything is there
		return fmt.Errorf("add shim: %w", err)
	}
	return nil
}

// Remove takes a shim away: ErrNone, ErrForeign.
func (d Dir) Remove(as string) error {
	have, err := d.record(as)
	if err != nil {
		return err
	}
	switch {
	case !d.exists(as):
	case !d.leads(as, have.Target):
		return ErrForeign
	default:
		if err := os.Remove(d.link(as)); err != nil {
			return fmt.Errorf("remove shim: %w", err)
		}
	}
	if err := os.Remove(d.file(as)); err != nil {
		return fmt.Errorf("remove shim: %w", err)
	}
	return nil
}

// List returns the shims by name.
func (d Dir) List() ([]Shim, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list shims: %w", err)
	}
	var out []Shim
	for _, e := range entries {
		as, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || CheckName(as) != nil || len(out) == maxShims {
			continue
		}
		s, err := d.shim(as)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Shim) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Lookup says which Connector a shim stands for: ErrNone, ErrForeign.
func (d Dir) Lookup(as string) (name.ConnectorKey, error) {
	s, err := d.shim(as)
	if err == nil && s.Foreign {
		err = ErrForeign
	}
	if err != nil {
		return name.ConnectorKey{}, err
	}
	return s.Connector, nil
}

func (d Dir) shim(as string) (Shim, error) {
	r, err := d.record(as)
	if err != nil {
		return Shim{}, err
	}
	key, err := name.ParseConnectorKey(r.Connector)
	if err != nil {
		return Shim{}, fmt.Errorf("read shim: %w", err)
	}
	return Shim{Name: as, Connector: key, Foreign: !d.leads(as, r.Target)}, nil
}

func (d Dir) record(as string) (record, error) {
	if err := CheckName(as); err != nil || d.path == "" {
		return record{}, ErrNone
	}
	data, err := ownerfile.Read(d.file(as), ownerfile.Private, maxRecord)
	if errors.Is(err, os.ErrNotExist) {
		return record{}, ErrNone
	}
	if err != nil {
		return record{}, err
	}
	var r record
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return record{}, fmt.Errorf("read shim: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) || r.SchemaVersion != schema || r.Target == "" {
		return record{}, errors.New("read shim: not a record of this version")
	}
	return r, nil
}

func (d Dir) file(as string) string { return filepath.Join(d.path, as+".json") }
func (d Dir) link(as string) string { return filepath.Join(d.Bin(), as) }

func (d Dir) exists(as string) bool {
	_, err := os.Lstat(d.link(as))
	return err == nil
}

func (d Dir) leads(as, target string) bool {
	to, err := os.Readlink(d.link(as))
	return err == nil && to == target
}
