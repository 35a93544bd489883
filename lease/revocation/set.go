package revocation

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a revocation set in its file form. spec: LEASE-34.
const (
	MaxEntries = 100_000
	MaxBytes   = 64 << 20
)

// Entry names leases by all of its fields that are set; at least one is. A
// lease that matches every one of them is revoked: {Issuer, Invocation} is an
// issuer's word about its own invocation, {Invocation} the owner's about
// everybody's.
type Entry struct {
	Lease      lease.ID
	Invocation name.InvocationID
	Holder     name.PeerID
	Issuer     name.PeerID
	// IssuedBefore matches leases issued before this moment.
	IssuedBefore time.Time
	// At is when this was said; Until when it may be forgotten, since every lease
	// that it can name is dead by then. Zero means never.
	At, Until time.Time
}

// Set is an immutable set of revocations, kept in order; it may be used from any
// goroutine. The zero value, and nil, deny everything: a set is made by New or
// Parse.
type Set struct {
	valid   bool
	entries []Entry
	// byKey finds entries by their most selective field; the others are in rest.
	byKey map[any][]Entry
	rest  []Entry
}

// New returns a set of the given entries, MaxEntries at most. It cuts times to
// milliseconds. An entry that names nothing, and one with a time outside the years
// 1970 to 9999, are errors.
func New(entries ...Entry) (*Set, error) {
	if len(entries) > MaxEntries {
		return nil, fmt.Errorf("make revocation set: more than %d entries", MaxEntries)
	}
	s := &Set{valid: true, entries: slices.Clone(entries), byKey: make(map[any][]Entry)}
	for i := range s.entries {
		e := &s.entries[i]
		for _, t := range []*time.Time{&e.IssuedBefore, &e.At, &e.Until} {
			*t = t.UTC().Truncate(time.Millisecond)
			if !t.IsZero() && (t.Year() < 1970 || t.Year() > 9999) {
				return nil, fmt.Errorf("make revocation set: entry %d has a time out of range", i)
			}
		}
		key, ok := e.key()
		if !ok {
			return nil, fmt.Errorf("make revocation set: entry %d names nothing", i)
		}
		if key == nil {
			s.rest = append(s.rest, *e)
			continue
		}
		s.byKey[key] = append(s.byKey[key], *e)
	}
	return s, nil
}

// key returns the field to index by, nil for an entry that only has a time.
func (r *Entry) key() (key any, ok bool) {
	switch {
	case !r.Lease.IsZero():
		return r.Lease, true
	case !r.Invocation.IsZero():
		return r.Invocation, true
	case !r.Holder.IsZero():
		return holderKey(r.Holder), true
	case !r.Issuer.IsZero():
		return issuerKey(r.Issuer), true
	default:
		return nil, !r.IssuedBefore.IsZero()
	}
}

type (
	holderKey name.PeerID
	issuerKey name.PeerID
)

func (r *Entry) matches(s lease.Subject) bool {
	return (r.Lease.IsZero() || r.Lease == s.Lease) &&
		(r.Invocation.IsZero() || r.Invocation == s.Invocation) &&
		(r.Holder.IsZero() || r.Holder == s.Holder) &&
		(r.Issuer.IsZero() || r.Issuer == s.Issuer) &&
		(r.IssuedBefore.IsZero() || s.IssuedAt.Before(r.IssuedBefore))
}

// Revoked tells whether any entry matches s. A set that is nil or zero says yes.
// spec: LEASE-26.
func (s *Set) Revoked(sub lease.Subject) bool {
	if s == nil || !s.valid {
		return true
	}
	match := func(r Entry) bool { return r.matches(sub) }
	for _, key := range []any{sub.Lease, sub.Invocation, holderKey(sub.Holder), issuerKey(sub.Issuer)} {
		if slices.ContainsFunc(s.byKey[key], match) {
			return true
		}
	}
	return slices.ContainsFunc(s.rest, match)
}

// Covers tells whether an entry revokes all that e does, for at least as long. It
// does not look at all of them. A set that denies everything covers nothing: it has no
// entries.
func (s *Set) Covers(e Entry) bool {
	if s == nil {
		return false
	}
	covers := func(r Entry) bool { return r.Covers(e) }
	for _, key := range []any{e.Lease, e.Invocation, holderKey(e.Holder), issuerKey(e.Issuer)} {
		if slices.ContainsFunc(s.byKey[key], covers) {
			return true
		}
	}
	return slices.ContainsFunc(s.rest, covers)
}

