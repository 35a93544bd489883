package surface

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// MaxSize bounds a marshalled surface, in bytes.
const MaxSize = 1 << 20

// Why a rule's command cannot be joined with a contract.
var (
	ErrTwice     = errors.New("the Connector's manifest declares commands: the policy may not")
	ErrUndefined = errors.New("neither the Connector's manifest nor the policy declares the command")
)

// Target names one command of one version of a Connector.
type Target struct {
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
}

// Surface is the public surface of one command under one rule: fixed arguments,
// parameters with all schemas that bind them, limits, and the contract hash. It is
// immutable and safe for concurrent use.
type Surface struct {
	form    form
	command argv.Command
	grammar *argv.Grammar
}

// Base returns a command as the manifest, or else the file, declares it. The error
// is ErrTwice or ErrUndefined.
func Base(f *file.File, key name.ConnectorKey, n name.Command, contract argv.Contract) (argv.Command, error) {
	declared := f.Declared[key]
	if len(contract.Commands) > 0 {
		if len(declared) > 0 {
			return argv.Command{}, ErrTwice
		}
		if c, ok := contract.Lookup(n); ok {
			return c, nil
		}
		return argv.Command{}, ErrUndefined
	}
	if d := declared[n]; d != nil {
		return d.Command, nil
	}
	return argv.Command{}, ErrUndefined
}

// Narrowed returns the command that a grant names, as narrow as the rule has it.
// The error is that of Base, or joins *argv.DeclarationError values.
func Narrowed(f *file.File, r *file.Rule, g *file.Grant, contract argv.Contract) (argv.Command, error) {
	c, err := Base(f, r.Connector, g.Name, contract)
	if err != nil {
		return argv.Command{}, err
	}
	by := map[name.Parameter]argv.Narrowing{}
	for parameter, n := range g.Narrow {
		if by[parameter], err = n.Of(c, parameter); err != nil {
			return argv.Command{}, err
		}
	}
	return c.Narrow(by)
}

// Make returns the surface of one grant of a rule under a contract. The error is
// that of Narrowed or of argv.Command.Compile.
func Make(f *file.File, r *file.Rule, g *file.Grant, v name.Version, contract argv.Contract, hash string) (*Surface, error) {
	c, err := Narrowed(f, r, g, contract)
	if err != nil {
		return nil, err
	}
	grammar, err := c.Compile(contract)
	if err != nil {
		return nil, err
	}
	return &Surface{
		command: c,
		grammar: grammar,
		form: form{
			Surface: 1, Rule: r.Name, Connector: r.Connector, Version: v, Connection: r.Connection, Workspace: r.Workspace,
			Place:        place(f, r.Workspace),
			ContractHash: hash, CLI: contract.Command, Prefix: contract.Arguments, Environment: contract.Environment,
			Command: formOfCommand(c), Limits: formOfLimits(f.Operation(contract, c, r.Limits)),
		},
	}, nil
}

// Parse reads what Marshal wrote, strictly: unknown fields, other data
// after it, more than MaxSize bytes and a grammar that does not compile are
// errors.
func Parse(data []byte) (*Surface, error) {
	if len(data) > MaxSize {
		return nil, errors.New("read surface: too large")
	}
	s := &Surface{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.form); err != nil {
		return nil, fmt.Errorf("read surface: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read surface: data after it")
	}
	f := s.form
	if f.Surface != 1 || f.Connector.IsZero() || f.Version.IsZero() || f.Command.Name.IsZero() || f.ContractHash == "" || !f.Limits.valid() {
		return nil, errors.New("read surface: not a surface of version 1")
	}
	s.command = f.Command.command()
	grammar, err := s.command.Compile(f.contract())
	if err != nil {
		return nil, fmt.Errorf("read surface: %w", err)
	}
	s.grammar = grammar
	if again := s.Marshal(); !bytes.Equal(again, data) {
		return nil, errors.New("read surface: not in canonical form")
	}
	return s, nil
}

// Marshal returns the surface as canonical JSON (RFC 8785), nil for one that was
// not made by this package.
func (s *Surface) Marshal() []byte {
	b, err := argv.CanonicalJSON(s.form)
	if err != nil {
		return nil
	}
	return b
}

// Target returns the command that the surface is of.
func (s *Surface) Target() Target {
	return Target{s.form.Connector, s.form.Version, s.form.Command.Name}
}

// Rule returns the name of the rule that the surface comes from.
func (s *Surface) Rule() string { return s.form.Rule }

