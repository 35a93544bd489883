package review

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Access says in sentences who may do what, sorted, and who can never do anything.
// It is what an owner reviews. Commands whose contract the source does not have are
// said to be so.
func Access(f *file.File, source Contracts) []string {
	sentences := Sentences(f, source)
	out := make([]string, 0, len(sentences))
	for _, s := range sentences {
		out = append(out, s.Long())
	}
	return out
}

// Sentences are those of Access in both forms.
func Sentences(f *file.File, source Contracts) []Prose {
	var out []Prose
	active := map[string]bool{}
	for _, r := range f.Rules {
		subjects := subjects(f, r)
		for _, s := range subjects {
			active[s.name] = true
		}
		for _, g := range r.Commands {
			for _, what := range describe(f, r, g, source) {
				for _, s := range subjects {
					out = append(out, Prose(s.name+s.under+" may run "+what))
				}
			}
		}
	}
	for label, id := range f.Peers {
		if n := label.String(); !active[n] && f.NameOf(id) == n {
			out = append(out, Prose(n+" may connect and run nothing."))
		}
	}
	for _, i := range f.Issuers {
		if i.MaxDepth > 0 {
			out = append(out, Prose(fmt.Sprintf("Leases of %s may be passed on %s, to peers that %s may name.", i.Name, [...]string{"once", "twice"}[i.MaxDepth-1], i.Name)))
		}
		if !slices.ContainsFunc(f.Rules, func(r *file.Rule) bool { return len(subjectsUnder(f, r, i)) > 0 }) {
			out = append(out, Prose("Leases of "+i.Name.String()+" allow nothing."))
		}
	}
	slices.SortFunc(out, func(a, b Prose) int { return strings.Compare(a.Long(), b.Long()) })
	return slices.Compact(out)
}

// subject is who a rule is about, and under whose leases.
type subject struct{ name, under string }

// subjects returns those of a rule for whom it can hold, sorted.
func subjects(f *file.File, r *file.Rule) []subject {
	under := map[string][]string{}
	for _, i := range f.Issuers {
		for _, n := range subjectsUnder(f, r, i) {
			under[n] = append(under[n], i.Name.String())
		}
	}
	out := make([]subject, 0, len(under))
	for n, issuers := range under {
		s := subject{name: n}
		if len(issuers) < len(f.Issuers) {
			s.under = ", under leases of " + string(Listed(issuers)) + ","
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b subject) int { return strings.Compare(a.name, b.name) })
	return out
}

