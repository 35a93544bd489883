package protocol

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

var update = flag.Bool("update", false, "write vectors and generated documents")

const vectorDir = "testdata/vectors"

// vector is one file of testdata/vectors.
type vector struct {
	comment, kind, sender, expect, rule, frames string
	body                                        []byte
}

// parseVector refuses what is not exactly the documented form.
func parseVector(b []byte) (v vector, err error) {
	head, body, ok := bytes.Cut(b, []byte("\n\n"))
	if !ok {
		return v, errors.New("no empty line")
	}
	keys := map[string]*string{
		"comment": &v.comment, "kind": &v.kind, "sender": &v.sender, "expect": &v.expect, "rule": &v.rule, "frames": &v.frames,
	}
	s := bufio.NewScanner(bytes.NewReader(head))
	for s.Scan() {
		key, value, ok := strings.Cut(s.Text(), ": ")
		p := keys[key]
		if !ok || p == nil {
			return v, fmt.Errorf("unknown or repeated key %q", key)
		}
		*p = value
		delete(keys, key)
	}
	switch {
	case v.comment == "" || v.kind == "" || v.expect == "":
		return v, errors.New("a key is missing")
	case (v.expect == "violation") != (v.rule != ""):
		return v, errors.New("rule and expect do not fit")
	case (v.kind == "run") != (v.sender != ""):
		return v, errors.New("sender and kind do not fit")
	}
	v.body, err = parseHex(string(body))
	return v, err
}

// parseHex reads words of hex; "78*300" is the byte 78 repeated 300 times.
func parseHex(s string) ([]byte, error) {
	var b []byte
	for _, word := range strings.Fields(s) {
		digits, times, repeated := strings.Cut(word, "*")
		w, err := hex.DecodeString(digits)
		if err != nil {
			return nil, err
		}
		n := 1
		if repeated {
			if n, err = strconv.Atoi(times); err != nil || len(w) != 1 || n > 1<<20 {
				return nil, fmt.Errorf("bad repetition %q", word)
			}
		}
		b = append(b, bytes.Repeat(w, n)...)
	}
	return b, nil
}

// formatHex writes lines of at most 48 bytes, long runs of one byte as "78*300".
func formatHex(w *bytes.Buffer, b []byte) {
	for len(b) > 0 {
		same := len(b) - len(bytes.TrimLeft(b, string(b[:1])))
		if same >= 64 && b[0] < 0x80 {
			fmt.Fprintf(w, "%02x*%d\n", b[0], same)
			b = b[same:]
			continue
		}
		n := min(len(b), 48)
		if i := bytes.Index(b[:n], bytes.Repeat([]byte{'x'}, 32)); i > 0 {
			n = i
		}
		fmt.Fprintf(w, "%x\n", b[:n])
		b = b[n:]
	}
}

func (v vector) format() []byte {
	var b bytes.Buffer
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	line("comment", v.comment)
	line("kind", v.kind)
	line("sender", v.sender)
	line("expect", v.expect)
	line("rule", v.rule)
	line("frames", v.frames)
	b.WriteByte('\n')
	formatHex(&b, v.body)
	return b.Bytes()
}

func loadVectors(tb testing.TB) map[string]vector {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.txt"))
	require.NoError(tb, err)
	require.NotEmpty(tb, files, "no vectors")
	all := map[string]vector{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(tb, err)
		v, err := parseVector(b)
		require.NoError(tb, err, f)
		all[strings.TrimSuffix(filepath.Base(f), ".txt")] = v
	}
	return all
}

// The builders write the wire by hand, so that the vectors do not depend on the
// encoder that they test.

func bs(num int, b ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(num), protowire.BytesType), cat(b...))
}

func str(num int, s string) []byte { return bs(num, []byte(s)) }

func vi(num int, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, protowire.Number(num), protowire.VarintType), v)
}

func cat(b ...[]byte) []byte { return bytes.Join(b, nil) }

