package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// The kinds of a record: its first byte. New kinds and new layouts get new
// numbers; a reader refuses what it does not know. spec: LEDGER-6.
const (
	kindSegment    = 1
	kindStart      = 2
	kindEnd        = 3
	kindNotStarted = 4
	kindUnknown    = 5
	kindRefusal    = 6
	kindEvent      = 7
)

var errMalformed = errors.New("malformed record")

// encoder appends fields in order. There are no tags: a layout is fixed by its
// kind.
type encoder struct{ b []byte }

func (e *encoder) byte(v byte)        { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64)      { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) raw(v []byte)       { e.b = append(e.b, v...) }
func (e *encoder) time(t time.Time)   { e.uint(uint64(max(0, t.UnixMilli()))) }
func (e *encoder) bytes(v []byte)     { e.uint(uint64(len(v))); e.raw(v) }
func (e *encoder) string(v string)    { e.uint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) peer(p name.PeerID) { e.bytes(p.Key()) }
func (e *encoder) fixedPeer(p name.PeerID) {
	e.raw(p.Key())
}

// decoder reads fields in order and keeps the first failure. What it returns
// shares memory with its input.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() {
	d.b = nil
	if d.err == nil {
		d.err = errMalformed
	}
}

func (d *decoder) byte() byte {
	if len(d.b) < 1 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// uint accepts the shortest form only.
func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) raw(n int) []byte {
	if n > len(d.b) {
		d.fail()
		return make([]byte, min(n, 32))
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(most int) []byte {
	n := d.uint()
	if n > uint64(most) || n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	return d.raw(int(n))
}

func (d *decoder) text(most int) string {
	s := string(d.bytes(most))
	if !validText(s, most) {
		d.fail()
	}
	return s
}

// maxTime is the end of the year 9999, in milliseconds.
const maxTime = 253402300799999

func (d *decoder) time() time.Time {
	v := d.uint()
	if v > maxTime {
		d.fail()
		return time.Time{}
	}
	return time.UnixMilli(int64(v)).UTC()
}

func (d *decoder) peer() name.PeerID {
	return d.peerFrom(d.bytes(32))
}

func (d *decoder) peerFrom(key []byte) name.PeerID {
	if len(key) == 0 {
		return name.PeerID{}
	}
	p, err := name.PeerIDFromKey(key)
	if err != nil {
		d.fail()
	}
	return p
}

// named reads a checked value, "" as its zero value where optional.
func named[T any](d *decoder, parse func(string) (T, error), most int, optional bool) T {
	s := d.text(most)
	if s == "" && optional {
		var zero T
		return zero
	}
	v, err := parse(s)
	if err != nil {
		d.fail()
	}
	return v
}

func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail()
	}
	return d.err
}

// segment is the first record of a file.
type segment struct {
	id       [16]byte
	birth    time.Time
	first    uint64 // index of this record
	verifier string // the verifier key of the checkpoints
}

const formatVersion = 1

func (s *segment) encode(at time.Time) []byte {
	e := new(encoder)
	e.byte(kindSegment)
	e.time(at)
	e.uint(formatVersion)
	e.raw(s.id[:])
	e.time(s.birth)
	e.uint(s.first)
	e.string(s.verifier)
	return e.b
}

func decodeSegment(payload []byte) (segment, error) {
	d := &decoder{b: payload}
	kind := d.byte()
	d.time()
	version := d.uint()
	s := segment{id: [16]byte(d.raw(16)), birth: d.time(), first: d.uint(), verifier: d.text(256)}
	if kind != kindSegment || version != formatVersion {
		d.fail()
	}
	return s, d.end()
}

func (s *Start) encode() []byte {
	e := &encoder{b: make([]byte, 0, 512+len(s.Frozen)+len(s.Identity)+len(s.Audit))}
	e.byte(kindStart)
	e.time(s.At)
	e.fixedPeer(s.Issuer)
	e.fixedPeer(s.Holder)
	e.raw(s.Digest[:])
	e.raw(s.Lease[:])
	e.string(s.Invocation.String())
	e.string(s.Operation.String())
	e.time(s.LeaseNotAfter)
	e.string(s.Connector.String())
	e.string(s.Version.String())
	e.string(s.Command.String())
	e.bytes(s.Identity)
	e.bytes(s.Audit)
	e.bytes(s.Frozen)
	return e.b
}

