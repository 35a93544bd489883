package checkup

import (
	"context"
	"fmt"
	"time"
)

// SchemaVersion of the JSON form of a Report. Changes add fields only.
const SchemaVersion = 1

// Status is what a check came to.
type Status string

// The outcomes. Only Fail makes a Report not OK; Skip says in its detail why nothing
// was looked at.
const (
	Pass Status = "pass"
	Warn Status = "warn"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Row is one line of a Report.
type Row struct {
	// Name is stable: "disk-space". Subject tells rows of one name apart; it may be
	// empty.
	Name    string `json:"name"`
	Subject string `json:"subject,omitempty"`
	Status  Status `json:"status"`
	// Detail is what was found, in words; Fix a command or an action, empty if there
	// is nothing to mend.
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Check is one thing to look at. Run returns its rows, those without a name get the
// Check's; it should heed its context. A nil Run, or one that returns no row, is a
// failed check.
type Check struct {
	Name string
	Run  func(ctx context.Context) []Row
}

// One is a Check of one row.
func One(name string, look func(ctx context.Context) Row) Check {
	return Check{Name: name, Run: func(ctx context.Context) []Row { return []Row{look(ctx)} }}
}

// Report is all rows, in the order of the checks, and how many came to what.
type Report struct {
	SchemaVersion int   `json:"schemaVersion"`
	OK            bool  `json:"ok"` // nothing failed
	Passed        int   `json:"passed"`
	Warned        int   `json:"warned"`
	Failed        int   `json:"failed"`
	Skipped       int   `json:"skipped"`
	Rows          []Row `json:"rows"`
}

// grace is for checks that end because the time is over.
const grace = 250 * time.Millisecond

// Run runs all checks at the same time, and returns after limit at the latest, give
// or take a quarter of a second. A check that is not done by then is a failed row;
// one that does not heed its context either (a file system that hangs) is left
// behind, so call Run in a program that ends soon.
func Run(ctx context.Context, limit time.Duration, checks []Check) Report {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := make([]chan []Row, len(checks))
	for i, c := range checks {
		found[i] = make(chan []Row, 1)
		go func() { found[i] <- c.rows(ctx) }()
	}
	over := time.NewTimer(limit + grace)
	defer over.Stop()
	r := Report{SchemaVersion: SchemaVersion, Rows: []Row{}}
	late := false
	for i, c := range checks {
		var rows []Row
		if late {
			select {
			case rows = <-found[i]:
			default:
			}
		} else {
			select {
			case rows = <-found[i]:
			case <-over.C:
				late = true
			}
		}
		if rows == nil {
			rows = []Row{{Name: c.Name, Status: Fail, Detail: fmt.Sprintf("no answer within %s", limit), Fix: "look for a disk or a file system that hangs"}}
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.count()
	return r
}

func (c Check) rows(ctx context.Context) []Row {
	var rows []Row
	if c.Run != nil {
		rows = c.Run(ctx)
	}
	if len(rows) == 0 {
		rows = []Row{{Status: Fail, Detail: "nothing was looked at"}}
	}
	for i := range rows {
		if rows[i].Name == "" {
			rows[i].Name = c.Name
		}
	}
	return rows
}

// count also makes a failure of what says nothing that is known.
func (r *Report) count() {
	for i := range r.Rows {
		switch r.Rows[i].Status {
		case Pass:
			r.Passed++
		case Warn:
			r.Warned++
		case Skip:
			r.Skipped++
		case Fail:
			r.Failed++
		default:
			r.Rows[i].Status = Fail
			r.Failed++
		}
	}
	r.OK = r.Failed == 0
}
