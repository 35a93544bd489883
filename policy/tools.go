package policy

import (
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
)

// WhoCan says who may run a command under which rule and leases, sorted by peer and
// rule. Of the versions that a rule names those count whose contract the source has.
func (p *Policy) WhoCan(q review.Question, source Contracts) []review.Holder {
	return review.WhoCan(p.file, source, q)
}

// Sentences are those of Access in both forms, for programs and for people.
func (p *Policy) Sentences(source Contracts) []review.Prose { return review.Sentences(p.file, source) }

// Targets lists the commands that the file and the contracts of its Connectors name,
// as KEY/COMMAND, sorted: what a mistyped one is compared with.
func (p *Policy) Targets(source Contracts) []string { return review.Targets(p.file, source) }

// Content is what was written. The caller must not change it.
func (p *Policy) Content() *file.File { return p.file }

// TestRequests are the requests of the file's tests, in the order of Content().Tests.
func (p *Policy) TestRequests() []Request {
	out := make([]Request, 0, len(p.file.Tests))
	for _, t := range p.file.Tests {
		out = append(out, requestOf(t))
	}
	return out
}
