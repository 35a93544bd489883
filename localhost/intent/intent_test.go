package intent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

func version(t *testing.T, s string) name.Version {
	t.Helper()
	v, err := name.ParseVersion(s)
	require.NoError(t, err)
	return v
}

func TestIntent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "github")
	f := At(dir)
	i, err := f.Read()
	require.NoError(t, err)
	require.True(t, i.Wants(version(t, "1")), "without a file, all is wanted")
	require.NoDirExists(t, dir, "asking makes nothing")

	require.NoError(t, f.Update(t.Context(), func(i *Intent) error { i.Disabled = true; return nil }))
	i, err = At(dir).Read()
	require.NoError(t, err)
	require.False(t, i.Wants(version(t, "1")))
	require.False(t, i.Removes(version(t, "1")))

	no := errors.New("no")
	require.ErrorIs(t, f.Update(t.Context(), func(i *Intent) error { i.Disabled = false; return no }), no)
	i, err = f.Read()
	require.NoError(t, err)
	require.True(t, i.Disabled, "what is refused changes nothing")

	require.NoError(t, f.Update(t.Context(), func(i *Intent) error {
		i.Disabled, i.Removing = false, &Removal{Versions: []string{"1", "2"}}
		return nil
	}))
	i, err = f.Read()
	require.NoError(t, err)
	require.False(t, i.Wants(version(t, "2")))
	require.True(t, i.Wants(version(t, "3")), "it came afterwards")
	require.NoError(t, f.Update(t.Context(), func(i *Intent) error { i.Removing.Purge = true; return nil }))
	i, err = f.Read()
	require.NoError(t, err)
	require.False(t, i.Wants(version(t, "3")), "its connections go")
}

func TestIntentIsStrict(t *testing.T) {
	t.Parallel()
	for title, text := range map[string]string{
		"empty":       ``,
		"nothing":     `{}`,
		"other":       `{"schemaVersion":"2"}`,
		"unknown":     `{"schemaVersion":"1","enabled":true}`,
		"twice":       `{"schemaVersion":"1","disabled":false,"disabled":true}`,
		"bad-version": `{"schemaVersion":"1","removing":{"versions":["../1"]}}`,
		"many":        `{"schemaVersion":"1","removing":{"versions":["1"` + strings.Repeat(`,"1"`, MaxVersions) + `]}}`,
		"large":       `{"schemaVersion":"1"}` + strings.Repeat(" ", maxBytes),
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, intentFile), []byte(text), 0o600))
		_, err := At(dir).Read()
		require.Error(t, err, title)
		require.Error(t, At(dir).Update(t.Context(), func(*Intent) error { return nil }), title)
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	many := make([]string, MaxVersions+1)
	require.ErrorIs(t, At(dir).Update(t.Context(), func(i *Intent) error { i.Removing = &Removal{Versions: many}; return nil }), ErrInvalid)
	require.NoFileExists(t, filepath.Join(dir, intentFile))
}

func TestHoldAndConcurrentUpdates(t *testing.T) {
	t.Parallel()
	f := At(filepath.Join(t.TempDir(), "k"))
	held, err := f.Hold()
	require.NoError(t, err)
	_, err = f.Hold()
	require.ErrorIs(t, err, ErrHeld)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := f.Update(t.Context(), func(i *Intent) error {
				if i.Removing == nil {
					i.Removing = &Removal{}
				}
				i.Removing.Versions = append(i.Removing.Versions, "1")
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	i, err := f.Read()
	require.NoError(t, err)
	require.Len(t, i.Removing.Versions, 8, "no change is lost")
	require.NoError(t, held.Close())
	again, err := f.Hold()
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// Renew replaces what nobody understands by what is disabled, and by nothing else; what
// the system does not let be read stays.
func TestRenew(t *testing.T) {
	t.Parallel()
	keep := func(*Intent) error { return nil }
	for title, place := range map[string]func(path string) error{
		"cut": func(path string) error { return os.WriteFile(path, []byte(`{"schemaVer`), 0o600) },
		"everyone's": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(`{"schemaVersion":"1"}`), 0o600), os.Chmod(path, 0o644))
		},
		"large": func(path string) error { return os.WriteFile(path, make([]byte, maxBytes+1), 0o600) },
		"link":  func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		dir := filepath.Join(t.TempDir(), "github")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, place(filepath.Join(dir, intentFile)), title)
		f := At(dir)
		var damage *DamagedError
		_, err := f.Read()
		require.ErrorAs(t, err, &damage, title)
		require.Equal(t, "lend connector disable github, then lend connector enable github; or lend connector remove github", damage.Fix())
		require.ErrorAs(t, f.Update(t.Context(), keep), &damage, title)
		no := errors.New("no")
		_, err = f.Renew(t.Context(), func(*Intent) error { return no })
		require.ErrorIs(t, err, no)
		_, err = f.Read()
		require.ErrorAs(t, err, &damage, "it is there until another one is")
		renewed, err := f.Renew(t.Context(), keep)
		require.NoError(t, err, title)
		require.True(t, renewed)
		i, err := f.Read()
		require.NoError(t, err)
		require.Equal(t, Intent{SchemaVersion: "1", Disabled: true}, i, title)
		renewed, err = f.Renew(t.Context(), func(i *Intent) error { i.Disabled = false; return nil })
		require.NoError(t, err)
		require.False(t, renewed)
	}
}

// A directory in the place of the file is exchanged for it where the system can do that
// at once, and stays otherwise.
func TestRenewDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "github")
	for _, left := range []string{filepath.Join(swapFile, "left"), filepath.Join(intentFile, "x", "y")} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, left), 0o700))
	}
	require.NoError(t, os.Chmod(dir, 0o700))
	var damage *DamagedError
	_, err := At(dir).Read()
	require.ErrorAs(t, err, &damage)
	renewed, err := At(dir).Renew(t.Context(), func(*Intent) error { return nil })
	if !canExchange {
		require.ErrorAs(t, err, &damage)
		require.Contains(t, damage.Fix(), "take that directory away")
		require.DirExists(t, filepath.Join(dir, intentFile))
		return
	}
	require.Contains(t, damage.Fix(), "lend connector disable github, then")
	require.NoError(t, err)
	require.True(t, renewed)
	i, err := At(dir).Read()
	require.NoError(t, err)
	require.Equal(t, Intent{SchemaVersion: "1", Disabled: true}, i)
	require.NoDirExists(t, filepath.Join(dir, swapFile))
}

// Forget leaves what somebody else made, and the usual is wanted afterwards.
func TestForget(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "github")
	f := At(dir)
	for _, stray := range []string{"", "work"} {
		require.NoError(t, f.Update(t.Context(), func(i *Intent) error { i.Disabled = true; return nil }))
		for _, left := range []string{".new-1", asideFile} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, left), nil, 0o600))
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, stray), 0o700))
		held, err := f.Hold()
		require.NoError(t, err)
		require.NoError(t, f.Forget(t.Context(), held))
		require.NoError(t, held.Close())
		i, err := f.Read()
		require.NoError(t, err)
		require.False(t, i.Disabled)
		if stray == "" {
			require.NoDirExists(t, dir)
			continue
		}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 3, "the locks, since somebody may want them")
	}
}
