package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestLogIsPrintableASCII(t *testing.T) {
	t.Parallel()
	all := ""
	for r := range rune(0x3000) {
		all += string(r)
	}
	for _, text := range []string{
		"plain", "\x1b[2J\x1b]0;title\a", "\u202egnp.exe", "\u0085\u009b31m", "\x7f", "\U0001f600", "bad \xff\xfe utf-8", "", "\n\r\t\"\\", all,
	} {
		var out bytes.Buffer
		log := newLog(&out, zerolog.InfoLevel)
		log.Info().Str("cause", text).Err(errors.New(text)).Msg("refused")
		line := out.String()
		require.Equal(t, 1, strings.Count(line, "\n"), "one line")
		for _, b := range []byte(strings.TrimSuffix(line, "\n")) {
			require.True(t, b >= ' ' && b < 0x7f, "%q in %s", b, line)
		}
		var back struct{ Cause, Error string }
		require.NoError(t, json.Unmarshal(out.Bytes(), &back), "%s", line)
		want := strings.ToValidUTF8(text, "\uFFFD")
		if !strings.Contains(text, "\xff") {
			require.Equal(t, want, back.Cause)
			require.Equal(t, want, back.Error)
		}
	}
}

func TestLogTellsWhatFailed(t *testing.T) {
	t.Parallel()
	n, err := ascii{failing{}}.Write([]byte("{}\n"))
	require.Error(t, err)
	require.Zero(t, n)
	n, err = ascii{&bytes.Buffer{}}.Write([]byte("\"\u202e\"\n"))
	require.NoError(t, err)
	require.Equal(t, 6, n, "what was taken, and not what it became")
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
