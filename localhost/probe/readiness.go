package probe

import (
	"fmt"
	"strings"
	"time"

	"github.com/lendcli/lend/localhost/route"
)

// State says whether the CLI of a route is ready. The zero value is none of them.
type State string

// The states of readiness.
const (
	Ready    State = "ready"     // its probe ended with exit status 0
	NotReady State = "not_ready" // its probe ran, and ended otherwise
	Unknown  State = "unknown"   // no probe has ended, or none could run
)

// Reason says why a route is not ready, or why that is unknown.
type Reason string

// The reasons, in the order of the states.
const (
	ExitStatus  Reason = "exit_status" // not ready: another exit status than 0
	Signal      Reason = "signal"      // not ready: a signal ended it
	Timeout     Reason = "timeout"     // not ready: it was ended because its time was over
	Output      Reason = "output"      // not ready: it was ended because it wrote too much
	NoProbe     Reason = "no_probe"    // unknown: the release declares none
	Pending     Reason = "pending"     // unknown: its first probe has not ended yet
	NotStarted  Reason = "not_started" // unknown: the host could not start it; its log says why
	Interrupted Reason = "interrupted" // unknown: the route or the host ended in the middle
)

// Readiness is what is known of one route. It is comparable.
type Readiness struct {
	Identity route.Identity
	State    State
	Reason   Reason // "" if ready
	// Status is the exit status, of ExitStatus.
	Status int
	// At is when the newest probe ended, and Took how long it took; zero if none has.
	At   time.Time
	Took time.Duration
}

// String says it in words, for people: "not ready: its probe exited with status 3".
func (r Readiness) String() string {
	if r.State == Ready {
		return "ready"
	}
	return strings.ReplaceAll(string(r.State), "_", " ") + ": " + r.why()
}

func (r Readiness) why() string {
	switch r.Reason {
	case ExitStatus:
		return fmt.Sprintf("its probe exited with status %d", r.Status)
	case Signal:
		return "a signal ended its probe"
	case Timeout:
		return "its probe took too long"
	case Output:
		return "its probe wrote too much"
	case NoProbe:
		return "it declares no probe"
	case Pending:
		return "its first probe has not ended yet"
	case NotStarted:
		return "its probe could not be started; the log says why"
	case Interrupted:
		return "its probe was interrupted"
	}
	return "nothing is known"
}

// same tells whether a newer finding says nothing new but its time.
func (r Readiness) same(o Readiness) bool {
	return r.Identity == o.Identity && r.State == o.State && r.Reason == o.Reason && r.Status == o.Status
}
