package connection

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// CallError says that a variable of the call, not of the owner, was refused. It
// holds no value.
type CallError struct {
	Variable string
	Err      error // ErrReserved, ErrConflict or ErrInvalid
}

// Error names the variable, quoted.
func (e *CallError) Error() string {
	return fmt.Sprintf("variable %s of the call: %v", name.Quote(e.Variable), e.Err)
}

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// Environment makes the complete environment of a CLI, sorted, as NAME=VALUE; see
// the package's comment for what it holds. The variables in release are what the
// installed release needs for its interpreter. The result holds secrets: hand it
// to the start and to nothing else. A variable of the call that may not be set is
// a *CallError; other errors are the owner's affair, ErrDisabled among them.
// Nothing is cached: each call reads the files.
func (c *Connection) Environment(d Declared, release []string, call []argv.Variable) ([]string, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	return c.EnvironmentFor(cfg, d, release, call)
}

// EnvironmentFor is Environment for a configuration that was just read.
func (c *Connection) EnvironmentFor(cfg Config, d Declared, release []string, call []argv.Variable) ([]string, error) {
	if err := c.ensure(); err != nil { // a CLI may have removed its own
		return nil, err
	}
	if cfg.Disabled {
		return nil, ErrDisabled
	}
	e := environ{}
	for variable, value := range c.base() {
		e[foldName(variable)] = entry{variable, value, overridable(variable)}
	}
	for _, v := range release {
		variable, value, ok := strings.Cut(v, "=")
		if !ok {
			return nil, fmt.Errorf("environment of the release: %w", ErrInvalid)
		}
		if err := e.set(variable, value); err != nil {
			return nil, fmt.Errorf("environment of the release: %w", err)
		}
	}
	if err := e.settings(d, cfg); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if err := e.secrets(c, d, cfg); err != nil {
		return nil, err
	}
	for _, v := range call {
		if err := e.add(v.Name, v.Value); err != nil {
			return nil, &CallError{Variable: v.Name, Err: err}
		}
	}
	return e.list(), nil
}

// environ is an environment that grows, by folded name.
type environ map[string]entry

type entry struct {
	variable, value string
	overridable     bool
}

// set gives a variable a value, unless there is one already that may not be
// overridden.
func (e environ) set(variable, value string) error {
	switch old, ok := e[foldName(variable)]; {
	case !validVariable(variable) || strings.ContainsRune(value, 0):
		return ErrInvalid
	case ok && !old.overridable:
		return ErrConflict
	}
	e[foldName(variable)] = entry{variable: variable, value: value}
	return nil
}

// add is set for a source that may not set reserved variables.
func (e environ) add(variable, value string) error {
	if Reserved(variable) {
		return ErrReserved
	}
	return e.set(variable, value)
}

func (e environ) settings(d Declared, cfg Config) error {
	values := maps.Clone(cfg.Settings)
	set := make(map[string]bool)
	for variable := range values {
		set[foldName(variable)] = true
	}
	for _, s := range d.Settings {
		if s.Default != "" && !set[foldName(s.Variable)] {
			if values == nil {
				values = make(map[string]string)
			}
			values[s.Variable] = s.Default
		}
	}
	for variable, value := range values {
		if err := e.add(variable, value); err != nil {
			return fmt.Errorf("variable %s: %w", name.Quote(variable), err)
		}
	}
	return nil
}

func (e environ) secrets(c *Connection, d Declared, cfg Config) error {
	for _, s := range statuses(d, cfg) {
		value, ok, err := c.secret(s.Name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := e.add(s.Variable, value.value); err != nil {
			return fmt.Errorf("secret %s, variable %s: %w", name.Quote(s.Name), name.Quote(s.Variable), err)
		}
	}
	return nil
}

// list drops LC_CTYPE of the base where a later source chose the locale.
func (e environ) list() []string {
	if e[foldName(ctype)].overridable && e.has("LANG", "LC_ALL") {
		delete(e, foldName(ctype))
	}
	all := make([]string, 0, len(e))
	for _, v := range e {
		all = append(all, v.variable+"="+v.value)
	}
	slices.Sort(all)
	return all
}

func (e environ) has(variables ...string) bool {
	return slices.ContainsFunc(variables, func(v string) bool { _, ok := e[foldName(v)]; return ok })
}

// ctype says which bytes are a character. What LANG would say beyond that is what C
// says anyway, and libc would look up a dozen files for it at each start.
const ctype = "LC_CTYPE"

// base is what every CLI gets.
func (c *Connection) base() map[string]string {
	base := map[string]string{
		"HOME": c.Home(), "TMPDIR": c.Temp(), "XDG_STATE_HOME": c.State(),
		"PATH": "/dev/null",
		ctype:  "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "NO_COLOR": "1",
	}
	if runtime.GOOS == "windows" {
		base["PATH"] = "NUL"
		base["USERPROFILE"] = c.Home()
		base["TEMP"], base["TMP"] = c.Temp(), c.Temp()
		base["APPDATA"], base["LOCALAPPDATA"] = c.State(), c.State()
		base["SYSTEMROOT"] = systemRoot()
	}
	return base
}

// overridable tells which variables of the base a setting may replace.
func overridable(variable string) bool {
	switch variable {
	case ctype, "TZ", "TERM", "NO_COLOR":
		return true
	}
	return false
}
