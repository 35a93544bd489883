package surface

import (
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// form is what is kept. Descriptions are not in it. A field that is added
// later must be omitted while it is zero, so that kept surfaces stay what they are.
type form struct {
	Surface      int               `json:"surface"` // 1
	Rule         string            `json:"rule"`
	Connector    name.ConnectorKey `json:"connector"`
	Version      name.Version      `json:"version"`
	Connection   name.ConnectionID `json:"connection,omitzero"`
	Workspace    name.Label        `json:"workspace,omitzero"`
	Place        string            `json:"place,omitempty"` // of the workspace
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
	Stdin      int64 `json:"stdin"`
	Stdout     int64 `json:"stdout"`
	Stderr     int64 `json:"stderr"`
	RunSeconds int64 `json:"run_seconds"`
	// DetachedMs is -1 for kill.
	DetachedMs    int64 `json:"detached_ms,omitzero"`
	Processes     int   `json:"processes,omitzero"`
	Memory        int64 `json:"memory,omitzero"`
	Arguments     int   `json:"arguments"`
	ArgumentBytes int   `json:"argument_bytes"`
}

func (l limitsForm) limits() file.Limits {
	detached := time.Duration(l.DetachedMs) * time.Millisecond
	if l.DetachedMs < 0 {
		detached = file.Kill
	}
	return file.Limits{
		Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr, Run: time.Duration(l.RunSeconds) * time.Second,
		Detached: detached, Processes: l.Processes, Memory: l.Memory,
		Arguments: l.Arguments, ArgumentBytes: l.ArgumentBytes,
	}
}

func formOfLimits(l file.Limits) limitsForm {
	detached := l.Detached.Milliseconds()
	if l.Detached == file.Kill {
		detached = -1
	}
	return limitsForm{
		Stdin: l.Stdin, Stdout: l.Stdout, Stderr: l.Stderr, RunSeconds: max(1, int64(l.Run/time.Second)),
		DetachedMs: detached, Processes: l.Processes, Memory: l.Memory,
		Arguments: l.Arguments, ArgumentBytes: l.ArgumentBytes,
	}
}

func formOfCommand(c argv.Command) commandForm {
	out := commandForm{Name: c.Name, Effect: c.Effect, Arguments: c.Arguments, Rest: c.Rest, EndOfOptions: c.EndOfOptions}
	for _, p := range c.Parameters {
		f := parameterForm{
			Name: p.Name, Required: p.Required, Secret: p.Secret,
			Position: p.Position, Stdin: p.Stdin, Variable: p.Variable,
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
func (f form) contract() argv.Contract {
	return argv.Contract{Command: f.CLI, Arguments: f.Prefix, Environment: f.Environment}
}

func (l limitsForm) valid() bool {
	return l.Stdin >= 0 && (l.Stdout > 0 || l.Stdout == file.Unlimited) && (l.Stderr > 0 || l.Stderr == file.Unlimited) &&
		l.RunSeconds > 0 && l.RunSeconds <= int64(24*time.Hour/time.Second) &&
		l.DetachedMs >= -1 && l.DetachedMs <= int64(24*time.Hour/time.Millisecond) && l.Processes >= 0 && l.Memory >= 0 &&
		l.Arguments > 0 && l.Arguments <= argv.MaxArguments && l.ArgumentBytes > 0 && l.ArgumentBytes <= argv.MaxTotal
}
