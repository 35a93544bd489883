package protocol

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCodeTable(t *testing.T) {
	numbers, names := map[Code]bool{}, map[string]bool{}
	last := -1
	for _, c := range codes {
		require.False(t, numbers[c.code], c.name)
		require.False(t, names[c.name], c.name)
		numbers[c.code], names[c.name] = true, true
		require.Greater(t, int(c.code), last, "the table is in order")
		last = int(c.code)
		require.Regexp(t, `^[A-Z]+(_[A-Z]+)*$`, c.name)
		require.NotEmpty(t, c.stage)
		require.True(t, isPrintable(c.public))
		require.Equal(t, c.retry, c.refused == exitRetry, c.name)
		require.Equal(t, c.code == CodeOK, c.refused == 0 && c.ended == 0, c.name)
		for _, s := range []int{c.refused, c.ended} {
			require.Contains(t, []int{0, exitRetry, exitStopped, exitRefused, exitNotFound, exitCancelled, exitUnknown}, s)
		}
	}
}

// spec: CODE-1
func TestCodes(t *testing.T) {
	t.Parallel()
	all := Codes()
	require.Len(t, all, len(codes))
	require.Equal(t, CodeOK, all[0])
	require.Contains(t, all, CodeInternal)
	all[0] = CodeBusy
	require.Equal(t, CodeOK, Codes()[0], "the table stays")
}

func TestUnknownCodes(t *testing.T) {
	c := Code(9999)
	require.Equal(t, "CODE_9999", c.String())
	require.Empty(t, c.Stage())
	require.True(t, c.CanRefuse())
	require.True(t, c.CanEnd())
	require.Equal(t, exitRefused, c.ExitStatus())
	require.Equal(t, exitStopped, c.EndStatus())
	require.False(t, (&Refusal{Code: c}).Retryable())
	require.True(t, (&Refusal{Code: c, RetryAfter: 1}).Retryable())
}

// spec: CODE-2
func TestStatusOfARefusalAndOfAnEnd(t *testing.T) {
	require.Equal(t, 75, CodeShuttingDown.ExitStatus())
	require.Equal(t, 124, CodeShuttingDown.EndStatus())
	require.Equal(t, 126, CodeLeaseExpired.ExitStatus())
	require.Equal(t, 124, CodeLeaseExpired.EndStatus())
	require.Equal(t, 127, CodeCommandUnknown.ExitStatus())
	require.Equal(t, 130, CodeCancelled.ExitStatus())
	require.Equal(t, 255, CodeOutcomeUnknown.ExitStatus())
	require.Equal(t, 124, CodeTimeout.ExitStatus(), "a code that only ends")
	require.True(t, CodeBusy.Retryable())
	require.False(t, CodeDenied.Retryable())
}

// spec: CODE-3
func TestResetNumbersAreOurs(t *testing.T) {
	require.Greater(t, ResetBase, 0x1009, "beyond those of libp2p")
	for _, c := range codes {
		require.Equal(t, c.code, Code(ResetBase+uint32(c.code)-ResetBase))
	}
}

// spec: REFUSE-2
func TestRefusalTextIsMadeSafe(t *testing.T) {
	r := &Refusal{Code: CodeArgumentRejected, Public: "bad \x1b[2J\u202e" + strings.Repeat("x", MaxPublic), Cause: io.EOF}
	f := r.Frame()
	require.Nil(t, check(f))
	require.True(t, strings.HasPrefix(f.Public, "bad ?[2J???"))
	require.Len(t, f.Public, MaxPublic)
	require.ErrorIs(t, r, io.EOF)
	require.NotContains(t, r.Error(), "\x1b")
	require.NotContains(t, f.Err().Error(), "EOF")

	require.Equal(t, CodeBusy.Public(), (&Refusal{Code: CodeBusy}).Frame().Public)
	require.Equal(t, "refused: BUSY: the gateway is busy", (&Refusal{Code: CodeBusy}).Error())
	require.Equal(t, "unknown: OUTCOME_UNKNOWN: "+CodeOutcomeUnknown.Public(), (&Refusal{Code: CodeOutcomeUnknown}).Error())
	require.Zero(t, (&Refusal{Code: CodeBusy, RetryAfter: -time.Second}).Frame().RetryAfter)
}

