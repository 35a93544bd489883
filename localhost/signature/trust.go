package signature

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/internal/strictjson"
	"github.com/lendcli/lend/protocol/name"
	"golang.org/x/mod/sumdb/note"
)

// What Trust.Check refuses, for errors.Is.
var (
	// ErrUnsigned: the owner requires a signature, and there is none.
	ErrUnsigned = errors.New("release is not signed, and the owner requires it")
	// ErrUntrusted: the owner requires a signature, and none is by a trusted publisher.
	ErrUntrusted = errors.New("release is not signed by a publisher that is trusted for it, and the owner requires it")
	// ErrInvalid: what is there is no signature of this release.
	ErrInvalid = errors.New("invalid release signature")
)

// Bounds of the owner's list.
const (
	maxTrustBytes = 1 << 20
	maxPublishers = 256
	maxConnectors = 1024
	trustFormat   = 1
)

// Publisher is a key that the owner trusts.
type Publisher struct {
	// Key is the public key, "NAME+ID+KEY", as NewKey gives it.
	Key string `json:"key"`
	// Connectors are those whose releases it may sign; nil means all.
	Connectors []string `json:"connectors,omitempty"`
}

// Name is what the publisher calls itself.
func (p Publisher) Name() string { n, _, _ := strings.Cut(p.Key, "+"); return n }

// ID is NAME+ID, which names the key without holding it.
func (p Publisher) ID() string {
	n, rest, _ := strings.Cut(p.Key, "+")
	id, _, _ := strings.Cut(rest, "+")
	return n + "+" + id
}

func (p Publisher) maySign(key string) bool {
	return p.Connectors == nil || slices.Contains(p.Connectors, key)
}

// Trust is what the owner says about publishers. The zero value trusts nobody and
// requires nothing. Parse and File.Edit check it; Check must not run while it changes.
type Trust struct {
	Publishers []Publisher `json:"publishers,omitempty"` // at most 256, each once
	RequireAll bool        `json:"requireAll,omitempty"` // every release has to be signed
	Require    []string    `json:"require,omitempty"`    // Connectors whose releases have to be; at most 1024
}

type trustDocument struct {
	Format int `json:"format"`

	Publishers []Publisher `json:"publishers,omitempty"`
	RequireAll bool        `json:"requireAll,omitempty"`
	Require    []string    `json:"require,omitempty"`
}

// Parse reads an owner's list, strictly: unknown fields, keys that are none and names
// that are there twice are errors.
func Parse(data []byte) (*Trust, error) {
	var d trustDocument
	if err := strictjson.Decode(data, maxTrustBytes, &d); err != nil {
		return nil, fmt.Errorf("parse list of publishers: %w", err)
	}
	if d.Format != trustFormat {
		return nil, fmt.Errorf("parse list of publishers: format %d is not known: it was written by another version of lend", d.Format)
	}
	t := &Trust{d.Publishers, d.RequireAll, d.Require}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("parse list of publishers: %w", err)
	}
	return t, nil
}

func (t *Trust) marshal() ([]byte, error) {
	b, err := json.MarshalIndent(trustDocument{trustFormat, t.Publishers, t.RequireAll, t.Require}, "", "  ")
	return append(b, '\n'), err
}

func (t *Trust) check() error {
	if len(t.Publishers) > maxPublishers {
		return fmt.Errorf("more than %d publishers", maxPublishers)
	}
	seen := map[string]bool{}
	for _, p := range t.Publishers {
		if _, err := verifier(p.Key); err != nil {
			return err
		}
		if seen[p.ID()] {
			return fmt.Errorf("publisher %s is there twice", p.ID())
		}
		seen[p.ID()] = true
		if p.Connectors != nil && len(p.Connectors) == 0 {
			return fmt.Errorf("publisher %s is for no Connector: leave connectors out, or name one", p.ID())
		}
		if err := connectors(p.Connectors); err != nil {
			return fmt.Errorf("publisher %s: %w", p.ID(), err)
		}
	}
	return connectors(t.Require)
}

func connectors(all []string) error {
	if len(all) > maxConnectors {
		return fmt.Errorf("more than %d Connectors", maxConnectors)
	}
	seen := map[string]bool{}
	for _, k := range all {
		if _, err := name.ParseConnectorKey(k); err != nil {
			return err
		}
		if seen[k] {
			return fmt.Errorf("connector %s is there twice", k)
		}
		seen[k] = true
	}
	return nil
}

const maxPublicKey = 512

