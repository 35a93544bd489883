package compare

import (
	"slices"
	"strings"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/surface"
)

// cells are what rules give, by cell; order has the cells of a command in the order in
// which they decide.
type cells struct {
	arms  map[cell][]*arm
	order map[surface.Target][]cell
}

func (s *side) cells(rules []*file.Rule) cells {
	out := cells{map[cell][]*arm{}, map[surface.Target][]cell{}}
	for _, r := range rules {
		for _, a := range s.rules[r] {
			if out.arms[a.cell] == nil {
				t := a.cell.target
				out.order[t] = append(out.order[t], a.cell)
			}
			out.arms[a.cell] = append(out.arms[a.cell], a)
		}
	}
	return out
}

// cellDeltas compares what was and is in one cell.
func cellDeltas(k cell, was, is []*arm) (out []delta) {
	if len(was) == 0 {
		for _, a := range is {
			out = append(out, delta{Wider, a.at, k, "may now run", ": " + a.what + "."})
		}
		return out
	}
	if len(is) == 0 {
		return []delta{{Narrower, was[0].at, k, "may no longer run", "."}}
	}
	wider, narrower := armDeltas(k, is, was, Wider), armDeltas(k, was, is, Narrower)
	if len(wider)+len(narrower) == 0 && !slices.Equal(limitsOf(was), limitsOf(is)) {
		return []delta{{Changed, is[0].at, k, "may run", " under several rules with limits of their own, of which another decides where more than one accepts a request."}}
	}
	return append(wider, slices.DeleteFunc(narrower, func(d delta) bool {
		// Said once if it cannot be known which way it goes.
		return d.effect == Changed && slices.ContainsFunc(wider, func(w delta) bool { return w.effect == Changed && w.at == d.at })
	})...)
}

// limitsOf are the limits of arms in the order in which they decide; the first of a
// row of equal ones counts.
func limitsOf(arms []*arm) (out []file.Limits) {
	for _, a := range arms {
		if len(out) == 0 || out[len(out)-1] != a.limits {
			out = append(out, a.limits)
		}
	}
	return out
}

// armDeltas says what arms accept beyond the others.
func armDeltas(k cell, arms, others []*arm, effect Effect) (out []delta) {
	for _, a := range arms {
		if covered(a, others) {
			continue
		}
		o, all := closest(a, others)
		found := beyond(a, others, all)
		if len(found) == 0 {
			found = all
		}
		d := delta{effect, a.at, k, "may run", ""}
		at := o.at
		if effect == Wider {
			at = a.at
		}
		d.at = at
		unknown := !slices.ContainsFunc(found, func(e excess) bool { return !e.unknown })
		var texts []string
		for _, e := range found {
			texts = append(texts, e.text(effect))
		}
		switch {
		case unknown:
			d.effect = Changed
			d.detail = " differently: "
		case effect == Wider:
			d.detail = " in more ways: "
		default:
			d.detail = " in fewer ways: "
		}
		d.detail += strings.Join(texts, "; ") + "."
		out = append(out, d)
	}
	return out
}