// fr is a frame: length and the given fields.
func fr(b ...[]byte) []byte {
	body := cat(b...)
	return append(protowire.AppendVarint(nil, uint64(len(body))), body...)
}

const (
	testOperation = "op-0123456789abcdef"
	testPeer      = "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"
	testToken     = "0123456789abcdef"
)

func rep(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }

// startFields are the fields of a small Start; with replaces those of one number.
func startFields(with ...[]byte) []byte {
	fields := [][]byte{
		str(1, testOperation), str(2, "lease"), str(3, "github"), str(4, "2.40.1"), str(5, "issue.list"),
	}
	for _, w := range with {
		num, _, _ := protowire.ConsumeTag(w)
		if int(num) <= len(fields) {
			fields[num-1] = w
		} else {
			fields = append(fields, w)
		}
	}
	return cat(fields...)
}

func start(with ...[]byte) []byte { return fr(bs(1, startFields(with...))) }

func data(stream int, offset uint64, payload string) []byte {
	var b []byte
	if stream != 0 {
		b = vi(1, uint64(stream))
	}
	if offset != 0 {
		b = append(b, vi(2, offset)...)
	}
	return fr(bs(3, b, str(3, payload)))
}

func key(num int, more ...[]byte) []byte {
	return bs(num, str(1, testPeer), str(2, "invocation-1"), str(3, testOperation), cat(more...))
}

var (
	limits   = bs(6, vi(2, 64<<20), vi(3, 16<<20), vi(4, 120000))
	accepted = fr(bs(8, str(2, testToken), limits))
)

func run(sender, comment, frames string, body ...[]byte) vector {
	return vector{comment: comment, kind: "run", sender: sender, expect: "ok", frames: frames, body: cat(body...)}
}

func bad(sender, rule, comment, frames string, body ...[]byte) vector {
	v := run(sender, comment, frames, body...)
	v.expect, v.rule = "violation", rule
	return v
}

func msg(kind, rule, comment string, body ...[]byte) vector {
	v := vector{comment: comment, kind: kind, expect: "ok", rule: rule, body: cat(body...)}
	if rule != "" {
		v.expect = "violation"
	}
	return v
}

