package install

import (
	"context"
	"fmt"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/process"
)

// runnerOutput bounds what NewRunner keeps of each output, in bytes.
const runnerOutput = 4 << 20

// NewRunner returns a Runner that runs programs under t's supervisors, so that
// nothing that npm starts outlives it.
func NewRunner(t *process.Transport) Runner { return transportRunner{t} }

type transportRunner struct{ t *process.Transport }

// Run implements Runner.
func (r transportRunner) Run(ctx context.Context, c npm.Command) ([]byte, error) {
	res, err := r.t.Run(ctx, process.Spec{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir}, runnerOutput)
	out := append(res.Stdout, res.Stderr...)
	switch {
	case err != nil:
		return out, fmt.Errorf("run: %w", err)
	case res.Exit.Signal != "":
		return out, fmt.Errorf("run: ended by %s", res.Exit.Signal)
	case res.Exit.Code != 0:
		return out, fmt.Errorf("run: exit status %d", res.Exit.Code)
	}
	return out, nil
}
