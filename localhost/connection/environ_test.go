package connection

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/internal/removal"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/stretchr/testify/require"
)

func TestEnvironmentIsExactlyThis(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the list is that of unix")
	}
	t.Setenv("LEAK", "from the host's own environment")
	t.Setenv("HTTPS_PROXY", "from the host's own environment")
	c := create(t, openRoot(t))
	d := Declared{
		Settings: []Declaration{
			{Name: "host", Variable: "GH_HOST", Default: "github.com"},
			{Name: "quiet", Variable: "GH_QUIET", Default: "1"},
			{Name: "unset", Variable: "GH_UNSET"},
		},
		Secrets: []Declaration{{Name: "token", Variable: "GH_TOKEN"}},
	}
	require.NoError(t, c.SetSetting(d, "quiet", "0"))
	require.NoError(t, c.SetSetting(d, "TZ", "Europe/Berlin"))
	require.NoError(t, c.SetSetting(d, "NO_PROXY", ""))
	require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader("t")))
	env, err := c.Environment(d, []string{"SSL_CERT_DIR=/certs"}, []argv.Variable{{Name: "GH_REPO", Value: "a/b"}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"GH_HOST=github.com",
		"GH_QUIET=0",
		"GH_REPO=a/b",
		"GH_TOKEN=t",
		"HOME=" + c.Home(),
		"LC_CTYPE=C.UTF-8",
		"NO_COLOR=1",
		"NO_PROXY=",
		"PATH=/dev/null",
		"SSL_CERT_DIR=/certs",
		"TERM=dumb",
		"TMPDIR=" + c.Temp(),
		"TZ=Europe/Berlin",
		"XDG_STATE_HOME=" + c.State(),
	}, env)
}

// The base says no more of the locale than which bytes are a character, and nothing
// once somebody else speaks of it.
func TestEnvironmentLocale(t *testing.T) {
	t.Parallel()
	c := create(t, openRoot(t))
	for title, by := range map[string]struct {
		call []argv.Variable
		want []string
	}{
		"base":     {nil, []string{"LC_CTYPE=C.UTF-8"}},
		"language": {[]argv.Variable{{Name: "LANG", Value: "de_DE.UTF-8"}}, []string{"LANG=de_DE.UTF-8"}},
		"all":      {[]argv.Variable{{Name: "LC_ALL", Value: "C"}}, []string{"LC_ALL=C"}},
		"itself":   {[]argv.Variable{{Name: "LC_CTYPE", Value: "C"}}, []string{"LC_CTYPE=C"}},
		"both": {
			[]argv.Variable{{Name: "LC_CTYPE", Value: "C"}, {Name: "LANG", Value: "fr_FR"}}, []string{"LANG=fr_FR", "LC_CTYPE=C"},
		},
		"other": {[]argv.Variable{{Name: "LC_TIME", Value: "C"}}, []string{"LC_CTYPE=C.UTF-8", "LC_TIME=C"}},
	} {
		env, err := c.Environment(Declared{}, nil, by.call)
		require.NoError(t, err, title)
		env = slices.DeleteFunc(env, func(v string) bool { return !strings.HasPrefix(v, "LANG") && !strings.HasPrefix(v, "LC_") })
		require.Equal(t, by.want, env, title)
	}
}

func TestEnvironmentRefusals(t *testing.T) {
	t.Parallel()
	c := create(t, openRoot(t))
	d := Declared{Secrets: []Declaration{{Name: "token", Variable: "GH_TOKEN"}}}
	require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader("t")))
	require.NoError(t, c.SetSetting(d, "HTTPS_PROXY", "http://proxy"))

	for variable, want := range map[string]error{
		"https_proxy": ErrConflict, "GH_TOKEN": ErrConflict, "Gh_Token": ErrConflict,
		"LD_LIBRARY_PATH": ErrReserved, "path": ErrReserved, "HOME": ErrReserved, "NODE_OPTIONS": ErrReserved,
		"": ErrInvalid, "A=B": ErrInvalid, "A B": ErrInvalid,
	} {
		_, err := c.Environment(d, nil, []argv.Variable{{Name: variable, Value: "x"}})
		require.ErrorIs(t, err, want, variable)
		var call *CallError
		require.ErrorAs(t, err, &call, variable)
		require.Equal(t, variable, call.Variable)
	}
	_, err := c.Environment(d, nil, []argv.Variable{{Name: "A", Value: "x"}, {Name: "a", Value: "y"}})
	require.ErrorIs(t, err, ErrConflict)
	_, err = c.Environment(d, nil, []argv.Variable{{Name: "A", Value: "\x00"}})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = c.Environment(d, nil, []argv.Variable{{Name: "LANG", Value: "de_DE.UTF-8"}})
	require.NoError(t, err, "a call may set what a setting may")

	for what, release := range map[string]string{"no-equals": "A", "home": "HOME=/x", "nul": "A=\x00"} {
		_, err := c.Environment(d, []string{release}, nil)
		require.Error(t, err, what)
		var call *CallError
		require.NotErrorAs(t, err, &call, what)
	}

	for what, bad := range map[string]Declared{
		"secret-and-owner-setting": {Secrets: []Declaration{{Name: "token", Variable: "HTTPS_PROXY"}}},
		"reserved-secret":          {Secrets: []Declaration{{Name: "token", Variable: "LD_PRELOAD"}}},
		"reserved-default":         {Settings: []Declaration{{Name: "x", Variable: "PATH", Default: "/bin"}}},
		"one-variable-twice": {Settings: []Declaration{
			{Name: "x", Variable: "GH_TOKEN", Default: "x"},
		}, Secrets: d.Secrets},
	} {
		_, err := c.Environment(bad, nil, nil)
		require.Error(t, err, what)
	}
}

// A later release may declare the secret that the owner had declared; its
// variable wins, and the value stays.
func TestReleaseTakesOverAnOwnersSecret(t *testing.T) {
	t.Parallel()
	c := create(t, openRoot(t))
	require.NoError(t, c.SetSecret(Declared{}, label(t, "token"), "MY_TOKEN", strings.NewReader("t")))
	d := Declared{Secrets: []Declaration{{Name: "token", Variable: "GH_TOKEN"}}}
	env, err := c.Environment(d, nil, nil)
	require.NoError(t, err)
	require.Contains(t, env, "GH_TOKEN=t")
	require.NotContains(t, env, "MY_TOKEN=t")
}

func TestEnvironmentMakesMissingDirectories(t *testing.T) {
	t.Parallel()
	c := create(t, openRoot(t))
	require.NoError(t, removal.Tree(c.dir, "tmp"))
	_, err := c.Environment(Declared{}, nil, nil)
	require.NoError(t, err)
	require.DirExists(t, c.Temp())
}

func TestDeclaredBy(t *testing.T) {
	t.Parallel()
	require.Equal(t, Declared{
		Settings: []Declaration{{Name: "host", Variable: "GH_HOST", Description: "which", Default: "github.com"}},
		Secrets:  []Declaration{{Name: "token", Variable: "GH_TOKEN", Description: "a token"}},
	}, DeclaredBy(manifest.Manifest{
		Settings: []manifest.Setting{{Name: "host", Env: "GH_HOST", Description: "which", Default: "github.com"}},
		Secrets:  []manifest.Secret{{Name: "token", Env: "GH_TOKEN", Description: "a token"}},
	}))
}