func subjectsUnder(f *file.File, r *file.Rule, i *file.Issuer) (out []string) {
	if r.Issuers != nil && !r.Issuers[i.ID] || !i.MayGrant(r.Connector) {
		return nil
	}
	for id := range r.Peers {
		if i.MayName(id) {
			out = append(out, f.NameOf(id))
		}
	}
	switch {
	case r.HoldersOf[i.ID] && i.HoldersAny:
		out = append(out, "Whoever "+i.Name.String()+" names")
	case r.HoldersOf[i.ID]:
		for _, id := range i.Holders {
			out = append(out, f.NameOf(id))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// describe says what one command of a rule is, as narrow as it is: one text for
// all versions of which it is the same.
func describe(f *file.File, r *file.Rule, g *file.Grant, source Contracts) []string {
	var texts []string
	versions := map[string][]string{}
	for _, v := range r.Versions {
		text := string(Bounds(f, r, g, v, source))
		if versions[text] == nil {
			texts = append(texts, text)
		}
		versions[text] = append(versions[text], v.String())
	}
	for i, text := range texts {
		where := "version " + string(Listed(versions[text]))
		if !r.Connection.IsZero() {
			where += ", connection " + r.Connection.String()
		}
		if !r.Workspace.IsZero() {
			where += ", in the workspace " + r.Workspace.String()
		}
		texts[i] = fmt.Sprintf("%s %s (%s): %s.", r.Connector, g.Name, where, text)
		if g.Record != nil {
			texts[i] += " The arguments are recorded."
		}
	}
	return texts
}

// Bounds says what a command of a rule accepts in one version, and within which
// limits, as Access does.
func Bounds(f *file.File, r *file.Rule, g *file.Grant, v name.Version, source Contracts) Prose {
	if source == nil {
		return "as its Connector declares"
	}
	contract, _, err := source.Contract(r.Connector, v, r.Connection)
	if err != nil {
		return "nothing as long as it has no current route"
	}
	c, err := surface.Narrowed(f, r, g, contract)
	if err != nil {
		return "nothing, because the rule does not fit the command"
	}
	limits := f.Operation(contract, c, r.Limits)
	parts := append(parameters(c, limits), outputs(limits), "at most "+file.ShowDuration(limits.Run))
	return Prose(strings.Join(parts, "; "))
}

func outputs(l file.Limits) string {
	if l.Stdout == file.Unlimited {
		return "unlimited output"
	}
	return "at most " + file.ShowSize(l.Stdout) + " of output"
}

// parameters says what may be said, the required ones first.
func parameters(c argv.Command, limits file.Limits) []string {
	var must, may []string
	for _, q := range c.Parameters {
		text := q.Name.String() + " " + string(Values(q, limits))
		if q.Required {
			must = append(must, text)
			continue
		}
		may = append(may, "optionally "+text)
	}
	out := append(must, may...)
	if c.Rest != nil {
		out = append(out, fmt.Sprintf("up to %d further arguments that ", c.Rest.MaxItems)+string(Pattern("match", c.Rest.Pattern)))
	}
	if len(out) == 0 {
		out = []string{"without arguments"}
	}
	return out
}

// Values says what a parameter accepts, as Access does.
func Values(q argv.Parameter, limits file.Limits) Prose {
	if q.Stdin != nil {
		return Prose("on standard input, up to " + file.ShowSize(limits.Stdin))
	}
	text := schemaText(merged(q.Schemas))
	if text == "" {
		text = anyOf[q.Schemas[0].Type]
	}
	if q.List != nil {
		text = fmt.Sprintf("up to %d times %s", q.List.MaxItems, text)
	}
	return Prose(text)
}

// merged returns one schema that says what several say together, for showing.
// Patterns are joined by "and", which no decision is made by.
func merged(schemas []argv.Schema) argv.Schema {
	out := argv.Schema{}
	for _, s := range schemas {
		if s.Const != nil {
			s.Enum = []string{*s.Const}
		}
		if s.Enum != nil && out.Enum != nil {
			s.Enum = slices.DeleteFunc(slices.Clone(s.Enum), func(v string) bool { return !slices.Contains(out.Enum, v) })
		}
		if s.Enum != nil {
			out.Enum = s.Enum
		}
		if s.Pattern != "" && out.Pattern != "" && s.Pattern != out.Pattern {
			s.Pattern = out.Pattern + " and " + s.Pattern
		}
		out.Pattern = cmp.Or(s.Pattern, out.Pattern)
		out.Kind = cmp.Or(s.Kind, out.Kind)
		out.FreeText = out.FreeText || s.FreeText
		out.Minimum = tighter(out.Minimum, s.Minimum, false)
		out.Maximum = tighter(out.Maximum, s.Maximum, true)
		out.MaxLength = tighter(out.MaxLength, s.MaxLength, true)
	}
	return out
}

func tighter[T cmp.Ordered](a, b *T, least bool) *T {
	if a == nil || b != nil && (*b < *a) == least {
		return b
	}
	return a
}

//nolint:gochecknoglobals // table
var anyOf = map[argv.Type]string{
	argv.TypeString: "any text", argv.TypeInteger: "any whole number", argv.TypeNumber: "any number", argv.TypeBoolean: "true or false",
}

func schemaText(s argv.Schema) string {
	var parts []string
	switch {
	case len(s.Enum) == 1:
		return name.Quote(s.Enum[0])
	case s.Enum != nil:
		return "one of " + string(Quoted(s.Enum))
	case s.Kind == argv.KindPath:
		parts = append(parts, "a path in the workspace")
	case s.Pattern != "":
		parts = append(parts, string(Pattern("matching", s.Pattern)))
	case s.FreeText:
		parts = append(parts, "any text")
	}
	if text := between(s.Minimum, s.Maximum); text != "" {
		parts = append(parts, text)
	}
	if s.MaxLength != nil {
		parts = append(parts, fmt.Sprintf("up to %d characters", *s.MaxLength))
	}
	return strings.Join(parts, ", ")
}

func between(low, high *float64) string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	switch {
	case low != nil && high != nil:
		return number(*low) + " to " + number(*high)
	case low != nil:
		return number(*low) + " or more"
	case high != nil:
		return number(*high) + " or less"
	}
	return ""
}

// Enumerate writes "a, b and c".
func Enumerate(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}
