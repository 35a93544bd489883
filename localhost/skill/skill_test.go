package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func page(name, description, body string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\n" + body
}

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for p, text := range files {
		out[p] = &fstest.MapFile{Data: []byte(text), Mode: 0o400}
	}
	return out
}

// as is what was verified: the tree as it is now.
func as(t *testing.T, m fstest.MapFS) Verified {
	t.Helper()
	sums := map[string]string{}
	for p, f := range m {
		sum := sha256.Sum256(f.Data)
		sums[p] = hex.EncodeToString(sum[:])
	}
	return func(p string) (string, bool) { sum, ok := sums[p]; return sum, ok }
}

func TestSkills(t *testing.T) {
	t.Parallel()
	m := tree(map[string]string{
		"connector-manifest.json":       "{}",
		"SKILL.md":                      "not below skills/",
		"skills/zeta/SKILL.md":          page("zeta", "Last.", "no heading\n## second level\n"),
		"skills/alpha/SKILL.md":         page("alpha", "\"First: of all.\"", "```\n# in code\n```\n# Alpha and more \n# Second\n"),
		"skills/alpha/reference.md":     "beside it",
		"skills/deep/er/SKILL.md":       "---\r\nname: deeper\r\ndescription: |\r\n  Two\r\n  lines.\r\nother: [1, {a: b}]\r\n---\r\n",
		"skills/a/b/c/d/e/f/g/SKILL.md": page("eight", "As deep as may be.", ""),
	})
	skills, err := Read(m, as(t, m))
	require.NoError(t, err)
	var got []string
	for _, s := range skills {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s", s.Name, s.Title, s.Description, s.Path))
	}
	require.Equal(t, []string{
		"alpha|Alpha and more|First: of all.|skills/alpha/SKILL.md",
		"deeper|deeper|Two\nlines.|skills/deep/er/SKILL.md",
		"eight|eight|As deep as may be.|skills/a/b/c/d/e/f/g/SKILL.md",
		"zeta|zeta|Last.|skills/zeta/SKILL.md",
	}, got)
	require.Equal(t, string(m["skills/alpha/SKILL.md"].Data), skills[0].Text())
	require.NoError(t, Check(m))

	none, err := Read(tree(map[string]string{"bin/tool": ""}), as(t, nil))
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestSkillTreeRefused is the row of skills of the acceptance table.
func TestSkillTreeRefused(t *testing.T) {
	t.Parallel()
	good := page("one", "It is good.", "")
	long := func(n int) string { return strings.Repeat("x", n) }
	at := func(text string) map[string]string { return map[string]string{"skills/one/SKILL.md": text} }
	many := map[string]string{}
	for i := range MaxSkills + 1 {
		many[fmt.Sprintf("skills/%d/SKILL.md", i)] = page(fmt.Sprintf("s%d", i), "One of many.", "")
	}
	heavy := map[string]string{}
	for i := range MaxSkills {
		heavy[fmt.Sprintf("skills/%d/SKILL.md", i)] = page(fmt.Sprintf("s%d", i), long(MaxDescription), "")
	}
	require.Greater(t, MaxSkills*MaxDescription+MaxSkills*4, MaxTotal)
	for what, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no header":          {at("# Title\n"), "does not begin"},
		"open header":        {at("---\nname: one\n"), "does not begin"},
		"empty header":       {at("---\n---\n"), "not YAML"},
		"a list":             {at("---\n- name\n---\n"), "not a mapping"},
		"broken yaml":        {at("---\nname: [\n---\n"), "not YAML"},
		"an alias":           {at("---\nname: &a one\ndescription: *a\n---\n"), "anchors"},
		"a tag":              {at("---\nname: !!str one\ndescription: x\n---\n"), "anchors"},
		"nested":             {at("---\nname: one\nx: " + strings.Repeat("[", 80) + strings.Repeat("]", 80) + "\n---\n"), "nested too deep"},
		"a name of no text":  {at(page("7", "Seven.", "")), "name is not text"},
		"no name":            {at("---\ndescription: x\n---\n"), "name is empty"},
		"no description":     {at("---\nname: one\n---\n"), "description is empty"},
		"twice":              {at("---\nname: one\nname: two\ndescription: x\n---\n"), ""},
		"long name":          {at(page(long(MaxName+1), "x", "")), "name is longer"},
		"long title":         {at(page("one", "x", "# "+long(MaxTitle+1)+"\n")), "title is longer"},
		"long description":   {at(page("one", long(MaxDescription+1), "")), "description is longer"},
		"a control":          {at(page(`"a\eb"`, "x", "")), "control"},
		"a turned title":     {at(page("one", "x", "# a\u202eb\n")), "control"},
		"two lines of name":  {at("---\nname: |\n  a\n  b\ndescription: x\n---\n"), "control"},
		"large header":       {at("---\nname: one\nx: " + long(maxHeader) + "\n---\n"), "header is larger"},
		"large file":         {at(good + long(MaxFile)), "larger than"},
		"not utf-8":          {at(good + "\xff"), "UTF-8"},
		"a NUL":              {at(good + "\x00"), "UTF-8"},
		"same name":          {map[string]string{"skills/a/SKILL.md": good, "skills/b/SKILL.md": good}, "same name"},
		"too deep":           {map[string]string{"skills/1/2/3/4/5/6/7/8/SKILL.md": good}, "levels"},
		"too many":           {many, "more than 128 skills"},
		"too much together":  {heavy, "more than 524288 bytes"},
		"skills is no place": {map[string]string{"skills": "x"}, "not a directory"},
	} {
		err := Check(tree(c.files))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused, what)
		require.Contains(t, refused.Reason, c.want, what)
		require.NotContains(t, err.Error(), "\x1b", what)
	}
}

