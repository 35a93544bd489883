package protocol

import "time"

// Protocol IDs of the streams. They are compared literally: an incompatible
// change is a new ID. spec: ID-1
const (
	// RunID starts or attaches to one operation a stream.
	RunID = "/lend/run/1.0.0"
	// ControlID carries one request (cancel, status, revoke) and its reply.
	ControlID = "/lend/control/1.0.0"
	// CatalogID lists what a lease may run.
	CatalogID = "/lend/catalog/1.0.0"
)

// Bounds of the wire, in bytes unless they say otherwise. All are fixed in
// protocol 1.
const (
	// MaxData bounds the payload of a Data frame, so that the frame with its
	// header and the muxer's 12 bytes fit into one Noise record (65 519 bytes of
	// plaintext). spec: DATA-2
	MaxData = 65480
	// DataHeaderMax is the room that a data frame's header needs in front of the
	// payload: the two lengths, the offset and the tags.
	DataHeaderMax = 24
	// MaxStart bounds a Start or Attach, length prefix excluded. spec: FRAME-2
	MaxStart = 320 << 10
	// MaxFrame bounds all other frames but Data, requests and replies, length
	// prefix excluded. spec: FRAME-3
	MaxFrame = 16 << 10
	// MaxRequest bounds a request of the control and catalogue protocols.
	MaxRequest = 32 << 10
	// MaxCatalogEntry bounds one catalogue frame. spec: CATALOG-2
	MaxCatalogEntry = 96 << 10
	// MaxCatalogEntries bounds the entries of one catalogue. spec: CATALOG-2
	MaxCatalogEntries = 1024

	// MaxLease bounds one envelope of a chain; MaxChain counts its envelopes.
	MaxLease = 8 << 10
	MaxChain = 3
	// MaxArguments counts the arguments of a Start; MaxArgument bounds each, and
	// MaxArgumentBytes all of them together.
	MaxArguments     = 256
	MaxArgument      = 131071
	MaxArgumentBytes = 256 << 10
	// TokenSize is the length of an attach token.
	TokenSize = 16
	// MaxPublic bounds the public text of a refusal.
	MaxPublic = 1 << 10

	maxSummary  = 1 << 10
	maxSchema   = 64 << 10
	maxDuration = 400 * 24 * time.Hour
	// maxIgnored bounds the ignorable frames between two known ones.
	maxIgnored = 16
)

// Times and windows that both ends keep to. The deadlines themselves are set by
// whoever owns the stream: this package has no clock.
const (
	// StartTimeout bounds the time from an open stream to a complete first frame.
	StartTimeout = 10 * time.Second
	// ExitAckTimeout is how long a gateway waits for ExitAck. spec: END-4
	ExitAckTimeout = 5 * time.Second
	// MinWindow is the resend window at the start of a stream, in bytes a
	// direction; it doubles with each window that was acknowledged, up to
	// MaxWindow. spec: FLOW-3
	MinWindow = 1 << 20
	MaxWindow = 8 << 20
	// AckEvery is after how many unacknowledged bytes a receiver acknowledges at
	// the latest. spec: FLOW-2
	AckEvery = MinWindow / 4
)
