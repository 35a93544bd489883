package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/skill"
)

const skillManifest = `{"schemaVersion": "1", "key": "skilled", "version": "1.0.0", "displayName": "Skilled",
 "cli": {"command": "skilled", "kind": "native", "entrypoint": "bin/skilled"}}`

// skilled writes a Connector with one skill of this text.
func skilled(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for p, s := range map[string]string{"connector-manifest.json": skillManifest, "bin/skilled": "\x7fELF", "skills/one/SKILL.md": text} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, p), []byte(s), 0o700))
	}
	return dir
}

func TestAddRefusesBrokenSkills(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	_, err := s.Add(t.Context(), Source{Path: skilled(t, "no header")}, nil)
	var refused *skill.RefusedError
	require.ErrorAs(t, err, &refused)
	all := releases(t, s)
	require.Empty(t, all)
}

func TestSkillsOfALaunch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	r, err := s.Add(t.Context(), Source{Path: skilled(t, "---\nname: one\ndescription: It helps.\n---\n# One\n")}, nil)
	require.NoError(t, err)
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	skills, err := l.Skills()
	require.NoError(t, err)
	require.Len(t, skills, 1)
	require.Equal(t, "One", skills[0].Title)

	flip(t, filepath.Join(l.ContractDir, "skills", "one", "SKILL.md"), 40)
	_, err = l.Skills()
	require.ErrorIs(t, err, ErrTampered)
	require.Equal(t, "It helps.", skills[0].Description, "what was read does not change")
}

// TestSkillsThatAreGone: a page that is taken away is found missing, too.
func TestSkillsThatAreGone(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	r, err := s.Add(t.Context(), Source{Path: skilled(t, "---\nname: one\ndescription: It helps.\n---\n")}, nil)
	require.NoError(t, err)
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	dir := filepath.Join(l.ContractDir, "skills", "one")
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.Remove(filepath.Join(dir, "SKILL.md")))
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err = l.Skills()
	require.ErrorIs(t, err, ErrTampered)
}