// Connection returns that of the rule, zero for "the only one".
func (s *Surface) Connection() name.ConnectionID { return s.form.Connection }

// Workspace returns that of the rule, zero for none.
func (s *Surface) Workspace() name.Label { return s.form.Workspace }

// Place names the directory of the workspace without telling it: the SHA-256 of its
// path in lower-case hexadecimal digits. It is empty without a workspace, and in
// surfaces that were kept before there was one.
func (s *Surface) Place() string { return s.form.Place }

func place(f *file.File, workspace name.Label) string {
	for _, w := range f.Workspaces {
		if w.Name == workspace {
			sum := sha256.Sum256([]byte(w.Path))
			return hex.EncodeToString(sum[:])
		}
	}
	return ""
}

// SameStart tells whether the same call under both would start the same thing: the
// same contract, connection, workspace and fixed arguments. Which calls both accept is
// not looked at.
func (s *Surface) SameStart(o *Surface) bool {
	a, b := s.form, o.form
	return s.Target() == o.Target() && a.ContractHash == b.ContractHash && a.Connection == b.Connection &&
		a.Workspace == b.Workspace && a.Place == b.Place && a.CLI == b.CLI && slices.Equal(a.Prefix, b.Prefix) &&
		slices.Equal(a.Environment, b.Environment) && slices.Equal(a.Command.Arguments, b.Command.Arguments)
}

// ContractHash returns that of the contract which the surface was made from.
func (s *Surface) ContractHash() string { return s.form.ContractHash }

// Command returns the narrowed command. The caller must not change it.
func (s *Surface) Command() argv.Command { return s.command }

// Limits returns those of one operation.
func (s *Surface) Limits() file.Limits { return s.form.Limits.limits() }

// Accepts parses arguments by the surface's grammar and bounds. The error is an
// *argv.Error, and the Call is zero with it.
func (s *Surface) Accepts(args []string) (argv.Call, error) {
	if s == nil || s.grammar == nil {
		return argv.Call{}, &argv.Error{Kind: argv.FaultValue, Index: -1, Rule: "there is no grammar"}
	}
	call, err := s.grammar.Parse(args)
	if err != nil {
		return argv.Call{}, err
	}
	if len(call.Paths) > 0 && s.form.Workspace.IsZero() {
		return argv.Call{}, &argv.Error{Kind: argv.FaultPath, Index: -1, Rule: "the rule binds no workspace"}
	}
	total := 0
	for _, a := range call.Arguments {
		total += len(a) + 1
	}
	switch l := s.form.Limits; {
	case len(call.Arguments) > l.Arguments:
		return argv.Call{}, &argv.Error{Kind: argv.FaultTooMany, Index: -1, Rule: fmt.Sprintf("at most %d", l.Arguments)}
	case total > l.ArgumentBytes:
		return argv.Call{}, &argv.Error{Kind: argv.FaultTooLarge, Index: -1, Rule: fmt.Sprintf("at most %d bytes together", l.ArgumentBytes)}
	}
	if call.Stdin != nil {
		in := *call.Stdin
		in.MaxBytes = s.form.Limits.Stdin
		call.Stdin = &in
	}
	return call, nil
}

// InputSchema returns the JSON Schema of the command's input for agents, narrowed
// by a lease's pins. An error means that the pins leave nothing to run.
func (s *Surface) InputSchema(pins map[name.Parameter][]string) (json.RawMessage, error) {
	if len(pins) == 0 {
		return s.grammar.InputSchema(), nil
	}
	by := map[name.Parameter]argv.Narrowing{}
	for parameter, values := range pins {
		by[parameter] = argv.Narrowing{Schema: &argv.Schema{Enum: values}, Required: true}
	}
	c, err := s.command.Narrow(by)
	if err != nil {
		return nil, fmt.Errorf("pin parameters: %w", err)
	}
	for _, q := range s.command.Parameters {
		if values, ok := pins[q.Name]; ok && !slices.ContainsFunc(values, func(v string) bool { return listed(q.Schemas, v) }) {
			return nil, fmt.Errorf("pin parameters: %s accepts none of the pinned values", q.Name)
		}
	}
	g, err := c.Compile(s.form.contract())
	if err != nil {
		return nil, fmt.Errorf("pin parameters: %w", err)
	}
	return g.InputSchema(), nil
}

// listed tells whether every list of values among the schemas has v.
func listed(schemas []argv.Schema, v string) bool {
	for _, s := range schemas {
		if s.Enum != nil && !slices.Contains(s.Enum, v) || s.Const != nil && *s.Const != v {
			return false
		}
	}
	return true
}
