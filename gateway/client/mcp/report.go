package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/mcp/kept"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
)

// Outcomes of a call.
const (
	OutcomeExited    = "exited"    // by itself: ExitCode
	OutcomeSignalled = "signalled" // by a signal that was not ours: Signal
	OutcomeRefused   = "refused"   // nothing ran: Code says why
	OutcomeNotSent   = "not-sent"  // nothing ran: nobody was asked
	OutcomeStopped   = "stopped"   // it ran, and the gateway ended it: Code says why
	OutcomeCancelled = "cancelled" // it ran, and was cancelled from here
	OutcomeUnknown   = "unknown"   // it may have run, and nobody says how it ended
)

// Report is how a call ended.
type Report struct {
	Outcome string `json:"outcome"`
	// Ran is "yes", "no" or "unknown".
	Ran string `json:"ran"`
	// ExitCode is 0 to 255; nil unless the outcome is exited.
	ExitCode *int   `json:"exitCode,omitempty"`
	Signal   string `json:"signal,omitempty"`
	// Code is one of docs/codes.md, or NOT_SENT; OK if the command ended by itself.
	Code         string `json:"code"`
	Message      string `json:"message,omitempty"`
	Advice       string `json:"advice,omitempty"`
	Retryable    bool   `json:"retryable"`
	RetryAfterMS int64  `json:"retryAfterMs,omitempty"`
	OperationID  string `json:"operationId,omitempty"`
}

// Codes that stand for none of a gateway.
const (
	codeNotSent    = "NOT_SENT"
	codeOutputLost = "OUTPUT_LOST" // it ran, and a part of its output is gone
)

// words of Report.Ran, and of the broker's report.
const (
	ranYes     = "yes"
	ranNo      = "no"
	ranUnknown = "unknown"
)

