package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// auditCommand is the noun of the record.
func (a *app) auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "read the record of what was lent, and prove that it is whole",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.auditShowCommand(), a.auditTailCommand(), a.auditExportCommand(), a.auditVerifyCommand(), a.auditCheckpointCommand())
	return c
}

// auditFlags say which records of which ledger.
type auditFlags struct {
	ledger       string
	since, until string
	kinds        []string
	filter       audit.Filter
}

func (f *auditFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.ledger, "ledger", "", "another ledger's directory than this machine's, such as a copy")
	fl.StringVar(&f.since, "since", "", "records from then on: a time, a day, or how long ago (36h)")
	fl.StringVar(&f.until, "until", "", "records before then")
	fl.StringVar(&f.filter.Peer, "peer", "", "records about a peer: a name of the policy or a peer ID")
	fl.StringVar(&f.filter.Connector, "connector", "", "records about a Connector")
	fl.StringVar(&f.filter.Command, "command", "", "records about a command")
	fl.StringVar(&f.filter.Operation, "op", "", "records about an operation: its ID, or the beginning of it")
	fl.StringVar(&f.filter.Code, "code", "", "ends and refusals with a code, such as OK or POLICY_DENIED")
	fl.StringArrayVar(&f.kinds, "kind", nil, "records of a kind: start, end, refusal, event or segment (may be repeated)")
}

// view opens what the flags name.
func (a *app) view(f auditFlags) (*audit.View, error) {
	dir, err := a.ledgerDir(f.ledger)
	if err != nil {
		return nil, err
	}
	p, err := a.paths()
	if err != nil {
		return nil, err
	}
	c := audit.Config{Dir: dir, Filter: f.filter}
	if pol, err := loadPolicy(p.policy()); err == nil { // names only: what cannot be read has none
		c.Peers = pol.Peers()
	}
	if !knownPeer(f.filter.Peer, c.Peers) {
		return nil, usagef("--peer with a peer ID, as lend audit show --json has it", "the policy of this machine names no peer %s", name.Quote(f.filter.Peer))
	}
	now := time.Now()
	for flag, t := range map[string]struct {
		text string
		into *time.Time
	}{"--since": {f.since, &c.Filter.Since}, "--until": {f.until, &c.Filter.Until}} {
		if t.text == "" {
			continue
		}
		if *t.into, err = audit.ParseTime(t.text, now); err != nil {
			return nil, usagef(flag+" 36h", "%s: %w", flag, err)
		}
	}
	if code := f.filter.Code; code != "" && !slices.Contains(codeNames(), code) {
		return nil, usagef(codeHint(code), "--code: there is no code %s", name.Quote(code))
	}
	for _, k := range f.kinds {
		kind, err := audit.ParseKind(k)
		if err != nil {
			return nil, usagef("--kind start, end, refusal, event or segment", "--kind: %w", err)
		}
		c.Filter.Kinds = append(c.Filter.Kinds, kind)
	}
	return audit.New(c), nil
}

func codeNames() (out []string) {
	for _, c := range protocol.Codes() {
		out = append(out, c.String())
	}
	return out
}

// codeHint names the code that was meant, or some of those that there are.
func codeHint(s string) string {
	if upper := strings.ToUpper(s); slices.Contains(codeNames(), upper) {
		return "--code " + upper
	}
	if meant := strict.Suggest(strings.ToUpper(s), codeNames()); meant != "" {
		return "--code " + meant
	}
	return "--code " + strings.Join(codeNames(), ", ")
}

// knownPeer tells whether s is nothing, a peer ID, or the policy's name of one.
func knownPeer(s string, peers map[name.Label]name.PeerID) bool {
	if _, err := name.ParsePeerID(s); s == "" || err == nil {
		return true
	}
	label, err := name.ParseLabel(s)
	return err == nil && !peers[label].IsZero()
}

func (a *app) ledgerDir(flag string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	p, err := a.paths()
	if err != nil {
		return "", err
	}
	return p.ledger(), nil
}

