package connection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

const canary = "ghp_canary-0123456789"

func sealedPath(c *Connection, secret string) string {
	root := filepath.Dir(filepath.Dir(filepath.Dir(c.dir)))
	return filepath.Join(root, "sealed", "values", c.key.String(), c.id.String(), secret+".sealed")
}

func TestSecretNeverShowsItself(t *testing.T) {
	t.Parallel()
	s := Secret{value: canary}
	var log bytes.Buffer
	l := zerolog.New(&log)
	l.Info().Interface("a", s).Any("b", &s).Stringer("c", s).Interface("d", map[string]any{"x": s}).Msg("x")
	encoded, err := json.Marshal(map[string]any{"a": s, "b": &s, "c": []Secret{s}})
	require.NoError(t, err)
	text, err := s.MarshalText()
	require.NoError(t, err)
	for _, shown := range []string{
		log.String(), string(encoded), string(text), s.String(),
		fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s), fmt.Sprintf("%v %#v", &s, &s),
		fmt.Sprintf("%+v", struct{ S Secret }{s}), fmt.Errorf("oops: %v", s).Error(),
	} {
		require.NotContains(t, shown, canary)
		require.NotContains(t, shown, fmt.Sprintf("%x", canary))
		require.Contains(t, shown, "[secret]")
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	d := Declared{
		Secrets:  []Declaration{{Name: "token", Variable: "GH_TOKEN"}, {Name: "other", Variable: "GH_OTHER"}},
		Settings: []Declaration{{Name: "host", Variable: "GH_HOST"}},
	}

	t.Run("set-list-delete", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader(canary+"\n")))
		require.NoError(t, c.SetSecret(d, label(t, "mine"), "MY_TOKEN", strings.NewReader("a\nb\r\n")))
		all, err := c.Secrets(d)
		require.NoError(t, err)
		require.Equal(t, []SecretStatus{
			{Name: "mine", Variable: "MY_TOKEN", Set: true, Owner: true},
			{Name: "other", Variable: "GH_OTHER"},
			{Name: "token", Variable: "GH_TOKEN", Set: true},
		}, all)
		missing, err := c.Missing(d)
		require.NoError(t, err)
		require.Equal(t, []string{"other"}, missing)
		env, err := c.Environment(d, nil, nil)
		require.NoError(t, err)
		require.Contains(t, env, "GH_TOKEN="+canary)
		require.Contains(t, env, "MY_TOKEN=a\nb", "one line end is taken off")

		path := sealedPath(c, "token")
		requirePrivate(t, path, 0o600)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(data), canary)

		require.NoError(t, c.DeleteSecret(label(t, "token")))
		require.NoError(t, c.DeleteSecret(label(t, "mine")))
		require.ErrorIs(t, c.DeleteSecret(label(t, "token")), ErrNotFound)
		all, err = c.Secrets(d)
		require.NoError(t, err)
		require.Len(t, all, 2)
		env, err = c.Environment(d, nil, nil)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(env, "\n"), canary)
	})

	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		broken := errors.New("broken")
		for what, try := range map[string]struct {
			name, variable string
			value          string
			want           error
		}{
			"undeclared":            {"nobody", "", "x", ErrNotFound},
			"empty":                 {"token", "", "\n", ErrInvalid},
			"nul":                   {"token", "", "a\x00b", ErrInvalid},
			"too-long":              {"token", "", strings.Repeat("x", MaxSecretBytes+1), ErrInvalid},
			"reserved":              {"mine", "LD_PRELOAD", "x", ErrReserved},
			"malformed":             {"mine", "A B", "x", ErrInvalid},
			"variable-of-a-secret":  {"mine", "gh_token", "x", ErrConflict},
			"variable-of-a-setting": {"mine", "GH_HOST", "x", ErrConflict},
			"declared-otherwise":    {"token", "OTHER", "x", ErrExists},
			"declared-in-case":      {"Token", "GH_TOKEN", "x", ErrExists},
		} {
			err := c.SetSecret(d, label(t, try.name), try.variable, strings.NewReader(try.value))
			require.ErrorIs(t, err, try.want, what)
			require.NoFileExists(t, sealedPath(c, try.name), what)
		}
		err := c.SetSecret(d, label(t, "token"), "", iotest.ErrReader(broken))
		require.ErrorIs(t, err, broken)
		require.NoError(t, c.SetSetting(d, "PLAIN", "x"))
		require.ErrorIs(t, c.SetSecret(d, label(t, "mine"), "PLAIN", strings.NewReader("x")), ErrConflict)
		require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader(strings.Repeat("x", MaxSecretBytes)+"\r\n")))
	})

	t.Run("unknown-format-is-refused", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		for _, data := range []string{"", canary, "lend-secret 2 sealed\n" + canary, "lend-secret 1 plain\n"} {
			require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader("x")))
			require.NoError(t, os.WriteFile(sealedPath(c, "token"), []byte(data), 0o600))
			_, err := c.Environment(d, nil, nil)
			require.ErrorIs(t, err, sealed.ErrCorrupt)
			require.NotContains(t, err.Error(), canary)
		}
	})

	t.Run("errors-hold-no-value", func(t *testing.T) {
		t.Parallel()
		c := create(t, openRoot(t))
		require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader(canary)))
		require.NoError(t, os.Chmod(sealedPath(c, "token"), 0o644))
		var errs []error
		_, err := c.Environment(d, nil, nil)
		errs = append(errs, err)
		require.NoError(t, os.Chmod(sealedPath(c, "token"), 0o600))
		_, err = c.Environment(d, nil, []argv.Variable{{Name: "GH_TOKEN", Value: canary}})
		errs = append(errs, err, c.SetSetting(d, "GH_TOKEN", canary), c.SetSetting(d, "A", canary+"\x00"),
			c.SetSecret(d, label(t, "nobody"), "", strings.NewReader(canary)),
			c.SetSecret(d, label(t, "token"), "", strings.NewReader(canary+"\x00")))
		for i, err := range errs {
			if i > 0 || filepath.Separator == '/' {
				require.Error(t, err)
				require.NotContains(t, err.Error(), canary)
			}
		}
	})
}
