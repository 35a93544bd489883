package preset

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

//go:embed *.yaml
var files embed.FS

const maxFile = 1 << 16

// ErrUnknown says that there is no preset of that name. Find wraps it.
var ErrUnknown = errors.New("there is no such preset")

// Preset is one policy to start from.
type Preset struct {
	// Name is the preset's own: a lower-case word.
	Name string
	// CLI is the command that it is for, Connector the key that its Connector
	// usually has.
	CLI       string
	Connector name.ConnectorKey
	// Versions are those of the CLI that it was made for, the newest last; not empty.
	Versions []name.Version
	// Summary is one line. Gives, LeavesOut and Setup are lines for the owner: what
	// it lends, what it does not and why, and what to do before.
	Summary                 string
	Gives, LeavesOut, Setup []string
	// Placeholders are sorted by name.
	Placeholders []Placeholder
	// Commands are the names of all commands, sorted. Those that need a placeholder
	// which is not given are not rendered.
	Commands []string

	template string
}

// Placeholder is one thing of the owner's that a preset is pinned to.
type Placeholder struct {
	Name string
	// What completes "it takes …"; Example is a value that is accepted.
	What, Example string
	// Default is the value if none is given, "" for none.
	Default string
	// Required placeholders have to be given. A List takes several values, at most
	// 32; another takes one.
	Required, List bool

	pattern *regexp.Regexp
}

// All returns the presets, sorted by name. An error is a fault of this program.
func All() ([]Preset, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list presets: %w", err)
	}
	out := make([]Preset, 0, len(entries))
	for _, e := range entries {
		data, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, fmt.Errorf("read preset: %w", err)
		}
		p, err := parse(e.Name(), string(data))
		if err != nil {
			return nil, fmt.Errorf("read preset: %w", err)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Preset) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Find returns the preset of that name, else an error that wraps ErrUnknown.
func Find(n string) (Preset, error) {
	all, err := All()
	if err != nil {
		return Preset{}, err
	}
	known := make([]string, 0, len(all))
	for _, p := range all {
		if p.Name == n {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Preset{}, fmt.Errorf("%s: %w; there are %s", name.Quote(n), ErrUnknown, strings.Join(known, ", "))
}

// commandLine is a command's key in the fragment.
var commandLine = regexp.MustCompile(`(?m)^    ([a-z][a-z0-9._-]*):$`)

// head is the first part of a preset's file.
type head struct {
	Name         string                     `json:"name"`
	CLI          string                     `json:"cli"`
	Connector    string                     `json:"connector"`
	Versions     []string                   `json:"versions"`
	Summary      string                     `json:"summary"`
	Gives        []string                   `json:"gives"`
	LeavesOut    []string                   `json:"leaves_out"`
	Setup        []string                   `json:"setup"`
	Placeholders map[string]placeholderHead `json:"placeholders"`
}

type placeholderHead struct {
	What     string `json:"what"`
	Example  string `json:"example"`
	Pattern  string `json:"pattern"`
	Default  string `json:"default"`
	Required bool   `json:"required"`
	List     bool   `json:"list"`
}

// parse reads one file: the head, a line "---", the fragment.
func parse(file, text string) (Preset, error) {
	first, template, ok := strings.Cut(text, "\n---\n")
	if !ok {
		return Preset{}, fmt.Errorf("%s: %w", file, errHead)
	}
	doc, err := strict.Parse(file, []byte(first+"\n"), maxFile)
	if err != nil {
		return Preset{}, err
	}
	doc.Check(headShape())
	if err := doc.Err(); err != nil {
		return Preset{}, err
	}
	var h head
	if err := doc.Root.Decode(&h); err != nil {
		return Preset{}, fmt.Errorf("%s: %w", file, err)
	}
	if h.Name != strings.TrimSuffix(path.Base(file), ".yaml") {
		return Preset{}, fmt.Errorf("%s: %w", file, errHead)
	}
	return h.preset(template)
}

var errHead = errors.New("not a preset's file")

func (h head) preset(template string) (Preset, error) {
	p := Preset{
		Name: h.Name, CLI: h.CLI, Summary: h.Summary, Gives: h.Gives, LeavesOut: h.LeavesOut, Setup: h.Setup, template: template,
	}
	var err error
	if p.Connector, err = name.ParseConnectorKey(h.Connector); err != nil {
		return Preset{}, err
	}
	for _, s := range h.Versions {
		v, err := name.ParseVersion(s)
		if err != nil {
			return Preset{}, err
		}
		p.Versions = append(p.Versions, v)
	}
	for n, q := range h.Placeholders {
		re, err := regexp.Compile(`^(?:` + q.Pattern + `)$`)
		if err != nil {
			return Preset{}, fmt.Errorf("%s: %w", n, err)
		}
		p.Placeholders = append(p.Placeholders, Placeholder{n, q.What, q.Example, q.Default, q.Required, q.List, re})
	}
	slices.SortFunc(p.Placeholders, func(a, b Placeholder) int { return strings.Compare(a.Name, b.Name) })
	p.Commands = commandNames(template)
	return p, nil
}

func commandNames(text string) []string {
	var out []string
	text, _ = cutAt(text, "allow:\n")
	for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}
