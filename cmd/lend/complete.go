package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/preset"
	"github.com/lendcli/lend/protocol/name"
)

// Completion reads files of this machine, and asks the broker of a session, which is of
// the same user: no other socket, no lock, no passphrase, and nothing is written or made.
// What cannot be read completes nothing. Who presses a key must not wait, so that all of
// it is bounded.

const (
	maxCompletions  = 500
	maxIssuedLooks  = 2000 // files of issued leases; where there are more, only their names
	maxDescription  = 60   // runes
	recentCompleted = 200  // operations
)

// addCompletions gives every command below c a completion of its arguments, by their
// names in its usage line, and of those flags that name what is here.
func (a *app) addCompletions(c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.Name() != "completion" {
			a.addCompletions(sub)
		}
	}
	if c.HasSubCommands() || c.ValidArgsFunction != nil {
		return
	}
	all := argumentsOf(c.Use)
	if len(c.ValidArgs) == 0 {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.completeArgument(c, all, args, prefix)
		}
	}
	for flag, complete := range map[string]func(c *cobra.Command, args []string) []cobra.Completion{
		"peer": a.completePeers, "to": a.completePeers, "holder": a.completePeers,
		"connector":  func(*cobra.Command, []string) []cobra.Completion { return a.ownKeys() },
		"connection": func(_ *cobra.Command, args []string) []cobra.Completion { return a.completeConnections(all, args) },
		"version":    func(c *cobra.Command, args []string) []cobra.Completion { return a.completeVersions(c, all, args) },
		"stdin":      func(*cobra.Command, []string) []cobra.Completion { return []cobra.Completion{"auto", "yes", "no"} },
	} {
		a.completeFlag(c, flag, complete)
	}
	if c.CommandPath() == "lend lease revoke" { // elsewhere --lease is a file
		a.completeFlag(c, "lease", func(*cobra.Command, []string) []cobra.Completion { return a.completeLeases() })
	}
}

func (a *app) completeFlag(c *cobra.Command, flag string, complete func(*cobra.Command, []string) []cobra.Completion) {
	if f := c.Flags().Lookup(flag); f == nil || f.Value.Type() == "bool" {
		return
	}
	// The error is that it has one already, or no such flag.
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return those(complete(c, args), prefix), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeArgument completes the argument that comes after args.
func (a *app) completeArgument(c *cobra.Command, all []argument, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(all) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	at := min(len(args), len(all)-1)
	if len(args) >= len(all) && !all[at].many {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	switch what := all[at].name; what {
	case "KEY":
		out = a.completeKeys(c, args)
	case "COMMAND":
		out = a.completeCommands(c, all, args)
	case "KEY/COMMAND":
		for _, t := range a.targets() {
			out = append(out, described(t.key.String()+"/"+t.command.String(), t.text))
		}
	case "PEER":
		out = a.completePeers(c, args)
	case "ID":
		out = a.completeOperations()
	case "NAME":
		out = a.completeNames(c, all, args)
	case "ARGUMENTS":
		out = completeLent(c, args, prefix)
	case "VALUE":
	default:
		return nil, cobra.ShellCompDirectiveDefault // files, mostly
	}
	return those(out, prefix), cobra.ShellCompDirectiveNoFileComp
}

// those are the completions that begin with prefix, sorted, each once, and no more
// than a person would look at.
func those(all []cobra.Completion, prefix string) []cobra.Completion {
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, prefix) })
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxCompletions)]
}

// described is a completion with a few words. They may be another's: one line, escaped.
func described(word, text string) cobra.Completion {
	text = name.Show(strings.Join(strings.Fields(text), " "))
	if utf8.RuneCountInString(text) > maxDescription {
		text = string([]rune(text)[:maxDescription-1]) + "…"
	}
	if text == "" {
		return word
	}
	return cobra.CompletionWithDesc(word, text)
}

// keyAmong is the Connector that the line names; "" if it does not yet.
func keyAmong(all []argument, args []string) string {
	for i, arg := range all {
		if arg.name == "KEY" && i < len(args) {
			return args[i]
		}
	}
	return ""
}