// auditError names what to do about a record that cannot be read.
func auditError(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return hintf("lend serve, or --ledger DIR", "there is no ledger: %w", err)
	case errors.Is(err, ledger.ErrCorrupt):
		return &hinted{err: err, hint: "lend audit verify"}
	}
	return err
}

// linesError is auditError for a command that writes JSON lines: there are no others
// on stdout then.
func (a *app) linesError(err error) error {
	err = auditError(err)
	if err == nil || !a.json {
		return err
	}
	hint := ""
	var withHint *hinted
	if errors.As(err, &withHint) {
		hint = withHint.hint
	}
	a.problem(err.Error(), hint)
	return &statusError{1}
}

func (a *app) auditShowCommand() *cobra.Command {
	var f auditFlags
	var last int
	c := &cobra.Command{
		Use:   "show",
		Short: "show the newest records",
		Long: `Show the newest records of this machine's ledger, or of a copy (--ledger): what
was admitted and how it ended, what was refused, and what happened to the
gateway. It reads the files: a gateway may run or not. Arguments, input, output
and secrets are not recorded; arguments are where a rule says record_arguments.`,
		Example: "  lend audit show\n  lend audit show --last 200 --peer laptop --since 36h\n  lend audit show --kind refusal --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v, err := a.view(f)
			if err != nil {
				return err
			}
			records, more, err := v.Newest(last)
			if err != nil {
				return auditError(err)
			}
			page := struct {
				SchemaVersion int            `json:"schemaVersion"`
				Records       []audit.Record `json:"records"`
				More          bool           `json:"more,omitempty"`
			}{audit.SchemaVersion, append([]audit.Record{}, records...), more}
			return a.show(page, func() error { return a.printRecords(page.Records, more) })
		},
	}
	f.add(c)
	c.Flags().IntVarP(&last, "last", "n", 50, "how many records at most")
	return c
}

func (a *app) printRecords(records []audit.Record, more bool) error {
	if len(records) == 0 {
		a.note("no record matches")
		return nil
	}
	rows := [][]string{{"INDEX", "TIME", "KIND", "PEER", "COMMAND", "OPERATION", "WHAT"}}
	for i := range records {
		rows = append(rows, recordRow(&records[i]))
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if more {
		a.note("there are older ones: --last, or lend audit export")
	}
	return nil
}

func recordRow(r *audit.Record) []string {
	peer := r.PeerName
	if peer == "" && len(r.Peer) > 12 {
		peer = "…" + r.Peer[len(r.Peer)-8:]
	}
	row := []string{
		strconv.FormatUint(r.Index, 10), r.At.Local().Format("01-02 15:04:05"), string(r.Kind), peer,
		strings.TrimSpace(r.Connector + " " + r.Command), r.Operation, r.Summary(),
	}
	for i := range row {
		if row[i] == "" {
			row[i] = "-"
		}
	}
	return row
}

func (a *app) auditTailCommand() *cobra.Command {
	var f auditFlags
	var last int
	var follow bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "show the newest records, and follow",
		Long: `Show the last 10 records, one line for each, and with --follow each that comes,
until ^C. With --json, JSON lines.`,
		Example: "  lend audit tail -f\n  lend audit tail -f --kind refusal --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 0 {
				return usagef("lend audit tail -n 10", "--last: want 0 or more")
			}
			v, err := a.view(f)
			if err != nil {
				return err
			}
			records, _, err := v.Newest(max(last, 1))
			for i := range records {
				if i >= len(records)-last && err == nil {
					err = a.printRecord(&records[i])
				}
			}
			if err == nil && follow {
				err = v.Follow(cmd.Context(), a.printRecord)
			}
			return a.linesError(err)
		},
	}
	f.add(c)
	c.Flags().IntVarP(&last, "last", "n", 10, "how many records to begin with")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	return c
}

