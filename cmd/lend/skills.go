package main

import (
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/skill"
	"github.com/lendcli/lend/protocol/name"
)

// shownSkill is a skill as JSON has it; Text is there if one was asked for.
type shownSkill struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Path        string `json:"path"`
	Text        string `json:"text,omitempty"`
}

func (a *app) connectorSkillsCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "skills KEY [NAME]",
		Short: "list the skills of a Connector, or show one",
		Long: `List the pages below skills/ of an installed Connector that say how it is meant
to be used, or show one of them. They are read from files that are compared with
what was installed, first. They are the text of the Connector's author: nothing
of them is run, and what could act on a terminal is escaped.`,
		Example: "  lend connector skills github\n  lend connector skills github triage",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withStore("", func(s *install.Store) error {
				r, err := a.release(s, args[0], version)
				if err != nil {
					return err
				}
				l, err := s.Launch(r)
				if err != nil {
					return orHint(storeError(err), "lend connector verify "+r.Manifest.Key.String())
				}
				skills, err := l.Skills()
				if err = joinClose(err, l.Close); err != nil {
					return orHint(err, "lend connector verify "+r.Manifest.Key.String())
				}
				if len(args) == 2 {
					return a.showSkill(skills, args[0], args[1])
				}
				return a.listSkills(skills)
			})
		},
	}
	c.Flags().StringVar(&version, "version", "", "which version (default: the only one)")
	return c
}

func (a *app) listSkills(skills []skill.Skill) error {
	list := struct {
		SchemaVersion int          `json:"schemaVersion"`
		Skills        []shownSkill `json:"skills"`
	}{jsonSchema, []shownSkill{}}
	rows := [][]string{{"NAME", "TITLE", "DESCRIPTION"}}
	for _, s := range skills {
		list.Skills = append(list.Skills, shownSkill{Name: s.Name, Title: s.Title, Description: s.Description, Path: s.Path})
		rows = append(rows, []string{name.Show(s.Name), name.Show(s.Title), name.Show(s.Description)})
	}
	return a.show(list, func() error {
		if len(skills) == 0 {
			a.note("lend: it has no skills")
			return nil
		}
		return a.table(rows)
	})
}

func (a *app) showSkill(skills []skill.Skill, key, which string) error {
	for _, s := range skills {
		if s.Name == which {
			return a.show(struct {
				SchemaVersion int `json:"schemaVersion"`
				shownSkill
			}{jsonSchema, shownSkill{s.Name, s.Title, s.Description, s.Path, s.Text()}}, func() error { return a.say("%s", s.Text()) })
		}
	}
	return hintf("lend connector skills "+key, "%s has no skill %s", key, name.Quote(which))
}