// startView is what the views need of a Start, without any allocation.
type startView struct {
	at                     uint64
	issuer, holder, lease  []byte
	digest                 []byte
	invocation, operation  []byte
	hasFrozen              bool
	notAfter               uint64
	connector, version     []byte
	command, identity, aud []byte
	frozen                 []byte
}

func viewStart(payload []byte) (startView, error) {
	d := &decoder{b: payload}
	if d.byte() != kindStart {
		d.fail()
	}
	v := startView{at: d.uint()}
	v.issuer, v.holder, v.digest, v.lease = d.raw(32), d.raw(32), d.raw(32), d.raw(16)
	v.invocation, v.operation = d.bytes(name.MaxInvocationID), d.bytes(name.MaxOperationID)
	v.notAfter = d.uint()
	v.connector, v.version, v.command = d.bytes(name.MaxConnectorKey), d.bytes(name.MaxVersion), d.bytes(name.MaxCommand)
	v.identity, v.aud, v.frozen = d.bytes(MaxIdentity), d.bytes(MaxAudit), d.bytes(MaxFrozen)
	v.hasFrozen = len(v.frozen) > 0
	if v.at > maxTime || v.notAfter > maxTime || v.notAfter == 0 {
		d.fail()
	}
	return v, d.end()
}

// decodeStart returns a Start that shares no memory with payload.
func decodeStart(payload []byte) (*Start, error) {
	v, err := viewStart(payload)
	if err != nil {
		return nil, err
	}
	d := new(decoder)
	s := &Start{
		At: time.UnixMilli(int64(v.at)).UTC(), Digest: [32]byte(v.digest), Lease: [16]byte(v.lease),
		LeaseNotAfter: time.UnixMilli(int64(v.notAfter)).UTC(),
		Frozen:        slices.Clone(v.frozen), Identity: slices.Clone(v.identity), Audit: slices.Clone(v.aud),
	}
	s.Issuer, s.Holder = d.peerFrom(v.issuer), d.peerFrom(v.holder)
	s.Invocation = checked(d, name.ParseInvocationID, v.invocation)
	s.Operation = checked(d, name.ParseOperationID, v.operation)
	s.Connector = checked(d, name.ParseConnectorKey, v.connector)
	s.Version = checked(d, name.ParseVersion, v.version)
	s.Command = checked(d, name.ParseCommand, v.command)
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

func checked[T any](d *decoder, parse func(string) (T, error), b []byte) T {
	v, err := parse(string(b))
	if err != nil {
		d.fail()
	}
	return v
}

const (
	flagCore   = 1
	flagForced = 2
)

func (e *End) encode(of uint64) []byte {
	enc := &encoder{b: make([]byte, 0, 128)}
	enc.byte(map[State]byte{StateEnded: kindEnd, StateNotStarted: kindNotStarted, StateUnknown: kindUnknown}[e.State])
	enc.time(e.At)
	enc.uint(of)
	enc.string(e.Cause)
	enc.byte(byte(e.Status))
	enc.string(e.Signal)
	var flags byte
	if e.Core {
		flags |= flagCore
	}
	if e.Forced {
		flags |= flagForced
	}
	enc.byte(flags)
	enc.uint(e.Stdin)
	enc.uint(e.Stdout)
	enc.uint(e.Stderr)
	enc.uint(uint64(e.Duration))
	enc.string(e.Detail)
	return enc.b
}

func decodeEnd(payload []byte) (e *End, of uint64, err error) {
	d := &decoder{b: payload}
	e = new(End)
	switch d.byte() {
	case kindEnd:
		e.State = StateEnded
	case kindNotStarted:
		e.State = StateNotStarted
	case kindUnknown:
		e.State = StateUnknown
	default:
		d.fail()
	}
	e.At, of = d.time(), d.uint()
	e.Cause, e.Status, e.Signal = d.text(MaxCause), int(d.byte()), d.text(MaxCause)
	flags := d.byte()
	e.Core, e.Forced = flags&flagCore != 0, flags&flagForced != 0
	e.Stdin, e.Stdout, e.Stderr = d.uint(), d.uint(), d.uint()
	duration := d.uint()
	e.Duration, e.Detail = time.Duration(duration&math.MaxInt64), d.text(MaxDetail)
	if flags > flagCore|flagForced || duration > math.MaxInt64 {
		d.fail()
	}
	if err := d.end(); err != nil {
		return nil, 0, err
	}
	return e, of, nil
}

func encodeRefusal(r Refusal, now time.Time) []byte {
	if r.At.IsZero() {
		r.At = now
	}
	if r.Since.IsZero() {
		r.Since = r.At
	}
	e := &encoder{b: make([]byte, 0, 256)}
	e.byte(kindRefusal)
	e.time(r.At)
	e.time(r.Since)
	e.uint(max(r.Count, 1))
	e.string(clip(r.Reason, MaxCause))
	e.peer(r.Peer)
	e.peer(r.Issuer)
	e.string(r.Invocation.String())
	e.string(r.Operation.String())
	e.raw(r.Lease[:])
	e.string(r.Connector.String())
	e.string(r.Version.String())
	e.string(r.Command.String())
	e.string(clip(r.Detail, MaxDetail))
	return e.b
}

func decodeRefusal(payload []byte) (*Refusal, error) {
	d := &decoder{b: payload}
	if d.byte() != kindRefusal {
		d.fail()
	}
	r := &Refusal{At: d.time(), Since: d.time(), Count: d.uint(), Reason: d.text(MaxCause), Peer: d.peer(), Issuer: d.peer()}
	r.Invocation = named(d, name.ParseInvocationID, name.MaxInvocationID, true)
	r.Operation = named(d, name.ParseOperationID, name.MaxOperationID, true)
	r.Lease = [16]byte(d.raw(16))
	r.Connector = named(d, name.ParseConnectorKey, name.MaxConnectorKey, true)
	r.Version = named(d, name.ParseVersion, name.MaxVersion, true)
	r.Command = named(d, name.ParseCommand, name.MaxCommand, true)
	r.Detail = d.text(MaxDetail)
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

func encodeEvent(ev Event, now time.Time) []byte {
	if ev.At.IsZero() {
		ev.At = now
	}
	e := &encoder{b: make([]byte, 0, 256)}
	e.byte(kindEvent)
	e.time(ev.At)
	e.string(clip(ev.Name, MaxCause))
	keys := make(map[string]string, len(ev.Facts))
	for k, v := range ev.Facts {
		keys[clip(k, MaxCause)] = clip(v, MaxDetail)
	}
	sorted := slices.Sorted(maps.Keys(keys))
	sorted = sorted[:min(len(sorted), MaxFacts)]
	e.uint(uint64(len(sorted)))
	for _, k := range sorted {
		e.string(k)
		e.string(keys[k])
	}
	return e.b
}

func decodeEvent(payload []byte) (*Event, error) {
	d := &decoder{b: payload}
	if d.byte() != kindEvent {
		d.fail()
	}
	ev := &Event{At: d.time(), Name: d.text(MaxCause)}
	n := d.uint()
	if n > MaxFacts {
		d.fail()
		n = 0
	}
	last := ""
	for i := range n {
		k, v := d.text(MaxCause), d.text(MaxDetail)
		if i > 0 && k <= last {
			d.fail()
		}
		if ev.Facts == nil {
			ev.Facts = make(map[string]string, n)
		}
		ev.Facts[k], last = v, k
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return ev, nil
}

// decodeEntry decodes any record, for Walk.
func decodeEntry(index uint64, payload []byte) (Entry, error) {
	en := Entry{Index: index}
	var err error
	if len(payload) == 0 {
		return en, errMalformed
	}
	switch payload[0] {
	case kindSegment:
		_, err = decodeSegment(payload)
		d := &decoder{b: payload[1:]}
		en.At = d.time()
	case kindStart:
		if en.Start, err = decodeStart(payload); err == nil {
			en.At = en.Start.At
		}
	case kindEnd, kindNotStarted, kindUnknown:
		if en.End, en.Of, err = decodeEnd(payload); err == nil {
			en.At = en.End.At
		}
	case kindRefusal:
		if en.Refusal, err = decodeRefusal(payload); err == nil {
			en.At = en.Refusal.At
		}
	case kindEvent:
		if en.Event, err = decodeEvent(payload); err == nil {
			en.At = en.Event.At
		}
	default:
		err = fmt.Errorf("%w: unknown kind %d", errMalformed, payload[0])
	}
	return en, err
}
