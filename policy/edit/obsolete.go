package edit

import (
	"fmt"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/name"
)

// dropTests takes away the tests that a Removal makes obsolete: those that want that
// peer to be allowed what is denied, and passed. In those that want it denied, and for
// another reason than there is now, the code goes; that it is denied they still want.
// All others stay, and may refuse the edit.
func (w *work) dropTests(c *cutting) {
	results := w.before.RunTests(w.source)
	about := func(i int, t *file.Test) bool {
		return results[i].Passed && t.Peer == c.id && t.Connector == c.d.Connector && c.d.has(t.Command)
	}
	gone := map[int]bool{}
	var kept []int
	for i, t := range c.f.Tests {
		if !t.Allow || !about(i, t) {
			kept = append(kept, i)
			continue
		}
		gone[i] = true
		c.notes = append(c.notes, review.Prose(fmt.Sprintf("The test %s (%s) goes: it wants what is denied.", name.Quote(t.Name), t.Position)))
	}
	c.drop("tests", gone)
	after, err := policy.Parse(w.filename, []byte(c.done()))
	if err != nil {
		return // finish says it
	}
	var codeless []string
	for at, result := range after.RunTests(w.source) {
		i := kept[at]
		t := c.f.Tests[i]
		if result.Passed || t.Allow || t.Code == "" || !about(i, t) {
			continue
		}
		n := c.Root.Get("tests").Values[i]
		c.remove(n, func(k int) bool { return n.Keys[k].Text == "code" })
		codeless = append(codeless, fmt.Sprintf("%s (%s)", name.Quote(t.Name), t.Position))
	}
	if len(codeless) > 0 {
		c.notes = append(c.notes, "What these tests want denied is denied for another reason now, so they lose their code: "+review.Listed(codeless)+".")
	}
}
