package revocation

import (
	"errors"
	"time"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/envelope"
	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

const formatVersion = 1

// MaxAhead is how much later than its signature "issued before" may be.
const MaxAhead = lease.MaxSkew

// Statement is what a signed revocation says. Times have a resolution of one
// millisecond and are UTC.
type Statement struct {
	// ID tells it from others in records; random, and not zero.
	ID lease.ID
	// Issuer signs; Gateway is the one that may accept it.
	Issuer, Gateway name.PeerID
	// At is when it was signed.
	At time.Time
	// Entry is what is revoked. Its At and Until are not part of a Statement: they
	// are zero.
	Entry Entry
}

func (s *Statement) check() *Error {
	before := s.Entry.IssuedBefore
	switch {
	case s.ID.IsZero():
		return badField("revocation_id", "want 16 bytes, not all zero")
	case s.Issuer.IsZero():
		return badField("issuer", "missing")
	case s.Gateway.IsZero():
		return badField("gateway", "missing")
	case s.At.Year() < 2020 || s.At.Year() > 9998:
		return badField("issued_at_ms", "want a time between the years 2020 and 9998")
	case s.At.Nanosecond()%int(time.Millisecond) != 0 || before.Nanosecond()%int(time.Millisecond) != 0:
		return badField("issued_at_ms", "want whole milliseconds")
	case !before.IsZero() && (before.Year() < 2020 || before.After(s.At.Add(MaxAhead))):
		return badField("issued_before_ms", "want a time from 2020 until 2 minutes after the signature")
	}
	if _, ok := s.Entry.key(); !ok {
		return badField("lease_id", "nothing is named")
	}
	return nil
}

// encode writes the canonical payload. spec: REVOKE-3.
func (s *Statement) encode() ([]byte, error) {
	m := &lendv1.Revocation{
		Version: formatVersion, RevocationId: s.ID[:], Issuer: s.Issuer.String(), Gateway: s.Gateway.String(),
		IssuedAtMs: s.At.UnixMilli(), Invocation: s.Entry.Invocation.String(), Holder: s.Entry.Holder.String(),
		LeaseIssuer: s.Entry.Issuer.String(),
	}
	if !s.Entry.Lease.IsZero() {
		m.LeaseId = s.Entry.Lease[:]
	}
	if !s.Entry.IssuedBefore.IsZero() {
		m.IssuedBeforeMs = s.Entry.IssuedBefore.UnixMilli()
	}
	return envelope.Encode(m)
}

// decode reads a payload; it accepts only what encode would write. spec: REVOKE-3.
func decode(payload []byte) (Statement, *Error) {
	m := new(lendv1.Revocation)
	if bad := envelope.Decode(payload, m); bad != nil {
		return Statement{}, refusalOf(bad)
	}
	s, err := fromMessage(m)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return Statement{}, err
	}
	return s, nil
}

func fromMessage(m *lendv1.Revocation) (Statement, *Error) {
	var s Statement
	if m.GetVersion() != formatVersion {
		return s, badField("version", "want 1")
	}
	var bad *Error
	fail := func(field string, err error) {
		if err != nil && bad == nil {
			bad = badField(field, err.Error())
		}
	}
	parse := func(field string, optional bool, value string, into func(string) error) {
		if value == "" && optional {
			return
		}
		fail(field, into(value))
	}
	peer := func(p *name.PeerID) func(string) error {
		return func(v string) (err error) { *p, err = name.ParsePeerID(v); return err }
	}
	fail("revocation_id", id(&s.ID, m.GetRevocationId()))
	parse("issuer", false, m.GetIssuer(), peer(&s.Issuer))
	parse("gateway", false, m.GetGateway(), peer(&s.Gateway))
	if len(m.GetLeaseId()) > 0 {
		fail("lease_id", id(&s.Entry.Lease, m.GetLeaseId()))
	}
	parse("invocation", true, m.GetInvocation(), func(v string) (err error) {
		s.Entry.Invocation, err = name.ParseInvocationID(v)
		return err
	})
	parse("holder", true, m.GetHolder(), peer(&s.Entry.Holder))
	parse("lease_issuer", true, m.GetLeaseIssuer(), peer(&s.Entry.Issuer))
	s.At = time.UnixMilli(m.GetIssuedAtMs()).UTC()
	if ms := m.GetIssuedBeforeMs(); ms != 0 {
		s.Entry.IssuedBefore = time.UnixMilli(ms).UTC()
	}
	return s, bad
}

var errID = errors.New("want 16 bytes, not all zero")

func id(into *lease.ID, b []byte) error {
	if len(b) != len(into) || [16]byte(b) == [16]byte{} {
		return errID
	}
	*into = lease.ID(b)
	return nil
}
