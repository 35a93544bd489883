package issued

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// KeepFor is how long a lease is remembered after its end.
const KeepFor = 30 * 24 * time.Hour

const (
	schema   = 1
	suffix   = ".json"
	maxFile  = 256 << 10
	maxFiles = 100_000 // that are looked at
)

// Lease is what is remembered of one. Times have a resolution of one millisecond.
type Lease struct {
	SchemaVersion int               `json:"schemaVersion"`
	ID            lease.ID          `json:"lease"`
	Issuer        name.PeerID       `json:"issuer"` // that signed it here
	Root          name.PeerID       `json:"root"`   // of the chain; Issuer, if it was not delegated
	Holder        name.PeerID       `json:"holder"`
	Gateway       name.PeerID       `json:"gateway"`
	Invocation    name.InvocationID `json:"invocation"`
	Grants        []Grant           `json:"grants"`
	Issued        time.Time         `json:"issued"`
	NotAfter      time.Time         `json:"notAfter"`
	Operations    int               `json:"operations"` // it may start
	Purpose       string            `json:"purpose,omitempty"`
}

// Grant is what it grants of one version of a Connector. Pinned are the parameters
// whose values it pins.
type Grant struct {
	Connector name.ConnectorKey `json:"connector"`
	Version   name.Version      `json:"version"`
	Commands  []name.Command    `json:"commands"`
	Pinned    []name.Parameter  `json:"pinned,omitempty"`
	Finish    bool              `json:"finish,omitempty"`
}

// Subject is what a revocation of it would name.
func (l *Lease) Subject() lease.Subject {
	return lease.Subject{Lease: l.ID, Invocation: l.Invocation, Holder: l.Holder, Issuer: l.Issuer, IssuedAt: l.Issued}
}

// Of returns what is remembered of l, the last link of a chain with that root.
func Of(l *lease.Lease, root name.PeerID) Lease {
	out := Lease{
		SchemaVersion: schema, ID: l.ID, Issuer: l.Issuer, Root: root, Holder: l.Holder, Gateway: l.Gateway, Invocation: l.Invocation,
		Issued: l.IssuedAt.UTC(), NotAfter: l.NotAfter.UTC(), Operations: l.MaxOperations, Purpose: l.Purpose,
	}
	for _, g := range l.Grants {
		pinned := slices.SortedFunc(maps.Keys(g.Pins), func(a, b name.Parameter) int { return strings.Compare(a.String(), b.String()) })
		out.Grants = append(out.Grants, Grant{g.Connector, g.Version, slices.Clone(g.Commands), pinned, g.Finish})
	}
	return out
}

// Keep remembers l in the directory, which it makes, and is durable when it returns;
// what is over for longer than KeepFor is deleted.
func Keep(dir string, l Lease, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("remember the lease: %w", err)
	}
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("remember the lease: %w", err)
	}
	if err := ownerfile.Replace(filepath.Join(dir, l.ID.String()+suffix), b); err != nil {
		return fmt.Errorf("remember the lease: %w", err)
	}
	_, _ = List(dir, now) // deletes what is over; what is wrong with other files is told when they are listed
	return nil
}

// Forget deletes what is remembered of a lease, if it is.
func Forget(dir string, id lease.ID) error {
	err := os.Remove(filepath.Join(dir, id.String()+suffix))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the lease: %w", err)
	}
	return nil
}

// List returns what is remembered, the newest first, and deletes what is over for
// longer than KeepFor. Files that are not readable are an error, beside those that
// are. No directory is no lease.
func List(dir string, now time.Time) ([]Lease, error) {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the leases: %w", err)
	}
	names, err := d.Readdirnames(maxFiles)
	_ = d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list the leases: %w", err)
	}
	var out []Lease
	var errs []error
	for _, n := range names {
		id, err := lease.ParseID(strings.TrimSuffix(n, suffix))
		if err != nil || !strings.HasSuffix(n, suffix) {
			continue // of another program, or half written
		}
		l, err := read(filepath.Join(dir, n), id)
		switch {
		case errors.Is(err, os.ErrNotExist): // deleted meanwhile
		case err != nil:
			errs = append(errs, err)
		case now.Sub(l.NotAfter) > KeepFor:
			errs = append(errs, Forget(dir, id))
		default:
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Lease) int {
		if c := b.Issued.Compare(a.Issued); c != 0 {
			return c
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
	return out, errors.Join(errs...)
}

var errOther = errors.New("it is of another lease, or of another version of lend")

func read(file string, id lease.ID) (Lease, error) {
	b, err := ownerfile.Read(file, ownerfile.Private, maxFile)
	if err != nil {
		return Lease{}, err
	}
	var l Lease
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&l); err != nil {
		return Lease{}, fmt.Errorf("read %s: %w", file, err)
	}
	if l.ID != id || l.SchemaVersion != schema || l.NotAfter.IsZero() {
		return Lease{}, fmt.Errorf("read %s: %w", file, errOther)
	}
	return l, nil
}