// reportOf tells of an error of client.Cmd; cmd may be nil.
func reportOf(err error, cmd *client.Cmd) Report {
	r := Report{Ran: ranYes, Code: protocol.CodeOK.String()}
	if cmd != nil {
		r.OperationID = cmd.OperationID
	}
	var exit *client.ExitError
	var refused *client.RefusedError
	var ended *client.EndedError
	var arguments *argv.Error
	var lost *client.OutputError
	switch {
	case err == nil:
		r.exited(0)
	case errors.As(err, &lost):
		r.Outcome, r.Code, r.Message = OutcomeUnknown, codeOutputLost, lost.Error()
		if errors.Is(err, client.ErrOutcomeUnknown) {
			r.Ran, r.Code = ranUnknown, protocol.CodeOutcomeUnknown.String()
		}
	case errors.Is(err, client.ErrOutcomeUnknown): // also if what was asked last was refused: it may have run before
		r.Outcome, r.Ran, r.Code, r.Message = OutcomeUnknown, ranUnknown, protocol.CodeOutcomeUnknown.String(), err.Error()
	case errors.As(err, &exit) && exit.Signal != "":
		r.Outcome, r.Signal = OutcomeSignalled, exit.Signal
	case errors.As(err, &exit):
		r.exited(exit.Code)
	case errors.As(err, &ended): // before a refusal that is its cause
		r.ended(ended)
	case errors.As(err, &refused):
		r.refused(refused)
	case errors.As(err, &arguments):
		r.refused(&client.RefusedError{Code: protocol.CodeArgumentRejected})
		r.Message, r.Advice = arguments.Error(), "the tool's input schema says what is taken; ask the owner for more"
	default:
		r.Outcome, r.Ran, r.Code, r.Message = OutcomeNotSent, ranNo, codeNotSent, err.Error()
		r.Retryable = errors.Is(err, client.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
	}
	return r
}

func (r *Report) exited(code int) { r.Outcome, r.ExitCode = OutcomeExited, &code }

func (r *Report) refused(e *client.RefusedError) {
	r.Outcome, r.Ran, r.Code = OutcomeRefused, ranNo, e.Code.String()
	r.Message, r.Advice, r.Retryable = e.Error(), e.Code.Advice(), e.Retryable()
	r.RetryAfterMS = e.RetryAfter.Milliseconds()
	if e.Code == protocol.CodeOutcomeUnknown { // the gateway knows of a start and of no end
		r.Outcome, r.Ran = OutcomeUnknown, ranUnknown
	}
}

func (r *Report) ended(e *client.EndedError) {
	r.Code, r.Message, r.Advice = e.Code.String(), e.Error(), e.Code.Advice()
	switch e.Code {
	case protocol.CodeOutcomeUnknown:
		r.Outcome, r.Ran = OutcomeUnknown, ranUnknown
	case protocol.CodeCancelled:
		r.Outcome = OutcomeCancelled
	default:
		r.Outcome = OutcomeStopped
	}
}

// told is what the broker's report says of a run, in the words of lend run --json
// (docs/schemas/lend-run.json).
type told struct {
	Origin      string `json:"origin"`
	Ran         string `json:"ran"`
	Code        string `json:"code"`
	Status      *int   `json:"status"`
	Signal      string `json:"signal"`
	Message     string `json:"message"`
	Advice      string `json:"advice"`
	Retryable   bool   `json:"retryable"`
	OperationID string `json:"operationId"`
}

// reportTold reads it. Success needs the word of whoever ran the command: ended.
func reportTold(detail []byte, status int, ended bool) Report {
	var t told
	unknown := Report{Outcome: OutcomeUnknown, Ran: ranUnknown, Code: protocol.CodeOutcomeUnknown.String(), Message: "the broker did not say how it ended"}
	if json.Unmarshal(detail, &t) != nil {
		return unknown
	}
	r := Report{Ran: t.Ran, Signal: t.Signal, Code: t.Code, Message: t.Message, Advice: t.Advice, Retryable: t.Retryable, OperationID: t.OperationID}
	switch {
	case t.Origin == "command" && t.Ran == ranYes && t.Signal != "":
		r.Outcome = OutcomeSignalled
	case t.Origin == "command" && t.Ran == ranYes && ended:
		r.exited(status)
	case t.Ran == ranYes && t.Code == codeOutputLost:
		r.Outcome = OutcomeUnknown
	case t.Ran == ranNo && t.Code == codeNotSent:
		r.Outcome = OutcomeNotSent
	case t.Ran == ranNo:
		r.Outcome, r.Signal = OutcomeRefused, ""
	case t.Ran == ranYes && t.Code == protocol.CodeCancelled.String():
		r.Outcome = OutcomeCancelled
	case t.Ran == ranYes && t.Origin == "gateway":
		r.Outcome = OutcomeStopped
	default:
		unknown.OperationID = t.OperationID
		return unknown
	}
	return r
}

// result is the structured content of a tool's result.
type result struct {
	Report
	Authority string      `json:"authority"`
	Stdout    kept.Output `json:"stdout"`
	Stderr    kept.Output `json:"stderr"`
	Duration  int64       `json:"durationMs"`
}

// outputSchema describes result, for clients.
const outputSchema = `{"type":"object","additionalProperties":true,
"required":["outcome","ran","code","retryable","authority","stdout","stderr","durationMs"],
"properties":{
"outcome":{"enum":["exited","signalled","refused","not-sent","stopped","cancelled","unknown"],"description":"exited and signalled: by itself; refused and not-sent: nothing ran; stopped and cancelled: it ran and was ended; unknown: it may have run"},
"ran":{"enum":["yes","no","unknown"]},
"exitCode":{"type":"integer","minimum":0,"maximum":255},
"signal":{"type":"string"},
"code":{"type":"string","description":"OK if the command ended by itself"},
"message":{"type":"string"},"advice":{"type":"string"},"retryable":{"type":"boolean"},"retryAfterMs":{"type":"integer"},
"operationId":{"type":"string"},"authority":{"enum":["owner","caller"]},"durationMs":{"type":"integer"},
"stdout":{"$ref":"#/$defs/output"},"stderr":{"$ref":"#/$defs/output"}},
"$defs":{"output":{"type":"object","required":["text","encoding","bytes","truncated"],"properties":{
"text":{"type":"string"},"encoding":{"enum":["utf-8","base64"]},"bytes":{"type":"integer","minimum":0},
"truncated":{"type":"boolean","description":"only the first bytes are shown"}}}}}`

// milliseconds since t.
func since(t time.Time) int64 { return time.Since(t).Milliseconds() }
