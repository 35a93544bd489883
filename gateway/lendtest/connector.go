package lendtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Connector is one whose commands are Go functions.
type Connector struct {
	// Key is the public key, such as "github"; Version "" means "1.0.0".
	Key, Version string
	Commands     []Command
}

// Command is one command of a Connector, declared with the words of a manifest.
type Command struct {
	// Name is the public name, such as "issue.list".
	Name string
	// Declaration says what the command takes, as a manifest does. Its fixed arguments
	// may be left out.
	argv.Declaration
	// Run is the process: it returns the exit status, 0 to 255. It has to return soon
	// after Context is done, as a process that was told to end. Needed.
	Run func(c *Call) int
}

// Call is one run of a Command.
type Call struct {
	// Context is done when the process is to end: cancelled, expired, revoked, too late.
	// If it is, the exit status does not count.
	Context context.Context //nolint:containedctx // a process is a lifetime
	// Arguments are the canonical ones, after the command's fixed arguments: what the
	// gateway made of the caller's.
	Arguments []string
	// Environment holds the parameters that go there.
	Environment []argv.Variable
	// Stdin is empty if the caller sends nothing.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

var (
	errNoRun  = errors.New("the command has no Run")
	errStatus = errors.New("an exit status is 0 to 255")
)

// functions fulfils gateway.Runtime with Connectors that are functions.
type functions struct {
	routes []route.Descriptor
	run    map[*route.Descriptor]map[string]program
}

type program struct {
	fixed int // arguments that the caller did not say
	run   func(c *Call) int
}

func newFunctions(connectors []Connector) (*functions, error) {
	f := &functions{run: map[*route.Descriptor]map[string]program{}, routes: make([]route.Descriptor, len(connectors))}
	for i, c := range connectors {
		programs, err := f.add(&f.routes[i], c)
		if err != nil {
			return nil, fmt.Errorf("connector %s: %w", name.Quote(c.Key), err)
		}
		f.run[&f.routes[i]] = programs
	}
	return f, nil
}

func (f *functions) add(d *route.Descriptor, c Connector) (map[string]program, error) {
	if c.Version == "" {
		c.Version = "1.0.0"
	}
	id := route.Identity{ReleaseDigest: strings.Repeat("0", 64), Generation: route.Generation{Epoch: "lendtest", Number: 1}}
	var err error
	if id.Connector, err = name.ParseConnectorKey(c.Key); err != nil {
		return nil, err
	}
	if id.Version, err = name.ParseVersion(c.Version); err != nil {
		return nil, err
	}
	if id.Connection, err = name.ParseConnectionID("main"); err != nil {
		return nil, err
	}
	contract := argv.Contract{Command: c.Key}
	programs := map[string]program{}
	for _, one := range c.Commands {
		command, err := one.command(&contract)
		if err != nil {
			return nil, fmt.Errorf("command %s: %w", name.Quote(one.Name), err)
		}
		contract.Commands = append(contract.Commands, command)
		programs[strings.Join(command.Arguments, "\x00")] = program{len(command.Arguments), one.Run}
	}
	semantics, err := argv.CanonicalJSON(contract.Semantics())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(semantics)
	id.ContractHash = "sha256:" + hex.EncodeToString(sum[:])
	*d = route.Descriptor{Identity: id, DisplayName: c.Key, Contract: contract}
	return programs, nil
}

// command declares c, with its public name as the one fixed argument: calls are told
// apart by it.
func (c *Command) command(contract *argv.Contract) (argv.Command, error) {
	if c.Run == nil {
		return argv.Command{}, errNoRun
	}
	n, err := name.ParseCommand(c.Name)
	if err != nil {
		return argv.Command{}, err
	}
	d := c.Declaration
	d.Arguments = []string{c.Name}
	for _, p := range d.Parameters {
		if p.Env != "" && !slices.Contains(contract.Environment, p.Env) {
			contract.Environment = append(contract.Environment, p.Env)
		}
	}
	return d.Command(n)
}

func (f *functions) grants() (out []lease.Grant) {
	for _, d := range f.routes {
		g := lease.Grant{Connector: d.Identity.Connector, Version: d.Identity.Version}
		for _, c := range d.Contract.Commands {
			g.Commands = append(g.Commands, c.Name)
		}
		out = append(out, g)
	}
	return out
}

// Resolve implements gateway.Runtime.
func (f *functions) Resolve(q route.Query) (route.Descriptor, error) {
	if d := f.find(q.Connector, q.Version); d != nil && (q.Connection.IsZero() || q.Connection == d.Identity.Connection) {
		return *d, nil
	}
	return route.Descriptor{}, route.ErrNotFound
}

func (f *functions) find(key name.ConnectorKey, version name.Version) *route.Descriptor {
	for i := range f.routes {
		if id := f.routes[i].Identity; id.Connector == key && id.Version == version {
			return &f.routes[i]
		}
	}
	return nil
}

// Start implements gateway.Runtime.
func (f *functions) Start(_ context.Context, r route.StartRequest) (route.Process, error) {
	d := f.find(r.Identity.Connector, r.Identity.Version)
	if d == nil || d.Identity != r.Identity {
		return nil, route.ErrIdentityMismatch
	}
	if len(r.Call.Arguments) == 0 {
		return nil, route.ErrInvalid
	}
	program, ok := f.run[d][r.Call.Arguments[0]]
	if !ok {
		return nil, route.ErrInvalid
	}
	return start(program, r), nil
}

// process is a function that runs.
type process struct {
	stdin          *io.PipeWriter // nil: none
	stdout, stderr *io.PipeReader
	inputs         []io.Closer // the function's ends
	stop           context.CancelFunc
	ended          chan struct{}

	mu   sync.Mutex // guards exit
	exit route.Exit
}

func start(p program, r route.StartRequest) *process {
	ctx, stop := context.WithCancel(context.Background())
	q := &process{stop: stop, ended: make(chan struct{})}
	call := &Call{Context: ctx, Arguments: r.Call.Arguments[p.fixed:], Environment: r.Call.Environment, Stdin: strings.NewReader("")}
	if r.Stdin {
		in, w := io.Pipe()
		q.stdin, call.Stdin = w, in
		q.inputs = append(q.inputs, in)
	}
	var out, errs *io.PipeWriter
	q.stdout, out = io.Pipe()
	q.stderr, errs = io.Pipe()
	call.Stdout, call.Stderr = out, errs
	q.inputs = append(q.inputs, out, errs)
	go q.run(ctx, p.run, call)
	return q
}

// run is the life of the process. A function that panics is one that crashed.
func (p *process) run(ctx context.Context, run func(*Call) int, call *Call) {
	defer close(p.ended)
	exit := route.Exit{Signal: "SIGSEGV"}
	defer func() {
		_ = recover() // the exit says so
		if ctx.Err() != nil {
			exit = route.Exit{Signal: "SIGTERM"}
		}
		p.mu.Lock()
		p.exit = exit
		p.mu.Unlock()
		for _, c := range p.inputs {
			_ = c.Close() // a pipe's Close does not fail
		}
	}()
	status := run(call)
	if status < 0 || status > 255 {
		panic(errStatus)
	}
	exit = route.Exit{Code: status}
}

func (p *process) Stdin() io.WriteCloser {
	if p.stdin == nil {
		return nil
	}
	return p.stdin
}

func (p *process) Stdout() io.ReadCloser { return p.stdout }
func (p *process) Stderr() io.ReadCloser { return p.stderr }

func (p *process) Wait(ctx context.Context) (route.Exit, error) {
	select {
	case <-p.ended:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.exit, nil
	case <-ctx.Done():
		return route.Exit{}, context.Cause(ctx)
	}
}

// Terminate ends the context.
func (p *process) Terminate() error {
	p.stop()
	return nil
}

// Kill also closes the function's pipes, in which it may wait.
func (p *process) Kill() error {
	p.stop()
	for _, c := range p.inputs {
		_ = c.Close() // a pipe's Close does not fail
	}
	return nil
}

// Close returns when the function has.
func (p *process) Close() error {
	_ = p.Kill() // it does not fail
	for _, c := range []io.Closer{p.stdout, p.stderr} {
		_ = c.Close() // likewise
	}
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	<-p.ended
	return nil
}
