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
