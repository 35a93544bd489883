package audit

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// The version of the JSON forms of this package, and bounds.
const (
	SchemaVersion  = 1       // changes add fields only
	MaxNewest      = 100_000 // records that Newest returns
	MaxCheckpoints = 1000    // that Verify takes
)

// Kind is what a record is about.
type Kind string

// The kinds.
const (
	KindSegment Kind = "segment" // a file of the ledger begins
	KindStart   Kind = "start"   // an operation was admitted; written before its process
	KindEnd     Kind = "end"     // the one end of an operation
	KindRefusal Kind = "refusal" // one refusal, or the sum of several of one kind
	KindEvent   Kind = "event"   // anything else: a policy, a revocation, a degraded mode
)

// kinds are all of them.
func kinds() []Kind { return []Kind{KindSegment, KindStart, KindEnd, KindRefusal, KindEvent} }

// Record is one record of the ledger. Absent fields do not belong to its kind, were
// not known, or are of a start that was pruned. All text is printable ASCII.
type Record struct {
	SchemaVersion int       `json:"schemaVersion"`
	Index         uint64    `json:"index"`
	At            time.Time `json:"at"`
	Kind          Kind      `json:"kind"`

	// Of starts, their ends, and refusals.
	Operation  string `json:"operation,omitempty"`
	Peer       string `json:"peer,omitempty"`
	PeerName   string `json:"peerName,omitempty"` // the policy's of now
	Issuer     string `json:"issuer,omitempty"`
	Invocation string `json:"invocation,omitempty"`
	Lease      string `json:"lease,omitempty"`
	Connector  string `json:"connector,omitempty"`
	Version    string `json:"version,omitempty"`
	Command    string `json:"command,omitempty"`

	// Of starts. Arguments and Variables are there only if the rule says
	// record_arguments.
	LeaseNotAfter *time.Time        `json:"leaseNotAfter,omitempty"` // of the root, if it was passed on
	PassedOn      []passedOn        `json:"passedOn,omitempty"`      // the leases above Lease, root first
	Rule          string            `json:"rule,omitempty"`
	Policy        string            `json:"policy,omitempty"` // digest of the file
	Workspace     string            `json:"workspace,omitempty"`
	Purpose       string            `json:"purpose,omitempty"` // as the issuer wrote it
	Arguments     []string          `json:"arguments,omitempty"`
	Variables     map[string]string `json:"variables,omitempty"`

	// Of ends. State is "ended", "not-started" or "unknown".
	Start      *uint64 `json:"start,omitempty"` // index of its start
	State      string  `json:"state,omitempty"`
	Status     *int    `json:"status,omitempty"`
	Signal     string  `json:"signal,omitempty"`
	Forced     bool    `json:"forced,omitempty"`
	DurationMS *int64  `json:"durationMs,omitempty"`
	Stdin      *uint64 `json:"stdin,omitempty"`
	Stdout     *uint64 `json:"stdout,omitempty"`
	Stderr     *uint64 `json:"stderr,omitempty"`

	// Of ends and refusals. Code is "OK" for a command that ended by itself.
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`

	// Of refusals: how many, and since when.
	Count uint64     `json:"count,omitempty"`
	Since *time.Time `json:"since,omitempty"`

	// Of events.
	Event string            `json:"event,omitempty"`
	Facts map[string]string `json:"facts,omitempty"`
}

// passedOn is a lease that its holder passed on.
type passedOn struct {
	Lease  string `json:"lease"`
	Holder string `json:"holder"`
}

// subject is what a start says, and its end is about.
type subject struct {
	operation, invocation, holder, issuer, lease, connector, version, command string
}

func (s *subject) fill(r *Record, names map[string]string) {
	if s == nil {
		return
	}
	r.Operation, r.Invocation, r.Peer, r.Issuer, r.Lease = s.operation, s.invocation, s.holder, s.issuer, s.lease
	r.Connector, r.Version, r.Command, r.PeerName = s.connector, s.version, s.command, names[s.holder]
}

func subjectOf(s *record.Start) *subject {
	return &subject{
		s.Operation.String(), s.Invocation.String(), s.Holder.String(), s.Issuer.String(), hex.EncodeToString(s.Lease[:]),
		s.Connector.String(), s.Version.String(), s.Command.String(),
	}
}

func (r *Record) start(s *record.Start) {
	r.Kind = KindStart
	until := s.LeaseNotAfter
	r.LeaseNotAfter = &until
	for _, o := range s.Above {
		r.PassedOn = append(r.PassedOn, passedOn{hex.EncodeToString(o.Lease[:]), o.Holder.String()})
	}
	var n Noted
	if json.Unmarshal(s.Audit, &n) != nil {
		return
	}
	r.Rule, r.Policy, r.Workspace, r.Purpose = shown(n.Rule), shown(n.Policy), shown(n.Workspace), shown(n.Purpose)
	for _, a := range n.Arguments {
		r.Arguments = append(r.Arguments, escaped(a))
	}
	r.Variables = shownFacts(n.Variables)
}

func (r *Record) end(e *record.End, of uint64) {
	r.Kind, r.Start, r.State = KindEnd, &of, e.State.String()
	r.Code, r.Signal, r.Forced, r.Detail = shown(e.Cause), shown(e.Signal), e.Forced, shown(e.Detail)
	if e.State == record.StateUnknown {
		r.Code = protocol.CodeOutcomeUnknown.String()
		return
	}
	ms := e.Duration.Milliseconds()
	r.DurationMS, r.Stdin, r.Stdout, r.Stderr = &ms, &e.Stdin, &e.Stdout, &e.Stderr
	if e.State != record.StateEnded {
		return
	}
	if r.Code == "" {
		r.Code = protocol.CodeOK.String()
	}
	if e.Signal == "" {
		r.Status = &e.Status
	}
}

func (r *Record) refusal(f *record.Refusal, names map[string]string) {
	r.Kind, r.Code, r.Count, r.Detail = KindRefusal, shown(f.Reason), f.Count, shown(f.Detail)
	if f.Since.Before(f.At) {
		since := f.Since
		r.Since = &since
	}
	r.Peer, r.Issuer, r.Operation, r.Invocation = f.Peer.String(), f.Issuer.String(), f.Operation.String(), f.Invocation.String()
	r.Connector, r.Version, r.Command, r.PeerName = f.Connector.String(), f.Version.String(), f.Command.String(), names[r.Peer]
	if f.Lease != ([16]byte{}) {
		r.Lease = hex.EncodeToString(f.Lease[:])
	}
}

// shown makes text of the files harmless. What the gateway had quoted is shown as
// it was, if that is printable ASCII.
func shown(s string) string {
	whole, cut := strings.CutSuffix(s, "…")
	plain, err := strconv.Unquote(whole)
	if err != nil || !strings.HasPrefix(s, `"`) {
		return escaped(s)
	}
	if plain = escaped(plain); cut {
		plain += "..."
	}
	return plain
}

