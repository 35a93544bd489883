package protocol

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Refusal is the error of a request that was answered with Refused, or will be:
// nothing ran because of it. A gateway makes it with the cause, which stays on
// its side; a caller gets it from Refused.Err.
//
//nolint:errname // the word of docs/protocol.md
type Refusal struct {
	Code Code
	// Public is text for the peer; "" means the code's own.
	Public string
	// RetryAfter is a hint; 0 means none.
	RetryAfter time.Duration
	// Cause is for the log and the audit of the side that refused, and never sent.
	Cause error
}

// Error names the code and shows the public text quoted.
func (r *Refusal) Error() string {
	word := "refused" // which says that nothing ran
	if r.Code == CodeOutcomeUnknown {
		word = "unknown"
	}
	return fmt.Sprintf("%s: %s: %s", word, r.Code, name.Show(cmp.Or(r.Public, r.Code.Public())))
}

// Unwrap returns Cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Retryable tells whether the same request may succeed later: the code says so,
// or, for a code that is not known, a hint is there.
func (r *Refusal) Retryable() bool {
	return r.Code.Retryable() || r.Code.Stage() == "" && r.RetryAfter > 0
}

// Frame returns the frame that tells the peer. Public text that is too long is
// cut, and anything but printable ASCII replaced.
func (r *Refusal) Frame() *Refused {
	public := cmp.Or(r.Public, r.Code.Public())
	return &Refused{Code: r.Code, Public: printable(public), RetryAfter: max(0, min(r.RetryAfter, maxDuration))}
}

// Err returns the frame as the caller's error.
func (r *Refused) Err() *Refusal {
	return &Refusal{Code: r.Code, Public: r.Public, RetryAfter: r.RetryAfter}
}

// Ended is the error of an operation that ran, or may have, and did not end by
// itself.
//
//nolint:errname // the word of docs/protocol.md
type Ended struct {
	// Code says why; never CodeOK.
	Code Code
	// Exit is the frame that said so; nil if none came.
	Exit *Exit
	// Cause is for this side only.
	Cause error
}

// Error names the code.
func (e *Ended) Error() string {
	if e.Exit != nil && e.Exit.Signal != "" {
		return fmt.Sprintf("ended: %s: %s (%s)", e.Code, e.Code.Public(), e.Exit.Signal)
	}
	return fmt.Sprintf("ended: %s: %s", e.Code, e.Code.Public())
}

// Unwrap returns Cause.
func (e *Ended) Unwrap() error { return e.Cause }

// ViolationError says that the other end broke the protocol, or that bytes are
// not a frame. The stream is of no more use. spec: FRAME-6
type ViolationError struct {
	// Rule is the id of the broken rule in docs/protocol.md ("FRAME-2").
	Rule string
	// Msg is constant text, or quoted.
	Msg string
}

func (e *ViolationError) Error() string {
	return fmt.Sprintf("protocol violation: %s [%s]", e.Msg, e.Rule)
}

func violation(rule, msg string) *ViolationError { return &ViolationError{Rule: rule, Msg: msg} }

// printable cuts s to MaxPublic and replaces all that is not printable ASCII.
func printable(s string) string {
	b := []byte(s[:min(len(s), MaxPublic)])
	for i, c := range b {
		if c < 0x20 || c > 0x7e {
			b[i] = '?'
		}
	}
	return string(b)
}

func isPrintable(s string) bool { return len(s) <= MaxPublic && printable(s) == s }