// Count returns how many entries there are, and how many of them are about an
// issuer's leases.
func (s *Set) Count(issuer name.PeerID) (all, own int) {
	if s == nil {
		return 0, 0
	}
	for i := range s.entries {
		if s.entries[i].Issuer == issuer {
			own++
		}
	}
	return len(s.entries), own
}

// Entries returns a copy of the entries, oldest first.
func (s *Set) Entries() []Entry {
	if s == nil {
		return nil
	}
	return slices.Clone(s.entries)
}

// With returns a set that has more entries, without those that may be forgotten
// at now. A set that denies everything stays so: it returns an error.
func (s *Set) With(now time.Time, more ...Entry) (*Set, error) {
	if s == nil || !s.valid {
		return nil, errDenyAll
	}
	kept := slices.DeleteFunc(s.Entries(), func(r Entry) bool { return !r.Until.IsZero() && !now.Before(r.Until) })
	return New(append(kept, more...)...)
}

var errDenyAll = errors.New("the revocation set is not readable and denies everything")

const (
	revocationHead = "lend revocations 1"
	revocationTime = "2006-01-02T15:04:05.000Z"
)

// Marshal writes the file form: text, one entry a line, and a last line that
// counts them, so that a cut file does not parse. spec: LEASE-34.
func (s *Set) Marshal() ([]byte, error) {
	if s == nil || !s.valid {
		return nil, errDenyAll
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, revocationHead)
	for i := range s.entries {
		fmt.Fprintln(&b, s.entries[i].line())
	}
	fmt.Fprintf(&b, "end %d\n", len(s.entries))
	if b.Len() > MaxBytes {
		return nil, fmt.Errorf("write revocation set: more than %d bytes", MaxBytes)
	}
	return b.Bytes(), nil
}

func (r *Entry) line() string {
	var b strings.Builder
	b.WriteString("revoke")
	put := func(key, value string) {
		if value != "" {
			b.WriteString(" " + key + "=" + value)
		}
	}
	stamp := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(revocationTime)
	}
	if !r.Lease.IsZero() {
		put("lease", r.Lease.String())
	}
	put("invocation", r.Invocation.String())
	put("holder", r.Holder.String())
	put("issuer", r.Issuer.String())
	put("before", stamp(r.IssuedBefore))
	put("at", stamp(r.At))
	put("until", stamp(r.Until))
	return b.String()
}

// Parse reads what Marshal wrote, and nothing else. On an error the
// set is not nil: it denies everything. spec: LEASE-34.
func Parse(b []byte) (*Set, error) {
	s, err := parse(b)
	if err != nil {
		return new(Set), fmt.Errorf("read revocation set: %w", err)
	}
	return s, nil
}

func parse(b []byte) (*Set, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 3 || lines[0] != revocationHead || lines[len(lines)-1] != "" {
		return nil, errors.New("the first or the last line is missing")
	}
	body, last := lines[1:len(lines)-2], lines[len(lines)-2]
	if last != fmt.Sprintf("end %d", len(body)) {
		return nil, errors.New("the last line does not count the entries")
	}
	entries := make([]Entry, 0, len(body))
	for i, line := range body {
		r, err := parseEntry(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		entries = append(entries, r)
	}
	return New(entries...)
}

func parseEntry(line string) (Entry, error) {
	var r Entry
	words := strings.Split(line, " ")
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "lease":
			err = r.Lease.UnmarshalText([]byte(value))
		case "invocation":
			err = r.Invocation.UnmarshalText([]byte(value))
		case "holder":
			err = r.Holder.UnmarshalText([]byte(value))
		case "issuer":
			err = r.Issuer.UnmarshalText([]byte(value))
		case "before":
			r.IssuedBefore, err = time.Parse(revocationTime, value)
		case "at":
			r.At, err = time.Parse(revocationTime, value)
		case "until":
			r.Until, err = time.Parse(revocationTime, value)
		default:
			err = errors.New("unknown field")
		}
		if err != nil {
			return Entry{}, fmt.Errorf("%s: %w", name.Quote(key), err)
		}
	}
	if r.line() != line {
		return Entry{}, errors.New("not as it is written")
	}
	return r, nil
}