func (a *app) printRecord(r *audit.Record) error {
	if a.json {
		e := json.NewEncoder(a.out)
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	return a.say("%s", strings.Join(recordRow(r), "  "))
}

func (a *app) auditExportCommand() *cobra.Command {
	var f auditFlags
	c := &cobra.Command{
		Use:   "export",
		Short: "write all records as JSON lines",
		Long: `Write each record that is kept, oldest first, as one line of JSON. docs/audit.md
has the fields; fields are only ever added. What peers and issuers wrote is
escaped: all text is printable ASCII.`,
		Example: "  lend audit export > audit.jsonl\n  lend audit export --ledger /backup/ledger --since 2026-11-01",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := a.view(f)
			if err != nil {
				return err
			}
			out := bufio.NewWriterSize(a.out, 64<<10)
			lines := json.NewEncoder(out)
			lines.SetEscapeHTML(false)
			ctx := cmd.Context()
			err = v.Rest(func(r *audit.Record) error {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return lines.Encode(r)
			})
			return a.linesError(errors.Join(err, out.Flush()))
		},
	}
	f.add(c)
	return c
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var dir, key string
	var files []string
	c := &cobra.Command{
		Use:   "verify",
		Short: "check that no record was changed or removed",
		Long: `Check every record that is kept, in order, against the checkpoints that the
gateway signed: those in the ledger, and those that you kept elsewhere
(--checkpoint, as often as you like). It works offline, on a copy of the
directory, and needs no secret. A record that was changed, removed, added or
moved, another key, and a ledger that was cut or set back to an older copy are
found back to the newest checkpoint that you kept, and the record is named. It
says what came after that one.

Exit status: 0 all is right; 1 something is wrong; 2 it cannot be read, or a
FILE is not a checkpoint as it was signed.`,
		Example: `  lend audit verify
  lend audit verify --checkpoint /mnt/safe/lend.checkpoint
  lend audit verify --ledger /backup/ledger --checkpoint a --checkpoint b \
    --key lend/ledger/…`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key = strings.TrimSpace(key)
			if _, err := note.NewVerifier(key); err != nil && cmd.Flags().Changed("key") {
				return usagef("lend status shows it, and lend audit checkpoint", "--key: %s is not the key of a ledger", name.Quote(key))
			}
			return a.auditVerify(dir, key, files)
		},
	}
	c.Flags().StringVar(&dir, "ledger", "", "another ledger's directory than this machine's, such as a copy")
	c.Flags().StringArrayVar(&files, "checkpoint", nil, "a file with a checkpoint that was kept elsewhere; FILE.key is its key, if it is there")
	c.Flags().StringVar(&key, "key", "", `the ledger's key, as "lend status" shows it`)
	return c
}

func (a *app) auditVerify(flag, key string, files []string) error {
	dir, err := a.ledgerDir(flag)
	if err != nil {
		return err
	}
	var kept []audit.Kept
	for _, f := range files {
		k, err := audit.ReadKept(f)
		if err != nil {
			return &usageError{err: err, hint: "--checkpoint FILE"}
		}
		kept = append(kept, k)
	}
	if key != "" {
		kept = append(kept, audit.Kept{Name: "--key", Key: key})
	}
	v, err := audit.Verify(dir, kept)
	if err != nil {
		hint := "--ledger DIR"
		if len(files) > 0 {
			hint += ", --checkpoint FILE as it was kept"
		}
		return &usageError{err: err, hint: hint}
	}
	if err := a.show(v, func() error { return a.printVerdict(v) }); err != nil {
		return err
	}
	if !v.OK {
		at := ""
		if v.Index != nil {
			at = fmt.Sprintf("record %d: ", *v.Index)
		}
		a.problem("the ledger is not as it was written: "+at+v.Problem, "keep the files as they are; docs/audit.md says what it means")
		return &statusError{1}
	}
	return nil
}

func (a *app) printVerdict(v audit.Verdict) error {
	rows := [][]string{{"directory", v.Directory}}
	if v.Ledger != "" {
		rows = append(rows, []string{"ledger", fmt.Sprintf("%s, begun %s", v.Ledger, v.Begun.Local().Format(time.RFC3339))}, []string{"audit key", v.Key})
	}
	if v.OK {
		rows = append(rows, verdictRows(v)...)
	}
	return a.table(rows)
}

