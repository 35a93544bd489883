package preset

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Fragment is what a preset adds to a policy file: the texts of four of its keys,
// each with the key's line, and the peers' "" if no ID was given.
type Fragment struct {
	// Header are comment lines: what the fragment gives and leaves out, and why.
	Header string
	Peers  string
	// Commands declares the commands, which only a Connector whose manifest declares
	// none may have in the policy; Allow is one rule; Tests prove both.
	Commands, Allow, Tests string
	// Rule is the rule's name, Names those of the commands, sorted; Connector and
	// Version are what it is about.
	Rule      string
	Names     []string
	Connector name.ConnectorKey
	Version   name.Version
}

// String returns the whole fragment, which a policy file without those keys can end
// with.
func (f Fragment) String() string {
	return f.Header + f.Peers + f.Commands + f.Allow + f.Tests
}

// Render returns the fragment for these values. The error is a *ValueError: a value
// is missing, is not of its grammar, or nothing was named to lend.
func (p Preset) Render(v Values) (Fragment, error) {
	set, err := p.check(v)
	if err != nil {
		return Fragment{}, err
	}
	if v.Connector.IsZero() {
		v.Connector = p.Connector
	}
	if v.Version.IsZero() {
		v.Version = p.Versions[len(p.Versions)-1]
	}
	f := Fragment{Connector: v.Connector, Version: v.Version, Rule: peerNames(v.To, ", ") + ": " + p.CLI + ", read-only"}
	const longest = 100
	if len(f.Rule) > longest {
		f.Rule = v.To[0].Name.String() + " and others: " + p.CLI + ", read-only"
	}
	lines, used := p.lines(set)
	for _, q := range p.Placeholders {
		if len(v.Set[q.Name]) > 0 && !used[q.Name] {
			return Fragment{}, &ValueError{Placeholder: q.Name, Msg: "no command uses it, as long as the others are not set", Hint: "lend policy preset list"}
		}
	}
	text := expand(lines, v, set, f.Rule, v.To[0].Name.String()+" "+p.Name)
	if f.Names = commandNames(text); len(f.Names) == 0 {
		return Fragment{}, &ValueError{Msg: "nothing is named to lend: set one of " + strings.Join(p.optional(), ", "), Hint: "lend policy preset list"}
	}
	f.Commands, text = cutAt(text, "allow:\n")
	f.Allow, f.Tests = cutAt(text, "tests:\n")
	f.Allow = strings.Replace(f.Allow, "#commands\n", allowed(f.Names), 1)
	f.Peers = peers(v.To)
	f.Header = p.header(v)
	return f, nil
}

// optional are the placeholders that bring commands.
func (p Preset) optional() []string {
	var out []string
	for _, q := range p.Placeholders {
		if !q.Required && q.Default == "" {
			out = append(out, q.Name)
		}
	}
	return out
}

// lines returns those of the template that are left: what stands between "#if A B"
// and "#end" only if all of these placeholders have values, after "#unless A" only if
// it has none. It tells which placeholders these lines use.
func (p Preset) lines(set map[string][]string) ([]string, map[string]bool) {
	var out []string
	used := map[string]bool{}
	keep := true
	for line := range strings.Lines(p.template) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && (words[0] == "#if" || words[0] == "#unless"):
			missing := slices.ContainsFunc(words[1:], func(n string) bool { return len(set[n]) == 0 })
			keep = missing == (words[0] == "#unless")
			for _, n := range words[1:] {
				used[n] = used[n] || keep
			}
		case len(words) == 1 && words[0] == "#end":
			keep = true
		case keep:
			out = append(out, line)
			for n := range set {
				used[n] = used[n] || strings.Contains(line, "${"+n)
			}
		}
	}
	return out, used
}

// cutAt cuts a text before a line.
func cutAt(text, line string) (string, string) {
	at := strings.Index("\n"+text, "\n"+line)
	if at < 0 {
		return text, ""
	}
	return text[:at], text[at:]
}

