package early

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of what is remembered, in all and of one holder.
const (
	Max          = 1024
	MaxPerHolder = 64
)

// maxFile is above what Max entries can take.
const maxFile = 1 << 20

// ErrFull says that no more cancels can be remembered now.
var ErrFull = errors.New("too many early cancels are remembered")

// Cancels is safe for concurrent use.
type Cancels struct {
	path string

	saving sync.Mutex // held while the file is written; taken before mu

	mu   sync.Mutex // guards keys
	keys map[ledger.Key]*cancel
}

type cancel struct {
	until time.Time
	saved bool // in the file
}

// form is the file.
type form struct {
	SchemaVersion int    `json:"schemaVersion"`
	Cancels       []line `json:"cancels"`
}

type line struct {
	Issuer     string    `json:"issuer"`
	Invocation string    `json:"invocation"`
	Holder     string    `json:"holder"`
	Operation  string    `json:"operation"`
	Until      time.Time `json:"until"`
}

// Memory returns a Cancels without a file.
func Memory() *Cancels { return &Cancels{keys: map[ledger.Key]*cancel{}} }

// Open reads the file at path, private and the owner's, or begins with none. One that
// cannot be read is an error: what it says would run.
func Open(path string) (*Cancels, error) {
	c := Memory()
	c.path = path
	b, err := ownerfile.Read(path, ownerfile.Private, maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = c.parse(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read early cancels: %w", err)
	}
	return c, nil
}

func (c *Cancels) parse(b []byte) error {
	var f form
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || f.SchemaVersion != 1 || len(f.Cancels) > Max {
		return errors.New("not a file of early cancels")
	}
	for _, l := range f.Cancels {
		k, err := l.key()
		if err != nil {
			return err
		}
		c.keys[k] = &cancel{l.Until, true}
	}
	return nil
}

func (l line) key() (k ledger.Key, err error) {
	var errs [4]error
	k.Issuer, errs[0] = name.ParsePeerID(l.Issuer)
	k.Invocation, errs[1] = name.ParseInvocationID(l.Invocation)
	k.Holder, errs[2] = name.ParsePeerID(l.Holder)
	k.Operation, errs[3] = name.ParseOperationID(l.Operation)
	return k, errors.Join(errs[:]...)
}

// Has tells whether k was cancelled. It never waits for the file.
func (c *Cancels) Has(k ledger.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[k] != nil
}

// Keys returns those that there are, those that have expired included, in no order.
func (c *Cancels) Keys() []ledger.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.keys))
}

// Len returns how many there are, those that have expired included.
func (c *Cancels) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys)
}

// Add remembers k until then: Has is true at once, and when Add returns nil it is so
// after a crash as well. ErrFull: it is not remembered. Any other error: it is, but
// not after a crash.
func (c *Cancels) Add(k ledger.Key, until, now time.Time) error {
	if err := c.add(k, until, now); err != nil || c.path == "" {
		return err
	}
	c.saving.Lock() // who waits here finds it done, more often than not
	defer c.saving.Unlock()
	return c.save(k)
}

func (c *Cancels) add(k ledger.Key, until, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys[k] != nil {
		return nil
	}
	mine := 0
	for old, e := range c.keys {
		switch {
		case !now.Before(e.until):
			delete(c.keys, old)
		case old.Holder == k.Holder:
			mine++
		}
	}
	if len(c.keys) >= Max || mine >= MaxPerHolder {
		return ErrFull
	}
	c.keys[k] = &cancel{until: until}
	return nil
}

// save writes all of them, unless k is in the file. The caller holds saving.
func (c *Cancels) save(k ledger.Key) error {
	c.mu.Lock()
	if e := c.keys[k]; e != nil && e.saved {
		c.mu.Unlock()
		return nil
	}
	f := form{SchemaVersion: 1, Cancels: make([]line, 0, len(c.keys))}
	written := make([]*cancel, 0, len(c.keys))
	for k, e := range c.keys {
		f.Cancels = append(f.Cancels, line{k.Issuer.String(), k.Invocation.String(), k.Holder.String(), k.Operation.String(), e.until})
		written = append(written, e)
	}
	c.mu.Unlock()
	b, err := json.Marshal(f)
	if err == nil {
		err = ownerfile.Replace(c.path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep early cancels: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range written {
		e.saved = true
	}
	return nil
}