// releasesHere are those that are installed; nothing is made or taken away.
func (a *app) releasesHere() []install.Release {
	p, err := a.paths()
	if err != nil {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(p.store(), "connectors")); err != nil {
		return nil
	}
	s, err := install.Open(install.Config{Dir: p.store(), Log: zerolog.Nop(), AsIs: true})
	if err != nil {
		return nil
	}
	defer func() { _ = s.Close() }()
	all, _, _ := s.Releases() // those that can be read
	return all
}

func (a *app) policyHere() *policy.Policy {
	p, err := a.paths()
	if err != nil {
		return nil
	}
	pol, err := loadPolicy(p.policy())
	if err != nil {
		return nil
	}
	return pol
}

// target is a command of a Connector, with a few words about it.
type target struct {
	key     name.ConnectorKey
	command name.Command
	text    string
}

// targets are the commands of what is installed, and those that the policy has.
func (a *app) targets() (out []target) {
	known := map[string]bool{}
	for _, r := range a.releasesHere() {
		for _, c := range r.Contract.Commands {
			out = append(out, target{r.Manifest.Key, c.Name, c.Description})
			known[r.Manifest.Key.String()+"/"+c.Name.String()] = true
		}
	}
	if pol := a.policyHere(); pol != nil {
		for _, t := range pol.Targets(nil) {
			if key, command, err := parseTarget(t); err == nil && !known[t] {
				out = append(out, target{key, command, ""})
			}
		}
	}
	return out
}

// ownKeys are the Connectors that are installed.
func (a *app) ownKeys() (out []cobra.Completion) {
	for _, r := range a.releasesHere() {
		out = append(out, described(r.Manifest.Key.String(), r.Manifest.DisplayName))
	}
	return out
}

// leaseOf is the lease that a caller's command line is about, for the commands that
// have one; ok tells that it is one of those.
func (a *app) leaseOf(c *cobra.Command, args []string) (file lease.File, ok bool) {
	path := ""
	switch c.CommandPath() {
	case "lend run", "lend catalog":
		path = cmp.Or(c.Flag("lease").Value.String(), os.Getenv("LEND_LEASE_FILE"))
		if path == "" {
			file, _ = parseLease([]byte(os.Getenv("LEND_LEASE")))
			return file, true
		}
	case "lend lease delegate":
		if len(args) > 0 {
			path = args[0]
		}
	default:
		return file, false
	}
	if path != "-" && path != "" { // standard input is the shell's
		file, _ = a.readLease(path)
	}
	return file, true
}

func (a *app) completeKeys(c *cobra.Command, args []string) (out []cobra.Completion) {
	f, ok := a.leaseOf(c, args)
	if !ok {
		return a.ownKeys()
	}
	for _, g := range f.Lease.Grants {
		out = append(out, described(g.Connector.String(), g.Version.String()))
	}
	for _, l := range lentTo(c) {
		out = append(out, described(l.Entry.Connector.String(), l.Entry.Version.String()))
	}
	return out
}

func (a *app) completeCommands(c *cobra.Command, all []argument, args []string) (out []cobra.Completion) {
	key := keyAmong(all, args)
	if f, ok := a.leaseOf(c, args); ok {
		for _, g := range f.Lease.Grants {
			for _, command := range g.Commands {
				if g.Connector.String() == key {
					out = append(out, command.String())
				}
			}
		}
		for _, l := range lentTo(c) {
			if l.Entry.Connector.String() == key {
				out = append(out, described(l.Entry.Command.String(), l.Entry.Summary))
			}
		}
		return without(out, args)
	}
	for _, t := range a.targets() {
		if t.key.String() == key {
			out = append(out, described(t.command.String(), t.text))
		}
	}
	return without(out, args)
}

// without leaves out what is on the line already.
func without(all []cobra.Completion, args []string) []cobra.Completion {
	return slices.DeleteFunc(all, func(s string) bool {
		word, _, _ := strings.Cut(s, "\t")
		return slices.Contains(args, word)
	})
}

func (a *app) completeVersions(c *cobra.Command, all []argument, args []string) (out []cobra.Completion) {
	key := keyAmong(all, args)
	if f, ok := a.leaseOf(c, args); ok {
		for _, g := range f.Lease.Grants {
			if key == "" || g.Connector.String() == key {
				out = append(out, g.Version.String())
			}
		}
		return out
	}
	for _, r := range a.releasesHere() {
		if key == "" || r.Manifest.Key.String() == key {
			out = append(out, described(r.Manifest.Version.String(), r.Manifest.Key.String()))
		}
	}
	return out
}

