package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"rsc.io/qr"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/ownerfile"
)

func TestAnswersOfTheOwner(t *testing.T) {
	for line, want := range map[string]bool{
		"y\n": true, "Y\n": true, "yes\r\n": true, " YES ": true,
		"": false, "\n": false, "n\n": false, "no\n": false, "yesterday\n": false, "362874\n": false, "j\n": false,
	} {
		require.Equal(t, want, agreed(line, "362874", false), "%q", line)
	}
	for line, want := range map[string]bool{
		"362874\n": true, "362 874\n": true, " 362874": true,
		"": false, "y\n": false, "yes\n": false, "362875\n": false, "36287\n": false, "3628744\n": false,
	} {
		require.Equal(t, want, agreed(line, "362874", true), "%q", line)
	}
	require.False(t, agreed("\n", "", true), "no digits are none that agree")
	require.False(t, agreed("", "", true))
	require.Equal(t, "362 874", spaced("362874"))
	require.Equal(t, `"36\x1b"`, spaced("36\x1b"))
}

// TestQRCode: each module is half a character, the border is light, and what is too
// wide is not drawn.
func TestQRCode(t *testing.T) {
	text := "lend-pair:1:" + strings.Repeat("A", 150)
	code, err := qr.Encode(text, qr.L)
	require.NoError(t, err)
	drawn := qrText(text, 80)
	lines := strings.Split(strings.TrimSuffix(drawn, "\n"), "\n")
	require.Len(t, lines, (code.Size+2*quiet+1)/2)
	light := func(x, y int) bool {
		switch []rune(lines[y/2])[x] {
		case '█':
			return true
		case '▀':
			return y%2 == 0
		case '▄':
			return y%2 == 1
		}
		return false
	}
	for y := range code.Size + 2*quiet {
		require.Equal(t, code.Size+2*quiet, utf8.RuneCountInString(lines[y/2]))
		for x := range code.Size + 2*quiet {
			require.Equal(t, !code.Black(x-quiet, y-quiet), light(x, y), "%d %d", x, y)
		}
	}
	require.Empty(t, qrText(text, code.Size+2*quiet-1))
	require.Empty(t, qrText(text, 0))
	require.Empty(t, qrText(strings.Repeat("A", 5000), 1000))
	require.Zero(t, terminalWidth(&bytes.Buffer{}))
	require.Zero(t, terminalWidth(nil))
}

// TestLinkIsNoArgument: and is not repeated where it was one.
func TestLinkIsNoArgument(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	for _, args := range [][]string{{"pair", "lend-pair:1:SECRET"}, {"pair", "-", "lend-pair:1:SECRET"}, {"pair", "--json", "lend-pair:1:SECRET"}} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(t.Context(), newApp(args, strings.NewReader(""), &out, &errs)))
		require.Contains(t, errs.String(), "unexpected argument (a link is a secret")
		require.NotContains(t, out.String()+errs.String(), "SECRET")
	}
}

func TestLinkOnStandardInput(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), newApp([]string{"pair"}, strings.NewReader(""), &out, &errs)))
	require.Contains(t, errs.String(), "no identity", "the link is not asked for in vain")
	require.Zero(t, run(t.Context(), newApp([]string{"init"}, strings.NewReader(""), &out, &errs)))
	for in, want := range map[string]string{
		"": "not a pairing link", "SECRET\n": "not a pairing link", "lend-pair:1:SECRET\n": "not whole", "lend-pair:7:SECRET": "another version",
		strings.Repeat("SECRET", 2000): "not a pairing link",
	} {
		errs.Reset()
		require.Equal(t, 2, run(t.Context(), newApp([]string{"pair"}, strings.NewReader(in), &out, &errs)))
		require.Contains(t, errs.String(), want)
		require.NotContains(t, errs.String(), "SECRET")
	}
	require.Equal(t, 2, run(t.Context(), newApp([]string{"pair", "--name", "-x"}, strings.NewReader(""), &out, &errs)))
}

func TestInviteNeedsAGateway(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), newApp([]string{"init"}, strings.NewReader(""), &out, &errs)))
	require.Equal(t, 1, run(t.Context(), newApp([]string{"peer", "invite"}, strings.NewReader(""), &out, &errs)))
	require.Contains(t, errs.String(), "lend serve")
	for _, ttl := range []string{"0s", "-1s", "11m", "1ms"} {
		require.Equal(t, 2, run(t.Context(), newApp([]string{"peer", "invite", "--ttl", ttl}, strings.NewReader(""), &out, &errs)))
	}
	errs.Reset()
	require.Zero(t, run(t.Context(), newApp([]string{"peer", "list"}, strings.NewReader(""), &out, &errs)))
	require.Contains(t, errs.String(), "names no peer")
}