func TestSkillLinksAndDevices(t *testing.T) {
	t.Parallel()
	for what, mode := range map[string]fs.FileMode{"a link": fs.ModeSymlink, "a pipe": fs.ModeNamedPipe} {
		m := tree(map[string]string{"skills/one/SKILL.md": page("one", "x", "")})
		m["skills/one/other"] = &fstest.MapFile{Data: []byte("SKILL.md"), Mode: mode}
		require.ErrorContains(t, Check(m), "neither a file nor a directory", what)
	}
	m := tree(map[string]string{"skills/one/SKILL.md/x": ""})
	require.ErrorContains(t, Check(m), "not a regular file")
	if os.Getuid() < 0 {
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "elsewhere"), 0o700))
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(dir, "skills")))
	require.ErrorContains(t, Check(os.DirFS(dir)), "not a directory", "the root is no link either")
}

func TestSkillsAreWhatWasVerified(t *testing.T) {
	t.Parallel()
	m := tree(map[string]string{"skills/one/SKILL.md": page("one", "x", "")})
	verified := as(t, m)
	m["skills/two/SKILL.md"] = &fstest.MapFile{Data: []byte(page("two", "x", ""))}
	_, err := Read(m, verified)
	require.ErrorIs(t, err, ErrChanged, "one that was not there")
	delete(m, "skills/two/SKILL.md")
	m["skills/one/SKILL.md"] = &fstest.MapFile{Data: []byte(page("one", "y", ""))}
	_, err = Read(m, verified)
	require.ErrorIs(t, err, ErrChanged, "other bytes")
	_, err = Read(m, nil)
	require.ErrorIs(t, err, ErrChanged)
	var refused *RefusedError
	require.NotErrorAs(t, err, &refused)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(page("one", "x", "# T\n")))
	f.Add([]byte("---\nname: |\n  a\n---\n"))
	f.Add([]byte("---\n---\n---"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse("skills/x/SKILL.md", text)
		if err != nil {
			require.Equal(t, Skill{}, s)
			return
		}
		require.NotEmpty(t, s.Name)
		require.LessOrEqual(t, len(s.Name), MaxName)
		require.LessOrEqual(t, len(s.Title), MaxTitle)
		require.LessOrEqual(t, len(s.Description), MaxDescription)
	})
}