// makeVectors is what testdata/vectors holds.
func makeVectors() map[string]vector {
	stdin := vi(7, 1)
	exit := func(f ...[]byte) []byte { return fr(bs(11, cat(f...))) }
	refused := func(f ...[]byte) []byte { return fr(bs(9, cat(f...))) }
	entry := cat(str(1, "github"), str(2, "2.40.1"), str(3, "issue.list"), str(4, "List issues"), str(5, "read"),
		str(6, `{"type":"object"}`), bs(8, vi(2, 1)))
	return map[string]vector{
		// Whole directions.
		"start":               run("caller", "the least Start", "start", start()),
		"start-full":          run("caller", "a Start with all fields, then its input and the end", "start data data stdin-end ack exit-ack", start(cat(str(2, "root"), str(2, "child")), str(6, "--repo"), str(6, ""), str(6, "\xff\x00"), stdin), data(0, 0, "hello"), data(0, 5, " world"), fr(bs(4, vi(1, 11))), fr(bs(5, vi(2, 7))), fr(bs(7))),
		"attach":              run("caller", "Attach with a token and offsets, then an ack", "attach ack", fr(key(2, str(4, testToken), vi(5, 300), vi(6, 2))), fr(bs(5, vi(2, 300), vi(3, 2)))),
		"output-closed":       run("caller", "nobody reads standard output", "start output-closed", start(), fr(bs(6, vi(1, 1)))),
		"accepted":            run("gateway", "outputs, acks and a normal end", "accepted data data ack stdin-closed exit", accepted, data(1, 0, "out"), data(2, 0, "err"), fr(bs(5, vi(1, 11))), fr(bs(10)), exit(vi(2, 3), vi(6, 11), vi(7, 3), vi(8, 3), vi(9, 1500))),
		"accepted-attached":   run("gateway", "an attached stream whose output begins later", "accepted data", fr(bs(8, vi(1, 1), vi(3, 11), vi(4, 300), limits)), data(1, 300, "hello")),
		"accepted-unlimited":  run("gateway", "an unlimited output", "accepted", fr(bs(8, str(2, testToken), bs(6, vi(2, 1<<64-1))))),
		"accepted-no-limits":  run("gateway", "limits that are all 0", "accepted", fr(bs(8, bs(6)))),
		"refused":             run("gateway", "a refusal with a hint", "refused", refused(vi(1, 500), str(2, "the gateway is busy"), vi(3, 250))),
		"refused-new-code":    run("gateway", "a code that nobody knows yet", "refused", refused(vi(1, 9999))),
		"exit-signal":         run("gateway", "a child that was stopped", "accepted exit", accepted, exit(vi(1, 603), str(3, "SIGTERM"), vi(4, 1), vi(5, 1))),
		"exit-zero":           run("gateway", "success with no output", "accepted exit", accepted, exit()),
		"grease":              run("caller", "ignorable frames between known ones", "start ack", start(), fr(bs(1024)), fr(bs(2047, rep(300))), fr(bs(5))),
		"grease-before-reply": run("gateway", "an ignorable frame before the answer", "refused", fr(bs(1500, rep(3))), refused(vi(1, 100), str(2, "not permitted"))),
		"data-largest":        run("caller", "the largest payload", "start data", start(stdin), data(0, 0, string(rep(MaxData)))),

		// Frames.
		"frame-empty":                bad("caller", "FRAME-1", "a length of 0", "start", start(), []byte{0}),
		"frame-length-not-minimal":   bad("caller", "FRAME-1", "a length in two bytes where one does", "start", start(), []byte{0x80, 0}),
		"frame-length-endless":       bad("caller", "FRAME-2", "a length of more than three bytes", "", []byte{0xff, 0xff, 0xff, 0xff}),
		"frame-start-too-long":       bad("caller", "FRAME-2", "the length of a Start beyond the bound, without a body", "", protowire.AppendVarint(nil, MaxStart+1)),
		"frame-data-too-long":        bad("caller", "FRAME-2", "a length beyond that of the largest Data", "start", start(stdin), protowire.AppendVarint(nil, 65502)),
		"frame-answer-too-long":      bad("gateway", "FRAME-2", "the length of an answer beyond the bound", "", protowire.AppendVarint(nil, MaxFrame+1)),
		"frame-control-too-long":     bad("gateway", "FRAME-3", "an Exit that is longer than any but Data may be", "accepted", accepted, exit(str(3, string(rep(MaxFrame))))),
		"frame-not-a-message":        bad("caller", "FRAME-4", "bytes that are no message", "", fr([]byte{0x0a, 0xff})),
		"frame-unknown-field":        bad("caller", "FRAME-4", "a Start with a field 8 (a path, an environment, a digest)", "", start(str(8, "/bin/sh"))),
		"frame-unknown-nested-field": bad("gateway", "FRAME-4", "limits with a field that is not known", "", fr(bs(8, bs(6, vi(15, 1))))),
		"frame-default-spelt-out":    bad("caller", "FRAME-4", "a Start with stdin = false written", "", start(vi(7, 0))),
		"frame-fields-out-of-order":  bad("caller", "FRAME-4", "a Start with its version before its key", "", fr(bs(1, str(1, testOperation), str(2, "lease"), str(4, "2.40.1"), str(3, "github"), str(5, "issue.list")))),
		"frame-field-twice":          bad("caller", "FRAME-4", "a Start with two commands", "", start(cat(str(5, "issue.list"), str(5, "issue.view")))),
		"frame-long-varint":          bad("caller", "FRAME-4", "a value in two bytes where one does", "start", start(), fr(bs(6, []byte{0x08, 0x81, 0}))),
		"frame-two-in-one":           bad("caller", "FRAME-4", "a RunFrame with two frames", "", fr(bs(1, startFields()), bs(7))),
		"frame-not-utf8":             bad("caller", "FRAME-4", "a name that is not UTF-8", "", start(str(3, "git\xff"))),
		"frame-unknown-critical":     bad("caller", "GREASE-1", "an unknown frame with the greatest critical number", "start", start(), fr(bs(1023))),
		"frame-number-beyond":        bad("caller", "GREASE-1", "an unknown frame beyond the ignorable numbers", "start", start(), fr(bs(2048))),
		"frame-group":                bad("caller", "GREASE-1", "a group with an ignorable number", "start", start(), fr(protowire.AppendTag(nil, 1024, protowire.StartGroupType), protowire.AppendTag(nil, 1024, protowire.EndGroupType))),
		"frame-ignorable-and-more":   bad("caller", "GREASE-1", "an ignorable frame and another in one body", "start", start(), fr(bs(1024), bs(7))),
		"grease-first":               bad("caller", "GREASE-2", "an ignorable frame before Start", "", fr(bs(1024)), start()),
		"grease-flood":               bad("caller", "GREASE-2", "17 ignorable frames in a row", "start", start(), bytes.Repeat(fr(bs(1024)), 17)),
		"grease-after-last":          bad("gateway", "GREASE-2", "an ignorable frame after the last", "refused", refused(vi(1, 100)), fr(bs(1024))),

		// Start and Attach.
		"start-operation-short":     bad("caller", "FRAME-5", "an operation ID of 15 bytes", "", start(str(1, "op-0123456789ab"))),
		"start-connector-case":      bad("caller", "FRAME-5", "a connector key in upper case", "", start(str(3, "GitHub"))),
		"start-version-slash":       bad("caller", "FRAME-5", "a version that is a path", "", start(str(4, "../1"))),
		"start-no-command":          bad("caller", "FRAME-5", "a Start without a command", "", fr(bs(1, str(1, testOperation), str(2, "lease"), str(3, "github"), str(4, "1")))),
		"start-no-lease":            bad("caller", "START-2", "a Start without a lease", "", fr(bs(1, str(1, testOperation), str(3, "github"), str(4, "1"), str(5, "issue.list")))),
		"start-empty-lease":         bad("caller", "START-2", "a lease of no bytes", "", start(str(2, ""))),
		"start-four-leases":         bad("caller", "START-2", "a chain of four", "", start(bytes.Repeat(str(2, "l"), 4))),
		"start-lease-too-long":      bad("caller", "START-2", "a lease of 8193 bytes", "", start(bs(2, rep(MaxLease+1)))),
		"start-257-arguments":       bad("caller", "START-3", "257 arguments", "", start(bytes.Repeat(str(6, "a"), 257))),
		"start-argument-too-long":   bad("caller", "START-3", "an argument of 131 072 bytes", "", start(bs(6, rep(MaxArgument+1)))),
		"start-arguments-too-long":  bad("caller", "START-3", "arguments of 262 145 bytes together", "", start(cat(bs(6, rep(MaxArgument)), bs(6, rep(MaxArgument)), bs(6, rep(3))))),
		"attach-short-token":        bad("caller", "ATTACH-2", "a token of 15 bytes", "", fr(key(2, str(4, testToken[1:])))),
		"attach-issuer":             bad("caller", "FRAME-5", "an issuer that is no Ed25519 peer", "", fr(bs(2, str(1, "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"), str(2, "i"), str(3, testOperation)))),
		"attach-input-without":      bad("caller", "STATE-1", "input after an Attach without a token", "attach", fr(key(2)), data(0, 0, "x")),
		"attach-ack-less":           bad("caller", "FLOW-4", "an ack of less than the Attach said", "attach", fr(key(2, vi(5, 10))), fr(bs(5, vi(2, 9)))),
		"accepted-offset":           bad("gateway", "ACCEPT-2", "a new operation whose output begins at 1", "", fr(bs(8, str(2, testToken), vi(4, 1), limits))),
		"accepted-token":            bad("gateway", "ATTACH-2", "a token of 17 bytes", "", fr(bs(8, str(2, testToken+"x"), limits))),
		"accepted-without-limits":   bad("gateway", "FRAME-5", "Accepted without limits", "", fr(bs(8, str(2, testToken)))),
		"accepted-duration":         bad("gateway", "FRAME-5", "a run time beyond 400 days", "", fr(bs(8, bs(6, vi(4, 400*24*3600*1000+1))))),
		"refused-ok":                bad("gateway", "REFUSE-1", "a refusal with code 0", "", fr(bs(9))),
		"refused-end-code":          bad("gateway", "REFUSE-1", "a refusal with a code that only ends (OUTPUT_LIMIT)", "", refused(vi(1, 600))),
		"refused-code-too-great":    bad("gateway", "FRAME-5", "a code of 65 536", "", refused(vi(1, 65536))),
		"refused-escape":            bad("gateway", "REFUSE-2", "public text with an escape sequence", "", refused(vi(1, 100), str(2, "\x1b[2J"))),
		"refused-not-ascii":         bad("gateway", "REFUSE-2", "public text with a right-to-left override", "", refused(vi(1, 100), str(2, "\u202e"))),
		"refused-text-too-long":     bad("gateway", "REFUSE-2", "public text of 1025 bytes", "", refused(vi(1, 100), bs(2, rep(1025)))),
		"state-data-first":          bad("caller", "STATE-1", "input before Start", "", data(0, 0, "x")),
		"state-two-starts":          bad("caller", "STATE-1", "a second Start", "start", start(), start()),
		"state-input-unannounced":   bad("caller", "STATE-1", "input of an operation without input", "start", start(), data(0, 0, "x")),
		"state-input-after-end":     bad("caller", "STATE-1", "input after its end", "start stdin-end", start(stdin), fr(bs(4)), data(0, 0, "x")),
		"state-after-exit-ack":      bad("caller", "STATE-1", "an ack after ExitAck", "start exit-ack", start(), fr(bs(7)), fr(bs(5))),
		"state-exit-first":          bad("gateway", "STATE-1", "Exit before Accepted", "", exit()),
		"state-data-after-exit":     bad("gateway", "STATE-1", "output after Exit", "accepted exit", accepted, exit(), data(1, 0, "x")),
		"state-accepted-twice":      bad("gateway", "STATE-1", "a second Accepted", "accepted", accepted, accepted),
		"state-refused-later":       bad("gateway", "STATE-1", "Refused after Accepted", "accepted", accepted, refused(vi(1, 100))),
		"state-stdin-closed-twice":  bad("gateway", "STATE-1", "a second StdinClosed", "accepted stdin-closed", accepted, fr(bs(10)), fr(bs(10))),
		"state-start-from-gateway":  bad("gateway", "STATE-1", "a Start from the gateway", "", start()),
		"data-no-payload":           bad("caller", "DATA-1", "data without a payload field", "start", start(stdin), fr(bs(3))),
		"data-empty-payload":        bad("caller", "DATA-2", "a payload of no bytes", "start", start(stdin), data(0, 0, "")),
		"data-too-long":             bad("caller", "DATA-2", "a payload of 65 481 bytes", "start", start(stdin), data(0, 0, string(rep(MaxData+1)))),
		"data-offset-overflow":      bad("gateway", "DATA-2", "an offset whose end is beyond 2^64-1", "accepted", accepted, data(1, 1<<64-1, "x")),
		"data-default-stream":       bad("caller", "DATA-1", "stream 0 written", "start", start(stdin), fr(bs(3, vi(1, 0), str(3, "x")))),
		"data-default-offset":       bad("caller", "DATA-1", "offset 0 written", "start", start(stdin), fr(bs(3, vi(2, 0), str(3, "x")))),
		"data-stream-3":             bad("gateway", "DATA-1", "an output that is not there", "accepted", accepted, data(3, 0, "x")),
		"data-order":                bad("gateway", "DATA-1", "the payload before the stream", "accepted", accepted, fr(bs(3, str(3, "x"), vi(1, 1)))),
		"data-unknown-field":        bad("caller", "DATA-1", "a field after the payload", "start", start(stdin), fr(bs(3, str(3, "x"), vi(4, 1)))),
		"data-long-length":          bad("caller", "DATA-1", "a payload length in two bytes where one does", "start", start(stdin), fr(bs(3, []byte{0x1a, 0x81, 0, 'x'}))),
		"data-gap":                  bad("caller", "DATA-3", "a gap between two frames", "start data", start(stdin), data(0, 0, "ab"), data(0, 3, "d")),
		"data-again":                bad("gateway", "DATA-3", "bytes that were sent before", "accepted data", accepted, data(1, 0, "ab"), data(1, 1, "bc")),
		"data-output-from-caller":   bad("caller", "DATA-4", "a caller that sends output", "start", start(stdin), data(1, 0, "x")),
		"data-input-from-gateway":   bad("gateway", "DATA-4", "a gateway that sends input", "accepted", accepted, data(0, 0, "x")),
		"stdin-end-total":           bad("caller", "STDIN-2", "a total that is not what was sent", "start data", start(stdin), data(0, 0, "ab"), fr(bs(4, vi(1, 3)))),
		"ack-of-own-input":          bad("caller", "FLOW-1", "a caller that acknowledges input", "start", start(), fr(bs(5, vi(1, 1)))),
		"ack-of-own-output":         bad("gateway", "FLOW-1", "a gateway that acknowledges output", "accepted", accepted, fr(bs(5, vi(3, 1)))),
		"ack-less":                  bad("caller", "FLOW-4", "an ack that goes back", "start ack", start(), fr(bs(5, vi(2, 5))), fr(bs(5, vi(2, 4)))),
		"output-closed-stdin":       bad("caller", "OUTPUT-1", "OutputClosed of the input", "start", start(), fr(bs(6))),
		"output-closed-3":           bad("caller", "OUTPUT-1", "OutputClosed of a stream 3", "start", start(), fr(bs(6, vi(1, 3)))),
		"exit-status-256":           bad("gateway", "END-1", "an exit status of 256", "accepted", accepted, exit(vi(2, 256))),
		"exit-refusal-code":         bad("gateway", "END-1", "an end with a code that only refuses (DENIED)", "accepted", accepted, exit(vi(1, 100))),
		"exit-signal-and-status":    bad("gateway", "END-1", "a signal and a status", "accepted", accepted, exit(vi(2, 1), str(3, "SIGKILL"))),
		"exit-signal-name":          bad("gateway", "END-1", "a signal that is no name", "accepted", accepted, exit(str(3, "SIGterm"))),
		"exit-core-without-signal":  bad("gateway", "END-1", "a core dump without a signal", "accepted", accepted, exit(vi(4, 1))),
		"exit-total-less":           bad("gateway", "END-2", "a total that is less than what was sent", "accepted data", accepted, data(1, 0, "ab"), exit(vi(7, 1))),
		"control-cancel":            msg("control-request", "", "a cancel with a lease and a grace", fr(key(1, str(4, "lease"), vi(5, 2000)))),
		"control-status":            msg("control-request", "", "a status", fr(key(2))),
		"control-revoke":            msg("control-request", "", "a revocation", fr(bs(3, str(1, "envelope")))),
		"control-none":              msg("control-request", "FRAME-1", "an empty request", []byte{0}),
		"control-too-long":          msg("control-request", "FRAME-2", "a request beyond the bound", protowire.AppendVarint(nil, MaxRequest+1)),
		"control-unknown":           msg("control-request", "FRAME-4", "a request of an unknown kind", fr(bs(4))),
		"control-no-operation":      msg("control-request", "CONTROL-2", "a cancel that names no operation", fr(bs(1, str(1, testPeer), str(2, "i")))),
		"control-cancel-chain":      msg("control-request", "START-2", "a cancel with a chain of four", fr(key(1, bytes.Repeat(str(4, "l"), 4)))),
		"control-revoke-empty":      msg("control-request", "CONTROL-4", "a revocation of no bytes", fr(bs(3))),
		"control-revoke-long":       msg("control-request", "CONTROL-4", "a revocation of 8193 bytes", fr(bs(3, bs(1, rep(MaxLease+1))))),
		"reply-cancel":              msg("control-reply", "", "it ran", fr(bs(1, vi(1, 2)))),
		"reply-status":              msg("control-reply", "", "it has ended", fr(bs(2, vi(1, 3), bs(2, vi(2, 7))))),
		"reply-revoke":              msg("control-reply", "", "two were stopped", fr(bs(3, vi(1, 2)))),
		"reply-refused":             msg("control-reply", "", "no such operation", fr(bs(15, vi(1, 401)))),
		"reply-state-0":             msg("control-reply", "CONTROL-5", "a state that is not there", fr(bs(1))),
		"reply-state-5":             msg("control-reply", "CONTROL-5", "a state that is not known", fr(bs(2, vi(1, 5)))),
		"reply-ended-without-exit":  msg("control-reply", "CONTROL-5", "ended, but no end", fr(bs(2, vi(1, 3)))),
		"reply-running-with-exit":   msg("control-reply", "CONTROL-5", "running, and an end", fr(bs(2, vi(1, 2), bs(2)))),
		"catalog-request":           msg("catalog-request", "", "a chain of one", fr(str(1, "lease"))),
		"catalog-request-no-lease":  msg("catalog-request", "FRAME-1", "no lease", fr()),
		"catalog-request-four":      msg("catalog-request", "START-2", "a chain of four", fr(bytes.Repeat(str(1, "l"), 4))),
		"catalog-empty":             msg("catalog", "", "nothing may run", fr(bs(2))),
		"catalog":                   msg("catalog", "", "one entry and the end", fr(bs(1, entry)), fr(bs(2, vi(1, 1)))),
		"catalog-entry-missing":     msg("catalog", "CATALOG-2", "an end that counts two after one", fr(bs(1, entry)), fr(bs(2, vi(1, 2)))),
		"catalog-refused-later":     msg("catalog", "CATALOG-2", "a refusal after an entry", fr(bs(1, entry)), fr(bs(15, vi(1, 100)))),
		"catalog-summary":           msg("catalog", "CATALOG-3", "a summary of two lines", fr(bs(1, str(1, "a"), str(2, "1"), str(3, "b"), str(4, "x\ny"), bs(8)))),
		"catalog-schema":            msg("catalog", "CATALOG-3", "a schema that is not JSON", fr(bs(1, str(1, "a"), str(2, "1"), str(3, "b"), str(6, "{"), bs(8)))),
		"catalog-effect":            msg("catalog", "CATALOG-3", "an effect that is not there", fr(bs(1, str(1, "a"), str(2, "1"), str(3, "b"), str(5, "delete"), bs(8)))),
		"catalog-entry-too-long":    msg("catalog", "FRAME-2", "an entry beyond the bound", protowire.AppendVarint(nil, MaxCatalogEntry+1)),
		"catalog-entry-no-limits":   msg("catalog", "CATALOG-3", "an entry without limits", fr(bs(1, str(1, "a"), str(2, "1"), str(3, "b")))),
		"catalog-entry-unknown-key": msg("catalog", "FRAME-4", "an entry with a field that is not known", fr(bs(1, entry, str(9, "digest")))),
	}
}

