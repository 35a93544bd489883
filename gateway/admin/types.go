package admin

import (
	"context"
	"time"
)

// SchemaVersion of the JSON forms of this package. Changes add fields only.
const SchemaVersion = 1

// Backend is what the socket shows and does. It is called from many goroutines.
type Backend interface {
	// Status is a snapshot of the gateway.
	Status(ctx context.Context) (Status, error)
	// Reconcile publishes what is installed now and retires what is not.
	Reconcile(ctx context.Context) (Reconciled, error)
	// Operations is what runs and what ended lately, with all what is recorded; in
	// the order of the starts.
	Operations(ctx context.Context, all bool) (Operations, error)
	// Cancel stops one of them, as the owner: now at once. It tells whether there
	// was something to stop, and does not wait for the end.
	Cancel(ctx context.Context, o Operation, now bool) (bool, error)
	// Checkpoint signs one of all that was recorded, and has it kept: Status has it
	// then, and where it is not kept.
	Checkpoint(ctx context.Context) error
}

// Status is a snapshot of a running gateway.
type Status struct {
	SchemaVersion int       `json:"schemaVersion"`
	PeerID        string    `json:"peerId"`
	Version       string    `json:"version"`
	ProcessID     int       `json:"processId"`
	Started       time.Time `json:"started"`
	Addresses     []string  `json:"addresses"`
	Policy        Policy    `json:"policy"`
	Ledger        Ledger    `json:"ledger"`
	Routes        []Route   `json:"routes"`
	// RoutesRevision grows with each change of the routes; ObservedRevision with each of
	// what was observed.
	RoutesRevision   uint64     `json:"routesRevision"`
	Observed         []Observed `json:"observed"`
	ObservedRevision uint64     `json:"observedRevision"`

	Peers       []Peer      `json:"peers"`
	Operations  []Operation `json:"operations"`
	Limits      []Limit     `json:"limits"`
	Revocations Revocations `json:"revocations"`
	Lockdown    *Lockdown   `json:"lockdown,omitempty"` // while there is one
	Warnings    []string    `json:"warnings,omitempty"`
	// Metrics is the URL where they are; empty for nowhere.
	Metrics string `json:"metrics,omitempty"`
}

// Policy says which policy holds.
type Policy struct {
	File   string    `json:"file"`
	Digest string    `json:"digest"`
	Loaded time.Time `json:"loaded"`
	// State is "in force", "last good" (the file is bad, this one stays) or "missing"
	// (no file: new work is denied); Problem says why, Since for how long.
	State   string    `json:"state"`
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since"`
}

// Ledger says how the record of operations is.
type Ledger struct {
	Records uint64 `json:"records"`
	// Checkpoint is the newest that was signed, Key the key that verifies it, and
	// CheckpointRecords how many records it covers.
	Checkpoint        string     `json:"checkpoint,omitempty"`
	CheckpointRecords uint64     `json:"checkpointRecords,omitempty"`
	CheckpointAt      *time.Time `json:"checkpointAt,omitempty"`
	Key               string     `json:"key,omitempty"`
	// Kept are the second places of checkpoints.
	Kept []Kept `json:"kept,omitempty"`
	// TornTail is how many bytes were cut off when it was opened, and Unknown how many
	// operations had lost their end.
	TornTail int64  `json:"tornTail,omitempty"`
	Unknown  int    `json:"unknown,omitempty"`
	Failed   string `json:"failed,omitempty"`
	// Full: its disk has no room, so that nothing starts until there is some.
	Full bool `json:"full,omitempty"`
}

// Kept says which checkpoint a second place has, and why not the newest.
type Kept struct {
	Where   string     `json:"where"`
	Records uint64     `json:"records,omitempty"`
	At      *time.Time `json:"at,omitempty"`
	Problem string     `json:"problem,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

// Route is one published route.
type Route struct {
	Connector  string `json:"connector"`
	Version    string `json:"version"`
	Connection string `json:"connection"`
	// Ready says that nothing is known to keep it from running; Reason, in words, what
	// does, or why it is not known.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Readiness is what its probe found: "ready", "not_ready" or "unknown", and
	// ReadinessReason why it is not ready.
	Readiness       string     `json:"readiness,omitempty"`
	ReadinessReason string     `json:"readinessReason,omitempty"`
	ProbedAt        *time.Time `json:"probedAt,omitempty"`
	// DisplayName and Aliases help to find the Connector.
	DisplayName string   `json:"displayName,omitempty"`
	Aliases     []string `json:"aliases,omitempty"`
}

// Observed is what is so of one release and connection on this machine: on the disk,
// as a route, and of what runs. It may have no connection yet.
type Observed struct {
	Connector  string `json:"connector"`
	Version    string `json:"version"`
	Connection string `json:"connection,omitempty"`
	// Installed is "present", "absent", "invalid" or "indeterminate", with its reason,
	// and Digest the release's on the disk.
	Installed       string `json:"installed"`
	InstalledReason string `json:"installedReason,omitempty"`
	Digest          string `json:"digest,omitempty"`
	// RouteDigest and Generation are of the current route, zero without one; Outdated
	// says that the disk has something else.
	RouteDigest string `json:"routeDigest,omitempty"`
	Generation  uint64 `json:"generation,omitempty"`
	Outdated    bool   `json:"outdated,omitempty"`
	// Starting and Running are of the current route, Leaving of those before it. Of
	// Leaving, Draining are those that end by themselves, since an update replaced what
	// they run.
	Starting int `json:"starting"`
	Running  int `json:"running"`
	Leaving  int `json:"leaving"`
	Draining int `json:"draining,omitempty"`
	// Reconciled is what the newest reconciliation made of it.
	Reconciled      string     `json:"reconciled,omitempty"`
	ReconcileFailed bool       `json:"reconcileFailed,omitempty"`
	ReconciledAt    *time.Time `json:"reconciledAt,omitempty"`
}

// Peer is one connected peer. Name is the policy's, empty for a stranger.
type Peer struct {
	Name       string `json:"name,omitempty"`
	PeerID     string `json:"peerId"`
	Address    string `json:"address"`
	Operations int    `json:"operations"`
}

// Limit is one bound in force, with its unit.
type Limit struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Reconciled says what a reconciliation did.
type Reconciled struct {
	SchemaVersion int      `json:"schemaVersion"`
	Published     []Route  `json:"published"`
	Retired       []Route  `json:"retired"`
	Left          []Route  `json:"left,omitempty"`     // retired, but something of them still runs; the next one tries again
	Draining      []Route  `json:"draining,omitempty"` // replaced by another version; what runs of them ends by itself
	Failed        []Route  `json:"failed,omitempty"`   // with the reason; Version is empty where it is all of a Connector
	Problems      []string `json:"problems,omitempty"`
	// Connectors has an outcome for each Connector that was looked at, by key. It is null
	// from a gateway of an earlier version, whose problems are of nobody knows whom.
	Connectors []Outcome `json:"connectors"`
}

// Outcome is what a reconciliation made of one Connector. All is as it is installed and
// wanted if nothing was left and nothing failed.
type Outcome struct {
	Connector string  `json:"connector"`
	Current   []Route `json:"current,omitempty"` // its routes from now on
	// Left are routes that are gone and of which something still runs, with the reason;
	// the next reconciliation tries again.
	Left []Route `json:"left,omitempty"`
	// Failed have no route, with the reason; Version, or Connection, is empty where it is
	// all of them.
	Failed []Route `json:"failed,omitempty"`
}
