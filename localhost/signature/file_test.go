package signature

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func edit(t *testing.T, f *File, change func(*Trust)) {
	t.Helper()
	require.NoError(t, f.Edit(t.Context(), func(t *Trust) error { change(t); return nil }))
}

func load(t *testing.T, f *File) *Trust {
	t.Helper()
	got, err := f.Load()
	require.NoError(t, err)
	return got
}

// A list that is deleted, or not restored, requires what it required, and trusts nobody.
// Who never required anything notices nothing.
func TestListThatIsLost(t *testing.T) {
	t.Parallel()
	at, second := filepath.Join(t.TempDir(), "publishers.json"), filepath.Join(t.TempDir(), "signatures-required.json")
	f := AtRemembering(at, second)
	state := func(want Memory) {
		t.Helper()
		got, err := f.Memory()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, public := publisher(t, "press")
	require.Equal(t, &Trust{}, load(t, f))
	edit(t, f, func(t *Trust) { t.Publishers = []Publisher{{Key: public}} })
	require.NoFileExists(t, second, "nothing is required")
	state(Agreed)
	require.NoError(t, os.Remove(at))
	require.Equal(t, &Trust{}, load(t, f))
	state(Agreed)

	edit(t, f, func(t *Trust) { t.Publishers, t.Require = []Publisher{{Key: public}}, []string{"printer"} })
	state(Agreed)
	require.NoError(t, os.Remove(at))
	lost := load(t, f)
	require.Equal(t, &Trust{Require: []string{"printer"}}, lost)
	require.Same(t, lost, load(t, f))
	require.Equal(t, lost, load(t, AtRemembering(at, second)), "another process, too")
	_, err := lost.Check(printer(t), nil)
	require.ErrorIs(t, err, ErrUnsigned)
	state(Lost)

	// an edit makes it anew, and lifts nothing that it does not name
	edit(t, f, func(t *Trust) { t.Publishers = []Publisher{{Key: public}} })
	require.Equal(t, []string{"printer"}, load(t, f).Require)
	state(Agreed)
	edit(t, f, func(t *Trust) { t.RequireAll = true })
	require.NoError(t, os.Remove(at))
	require.True(t, load(t, f).RequireAll)
	edit(t, f, func(t *Trust) { t.RequireAll, t.Require = false, nil })
	require.NoFileExists(t, second)
	state(Agreed)
	require.NoError(t, os.Remove(at))
	require.Equal(t, &Trust{}, load(t, f))

	// the second place is lost, says something else, or cannot be read
	edit(t, f, func(t *Trust) { t.RequireAll = true })
	require.NoError(t, os.Remove(second))
	state(Forgotten)
	edit(t, f, func(*Trust) {})
	state(Agreed)
	require.NoError(t, os.WriteFile(second, []byte(`{"format": 1}`), 0o600))
	state(Forgotten)
	require.NoError(t, os.WriteFile(second, []byte("{"), 0o600))
	state(Forgotten)
	require.True(t, load(t, f).RequireAll, "the list itself holds")
	require.NoError(t, os.Remove(at))
	_, err = f.Load()
	var broken *FileError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, second, broken.Path)
	require.Contains(t, broken.Fix(), "mv "+second+" "+second+".damaged")
	require.Error(t, f.Edit(t.Context(), func(*Trust) error { return nil }))
}

// What is remembered is on the disk before the list that requires it.
func TestListIsRememberedFirst(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "publishers.json")
	f := AtRemembering(at, filepath.Join(t.TempDir(), "nowhere", "signatures-required.json"))
	require.Error(t, f.Edit(t.Context(), func(t *Trust) error { t.RequireAll = true; return nil }))
	require.NoFileExists(t, at)
	require.NoError(t, f.Edit(t.Context(), func(*Trust) error { return nil }), "nothing is to be remembered")
}

func TestFixOfAList(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "publishers.json")
	fix := func() string {
		t.Helper()
		_, err := At(at).Load()
		var broken *FileError
		require.ErrorAs(t, err, &broken)
		require.Equal(t, at, broken.Path)
		return broken.Fix()
	}
	require.NoError(t, os.WriteFile(at, []byte("{"), 0o600))
	require.Contains(t, fix(), "mv "+at+" "+at+".damaged, then lend publisher add PUBLISHER")
	require.NoError(t, os.Remove(at))
	require.NoError(t, os.Mkdir(at, 0o700))
	require.Contains(t, fix(), "mv "+at)
	if runtime.GOOS == "windows" {
		return
	}
	require.NoError(t, os.Remove(at))
	require.NoError(t, os.WriteFile(at, []byte(`{"format": 1}`), 0o600))
	require.NoError(t, os.Chmod(at, 0o644))
	require.Equal(t, "chmod 600 "+at, fix())
	require.NoError(t, os.Chmod(at, 0o600))
	load(t, At(at))
}

// What can be done about a signature that is required is what lifts exactly that.
func TestFixOfARequiredSignature(t *testing.T) {
	t.Parallel()
	strange, _ := publisher(t, "stranger")
	foreign := sign(t, strange, printer(t), nil)
	for n, c := range map[string]struct {
		trust Trust
		sig   []byte
		want  string
	}{
		"all":       {Trust{RequireAll: true}, nil, "lend connector add one that a publisher signed whom you trust, or lend publisher require --off --all"},
		"one":       {Trust{Require: []string{"printer"}}, nil, "lend connector add one that a publisher signed whom you trust, or lend publisher require --off printer"},
		"both":      {Trust{RequireAll: true, Require: []string{"printer"}}, foreign, "lend publisher add PUBLISHER, if you trust it, or lend publisher require --off --all, then lend publisher require --off printer"},
		"untrusted": {Trust{Require: []string{"printer"}}, foreign, "lend publisher add PUBLISHER, if you trust it, or lend publisher require --off printer"},
	} {
		_, err := c.trust.Check(printer(t), c.sig)
		var required *RequiredError
		require.ErrorAs(t, err, &required, n)
		require.Equal(t, c.want, required.Fix(), n)
		require.Equal(t, printer(t), required.Subject, n)
	}
}
