package mcp

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// kept is the beginning of an output. The rest is counted and dropped: to close the
// output would change what the command does. One goroutine writes; the total may be
// read from any.
type kept struct {
	most  int
	data  []byte
	total *atomic.Uint64 // of all streams of the call
	bytes uint64
}

func (k *kept) Write(p []byte) (int, error) {
	k.data = append(k.data, p[:min(len(p), k.most-len(k.data))]...)
	k.bytes += uint64(len(p))
	k.total.Add(uint64(len(p)))
	return len(p), nil
}

func (k *kept) output() output {
	data := k.data
	o := output{Encoding: "utf-8", Bytes: k.bytes, Truncated: k.bytes > uint64(len(data))}
	if o.Truncated {
		data = wholeRunes(data)
	}
	if utf8.Valid(data) {
		o.Text = string(data)
		return o
	}
	o.Text, o.Encoding = base64.StdEncoding.EncodeToString(k.data), "base64"
	return o
}

// wholeRunes leaves out a last character of which only the beginning is there.
func wholeRunes(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if c := data[len(data)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(data[len(data)-i:]) {
				return data[:len(data)-i]
			}
			break
		}
	}
	return data
}

// readable is an output as text for a model: what is no UTF-8 is replaced.
func (k *kept) readable() string {
	return strings.ToValidUTF8(string(wholeRunes(k.data)), "\uFFFD")
}

// content is the result as text blocks: the output, the error output, and what is to be
// said of how it ended and of what is not shown.
func (r *result) content(stdout, stderr *kept) []sdk.Content {
	var out []sdk.Content
	add := func(text string) { out = append(out, &sdk.TextContent{Text: text}) }
	if stdout.bytes > 0 {
		add(stdout.readable())
	}
	if stderr.bytes > 0 {
		add("standard error:\n" + stderr.readable())
	}
	var notes []string
	for _, o := range []struct {
		what string
		k    *kept
		o    *output
	}{{"standard output", stdout, &r.Stdout}, {"standard error", stderr, &r.Stderr}} {
		if o.o.Truncated {
			notes = append(notes, fmt.Sprintf("%s is cut: the first %d of %d bytes are shown; ask for less at once", o.what, len(o.k.data), o.k.bytes))
		}
		if o.o.Encoding != "utf-8" {
			notes = append(notes, o.what+" is not UTF-8; its bytes are in the structured result, in base64")
		}
	}
	if end := r.end(); end != "" {
		notes = append(notes, end)
	}
	if len(notes) > 0 || len(out) == 0 {
		if len(notes) == 0 {
			notes = []string{"exit code 0; no output"}
		}
		add("[" + strings.Join(notes, "]\n[") + "]")
	}
	return out
}

// end says how it ended, "" for success.
func (r *result) end() string {
	text := ""
	switch r.Outcome {
	case OutcomeExited:
		if *r.ExitCode == 0 {
			return ""
		}
		return fmt.Sprintf("exit code %d", *r.ExitCode)
	case OutcomeSignalled:
		return "the command was ended by " + r.Signal
	case OutcomeRefused, OutcomeNotSent:
		text = r.Code + ": " + r.Message + "; nothing ran"
	case OutcomeStopped, OutcomeCancelled:
		text = r.Code + ": " + r.Message + "; it had begun to run"
	default:
		text = r.Code + ": " + r.Message + "; it may have run: do not simply repeat it"
	}
	if r.Retryable {
		text += "; it may be tried again later"
	}
	if r.Advice != "" {
		text += "; " + r.Advice
	}
	return text
}

// failed tells whether the model is to see a failure.
func (r *result) failed() bool { return r.Outcome != OutcomeExited || *r.ExitCode != 0 }