// escaped returns s if it is printable ASCII, and else as a Go string literal. It is
// not cut: the files bound it.
func escaped(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

func shownFacts(facts map[string]string) map[string]string {
	if len(facts) == 0 {
		return nil
	}
	out := make(map[string]string, len(facts))
	for k, v := range facts {
		out[shown(k)] = shown(v)
	}
	return out
}

// namesOf turns the policy's names round.
func namesOf(peers map[name.Label]name.PeerID) map[string]string {
	out := make(map[string]string, len(peers))
	for label, id := range peers {
		if old, ok := out[id.String()]; !ok || label.String() < old {
			out[id.String()] = label.String()
		}
	}
	return out
}

// Summary says in one line what the record adds to its subject.
func (r *Record) Summary() string {
	switch r.Kind {
	case KindStart:
		s := "rule " + r.Rule
		if r.Workspace != "" {
			s += ", workspace " + r.Workspace
		}
		if len(r.Arguments) > 0 {
			s += ": " + strings.Join(r.Arguments, " ")
		}
		return s
	case KindEnd:
		return r.endSummary()
	case KindRefusal:
		s := r.Code
		if r.Count > 1 {
			s += fmt.Sprintf(" %d times", r.Count)
		}
		if r.Since != nil {
			s += " in " + r.At.Sub(*r.Since).Round(time.Second).String()
		}
		return withDetail(s, r.Detail)
	case KindEvent:
		s := r.Event
		for _, k := range slices.Sorted(maps.Keys(r.Facts)) {
			s += " " + k + "=" + r.Facts[k]
		}
		return s
	case KindSegment:
		return "a file of the ledger begins"
	}
	return ""
}

func (r *Record) endSummary() string {
	s := r.Code
	switch {
	case r.State == record.StateUnknown.String():
		return "the gateway died meanwhile"
	case r.Status != nil && r.Code == protocol.CodeOK.String():
		s = "status " + strconv.Itoa(*r.Status)
	case r.Signal != "" && r.Code == protocol.CodeOK.String():
		s = r.Signal
	}
	if r.DurationMS != nil && r.Stdout != nil && r.State == record.StateEnded.String() {
		s += ", " + (time.Duration(*r.DurationMS) * time.Millisecond).String() + ", " + counted(*r.Stdout+*r.Stderr, "byte") + " out"
	}
	return withDetail(s, r.Detail)
}

func counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatUint(n, 10) + " " + noun + "s"
}

func withDetail(s, detail string) string {
	if detail == "" {
		return s
	}
	return s + ": " + detail
}
