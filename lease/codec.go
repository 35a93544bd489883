package lease

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lendcli/lend/lease/envelope"
	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

const formatVersion = 1

// encode writes the canonical payload of l. spec: LEASE-6.
func (l *Lease) encode() ([]byte, error) {
	m := &lendv1.Lease{
		Version: formatVersion, LeaseId: l.ID[:],
		Issuer: l.Issuer.String(), Holder: l.Holder.String(), Gateway: l.Gateway.String(),
		Invocation: l.Invocation.String(), Authority: lendv1.LeaseAuthority(l.Authority),
		IssuedAtMs: l.IssuedAt.UnixMilli(), NotBeforeMs: l.NotBefore.UnixMilli(), NotAfterMs: l.NotAfter.UnixMilli(),
		MaxOperations: uint32(l.MaxOperations), MaxConcurrent: uint32(l.MaxConcurrent),
		Purpose: l.Purpose, DepthLeft: uint32(l.DepthLeft), Critical: l.Critical,
	}
	if l.Parent != [32]byte{} {
		m.Parent = l.Parent[:]
	}
	for _, g := range l.Grants {
		pg := &lendv1.LeaseGrant{Connector: g.Connector.String(), Version: g.Version.String(), Finish: g.Finish}
		for _, c := range g.Commands {
			pg.Commands = append(pg.Commands, c.String())
		}
		for _, p := range slices.SortedFunc(maps.Keys(g.Pins), compareParameters) {
			pg.Pins = append(pg.Pins, &lendv1.LeasePin{Parameter: p.String(), Allowed: g.Pins[p]})
		}
		m.Grants = append(m.Grants, pg)
	}
	return envelope.Encode(m)
}

func compareParameters(a, b name.Parameter) int { return cmp.Compare(a.String(), b.String()) }

// decode reads a payload; it accepts only what encode would write. The error is
// an *Error with ReasonEncoding or ReasonField. spec: LEASE-6, LEASE-7.
func decode(payload []byte) (Lease, error) {
	m := new(lendv1.Lease)
	if bad := envelope.Decode(payload, m); bad != nil {
		return Lease{}, refusalOf(bad)
	}
	l, err := fromMessage(m)
	if err != nil {
		return Lease{}, err
	}
	if err := l.check(); err != nil {
		return Lease{}, err
	}
	return l, nil
}

type fieldReader struct{ err error }

// read parses one field and keeps the first failure.
func read[T any](r *fieldReader, field string, parse func(string) (T, error), s string) T {
	v, err := parse(s)
	if err != nil && r.err == nil {
		r.err = badField(field, err.Error())
	}
	return v
}

func fromMessage(m *lendv1.Lease) (Lease, error) {
	r := new(fieldReader)
	l := Lease{
		Issuer:     read(r, "issuer", name.ParsePeerID, m.GetIssuer()),
		Holder:     read(r, "holder", name.ParsePeerID, m.GetHolder()),
		Gateway:    read(r, "gateway", name.ParsePeerID, m.GetGateway()),
		Invocation: read(r, "invocation", name.ParseInvocationID, m.GetInvocation()),
		Authority:  authorityFrom(m.GetAuthority()),
		IssuedAt:   time.UnixMilli(m.GetIssuedAtMs()).UTC(),
		NotBefore:  time.UnixMilli(m.GetNotBeforeMs()).UTC(),
		NotAfter:   time.UnixMilli(m.GetNotAfterMs()).UTC(),
		// The bounds of both are far below what fits.
		MaxOperations: int(min(m.GetMaxOperations(), math.MaxInt32)),
		MaxConcurrent: int(min(m.GetMaxConcurrent(), math.MaxInt32)),
		Purpose:       m.GetPurpose(),
		DepthLeft:     int(min(m.GetDepthLeft(), math.MaxInt32)),
		Critical:      m.GetCritical(),
	}
	switch {
	case m.GetVersion() != formatVersion:
		return Lease{}, badField("version", "want 1")
	case len(m.GetLeaseId()) != len(l.ID):
		return Lease{}, badField("lease_id", "want 16 bytes")
	case len(m.GetParent()) != 0 && len(m.GetParent()) != len(l.Parent):
		return Lease{}, badField("parent", "want 32 bytes or none")
	case len(m.GetGrants()) > MaxGrants:
		return Lease{}, badField("grants", "want 1 to 64")
	}
	copy(l.ID[:], m.GetLeaseId())
	copy(l.Parent[:], m.GetParent())
	if len(m.GetParent()) != 0 && l.Parent == [32]byte{} {
		return Lease{}, badField("parent", "want 32 bytes, not all zero, or none")
	}
	for i, g := range m.GetGrants() {
		l.Grants = append(l.Grants, readGrant(r, fmt.Sprintf("grants[%d].", i), g))
	}
	if r.err != nil {
		return Lease{}, r.err
	}
	return l, nil
}

func readGrant(r *fieldReader, at string, m *lendv1.LeaseGrant) Grant {
	g := Grant{
		Connector: read(r, at+"connector", name.ParseConnectorKey, m.GetConnector()),
		Version:   read(r, at+"version", name.ParseVersion, m.GetVersion()),
		Finish:    m.GetFinish(),
	}
	for _, c := range m.GetCommands() {
		g.Commands = append(g.Commands, read(r, at+"commands", name.ParseCommand, c))
	}
	g.Pins = make(map[name.Parameter][]string, len(m.GetPins()))
	last := ""
	for _, pin := range m.GetPins() {
		if r.err == nil && pin.GetParameter() <= last {
			r.err = badField(at+"pins", "empty, repeated or not sorted")
		}
		last = pin.GetParameter()
		g.Pins[read(r, at+"pins", name.ParseParameter, last)] = pin.GetAllowed()
	}
	return g
}

func authorityFrom(a lendv1.LeaseAuthority) Authority {
	if a < 0 || a > math.MaxUint8 {
		return math.MaxUint8
	}
	return Authority(a)
}