func allowed(names []string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteString("      " + n + ": {}\n")
	}
	return b.String()
}

// expand puts values where "${NAME}" stands. All of these are checked.
func expand(lines []string, v Values, set map[string][]string, rule, title string) string {
	asker := "peer: " + scalar(v.To[0].Name.String())
	if !v.Issuer.IsZero() {
		asker += ", issuer: " + scalar(v.Issuer.String())
	}
	to := make([]string, 0, len(v.To))
	for _, q := range v.To {
		to = append(to, scalar(q.Name.String()))
	}
	pairs := []string{
		"${connector}", scalar(v.Connector.String()), "${version}", quote(v.Version.String()), "${to}", strings.Join(to, ", "),
		"${asker}", asker, "${rule}", quote(rule), "${rule.1}", title,
	}
	for n, values := range set {
		if len(values) == 0 {
			continue
		}
		quoted := make([]string, 0, len(values))
		for _, s := range values {
			quoted = append(quoted, quote(s))
		}
		pairs = append(pairs, "${"+n+"}", strings.Join(quoted, ", "), "${"+n+".1}", values[0])
	}
	return strings.NewReplacer(pairs...).Replace(strings.Join(lines, ""))
}

// quote writes a text whose characters mean nothing between double quotes.
func quote(s string) string { return `"` + s + `"` }

// word is a text that is one in YAML without quotes, but for those that the policy
// refuses as spellings of something else.
var word = regexp.MustCompile(`^[a-z][a-z0-9-]{2,}$`)

// scalar writes a name: in quotes where YAML could take it for something else.
func scalar(s string) string {
	if !word.MatchString(s) || slices.Contains([]string{"true", "false", "null", "yes", "off", "nan", "inf"}, s) {
		return quote(s)
	}
	return s
}

func peerNames(to []Peer, separator string) string {
	names := make([]string, 0, len(to))
	for _, q := range to {
		names = append(names, q.Name.String())
	}
	return strings.Join(names, separator)
}

func peers(to []Peer) string {
	var b strings.Builder
	for _, q := range to {
		if q.ID != (name.PeerID{}) {
			b.WriteString("  " + scalar(q.Name.String()) + ": " + q.ID.String() + "\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "peers:\n" + b.String()
}

// header says, as a comment, what the fragment is.
func (p Preset) header(v Values) string {
	made := make([]string, 0, len(p.Versions))
	for _, m := range p.Versions {
		made = append(made, m.String())
	}
	var b strings.Builder
	b.WriteString("# Preset " + p.Name + ", made for " + p.CLI + " " + strings.Join(made, ", ") + ":\n")
	wrap(&b, "", p.Summary+".")
	list := func(title string, lines []string) {
		b.WriteString("#\n# " + title + "\n")
		for _, s := range lines {
			wrap(&b, "- ", strings.NewReplacer("${connector}", v.Connector.String(), "${version}", v.Version.String()).Replace(s))
		}
	}
	list("It gives:", p.Gives)
	list("It leaves out:", p.LeavesOut)
	b.WriteString("#\n# Before:\n")
	for _, s := range p.Setup {
		b.WriteString("#   " + strings.NewReplacer("${connector}", v.Connector.String(), "${version}", v.Version.String()).Replace(s) + "\n")
	}
	b.WriteString("#\n")
	wrap(&b, "", "A policy file has each of the keys below once: put each part under yours, or add all of this to the end of a file that has none of them. Then: lend policy check")
	return b.String()
}

// wrap writes a text as comment lines, the first with a bullet.
func wrap(b *strings.Builder, bullet, text string) {
	const width = 98
	line := "# " + bullet
	for i, w := range strings.Fields(text) {
		switch {
		case i == 0:
			line += w
		case len(line)+1+len(w) > width:
			b.WriteString(line + "\n")
			line = "# " + strings.Repeat(" ", len(bullet)) + w
		default:
			line += " " + w
		}
	}
	b.WriteString(line + "\n")
}
