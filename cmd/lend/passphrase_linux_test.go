package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPassphrase(t *testing.T) {
	t.Run("hidden-line", func(t *testing.T) {
		for in, want := range map[string]string{"abc\n": "abc", "abd\x7fc\r": "abc", "\x7f\n": ""} {
			got, err := readHidden(strings.NewReader(in))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		for _, in := range []string{"abc", "abc\x03", "\x04", strings.Repeat("x", maxPassphrase+2)} {
			_, err := readHidden(strings.NewReader(in))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "abc")
		}
	})
	t.Run("variable", func(t *testing.T) {
		var none *descriptors
		t.Setenv("LEND_PASSPHRASE", "correct horse\r\n")
		pass, err := none.askOnce()
		require.NoError(t, err)
		require.Equal(t, "correct horse", string(pass))
		pass, err = none.askFirst()
		require.NoError(t, err)
		require.Equal(t, "correct horse", string(pass))
		t.Setenv("LEND_NEW_PASSPHRASE", "another one")
		pass, err = none.askFirst()
		require.NoError(t, err)
		require.Equal(t, "another one", string(pass))
		pass, err = none.askNew()
		require.NoError(t, err)
		require.Equal(t, "another one", string(pass))
		t.Setenv("LEND_PASSPHRASE", "")
		pass, err = none.askOnce()
		require.NoError(t, err)
		require.Empty(t, pass, "set but empty is not asked for; the store refuses it")
	})
	t.Run("descriptor", func(t *testing.T) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = w.WriteString("correct horse\n")
		require.NoError(t, err)
		require.NoError(t, w.Close())
		t.Setenv("LEND_PASSPHRASE", "the descriptor wins")
		fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD, 100)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Contains(t, children(t), strconv.Itoa(fd), "as a shell gives it")
		given := takeDescriptors()
		require.NotContains(t, children(t), strconv.Itoa(fd), "no child has it, also before it is read")
		t.Setenv("LEND_PASSPHRASE_FD", strconv.Itoa(fd))
		pass, err := given.askOnce()
		require.NoError(t, err)
		require.Equal(t, "correct horse", string(pass))
		_, err = given.askOnce()
		require.ErrorContains(t, err, "was not given", "it is closed, and its number may be another file's")
		r, w, err = os.Pipe() // of this process: nobody gave it
		require.NoError(t, err)
		t.Setenv("LEND_PASSPHRASE_FD", strconv.Itoa(int(w.Fd())))
		_, err = given.askOnce()
		require.ErrorContains(t, err, "was not given")
		require.NoError(t, w.Close(), "it was left alone")
		require.NoError(t, r.Close())
		t.Setenv("LEND_PASSPHRASE_FD", "three")
		_, err = given.askOnce()
		require.Error(t, err)
	})
}

// children lists the descriptors that a child of this process has.
func children(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "echo /proc/$$/fd/*").Output()
	require.NoError(t, err)
	var all []string
	for _, path := range strings.Fields(string(out)) {
		all = append(all, filepath.Base(path))
	}
	return all
}
