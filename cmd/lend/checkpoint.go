package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/protocol/name"
)

// checkpointFlags say where checkpoints are kept besides the ledger.
type checkpointFlags struct {
	file    string
	command []string
	ledger  string // its directory
}

const (
	checkpointWait  = 10 * time.Second // for the places, when one is asked for
	mostFromProgram = 64 << 10         // of what the program writes
)

// check refuses what cannot be a second place; it makes the file's path absolute.
func (f *checkpointFlags) check(ledgerDir string) error {
	f.ledger = ledgerDir
	if f.file != "" {
		file, err := filepath.Abs(f.file)
		if err != nil {
			return fmt.Errorf("find the file of checkpoints: %w", err)
		}
		if filepath.Dir(file) == filepath.Clean(ledgerDir) {
			return usagef("--checkpoint-file on another disk or machine", "--checkpoint-file: who can change the ledger can change what is beside it")
		}
		for _, path := range []string{file, file + ".key"} {
			if err := replaceable("--checkpoint-file", path); err != nil {
				return err
			}
		}
		f.file = file
	}
	if len(f.command) == 0 {
		return nil
	}
	program := f.command[0]
	if !filepath.IsAbs(program) {
		return usagef("--checkpoint-command /usr/local/bin/keep", "--checkpoint-command %s: want the absolute path of a program", name.Quote(program))
	}
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() {
		return usagef("--checkpoint-command /usr/local/bin/keep", "--checkpoint-command %s: there is no such program", name.Quote(program))
	}
	return nil
}

// commandPlace keeps checkpoints by a program of the owner's, which reads each on its
// standard input. Its arguments are not shown: they may hold anything.
func commandPlace(t *process.Transport, argv []string, key string) audit.Place {
	s := process.Spec{Path: argv[0], Args: argv, Dir: "/", Stdin: true, Env: []string{"LEND_AUDIT_KEY=" + key}}
	for _, n := range []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"} {
		if v, ok := os.LookupEnv(n); ok {
			s.Env = append(s.Env, n+"="+v)
		}
	}
	return audit.Place{Name: "command " + name.Show(argv[0]), Keep: func(ctx context.Context, signed []byte) error {
		r, err := t.Feed(ctx, s, signed, mostFromProgram)
		switch {
		case err != nil:
			return err
		case r.Exit.Signal != "":
			return fmt.Errorf("the program was ended by %s", r.Exit.Signal)
		case r.Exit.Code != 0:
			said, _, _ := strings.Cut(strings.TrimSpace(string(r.Stderr)), "\n")
			return fmt.Errorf("the program exited with status %d: %s", r.Exit.Code, name.Show(said))
		}
		return nil
	}}
}

// keepCheckpoints begins to keep checkpoints of the ledger, if there is one.
func (s *serving) keepCheckpoints(f checkpointFlags, log zerolog.Logger) {
	if s.ledger == nil {
		return
	}
	if n := s.ledger.Recovery().TornTail; n > 0 {
		log.Warn().Int64("bytes", n).Msg("a torn tail of the ledger was cut off")
	}
	var places []audit.Place
	if f.file != "" {
		places = append(places, audit.File(f.file, s.ledger.VerifierKey(), f.ledger))
	}
	if len(f.command) > 0 {
		places = append(places, commandPlace(s.side.transport, f.command, s.ledger.VerifierKey()))
	}
	s.keeper = audit.NewKeeper(audit.KeeperConfig{
		Sign: s.ledger.Checkpoint, Size: s.ledger.Size, Key: s.ledger.VerifierKey(), Places: places,
		Event: s.node.Record, Log: log,
	})
}

// closeKeeper has a last checkpoint kept. What fails is in the log: the gateway has
// ended well all the same.
func (s *serving) closeKeeper() error {
	_ = s.keeper.Close()
	return nil
}

var errNoCheckpoint = errors.New("the gateway is locked, and has no ledger")

// Checkpoint implements admin.Backend.
func (s *serving) Checkpoint(ctx context.Context) error {
	if s.keeper == nil {
		return errNoCheckpoint
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointWait)
	defer cancel()
	_, err := s.keeper.Now(ctx)
	return err
}

// fullText is the warning of a status while the ledger has no room.
const fullText = "the disk of the ledger is full: nothing starts, what runs goes on; make room on the disk that has LEND_DIR, and it goes on by itself"

// ledgerShown is the ledger in the status of a gateway that is not locked.
func (s *serving) ledgerShown() (out admin.Ledger) {
	r := s.ledger.Recovery()
	out = admin.Ledger{Records: s.ledger.Size(), Key: s.ledger.VerifierKey(), TornTail: r.TornTail, Unknown: r.Unknown}
	if s.keeper == nil {
		return out
	}
	c := s.keeper.Newest()
	out.Checkpoint, out.CheckpointRecords, out.CheckpointAt = c.Signed, c.Records, timeOrNil(c.At)
	for _, p := range s.keeper.Places() {
		out.Kept = append(out.Kept, admin.Kept{
			Where: p.Name, Records: p.Records, At: timeOrNil(p.At), Problem: p.Problem, Since: timeOrNil(p.Since),
		})
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// ledgerRows are the lines of a status about the ledger.
func ledgerRows(l admin.Ledger) [][]string {
	rows := [][]string{{"ledger", ledgerLine(l)}}
	if l.TornTail > 0 {
		rows = append(rows, []string{"", fmt.Sprintf("a torn tail of %s was cut off when it was opened", bytesCount(l.TornTail))})
	}
	if l.Unknown > 0 {
		rows = append(rows, []string{"", count(l.Unknown, "operation", "operations") + " had no end when it was opened: outcome unknown"})
	}
	if l.CheckpointAt != nil {
		rows = append(rows, []string{"checkpoint", fmt.Sprintf("%s, %s", count(l.CheckpointRecords, "record", "records"), l.CheckpointAt.Format(time.RFC3339))})
	}
	for _, k := range l.Kept {
		line := k.Where + ": nothing yet"
		if k.At != nil {
			line = fmt.Sprintf("%s: %s, %s", k.Where, count(k.Records, "record", "records"), k.At.Format(time.RFC3339))
		}
		rows = append(rows, []string{"kept in", line})
		if k.Problem != "" {
			rows = append(rows, []string{"warning", fmt.Sprintf("checkpoints are not kept in %s since %s: %s", k.Where, k.Since.Format(time.RFC3339), k.Problem)})
		}
	}
	if l.Key != "" {
		rows = append(rows, []string{"audit key", l.Key})
	}
	return rows
}