func TestVectorsAreFresh(t *testing.T) {
	want := makeVectors()
	if *update {
		require.NoError(t, os.MkdirAll(vectorDir, 0o755))
		for n, v := range want {
			require.NoError(t, os.WriteFile(filepath.Join(vectorDir, n+".txt"), v.format(), 0o644))
		}
	}
	require.Equal(t, want, loadVectors(t), "run go test ./protocol -update")
}

func TestVectorFormIsStrict(t *testing.T) {
	for name, text := range map[string]string{
		"no-body":        "comment: x\nkind: catalog\nexpect: ok\n",
		"unknown-key":    "comment: x\nkind: catalog\nexpect: ok\nwhat: y\n\n00\n",
		"repeated-key":   "comment: x\ncomment: x\nkind: catalog\nexpect: ok\n\n00\n",
		"missing-key":    "comment: x\nkind: catalog\n\n00\n",
		"missing-rule":   "comment: x\nkind: catalog\nexpect: violation\n\n00\n",
		"missing-sender": "comment: x\nkind: run\nexpect: ok\n\n00\n",
		"not-hex":        "comment: x\nkind: catalog\nexpect: ok\n\n0g\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseVector([]byte(text))
			require.Error(t, err)
		})
	}
}

// TestVectors: spec: FRAME-1, FRAME-2, FRAME-3, FRAME-4, FRAME-5, GREASE-1,
// GREASE-2, START-1, START-2, START-3, ATTACH-1, ATTACH-2, ACCEPT-2, ACCEPT-3,
// REFUSE-1, REFUSE-2, STATE-1, DATA-1, DATA-2, DATA-3, DATA-4, STDIN-2, FLOW-1,
// FLOW-4, OUTPUT-1, END-1, END-2, CODE-1, CONTROL-2, CONTROL-4, CONTROL-5,
// CATALOG-1, CATALOG-2, CATALOG-3.
func TestVectors(t *testing.T) {
	for n, v := range loadVectors(t) {
		t.Run(n, func(t *testing.T) {
			frames, again, err := decodeAll(v)
			require.Equal(t, v.frames, strings.Join(frames, " "))
			if v.expect == "ok" {
				require.NoError(t, err)
				require.Equal(t, withoutIgnorable(v), again)
				return
			}
			var violation *ViolationError
			require.ErrorAs(t, err, &violation)
			require.Equal(t, v.rule, violation.Rule, violation.Msg)
		})
	}
}

