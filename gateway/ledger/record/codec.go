package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// The kinds of a record: its first byte. New kinds and new layouts get new
// numbers; a reader refuses what it does not know. spec: LEDGER-6.
const (
	KindSegment    = 1
	KindStart      = 2
	KindEnd        = 3
	KindNotStarted = 4
	KindUnknown    = 5
	KindRefusal    = 6
	KindEvent      = 7
	KindContinued  = 8
	KindDelegated  = 9 // a start under a lease that was passed on
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

// Encode writes the record; Check was nil.
func (s *Start) Encode() []byte {
	e := &encoder{b: make([]byte, 0, 512+len(s.Frozen)+len(s.Identity)+len(s.Audit))}
	kind := byte(KindStart)
	if len(s.Above) > 0 {
		kind = KindDelegated
	}
	e.byte(kind)
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
	if len(s.Above) > 0 {
		e.uint(uint64(len(s.Above)))
	}
	for _, o := range s.Above {
		e.raw(o.Lease[:])
		e.fixedPeer(o.Holder)
	}
	return e.b
}

// StartView is what the views need of a Start: slices of the record, so that a
// million of them can be read without an allocation.
type StartView struct {
	Issuer, Holder, Digest, Lease []byte // raw keys and digests
	Invocation, Operation         []byte
	HasFrozen                     bool

	above                       []byte // links of 16 and 32 bytes
	at, notAfter                uint64
	connector, version, command []byte
	identity, audit, frozen     []byte
}

// ViewStart reads a Start without checking its names.
func ViewStart(payload []byte) (StartView, error) {
	d := &decoder{b: payload}
	kind := d.byte()
	if kind != KindStart && kind != KindDelegated {
		d.fail()
	}
	v := StartView{at: d.uint()}
	v.Issuer, v.Holder, v.Digest, v.Lease = d.raw(32), d.raw(32), d.raw(32), d.raw(16)
	v.Invocation, v.Operation = d.bytes(name.MaxInvocationID), d.bytes(name.MaxOperationID)
	v.notAfter = d.uint()
	v.connector, v.version, v.command = d.bytes(name.MaxConnectorKey), d.bytes(name.MaxVersion), d.bytes(name.MaxCommand)
	v.identity, v.audit, v.frozen = d.bytes(MaxIdentity), d.bytes(MaxAudit), d.bytes(MaxFrozen)
	v.HasFrozen = len(v.frozen) > 0
	if kind == KindDelegated {
		n := d.uint()
		if n < 1 || n > MaxAbove {
			d.fail()
			n = 0
		}
		v.above = d.raw(int(n) * linkSize)
	}
	if v.at > maxTime || v.notAfter > maxTime || v.notAfter == 0 {
		d.fail()
	}
	return v, d.end()
}

// NotAfter is the end of the lease that the operation was started under.
func (v *StartView) NotAfter() time.Time { return time.UnixMilli(int64(v.notAfter)).UTC() }

// Counted are the leases that the start counts against, root first, each with its
// own issuer: raw keys and IDs.
func (v *StartView) Counted() iter.Seq2[[]byte, []byte] {
	return func(yield func(issuer, lease []byte) bool) {
		issuer := v.Issuer
		for link := range slices.Chunk(v.above, linkSize) {
			if !yield(issuer, link[:16]) {
				return
			}
			issuer = link[16:]
		}
		yield(issuer, v.Lease)
	}
}

const linkSize = 16 + 32

// DecodeStart returns a Start that shares no memory with payload.
func DecodeStart(payload []byte) (*Start, error) {
	v, err := ViewStart(payload)
	if err != nil {
		return nil, err
	}
	d := new(decoder)
	s := &Start{
		At: time.UnixMilli(int64(v.at)).UTC(), Digest: [32]byte(v.Digest), Lease: [16]byte(v.Lease),
		LeaseNotAfter: time.UnixMilli(int64(v.notAfter)).UTC(),
		Frozen:        slices.Clone(v.frozen), Identity: slices.Clone(v.identity), Audit: slices.Clone(v.audit),
	}
	s.Issuer, s.Holder = d.peerFrom(v.Issuer), d.peerFrom(v.Holder)
	for link := range slices.Chunk(v.above, linkSize) {
		s.Above = append(s.Above, Link{[16]byte(link), d.peerFrom(link[16:])})
	}
	s.Invocation = checked(d, name.ParseInvocationID, v.Invocation)
	s.Operation = checked(d, name.ParseOperationID, v.Operation)
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

// Encode writes the record for the Start with index of; Check was nil.
func (e *End) Encode(of uint64) []byte {
	enc := &encoder{b: make([]byte, 0, 128)}
	enc.byte(map[State]byte{StateEnded: KindEnd, StateNotStarted: KindNotStarted, StateUnknown: KindUnknown}[e.State])
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

// DecodeEnd returns an End and the index of its Start.
func DecodeEnd(payload []byte) (e *End, of uint64, err error) {
	d := &decoder{b: payload}
	e = new(End)
	switch d.byte() {
	case KindEnd:
		e.State = StateEnded
	case KindNotStarted:
		e.State = StateNotStarted
	case KindUnknown:
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

// Encode writes the record; it cuts text that is too long.
func (r Refusal) Encode(now time.Time) []byte {
	if r.At.IsZero() {
		r.At = now
	}
	if r.Since.IsZero() {
		r.Since = r.At
	}
	e := &encoder{b: make([]byte, 0, 256)}
	e.byte(KindRefusal)
	e.time(r.At)
	e.time(r.Since)
	e.uint(max(r.Count, 1))
	e.string(Clip(r.Reason, MaxCause))
	e.peer(r.Peer)
	e.peer(r.Issuer)
	e.string(r.Invocation.String())
	e.string(r.Operation.String())
	e.raw(r.Lease[:])
	e.string(r.Connector.String())
	e.string(r.Version.String())
	e.string(r.Command.String())
	e.string(Clip(r.Detail, MaxDetail))
	return e.b
}

func decodeRefusal(payload []byte) (*Refusal, error) {
	d := &decoder{b: payload}
	if d.byte() != KindRefusal {
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
	if r.Count == 0 { // Encode writes at least 1
		d.fail()
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// Encode writes the record; it cuts text that is too long, and drops facts above
// MaxFacts.
func (ev Event) Encode(now time.Time) []byte {
	if ev.At.IsZero() {
		ev.At = now
	}
	e := &encoder{b: make([]byte, 0, 256)}
	e.byte(KindEvent)
	e.time(ev.At)
	e.string(Clip(ev.Name, MaxCause))
	keys := make(map[string]string, len(ev.Facts))
	for k, v := range ev.Facts {
		keys[Clip(k, MaxCause)] = Clip(v, MaxDetail)
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
	if d.byte() != KindEvent {
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

// Decode reads any record, strictly.
func Decode(index uint64, payload []byte) (Entry, error) {
	en := Entry{Index: index}
	var err error
	if len(payload) == 0 {
		return en, errMalformed
	}
	switch payload[0] {
	case KindSegment, KindContinued:
		_, err = DecodeSegment(payload)
		en.At = Time(payload)
	case KindStart, KindDelegated:
		if en.Start, err = DecodeStart(payload); err == nil {
			en.At = en.Start.At
		}
	case KindEnd, KindNotStarted, KindUnknown:
		if en.End, en.Of, err = DecodeEnd(payload); err == nil {
			en.At = en.End.At
		}
	case KindRefusal:
		if en.Refusal, err = decodeRefusal(payload); err == nil {
			en.At = en.Refusal.At
		}
	case KindEvent:
		if en.Event, err = decodeEvent(payload); err == nil {
			en.At = en.Event.At
		}
	default:
		err = fmt.Errorf("%w: unknown kind %d", errMalformed, payload[0])
	}
	return en, err
}

// Time is when a record says that it was written; it does not look at the rest.
func Time(payload []byte) time.Time {
	if len(payload) == 0 {
		return time.Time{}
	}
	return (&decoder{b: payload[1:]}).time()
}

// EndOf is the index of the Start that an end belongs to; false if the record is
// cut. It does not look at the rest.
func EndOf(payload []byte) (of uint64, ok bool) {
	d := &decoder{b: payload}
	d.byte()
	d.uint()
	of = d.uint()
	return of, d.err == nil
}
