package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/admin"
)

// terminal is a new one: what is written to keys is typed.
func terminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keys.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	screen, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	return keys, screen
}

// typist types an answer when the question is there.
type typist struct {
	bytes.Buffer
	t    *testing.T
	keys *os.File
	then string
}

func (a *typist) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("the same digits? [y/N] ")) {
		_, err := a.keys.WriteString(a.then)
		require.NoError(a.t, err)
	}
	return a.Buffer.Write(b)
}

// TestAnswerBeforeTheDigits: a yes that was typed before there were digits to compare
// says nothing about them.
func TestAnswerBeforeTheDigits(t *testing.T) {
	keys, screen := terminal(t)
	_, err := keys.WriteString("y\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCINQ)
		return err == nil && n > 0
	}, 30*time.Second, time.Millisecond, "it is typed")
	require.NoError(t, forgetTyped(screen))
	_, err = keys.WriteString("n\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(screen).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "n\n", line)
	require.NoError(t, forgetTyped(&bytes.Buffer{}), "no terminal")

	// and the question is asked so
	_, err = keys.WriteString("y\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCINQ)
		return err == nil && n > 0
	}, 30*time.Second, time.Millisecond, "it is typed")
	w := &typist{t: t, keys: keys, then: "n\n"}
	t.Setenv("LEND_DIR", t.TempDir())
	a := newApp([]string{"init"}, screen, &bytes.Buffer{}, w)
	require.Zero(t, run(t.Context(), a))
	p, err := a.paths()
	require.NoError(t, err)
	i := &invitation{app: a, client: admin.NewClient(p.socket), file: p.policy(), answers: make(chan bool, 1)}
	peer := newPeer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, i.ask(ctx, admin.Invitation{Phase: "shown", Peer: peer, Digits: "362874"}))
	select {
	case yes := <-i.answers:
		require.False(t, yes)
	case <-ctx.Done():
		require.Fail(t, "nobody answers")
	}
}

func newPeer(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	id, err := peerID(key)
	require.NoError(t, err)
	return id.String()
}
