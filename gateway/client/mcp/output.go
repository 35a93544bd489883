package mcp

import (
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/lendcli/lend/gateway/client/mcp/kept"
)

// content is the result as text blocks: the output, the error output, and what is to be
// said of how it ended and of what is not shown.
func (r *result) content(stdout, stderr *kept.Beginning) []sdk.Content {
	var out []sdk.Content
	add := func(text string) { out = append(out, &sdk.TextContent{Text: text}) }
	if stdout.Bytes() > 0 {
		add(stdout.Readable())
	}
	if stderr.Bytes() > 0 {
		add("standard error:\n" + stderr.Readable())
	}
	var notes []string
	for _, o := range []struct {
		what string
		k    *kept.Beginning
		o    *kept.Output
	}{{"standard output", stdout, &r.Stdout}, {"standard error", stderr, &r.Stderr}} {
		if o.o.Truncated {
			notes = append(notes, fmt.Sprintf("%s is cut: the first %d of %d bytes are shown; ask for less at once", o.what, o.k.Shown(), o.k.Bytes()))
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