// verifier reads a public key in its one spelling; its name is one that every terminal
// can show.
func verifier(key string) (note.Verifier, error) {
	if v, err := note.NewVerifier(key); err == nil && len(key) <= maxPublicKey && publisherName.MatchString(v.Name()) {
		b64 := key[strings.LastIndex(key, fmt.Sprintf("+%08x+", v.KeyHash()))+1:]
		if raw, err := base64.StdEncoding.DecodeString(b64[min(9, len(b64)):]); err == nil &&
			key == fmt.Sprintf("%s+%08x+%s", v.Name(), v.KeyHash(), base64.StdEncoding.EncodeToString(raw)) {
			return v, nil
		}
	}
	return nil, fmt.Errorf("want a publisher's public key such as \"example.com+1b2c3d4e+A…\", not %s", name.Quote(key))
}

func (t *Trust) requires() bool { return t.RequireAll || len(t.Require) > 0 }

// Required tells whether a release of this Connector has to be signed.
func (t *Trust) Required(key name.ConnectorKey) bool {
	return t.RequireAll || slices.Contains(t.Require, key.String())
}

// RequiredError says that the owner requires a signature of a release, and that there is
// none by a publisher whom they trust for it. It matches ErrUnsigned or ErrUntrusted.
type RequiredError struct {
	Subject  Subject
	All, One bool // required of all Connectors, and of this one by its key
	Err      error
}

func (t *Trust) missing(s Subject, err error) error {
	return &RequiredError{Subject: s, All: t.RequireAll, One: slices.Contains(t.Require, s.Key.String()), Err: err}
}

func (e *RequiredError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Subject.Key, e.Subject.Version, e.Err)
}

// Unwrap returns the cause.
func (e *RequiredError) Unwrap() error { return e.Err }

// Fix is what the owner can do about it, in commands.
func (e *RequiredError) Fix() string {
	const off = "lend publisher require --off "
	var all []string
	if e.All {
		all = append(all, off+"--all")
	}
	if e.One {
		all = append(all, off+e.Subject.Key.String())
	}
	lift := strings.Join(all, ", then ")
	if errors.Is(e.Err, ErrUntrusted) {
		return "lend publisher add PUBLISHER, if you trust it, or " + lift
	}
	return "lend connector add one that a publisher signed whom you trust, or " + lift
}

// Signer is one signature of a release.
type Signer struct {
	ID string // NAME+ID; foreign unless Trusted
	// Trusted says that the owner trusts this key for this Connector, and that the
	// signature is its. Of others nothing is known: not even that they signed.
	Trusted bool
}

// Check says who signed s, given its signature file, nil if there is none. A file that
// is there must be of s, and what a trusted key is said to have signed must hold:
// ErrInvalid. Where the owner requires it, a trusted publisher must be among them:
// a *RequiredError.
func (t *Trust) Check(s Subject, data []byte) ([]Signer, error) {
	text, err := s.text()
	if err != nil {
		return nil, fmt.Errorf("check signature: %w", err)
	}
	if data == nil {
		if t.Required(s.Key) {
			return nil, t.missing(s, ErrUnsigned)
		}
		return nil, nil
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s %s: %w: more than %d bytes", s.Key, s.Version, ErrInvalid, MaxBytes)
	}
	var known []note.Verifier
	for _, p := range t.Publishers {
		if !p.maySign(s.Key.String()) {
			continue
		}
		v, err := verifier(p.Key)
		if err != nil {
			return nil, fmt.Errorf("check signature: %w", err)
		}
		known = append(known, v)
	}
	n, err := open(data, known)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", s.Key, s.Version, ErrInvalid, err)
	}
	if n.Text != text {
		return nil, fmt.Errorf("%s %s: %w: it is of another release", s.Key, s.Version, ErrInvalid)
	}
	out := append(signers(n.Sigs, true), signers(n.UnverifiedSigs, false)...)
	if t.Required(s.Key) && len(n.Sigs) == 0 {
		return nil, t.missing(s, fmt.Errorf("%w: it names %s", ErrUntrusted, quoted(out)))
	}
	return out, nil
}

func signers(all []note.Signature, trusted bool) []Signer {
	var out []Signer
	for _, sig := range all {
		one := Signer{fmt.Sprintf("%s+%08x", sig.Name, sig.Hash), trusted}
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// quoted names at most three signers.
func quoted(all []Signer) string {
	var b strings.Builder
	for i, s := range all {
		if i == 3 {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name.Quote(s.ID))
	}
	return b.String()
}
