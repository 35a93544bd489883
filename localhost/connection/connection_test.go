package connection

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func key(t *testing.T, s string) name.ConnectorKey {
	t.Helper()
	k, err := name.ParseConnectorKey(s)
	require.NoError(t, err)
	return k
}

func id(t *testing.T, s string) name.ConnectionID {
	t.Helper()
	c, err := name.ParseConnectionID(s)
	require.NoError(t, err)
	return c
}

func label(t *testing.T, s string) name.Label {
	t.Helper()
	l, err := name.ParseLabel(s)
	require.NoError(t, err)
	return l
}

func openRoot(t *testing.T) *Root {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "connections"))
	require.NoError(t, err)
	require.NoError(t, r.Sealed().Create(sealed.Source{Kind: sealed.KeyFile}))
	return r
}

func create(t *testing.T, r *Root) *Connection {
	t.Helper()
	c, err := r.Create(key(t, "github"), id(t, "default"))
	require.NoError(t, err)
	return c
}

func requirePrivate(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return
	}
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm(), path)
}

func TestRoot(t *testing.T) {
	t.Parallel()

	t.Run("makes-private-directories", func(t *testing.T) {
		t.Parallel()
		r := openRoot(t)
		c := create(t, r)
		for _, d := range []string{r.Dir(), c.Home(), c.Temp(), c.State(), filepath.Dir(c.Home())} {
			require.DirExists(t, d)
			requirePrivate(t, d, 0o700)
		}
		require.Equal(t, "github", c.Connector().String())
		require.Equal(t, "default", c.ID().String())
	})

	t.Run("refuses-what-is-not-private", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("modes and links are of unix")
		}
		_, err := Open("relative")
		require.ErrorIs(t, err, ErrInvalid)
		dir := filepath.Join(t.TempDir(), "open")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chmod(dir, 0o750))
		_, err = Open(dir)
		require.ErrorIs(t, err, ErrUnsafe)
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(t.TempDir(), link))
		_, err = Open(link)
		require.ErrorIs(t, err, ErrUnsafe)

		r := openRoot(t)
		c := create(t, r)
		require.NoError(t, os.Remove(c.Home()))
		require.NoError(t, os.Symlink(t.TempDir(), c.Home()))
		_, err = r.Get(c.Connector(), c.ID())
		require.ErrorIs(t, err, ErrUnsafe)
		_, err = c.Environment(Declared{}, nil, nil)
		require.ErrorIs(t, err, ErrUnsafe)
	})

	t.Run("lists-in-order", func(t *testing.T) {
		t.Parallel()
		r := openRoot(t)
		all, err := r.List(key(t, "github"))
		require.NoError(t, err)
		require.Empty(t, all)
		for _, n := range []string{"work", "home", "Else"} {
			_, err := r.Create(key(t, "github"), id(t, n))
			require.NoError(t, err)
		}
		_, err = r.Create(key(t, "stripe"), id(t, "other"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(r.connector(key(t, "github")), "stray"), nil, 0o600))
		all, err = r.List(key(t, "github"))
		require.NoError(t, err)
		var ids []string
		for _, c := range all {
			ids = append(ids, c.ID().String())
		}
		require.Equal(t, []string{"Else", "home", "work"}, ids)
		_, err = r.Create(key(t, "github"), id(t, "else"))
		require.ErrorIs(t, err, ErrExists, "case does not tell connections apart")
		_, err = r.Get(key(t, "github"), id(t, "nobody"))
		require.ErrorIs(t, err, ErrNotFound)
		_, err = r.Get(key(t, "github"), name.ConnectionID{})
		require.ErrorIs(t, err, ErrInvalid)
		_, err = r.Create(name.ConnectorKey{}, id(t, "x"))
		require.ErrorIs(t, err, ErrInvalid)
	})

	t.Run("a-file-in-the-place-of-the-default", func(t *testing.T) {
		t.Parallel()
		r := openRoot(t)
		_, err := r.Create(key(t, "github"), id(t, "work"))
		require.NoError(t, err)
		require.NoError(t, r.Remove(key(t, "github"), id(t, "work")))
		require.NoError(t, os.WriteFile(filepath.Join(r.connector(key(t, "github")), Default), nil, 0o600))
		all, err := r.Names(key(t, "github"))
		require.NoError(t, err)
		require.Equal(t, []name.ConnectionID{id(t, Default)}, all)
		_, err = r.List(key(t, "github"))
		require.ErrorIs(t, err, ErrUnsafe, "it is said, not stumbled over later")
		require.NoError(t, r.Remove(key(t, "github"), all[0]))
		_, err = r.Ensure(key(t, "github"))
		require.NoError(t, err)
	})

	t.Run("ensure-makes-the-default-once", func(t *testing.T) {
		t.Parallel()
		r := openRoot(t)
		for range 2 {
			all, err := r.Ensure(key(t, "github"))
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.Equal(t, Default, all[0].ID().String())
		}
	})

	t.Run("remove-follows-no-link", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("modes and links are of unix")
		}
		r := openRoot(t)
		c := create(t, r)
		outside := t.TempDir()
		kept := filepath.Join(outside, "kept")
		require.NoError(t, os.WriteFile(kept, []byte("x"), 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(c.Home(), "out")))
		sealed := filepath.Join(c.Home(), "sealed", "deep")
		require.NoError(t, os.MkdirAll(sealed, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(sealed, "f"), nil, 0o400))
		require.NoError(t, os.Chmod(sealed, 0))
		require.NoError(t, os.Chmod(filepath.Dir(sealed), 0o500))
		require.NoError(t, r.Remove(c.Connector(), c.ID()))
		require.FileExists(t, kept)
		require.NoDirExists(t, filepath.Dir(c.Home()))
		require.ErrorIs(t, r.Remove(c.Connector(), c.ID()), ErrNotFound)
		_, err := c.Environment(Declared{}, nil, nil)
		require.ErrorIs(t, err, ErrNotFound, "a removed connection is not made again")
		require.ErrorIs(t, c.SetDisabled(false), ErrNotFound)
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	d := Declared{
		Settings: []Declaration{{Name: "proxy", Variable: "HTTPS_PROXY"}, {Name: "host", Variable: "GH_HOST", Default: "github.com"}},
		Secrets:  []Declaration{{Name: "token", Variable: "GH_TOKEN"}},
	}

	t.Run("round-trip", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		cfg, err := c.Config()
		require.NoError(t, err)
		require.Equal(t, Config{SchemaVersion: "1"}, cfg)
		require.NoError(t, c.SetSetting(d, "proxy", "http://proxy:3128"))
		require.NoError(t, c.SetSetting(d, "TZ", "Europe/Berlin"))
		require.NoError(t, c.SetSetting(d, "Tz", "UTC"))
		require.NoError(t, c.SetDisabled(true))
		cfg, err = c.Config()
		require.NoError(t, err)
		require.Equal(t, Config{
			SchemaVersion: "1", Disabled: true,
			Settings: map[string]string{"HTTPS_PROXY": "http://proxy:3128", "Tz": "UTC"},
		}, cfg, "a name in another case replaces")
		requirePrivate(t, c.configPath(), 0o600)
		require.NoError(t, c.UnsetSetting(d, "proxy"))
		require.ErrorIs(t, c.UnsetSetting(d, "proxy"), ErrNotFound)
	})

	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		for variable, want := range map[string]error{
			"LD_PRELOAD": ErrReserved, "ld_preload": ErrReserved, "DYLD_INSERT_LIBRARIES": ErrReserved, "PATH": ErrReserved,
			"HOME": ErrReserved, "TMPDIR": ErrReserved, "NODE_OPTIONS": ErrReserved, "Node_Options": ErrReserved,
			"PYTHONPATH": ErrReserved, "PERL5OPT": ErrReserved, "BASH_ENV": ErrReserved, "BASH_FUNC_ls": ErrReserved,
			"GIT_SSH_COMMAND": ErrReserved, "GIT_CONFIG_COUNT": ErrReserved, "OPENSSL_CONF": ErrReserved,
			"LEND_DIR": ErrReserved, "npm_config_registry": ErrReserved, "JAVA_TOOL_OPTIONS": ErrReserved,
			"GH_TOKEN": ErrConflict, "gh_token": ErrConflict,
			"": ErrInvalid, "A-B": ErrInvalid, "A=B": ErrInvalid, "1A": ErrInvalid, "A\x00": ErrInvalid, "Ä": ErrInvalid,
			strings.Repeat("A", 129): ErrInvalid,
		} {
			require.ErrorIs(t, c.SetSetting(d, variable, "x"), want, "%q", variable)
		}
		require.ErrorIs(t, c.SetSetting(d, "A", "x\x00"), ErrInvalid)
		require.ErrorIs(t, c.SetSetting(d, "A", "\xff"), ErrInvalid)
		require.ErrorIs(t, c.SetSetting(d, "A", strings.Repeat("x", MaxSettingBytes+1)), ErrInvalid)
		require.NoFileExists(t, c.configPath(), "a refused change writes nothing")
		for i := range MaxSettings {
			require.NoError(t, c.SetSetting(d, "A"+strings.Repeat("x", i%100)+strings.Repeat("y", i/100), "x"))
		}
		require.ErrorIs(t, c.SetSetting(d, "B", "x"), ErrInvalid)
	})

	t.Run("strict-file", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		for what, text := range map[string]string{
			"unknown-field":   `{"schemaVersion":"1","enabled":true}`,
			"duplicate":       `{"schemaVersion":"1","schemaVersion":"1"}`,
			"duplicate-name":  `{"schemaVersion":"1","settings":{"A":"1","A":"2"}}`,
			"other-case":      `{"schemaVersion":"1","settings":{"A":"1","a":"2"}}`,
			"reserved":        `{"schemaVersion":"1","settings":{"LD_PRELOAD":"x"}}`,
			"other-version":   `{"schemaVersion":"2"}`,
			"no-version":      `{}`,
			"trailing":        `{"schemaVersion":"1"} {}`,
			"secret-name":     `{"schemaVersion":"1","secrets":{"../x":"A"}}`,
			"secret-case":     `{"schemaVersion":"1","secrets":{"x":"A","X":"B"}}`,
			"secret-variable": `{"schemaVersion":"1","secrets":{"x":"PATH"}}`,
			"both":            `{"schemaVersion":"1","settings":{"A":"1"},"secrets":{"x":"A"}}`,
			"empty":           ``,
			"large":           `{"schemaVersion":"1"` + strings.Repeat(" ", maxConfigBytes) + `}`,
		} {
			require.NoError(t, os.WriteFile(c.configPath(), []byte(text), 0o600))
			_, err := c.Config()
			require.Error(t, err, what)
			_, err = c.Environment(Declared{}, nil, nil)
			require.Error(t, err, what)
		}
		if runtime.GOOS == "windows" {
			return
		}
		require.NoError(t, os.WriteFile(c.configPath(), []byte(`{"schemaVersion":"1"}`), 0o600))
		require.NoError(t, os.Chmod(c.configPath(), 0o640))
		_, err := c.Config()
		require.ErrorIs(t, err, ErrUnsafe)
		require.NoError(t, os.Remove(c.configPath()))
		require.NoError(t, os.Symlink("elsewhere", c.configPath()))
		_, err = c.Config()
		require.Error(t, err, "a link is not followed, even to nothing")
	})
}