// TestWhatIsSaidOfARewrite: a file that is new is never said to stay as it is.
func TestWhatIsSaidOfARewrite(t *testing.T) {
	var out, errs bytes.Buffer
	a := newApp(nil, strings.NewReader(""), &out, &errs)
	require.NoError(t, a.replaced("policy.yaml", nil))
	require.Empty(t, errs.String())
	require.NoError(t, a.replaced("policy.yaml", fmt.Errorf("write: %w", ownerfile.ErrUnsynced)))
	require.Contains(t, errs.String(), "the policy is written, but a power cut may yet bring the old one back")
	require.NotContains(t, errs.String(), "stays as it is")
	require.ErrorContains(t, a.replaced("policy.yaml", ownerfile.ErrChanged), "and stays as it is")
	require.ErrorContains(t, a.replaced("policy.yaml", os.ErrPermission), "the policy stays as it is")
}

// TestPolicyOnStandardInput: "-" is no file that is missing.
func TestPolicyOnStandardInput(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), newApp([]string{"policy", "check", "-"}, strings.NewReader(""), &out, &errs)))
	require.Contains(t, errs.String(), "not read from standard input here")
	require.NotContains(t, errs.String(), "there is no policy file")
}

// TestNumberOutOfRange: what is said of it is the program's own.
func TestNumberOutOfRange(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), newApp([]string{"audit", "tail", "-n", "99999999999999999999"}, strings.NewReader(""), &out, &errs)))
	require.Contains(t, errs.String(), `--last: "99999999999999999999" is out of range`)
	require.NotContains(t, errs.String(), "strconv")
}

// forgetful is a gateway that goes, or does not answer, after the owner's yes.
type forgetful struct {
	admin.Backend
	file    string
	peer    string
	settled error         // what it says then
	gone    chan struct{} // closed by the yes, if it is gone then
}

func (g *forgetful) Status(context.Context) (admin.Status, error) {
	return admin.Status{Policy: admin.Policy{File: g.file}}, nil
}

func (g *forgetful) Invite(ctx context.Context, _ admin.InvitationWanted, tell func(admin.Invitation) error) error {
	expires := time.Now().Add(time.Minute)
	err := errors.Join(
		tell(admin.Invitation{ID: "id", Link: "lend-pair:1:x", Expires: &expires, Phase: "open"}),
		tell(admin.Invitation{Phase: "shown", Peer: g.peer, Digits: "362874"}),
	)
	select {
	case <-ctx.Done():
		return err
	case <-g.gone:
		panic(http.ErrAbortHandler) // as one that is killed
	}
}

func (g *forgetful) Decide(_ context.Context, d admin.Decision) error {
	if d.What != "settle" {
		return nil
	}
	if g.settled == nil {
		close(g.gone)
	}
	return g.settled
}

// TestYesThatIsWritten: what is in the file is never said to be as it was, whatever
// becomes of the gateway, and nobody waits for one that forgets.
func TestYesThatIsWritten(t *testing.T) {
	for title, settled := range map[string]error{"gone": nil, "does-not-answer": errors.New("no")} {
		dir, err := os.MkdirTemp("", "p") //nolint:usetesting // t.TempDir is too long for a socket
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		t.Setenv("LEND_DIR", dir)
		var out, errs bytes.Buffer
		a := newApp([]string{"init"}, strings.NewReader(""), &out, &errs)
		require.Zero(t, run(t.Context(), a))
		p, err := a.paths()
		require.NoError(t, err)
		require.NoError(t, p.makePrivate())
		_, key, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		id, err := peerID(key)
		require.NoError(t, err)
		g := &forgetful{file: p.policy(), peer: id.String(), settled: settled, gone: make(chan struct{})}
		s, err := admin.Listen(t.Context(), p.socket, g, zerolog.Nop())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out.Reset()
		require.Zero(t, run(ctx, newApp([]string{"peer", "invite", "--name", "laptop"}, strings.NewReader("362874\n"), &out, &errs)), "%s: %s", title, errs.String())
		require.NoError(t, ctx.Err(), title)
		cancel()
		require.NoError(t, s.Close())
		require.Contains(t, out.String(), "paired with laptop "+id.String(), title)
		require.NotContains(t, errs.String(), "nothing has changed", title)
		file, err := os.ReadFile(p.policy())
		require.NoError(t, err)
		require.Contains(t, string(file), "laptop: "+id.String(), title)
	}
}