func verdictRows(v audit.Verdict) [][]string {
	rows := [][]string{
		{"verified", fmt.Sprintf("%s in %s", recordSpan(v.From, v.Records), count(v.Segments, "file", "files"))},
		{"found", fmt.Sprintf("%s, %s, %d not started, %d unknown, %d running, %s, %s", count(v.Starts, "start", "starts"), count(v.Ends, "end", "ends"),
			v.NotStarted, v.Unknown, v.Running, count(v.Refusals, "refusal", "refusals"), count(v.Events, "event", "events"))},
	}
	if v.Closed > 0 {
		rows = append(rows, []string{"pruned", fmt.Sprintf("%s, of %s", recordSpan(0, v.From), count(v.Closed, "invocation, which starts nothing more", "invocations, which start nothing more"))})
	}
	if v.TornTail > 0 {
		rows = append(rows, []string{"torn", bytesCount(v.TornTail) + " behind the last record, of which nobody was told"})
	}
	switch {
	case v.KeptElsewhere == 0:
		return append(rows, []string{"not covered", "no checkpoint that was kept elsewhere: a ledger that was cut or set back, or signed again by who has its key, looks the same"})
	case v.NotCovered == 0:
		return append(rows, []string{"covered", "all records, by a checkpoint that was kept elsewhere"})
	}
	return append(rows,
		[]string{"covered", fmt.Sprintf("records before %d, by a checkpoint that was kept elsewhere", v.KeptElsewhere)},
		[]string{"not covered", lastRecords(v.NotCovered) + " who has the ledger's key could have changed, or cut off later ones"})
}

// recordSpan names the records from one up to, and without, another.
func recordSpan(from, to uint64) string {
	if to == from+1 {
		return fmt.Sprintf("record %d", from)
	}
	return fmt.Sprintf("records %d to %d", from, to-1)
}

func lastRecords(n uint64) string {
	if n == 1 {
		return "the last record:"
	}
	return fmt.Sprintf("the last %d records:", n)
}

func (a *app) auditCheckpointCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint",
		Short: "sign a checkpoint of the record, to be kept elsewhere",
		Long: `Have the gateway sign a checkpoint of all that was recorded, and print it. Keep
it where who can change the ledger cannot: it proves later, with lend audit
verify, that nothing before it was changed or removed. Without a gateway that
runs, it is the newest one of the ledger. The key that verifies it goes to
stderr; keep that too, once.`,
		Example: "  lend audit checkpoint > /mnt/safe/lend.checkpoint\n  lend audit checkpoint --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.auditCheckpoint(cmd.Context()) },
	}
}

func (a *app) auditCheckpoint(ctx context.Context) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	out := struct {
		SchemaVersion int          `json:"schemaVersion"`
		Running       bool         `json:"running"`
		Checkpoint    string       `json:"checkpoint"`
		Key           string       `json:"key"`
		Kept          []admin.Kept `json:"kept,omitempty"`
	}{SchemaVersion: jsonSchema}
	s, err := admin.NewClient(p.socket).Checkpoint(ctx)
	switch {
	case err == nil:
		out.Running, out.Checkpoint, out.Key, out.Kept = true, s.Ledger.Checkpoint, s.Ledger.Key, s.Ledger.Kept
	case errors.Is(err, admin.ErrNotRunning):
		own, err := audit.ReadKept(p.ledger())
		if err != nil {
			return auditError(err)
		}
		out.Checkpoint, out.Key = string(own.Note), own.Key
	default:
		return err
	}
	return a.show(out, func() error {
		a.note("key: %s", out.Key)
		if !out.Running {
			a.note("no gateway is running here: this is the newest checkpoint of the ledger")
		}
		for _, row := range ledgerRows(admin.Ledger{Kept: out.Kept})[1:] {
			a.note("%s: %s", row[0], row[1])
		}
		_, err := fmt.Fprint(a.out, out.Checkpoint)
		return err
	})
}