func (a *app) completePeers(*cobra.Command, []string) (out []cobra.Completion) {
	pol := a.policyHere()
	if pol == nil {
		return nil
	}
	for label, id := range pol.Peers() {
		out = append(out, described(label.String(), id.String()))
	}
	return out
}

// completeConnections looks at the names of directories alone.
func (a *app) completeConnections(all []argument, args []string) (out []cobra.Completion) {
	key, err := name.ParseConnectorKey(keyAmong(all, args))
	if err != nil {
		return nil
	}
	p, err := a.paths()
	if err != nil {
		return nil
	}
	for _, n := range namesIn(filepath.Join(p.connections(), "connectors", key.String())) {
		if id, err := name.ParseConnectionID(n); err == nil {
			out = append(out, id.String())
		}
	}
	return out
}

// namesIn lists some of a directory.
func namesIn(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	if info, err := d.Stat(); err != nil || !info.IsDir() {
		return nil
	}
	out, _ := d.Readdirnames(maxIssuedLooks + 1) // what there is of it
	return out
}

// completeOperations reads the newest part of the record, running gateway or not.
func (a *app) completeOperations() (out []cobra.Completion) {
	p, err := a.paths()
	if err != nil {
		return nil
	}
	records, _, _ := audit.New(audit.Config{Dir: p.ledger(), Filter: audit.Filter{Kinds: []audit.Kind{audit.KindStart}}}).Newest(recentCompleted)
	for i := range records {
		r := &records[i]
		out = append(out, described(r.Operation, r.At.Local().Format("01-02 15:04:05")+" "+r.Connector+" "+r.Command))
	}
	return out
}

// completeLeases are the leases that were issued here.
func (a *app) completeLeases() (out []cobra.Completion) {
	p, err := a.paths()
	if err != nil {
		return nil
	}
	names := namesIn(p.issued())
	if len(names) > maxIssuedLooks {
		for _, n := range names {
			if id, err := lease.ParseID(strings.TrimSuffix(n, ".json")); err == nil {
				out = append(out, id.String())
			}
		}
		return out
	}
	known, _ := issued.List(p.issued(), time.Time{}) // at that time nothing is old enough to be deleted
	for i := range known {
		l := &known[i]
		out = append(out, described(l.ID.String(), l.NotAfter.Local().Format("until 01-02 15:04")+" "+grantsText(l.Grants)))
	}
	return out
}

// completeNames completes the NAME of what the command is about.
func (a *app) completeNames(c *cobra.Command, all []argument, args []string) (out []cobra.Completion) {
	switch path := c.CommandPath(); path {
	case "lend connector shim remove":
		p, err := a.paths()
		if err != nil {
			return nil
		}
		ours, _, _ := p.localShims().List() // those that can be read
		for _, s := range ours {
			out = append(out, described(s.Name, s.Connector.String()+" "+s.Command.String()))
		}
	case "lend connector secret set", "lend connector secret remove", "lend connector setting set", "lend connector setting remove":
		out = a.declaredNames(keyAmong(all, args), strings.Contains(path, " secret "))
	case "lend policy preset show", "lend policy preset add":
		presets, _ := preset.All() // they are part of this program
		for _, p := range presets {
			out = append(out, described(p.Name, p.Summary))
		}
	case "lend runtime add":
		out = []cobra.Completion{"node", "python3"}
	}
	return out
}

// declaredNames are the secrets that a Connector declares, or the variables of its
// settings.
func (a *app) declaredNames(key string, secrets bool) (out []cobra.Completion) {
	for _, r := range a.releasesHere() {
		if r.Manifest.Key.String() != key {
			continue
		}
		if secrets {
			for _, s := range r.Manifest.Secrets {
				out = append(out, described(s.Name, s.Description))
			}
			continue
		}
		for _, s := range r.Manifest.Settings {
			out = append(out, described(s.Env, s.Description))
		}
	}
	return out
}
