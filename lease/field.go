package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

const (
	maxLiteral  = 4096 // bytes of one allowed literal
	maxCritical = 16   // names, of 64 bytes each
	minYear     = 2020
	maxYear     = 9999
)

// check holds what is true of every well-formed lease, whoever looks at it.
// Rules that a peer may learn the outcome of (authority, critical, times against
// a clock) are the Verifier's. spec: LEASE-8 to LEASE-14.
func (l *Lease) check() error {
	switch {
	case l.ID.IsZero():
		return badField("lease_id", "want 16 bytes, not all zero")
	case l.Issuer.IsZero():
		return badField("issuer", "missing")
	case l.Holder.IsZero():
		return badField("holder", "missing")
	case l.Gateway.IsZero():
		return badField("gateway", "missing")
	case l.Invocation.IsZero():
		return badField("invocation", "missing")
	case l.MaxOperations < 1 || l.MaxOperations > MaxOperations:
		return badField("max_operations", "want 1 to 1000000")
	case l.MaxConcurrent < 1 || l.MaxConcurrent > MaxConcurrent:
		return badField("max_concurrent", "want 1 to 1024")
	case l.DepthLeft < 0 || l.DepthLeft >= MaxChain:
		return badField("depth_left", "want 0 to 2")
	case !printable(l.Purpose, MaxPurpose):
		return badField("purpose", "want at most 256 bytes of printable text")
	}
	if err := l.checkTimes(); err != nil {
		return err
	}
	if err := checkSet(l.Critical, maxCritical, 64); err != "" {
		return badField("critical", err)
	}
	return checkGrants(l.Grants)
}

func (l *Lease) checkTimes() error {
	for _, t := range []struct {
		field string
		at    time.Time
	}{{"issued_at_ms", l.IssuedAt}, {"not_before_ms", l.NotBefore}, {"not_after_ms", l.NotAfter}} {
		if y := t.at.UTC().Year(); y < minYear || y > maxYear {
			return badField(t.field, "want a time between the years 2020 and 9999")
		}
		if t.at.Nanosecond()%int(time.Millisecond) != 0 {
			return badField(t.field, "want whole milliseconds")
		}
	}
	if l.NotBefore.Before(l.IssuedAt) {
		return badField("not_before_ms", "before issued_at_ms")
	}
	if !l.NotBefore.Before(l.NotAfter) {
		return badField("not_after_ms", "not after not_before_ms")
	}
	return nil
}

func checkGrants(grants []Grant) error {
	if len(grants) == 0 || len(grants) > MaxGrants {
		return badField("grants", "want 1 to 64")
	}
	type command struct {
		connector name.ConnectorKey
		version   name.Version
		command   name.Command
	}
	seen := make(map[command]bool)
	for i := range grants {
		g := &grants[i]
		if field, rule := g.check(); rule != "" {
			return badField(fmt.Sprintf("grants[%d].%s", i, field), rule)
		}
		for _, c := range g.Commands {
			k := command{g.Connector, g.Version, c}
			if seen[k] {
				return badField(fmt.Sprintf("grants[%d].commands", i), "a command is granted twice")
			}
			seen[k] = true
		}
		if i > 0 && grants[i-1].compare(g) >= 0 {
			return badField("grants", "not sorted")
		}
	}
	return nil
}

func (g *Grant) check() (field, rule string) {
	switch {
	case g.Connector.IsZero():
		return "connector", "missing"
	case g.Version.IsZero():
		return "version", "missing"
	case len(g.Commands) == 0 || len(g.Commands) > MaxCommands:
		return "commands", "want 1 to 64"
	case len(g.Pins) > MaxPins:
		return "pins", "want at most 32"
	}
	for i, c := range g.Commands {
		if c.IsZero() || i > 0 && g.Commands[i-1].String() >= c.String() {
			return "commands", "empty, repeated or not sorted"
		}
	}
	for p, allowed := range g.Pins {
		if p.IsZero() || len(allowed) == 0 {
			return "pins", "want a parameter and at least one literal"
		}
		if rule := checkSet(allowed, MaxAllowed, maxLiteral); rule != "" {
			return "pins", rule
		}
	}
	return "", ""
}

// checkSet wants a sorted set of clean strings.
func checkSet(set []string, most, size int) (rule string) {
	if len(set) > most {
		return fmt.Sprintf("want at most %d", most)
	}
	for i, s := range set {
		if len(s) > size || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return fmt.Sprintf("want UTF-8 without NUL, at most %d bytes", size)
		}
		if i > 0 && set[i-1] >= s {
			return "repeated or not sorted"
		}
	}
	return ""
}

func printable(s string, size int) bool {
	return len(s) <= size && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (g *Grant) compare(o *Grant) int {
	return cmp.Or(
		cmp.Compare(g.Connector.String(), o.Connector.String()),
		cmp.Compare(g.Version.String(), o.Version.String()),
		cmp.Compare(g.Commands[0].String(), o.Commands[0].String()),
	)
}

// sorted returns a copy of l in canonical order and resolution, which shares
// nothing that Seal's caller could still change.
func (l Lease) sorted() Lease {
	l.IssuedAt = l.IssuedAt.Truncate(time.Millisecond).UTC()
	l.NotBefore = l.NotBefore.Truncate(time.Millisecond).UTC()
	l.NotAfter = l.NotAfter.Truncate(time.Millisecond).UTC()
	l.Critical = sortedStrings(l.Critical)
	l.Grants = slices.Clone(l.Grants)
	for i := range l.Grants {
		g := &l.Grants[i]
		g.Commands = slices.Clone(g.Commands)
		slices.SortFunc(g.Commands, func(a, b name.Command) int { return cmp.Compare(a.String(), b.String()) })
		pins := make(map[name.Parameter][]string, len(g.Pins))
		for p, allowed := range g.Pins {
			pins[p] = sortedStrings(allowed)
		}
		g.Pins = pins
	}
	slices.SortFunc(l.Grants, func(a, b Grant) int {
		if len(a.Commands) == 0 || len(b.Commands) == 0 {
			return len(a.Commands) - len(b.Commands)
		}
		return a.compare(&b)
	})
	return l
}

func sortedStrings(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return out
}