// decodeAll returns the names of the run frames that were accepted, their
// encoding, and the error, nil for the end of the bytes.
func decodeAll(v vector) (frames []string, again []byte, err error) {
	in, out := bytes.NewReader(v.body), &bytes.Buffer{}
	switch v.kind {
	case "control-request":
		var q ControlRequest
		if q, err = ReadControlRequest(in); err == nil {
			err = WriteControlRequest(out, q)
		}
	case "control-reply":
		var p ControlReply
		if p, err = ReadControlReply(in); err == nil {
			err = WriteControlReply(out, p)
		}
	case "catalog-request":
		var q *CatalogRequest
		if q, err = ReadCatalogRequest(in); err == nil {
			err = WriteCatalogRequest(out, q)
		}
	case "catalog":
		var entries []CatalogEntry
		if entries, err = ReadCatalog(in); err == nil {
			err = WriteCatalog(out, entries)
		}
	case "run":
		role := map[string]Role{"caller": Gateway, "gateway": Caller}[v.sender]
		r, w := NewReader(in, role), NewWriter(out)
		for {
			f, err := r.Read()
			if errors.Is(err, io.EOF) {
				return frames, out.Bytes(), nil
			}
			if err != nil {
				return frames, nil, err
			}
			frames = append(frames, f.frameType().String())
			if err := w.WriteFrame(f); err != nil {
				return frames, nil, err
			}
		}
	default:
		err = fmt.Errorf("unknown kind %q", v.kind)
	}
	return nil, out.Bytes(), err
}

// withoutIgnorable is the body as it has to be encoded again.
func withoutIgnorable(v vector) []byte {
	if v.kind != "run" {
		return v.body
	}
	var kept []byte
	for b := v.body; len(b) > 0; {
		n, m := protowire.ConsumeVarint(b)
		end := m + int(n)
		if num, _, _ := protowire.ConsumeTag(b[m:]); num < 1024 {
			kept = append(kept, b[:end]...)
		}
		b = b[end:]
	}
	return kept
}
