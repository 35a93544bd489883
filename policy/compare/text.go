package compare

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const maxShown = 8 // values in one sentence

// text says an excess: what is newly accepted, or with Narrower what no longer is.
func (e excess) text(effect Effect) string {
	// The sides of the file: what holds now, and what held.
	now, was := e.mine, e.other
	if effect == Narrower {
		now, was = e.other, e.mine
	}
	instead := string(insteadOf(now, was))
	ends, p := effect == Narrower, e.parameter.String()
	switch e.aspect {
	case aspectWords:
		return "the rule narrows it in another way, and what that comes to is not known without its Connector"
	case aspectFixed:
		return "it runs " + instead
	case aspectPlace:
		return p + " is " + instead
	case aspectTail:
		return "further arguments " + instead
	case aspectPresent:
		if ends {
			return p + " may no longer be given"
		}
		return "optionally " + p + " " + e.mine
	case aspectRequired:
		if ends {
			return p + " must be given"
		}
		return p + " may be left out"
	case aspectValues:
		if ends {
			return p + " no longer " + list(e.values)
		}
		return p + " also " + list(e.values)
	case aspectLimit:
		return e.what + " " + limited(now) + " instead of " + limited(was)
	case aspectRange, aspectItems:
	}
	return p + " " + instead
}

// insteadOf says both, and where people would see the same twice, that it is not.
func insteadOf(now, was string) review.Prose {
	both := review.Prose(now + " instead of " + was)
	if brief := review.Prose(now).Brief(); brief == review.Prose(was).Brief() {
		return review.Alternative(both, review.Prose(brief+", not the same as before (--long says both)"))
	}
	return both
}

// limited writes a limit; sizes and counts are "at most".
func limited(s string) string {
	if strings.HasPrefix(s, "what ") || strings.HasPrefix(s, "keep ") || s == "kill" {
		return s
	}
	return "at most " + s
}

func list(values []string) string {
	long := string(review.Quoted(values[:min(len(values), maxShown)]).Long())
	if more := len(values) - maxShown; more > 0 {
		long += fmt.Sprintf(" and %d more", more)
	}
	return string(review.Alternative(review.Prose(long), review.Quoted(values)))
}

func count(v int64) string { return strconv.FormatInt(v, 10) }

// runs writes what a command begins with.
func runs(c argv.Command) string {
	words := make([]string, 0, len(c.Arguments))
	for _, a := range c.Arguments {
		words = append(words, name.Quote(a))
	}
	text := strings.Join(words, " ")
	if text == "" {
		text = "no fixed argument"
	}
	if c.EndOfOptions {
		text += ` and "--" before positions`
	}
	return text
}

func tailText(r *argv.Rest) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("up to %d that ", r.MaxItems) + string(review.Pattern("match", r.Pattern))
}

func positionsText(c argv.Command) string {
	if n := positions(c); n != 1 {
		return fmt.Sprintf("%d positions", n)
	}
	return "1 position"
}

// valuesText says what a parameter accepts, with the least length, which sentences of
// a review leave out.
func valuesText(q argv.Parameter, limits file.Limits) string {
	text, least := string(review.Values(q, limits)), 0
	for i, s := range q.Schemas {
		if s.MinLength == nil {
			continue
		}
		if i == 0 && *s.MinLength == 0 {
			text += ", or empty"
		}
		least = max(least, *s.MinLength)
	}
	if least > 0 {
		text += fmt.Sprintf(", at least %d characters", least)
	}
	return text
}

func itemsText(l *argv.List) string {
	if l.MinItems > 0 {
		return fmt.Sprintf("%d to %d times", l.MinItems, l.MaxItems)
	}
	return fmt.Sprintf("up to %d times", l.MaxItems)
}

// placeText says where a parameter goes, and of which type it is.
func placeText(q argv.Parameter) string {
	kind := string(q.Schemas[0].Type)
	if q.List != nil {
		kind += " list"
	}
	switch {
	case q.Flag != nil:
		return "the option " + q.Flag.Name + aliases(q.Flag) + " (" + kind + ")"
	case q.Stdin != nil:
		return "standard input"
	case q.Variable != "":
		return "the variable " + q.Variable + " (" + kind + ")"
	}
	return fmt.Sprintf("position %d (%s)", q.Position, kind)
}

func aliases(f *argv.Flag) string {
	text := ""
	if len(f.Aliases) > 0 {
		text += ", also " + strings.Join(f.Aliases, ", ") + ","
	}
	switch {
	case f.Repeat:
		text += " which may be repeated"
	case f.Separator != "":
		text += " with items between " + name.Quote(f.Separator)
	case f.Render != "":
		text += " rendered with " + string(f.Render)
	}
	return text
}
