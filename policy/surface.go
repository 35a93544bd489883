package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// MaxSurface bounds a marshalled surface, in bytes.
const MaxSurface = 1 << 20

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
	form    surfaceForm
	command argv.Command
	grammar *argv.Grammar
}

// surfaceForm is what is kept. Descriptions are not in it. A field that is added
// later must be omitted while it is zero, so that kept surfaces stay what they are.
type surfaceForm struct {
	Surface      int               `json:"surface"` // 1
	Rule         string            `json:"rule"`
	Connector    name.ConnectorKey `json:"connector"`
	Version      name.Version      `json:"version"`
	Connection   name.ConnectionID `json:"connection,omitzero"`
	Workspace    name.Label        `json:"workspace,omitzero"`
	ContractHash string            `json:"contract_hash"`
	CLI          string            `json:"cli"`                   // the contract's public command
	Prefix       []string          `json:"prefix,omitempty"`      // the contract's fixed arguments
	Environment  []string          `json:"environment,omitempty"` // the contract's
	Command      commandForm       `json:"command"`
	Limits       limitsForm        `json:"limits"`
}

type commandForm struct {
	Name         name.Command    `json:"name"`
	Effect       argv.Effect     `json:"effect"`
	Arguments    []string        `json:"arguments,omitempty"`
	Parameters   []parameterForm `json:"parameters,omitempty"`
	Rest         *argv.Rest      `json:"rest,omitempty"`
	EndOfOptions bool            `json:"end_of_options,omitempty"`
}

type parameterForm struct {
	Name     name.Parameter `json:"name"`
	Required bool           `json:"required,omitempty"`
	Secret   bool           `json:"secret,omitempty"`
	List     *listForm      `json:"list,omitempty"`
	Schemas  []schemaForm   `json:"schemas"`
	Flag     *flagForm      `json:"flag,omitempty"`
	Position int            `json:"position,omitempty"`
	Stdin    *argv.Stdin    `json:"stdin,omitempty"`
	Variable string         `json:"variable,omitempty"`
}

type listForm struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

type flagForm struct {
	Name      string      `json:"name"`
	Aliases   []string    `json:"aliases,omitempty"`
	Render    argv.Render `json:"render,omitempty"`
	Repeat    bool        `json:"repeat,omitempty"`
	Separator string      `json:"separator,omitempty"`
}

type schemaForm struct {
	Type      argv.Type `json:"type"`
	Enum      *[]string `json:"enum,omitempty"` // present but empty accepts nothing
	Const     *string   `json:"const,omitempty"`
	Pattern   string    `json:"pattern,omitempty"`
	MinLength *int      `json:"min_length,omitempty"`
	MaxLength *int      `json:"max_length,omitempty"`
	Minimum   *float64  `json:"minimum,omitempty"`
	Maximum   *float64  `json:"maximum,omitempty"`
	FreeText  bool      `json:"free_text,omitempty"`
	Kind      argv.Kind `json:"kind,omitempty"`
}

type limitsForm struct {
	Stdin         int64 `json:"stdin"`
	Stdout        int64 `json:"stdout"`
	Stderr        int64 `json:"stderr"`
	RunSeconds    int64 `json:"run_seconds"`
	Arguments     int   `json:"arguments"`
	ArgumentBytes int   `json:"argument_bytes"`
}

func (l limitsForm) limits() Limits {
	return Limits{
		Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr, Run: time.Duration(l.RunSeconds) * time.Second,
		Arguments: l.Arguments, ArgumentBytes: l.ArgumentBytes,
	}
}

func formOfLimits(l Limits) limitsForm {
	return limitsForm{
		Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr, RunSeconds: max(1, int64(l.Run/time.Second)),
		Arguments: l.Arguments, ArgumentBytes: l.ArgumentBytes,
	}
}

