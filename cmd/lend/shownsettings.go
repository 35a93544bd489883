package main

import (
	"cmp"
	"slices"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/argv"
)

// shownSetting is where a plain variable of a connection comes from, without its value:
// lend connector setting list shows what the owner set.
type shownSetting struct {
	Connection string `json:"connection"` // empty: there is none yet
	Name       string `json:"name"`       // of the manifest, else the variable
	Variable   string `json:"variable"`
	Source     string `json:"source"` // owner, manifest (its default) or unset
}

type shownSettings struct {
	Settings []shownSetting `json:"settings"`
	// SettingsProblem is why those of some connection are not among them.
	SettingsProblem string `json:"settingsProblem,omitempty"`
}

// settingsShown names the settings that a release declares, and those that the owner set
// besides, for each connection.
func settingsShown(root *connection.Root, m manifest.Manifest) shownSettings {
	out := shownSettings{Settings: []shownSetting{}}
	all, err := root.List(m.Key)
	if err != nil {
		out.SettingsProblem = err.Error()
		return out
	}
	if len(all) == 0 {
		out.Settings = append(out.Settings, settingsOf("", m, nil)...)
	}
	for _, c := range all {
		cfg, err := c.Config()
		if err != nil {
			out.SettingsProblem = err.Error()
			continue
		}
		out.Settings = append(out.Settings, settingsOf(c.ID().String(), m, cfg.Settings)...)
	}
	return out
}

func settingsOf(id string, m manifest.Manifest, set map[string]string) (out []shownSetting) {
	declared := map[string]bool{}
	for _, s := range m.Settings {
		declared[s.Env] = true
		one := shownSetting{id, s.Name, s.Env, "unset"}
		if s.Default != "" {
			one.Source = "manifest"
		}
		if _, ok := set[s.Env]; ok {
			one.Source = "owner"
		}
		out = append(out, one)
	}
	for variable := range set {
		if !declared[variable] {
			out = append(out, shownSetting{id, variable, variable, "owner"})
		}
	}
	slices.SortFunc(out, func(a, b shownSetting) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (s shownSettings) rows() [][]string {
	var rows [][]string
	for _, one := range s.Settings {
		what := map[string]string{"owner": "set", "manifest": "the manifest's default", "unset": "not set"}[one.Source]
		if one.Connection != "" {
			what += ", connection " + one.Connection
		}
		shown := one.Name
		if one.Name != one.Variable {
			shown += "  " + one.Variable
		}
		rows = append(rows, []string{"setting", shown + "  " + what})
	}
	if s.SettingsProblem != "" {
		rows = append(rows, []string{"settings", s.SettingsProblem})
	}
	return rows
}

// typeShown is the type of a parameter's values; of text that means more, what it means.
func typeShown(p argv.Parameter) string {
	s := p.Schemas[0]
	shown := string(s.Type)
	if s.Kind != "" {
		shown = string(s.Kind)
	}
	if p.List != nil {
		return "list of " + shown
	}
	return shown
}
