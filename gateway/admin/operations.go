package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// ErrNoOperation says that no operation has such an ID.
var ErrNoOperation = errors.New("no such operation")

// ErrAmbiguous says that more than one operation matches; its text names some.
var ErrAmbiguous = errors.New("several operations match")

// The states of an Operation.
const (
	StatePending    = "pending"     // not decided yet
	StateRunning    = "running"     // no end yet
	StateEnded      = "ended"       // with a code, and a status if it ran to its end
	StateNotStarted = "not-started" // nothing ran, and nothing will under this ID
	StateUnknown    = "unknown"     // the gateway died meanwhile
)

// Operation is one operation that runs, is kept for its caller, or is recorded.
type Operation struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	Peer       string `json:"peer"`
	PeerName   string `json:"peerName,omitempty"` // the policy's
	Issuer     string `json:"issuer"`
	Invocation string `json:"invocation"`
	Lease      string `json:"lease"`
	Connector  string `json:"connector"`
	Version    string `json:"version"`
	Command    string `json:"command"`
	// Attached tells that a caller follows it; Kept that a caller can.
	Attached bool       `json:"attached"`
	Kept     bool       `json:"kept"`
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended,omitempty"`
	// Code is "OK" for a command that ended by itself; empty without an end.
	Code string `json:"code,omitempty"`
	// Status is the exit status of the process, if it was not ended by Signal.
	Status     *int   `json:"status,omitempty"`
	Signal     string `json:"signal,omitempty"`
	Forced     bool   `json:"forced,omitempty"`
	Detail     string `json:"detail,omitempty"`
	DurationMS int64  `json:"durationMs,omitempty"`
	Stdin      uint64 `json:"stdin"`
	Stdout     uint64 `json:"stdout"`
	Stderr     uint64 `json:"stderr"`
}

// Running tells whether there is something to cancel.
func (o *Operation) Running() bool { return o.State == StateRunning || o.State == StatePending }

// Operations are the operations of a gateway in the order of their starts. More
// tells that there are older ones.
type Operations struct {
	SchemaVersion int         `json:"schemaVersion"`
	Operations    []Operation `json:"operations"`
	More          bool        `json:"more,omitempty"`
}

// OperationShown is one operation. Cancelled is set in the answer to a cancel that
// found something to stop.
type OperationShown struct {
	SchemaVersion int       `json:"schemaVersion"`
	Operation     Operation `json:"operation"`
	Cancelled     bool      `json:"cancelled,omitempty"`
}

// Which names one operation: its ID or the only beginning of one. Peer (a name of
// the policy or a peer ID) and Invocation choose where that is not enough.
type Which struct{ ID, Peer, Invocation string }

func (q Which) matches(o *Operation) bool {
	return strings.HasPrefix(o.ID, q.ID) && (q.Invocation == "" || q.Invocation == o.Invocation) &&
		(q.Peer == "" || q.Peer == o.PeerName || q.Peer == o.Peer)
}

const maxNamed = 8 // operations in the text of ErrAmbiguous

// find chooses; a whole ID goes before those that only begin so.
func find(ops []Operation, q Which) (Operation, error) {
	var found, whole []Operation
	for i := range ops {
		if !q.matches(&ops[i]) {
			continue
		}
		found = append(found, ops[i])
		if ops[i].ID == q.ID {
			whole = append(whole, ops[i])
		}
	}
	if len(whole) > 0 {
		found = whole
	}
	switch len(found) {
	case 0:
		return Operation{}, fmt.Errorf("%w: %s", ErrNoOperation, name.Quote(q.ID))
	case 1:
		return found[0], nil
	}
	var named []string
	for _, o := range found[:min(len(found), maxNamed)] {
		named = append(named, fmt.Sprintf("%s of %s in invocation %s", o.ID, o.Peer, o.Invocation))
	}
	return Operation{}, fmt.Errorf("%w: %s", ErrAmbiguous, strings.Join(named, ", "))
}

// lookUp asks for what is recent first, then for the whole record.
func lookUp(ctx context.Context, b Backend, q Which) (Operation, error) {
	for _, all := range []bool{false, true} {
		ops, err := b.Operations(ctx, all)
		if err != nil {
			return Operation{}, err
		}
		o, err := find(ops.Operations, q)
		if err == nil || !errors.Is(err, ErrNoOperation) || all {
			return o, err
		}
	}
	return Operation{}, ErrNoOperation // not reached
}

func asked(r *http.Request) Which {
	v := r.URL.Query()
	return Which{ID: r.PathValue("id"), Peer: v.Get("peer"), Invocation: v.Get("invocation")}
}

func list(b Backend) request {
	return func(r *http.Request) (any, error) {
		return b.Operations(r.Context(), r.URL.Query().Get("all") == "true")
	}
}

func show(b Backend) request {
	return func(r *http.Request) (any, error) {
		o, err := lookUp(r.Context(), b, asked(r))
		return OperationShown{SchemaVersion: SchemaVersion, Operation: o}, err
	}
}

func cancel(b Backend) request {
	return func(r *http.Request) (any, error) {
		o, err := lookUp(r.Context(), b, asked(r))
		if err != nil {
			return nil, err
		}
		done, err := b.Cancel(r.Context(), o, r.URL.Query().Get("now") == "true")
		return OperationShown{SchemaVersion: SchemaVersion, Operation: o, Cancelled: done}, err
	}
}

// changes remembers what was told of operations.
type changes struct{ told map[string]Operation }

func (c *changes) of(ops []Operation) []Operation {
	told := make(map[string]Operation, len(ops))
	var out []Operation
	for _, o := range ops {
		k := strings.Join([]string{o.Issuer, o.Invocation, o.Peer, o.ID}, "/")
		told[k] = o
		if old, ok := c.told[k]; !ok || !same(&old, &o) {
			out = append(out, o)
		}
	}
	c.told = told
	return out
}

// same tells whether a watcher would see no difference.
func same(a, b *Operation) bool {
	return a.State == b.State && a.Attached == b.Attached && a.Kept == b.Kept &&
		slices.Equal([]uint64{a.Stdin, a.Stdout, a.Stderr}, []uint64{b.Stdin, b.Stdout, b.Stderr})
}