func formOfCommand(c argv.Command) commandForm {
	out := commandForm{Name: c.Name, Effect: c.Effect, Arguments: c.Arguments, Rest: c.Rest, EndOfOptions: c.EndOfOptions}
	for _, p := range c.Parameters {
		f := parameterForm{
			Name: p.Name, Required: p.Required, Secret: p.Secret,
			Position: p.Position, Stdin: p.Stdin, Variable: p.Variable,
			List: (*listForm)(nil),
		}
		if p.List != nil {
			f.List = &listForm{p.List.MinItems, p.List.MaxItems}
		}
		if p.Flag != nil {
			f.Flag = &flagForm{p.Flag.Name, p.Flag.Aliases, p.Flag.Render, p.Flag.Repeat, p.Flag.Separator}
		}
		for _, s := range p.Schemas {
			g := schemaForm{s.Type, nil, s.Const, s.Pattern, s.MinLength, s.MaxLength, s.Minimum, s.Maximum, s.FreeText, s.Kind}
			if s.Enum != nil {
				g.Enum = &s.Enum
			}
			f.Schemas = append(f.Schemas, g)
		}
		out.Parameters = append(out.Parameters, f)
	}
	return out
}

func (f commandForm) command() argv.Command {
	out := argv.Command{Name: f.Name, Effect: f.Effect, Arguments: f.Arguments, Rest: f.Rest, EndOfOptions: f.EndOfOptions}
	for _, p := range f.Parameters {
		q := argv.Parameter{
			Name: p.Name, Required: p.Required, Secret: p.Secret,
			Position: p.Position, Stdin: p.Stdin, Variable: p.Variable,
		}
		if p.List != nil {
			q.List = &argv.List{MinItems: p.List.Min, MaxItems: p.List.Max}
		}
		if p.Flag != nil {
			q.Flag = &argv.Flag{Name: p.Flag.Name, Aliases: p.Flag.Aliases, Render: p.Flag.Render, Repeat: p.Flag.Repeat, Separator: p.Flag.Separator}
		}
		for _, s := range p.Schemas {
			t := argv.Schema{
				Type: s.Type, Const: s.Const, Pattern: s.Pattern, MinLength: s.MinLength, MaxLength: s.MaxLength,
				Minimum: s.Minimum, Maximum: s.Maximum, FreeText: s.FreeText, Kind: s.Kind,
			}
			if s.Enum != nil {
				t.Enum = *s.Enum
			}
			q.Schemas = append(q.Schemas, t)
		}
		out.Parameters = append(out.Parameters, q)
	}
	return out
}

// contract is what the grammar needs of the contract that the surface is from.
func (f surfaceForm) contract() argv.Contract {
	return argv.Contract{Command: f.CLI, Arguments: f.Prefix, Environment: f.Environment}
}

// ParseSurface reads what Marshal wrote, strictly: unknown fields, other data
// after it, more than MaxSurface bytes and a grammar that does not compile are
// errors.
func ParseSurface(data []byte) (*Surface, error) {
	if len(data) > MaxSurface {
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

func (l limitsForm) valid() bool {
	return l.Stdin >= 0 && (l.Stdout > 0 || l.Stdout == Unlimited) && (l.Stderr > 0 || l.Stderr == Unlimited) &&
		l.RunSeconds > 0 && l.RunSeconds <= int64(maxRun/time.Second) &&
		l.Arguments > 0 && l.Arguments <= argv.MaxArguments && l.ArgumentBytes > 0 && l.ArgumentBytes <= argv.MaxTotal
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

// ContractHash returns that of the contract which the surface was made from.
func (s *Surface) ContractHash() string { return s.form.ContractHash }

// Command returns the narrowed command. The caller must not change it.
func (s *Surface) Command() argv.Command { return s.command }

// Limits returns those of one operation.
func (s *Surface) Limits() Limits { return s.form.Limits.limits() }

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
	g, err := c.Compile(s.form.contract())
	if err != nil {
		return nil, fmt.Errorf("pin parameters: %w", err)
	}
	return g.InputSchema(), nil
}