func TestEndedNamesItsCode(t *testing.T) {
	e := &Ended{Code: CodeTimeout, Exit: &Exit{Code: CodeTimeout, Signal: "SIGKILL"}, Cause: os.ErrClosed}
	require.Equal(t, "ended: TIMEOUT: the command ran longer than is allowed (SIGKILL)", e.Error())
	require.ErrorIs(t, e, os.ErrClosed)
	var other *Ended
	require.ErrorAs(t, fmt.Errorf("run: %w", &Ended{Code: CodePeerGone}), &other)
	require.Equal(t, "ended: PEER_GONE: the caller was gone for too long", other.Error())
}

func codesPage() []byte {
	var b bytes.Buffer
	b.WriteString(`# Reason codes

Generated from protocol/code.go by ` + "`go test ./protocol -update`" + `; do not edit.

Numbers are never reused. *Refused* and *ended* are the exit statuses of ` + "`lend run`" + ` when a refusal (nothing ran) or an end
carries the code; – means that it is not used so. A stream reset carries 65536 + number. A number that is not listed here is
a refusal (126), or a stop by the gateway (124).

| number | name | stage | retry | refused | ended | meaning |
|---|---|---|---|---|---|---|
`)
	status := func(n int) string {
		if n == 0 {
			return "–"
		}
		return fmt.Sprint(n)
	}
	for _, c := range codes {
		retry := "no"
		if c.retry {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s | %s | %s |\n",
			c.code, c.name, c.stage, retry, status(c.refused), status(c.ended), c.public)
	}
	b.WriteString(`
## What is no code of a gateway

` + "`NOT_SENT`" + ` stands in place of a code in what ` + "`lend run`, `lend ops attach`" + ` and a shim tell programs
(` + "`--result FILE`, `--json`" + `), and in the results of ` + "`lend mcp`" + `: nothing was sent, so nothing ran; ` + "`origin` is `caller`" + `,
` + "`ran` is `no`" + `, and the message says why. The exit status is 125, or 130 if the caller cancelled it before that. It has no number
and never travels.

` + "`OUTPUT_LOST`" + ` stands there where the command has ended and a part of its output is gone: this side could not write it, or another
process had it. ` + "`ran` is `yes`, `endCode`, `status` and `signal`" + ` say how it ended, and the exit status is 255.

` + "`INPUT_LOST`" + ` stands there where this side could not read the input, and the command was cancelled for that: what it had got was not
all. ` + "`endCode`" + ` says how it ended. ` + "`ran` is `yes`" + ` and the exit status 255; or, if the gateway had the cancel before the start, ` + "`no`" + ` and 125.
A command that ended by itself meanwhile did not need the rest: its status counts.
`)
	return b.Bytes()
}

func TestCodesPageIsFresh(t *testing.T) {
	const page = "../docs/codes.md"
	if *update {
		require.NoError(t, os.WriteFile(page, codesPage(), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, string(codesPage()), string(got), "run go test ./protocol -update")
}

// TestBoundsOfThePage: the numbers of docs/protocol.md are those of limits.go.
func TestBoundsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	for text, v := range map[string]int{
		"327 680": MaxStart, "65 501": maxDataBody, "65 480": MaxData, "16 384": MaxFrame, "32 768": MaxRequest,
		"98 304": MaxCatalogEntry, "262 144": AckEvery, "131 071": MaxArgument, "65 536": ResetBase,
	} {
		require.Contains(t, string(page), text)
		require.Equal(t, strings.ReplaceAll(text, " ", ""), fmt.Sprint(v))
	}
	require.Less(t, bytes.Count(page, []byte("\n")), 500)
}

// spec: ID-1
func TestProtocolIDs(t *testing.T) {
	for _, id := range []string{RunID, ControlID, CatalogID} {
		require.Regexp(t, `^/lend/[a-z]+/1\.0\.0$`, id)
	}
}
