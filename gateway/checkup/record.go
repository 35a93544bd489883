package checkup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/issued"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/revocations"
	look "github.com/lendcli/lend/localhost/checkup"
)

const (
	acceptLoss = "restore the directory from a copy, or lend ops accept-loss"
	// soon is when a lease is about to expire.
	soon = 15 * time.Minute
	// commandPlace begins the name of a second place that a program of the owner's is.
	commandPlace = "command "
	// slack is how far a clock may be behind the newest record.
	slack = 5 * time.Second
)

// ledger says how the record is: as a running gateway has found it, then as the
// files have it.
func (k *checks) ledger(ctx context.Context) look.Row {
	bytes, err := sizeOf(k.Ledger)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && bytes == 0:
		return look.Row{Status: look.Warn, Detail: "there is no record of operations yet", Fix: "lend init"}
	case err != nil:
		return failed(err, "chmod -R u+rwX "+k.Ledger)
	}
	s, no := k.running(ctx)
	if no == nil && s.Ledger.Failed != "" {
		return look.Row{Status: look.Fail, Detail: s.Ledger.Failed, Fix: acceptLoss}
	}
	if no == nil && s.Ledger.Full {
		return look.Row{Status: look.Fail, Detail: "its disk is full: nothing starts, what runs goes on", Fix: "make room on the disk of " + k.Ledger + ": it goes on by itself"}
	}
	most := k.MostLedger
	if most == 0 {
		most = MaxLedger
	}
	if bytes > most {
		return look.Row{Status: look.Skip, Detail: fmt.Sprintf("%d bytes are too many to verify here", bytes), Fix: "lend audit verify"}
	}
	r, err := ledger.Verify(k.Ledger)
	if errors.Is(err, os.ErrNotExist) && no == nil {
		return look.Row{Status: look.Skip, Detail: "it was pruned meanwhile", Fix: "lend audit verify"}
	}
	if err != nil {
		return failed(err, acceptLoss)
	}
	if newest, err := k.newest(ctx); err == nil && newest.After(k.Now().Add(slack)) {
		return look.Row{
			Status: look.Fail, Detail: "the newest record is of " + newest.UTC().Format(time.RFC3339) + ", which the clock has not reached",
			Fix: "set the clock",
		}
	}
	detail := fmt.Sprintf("%d records as they were written, %d bytes", r.Records, bytes)
	if no == nil && s.Ledger.TornTail > 0 {
		return look.Row{Status: look.Warn, Detail: fmt.Sprintf("%s; a torn tail of %d bytes was cut off at the start", detail, s.Ledger.TornTail)}
	}
	return look.Row{Status: look.Pass, Detail: detail}
}

func (k *checks) newest(ctx context.Context) (at time.Time, err error) {
	err = ledger.Walk(k.Ledger, func(e ledger.Entry) error {
		if e.At.After(at) {
			at = e.At
		}
		return ctx.Err()
	})
	return at, err
}

func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil // it was pruned meanwhile
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

func (k *checks) checkpoint(ctx context.Context) look.Row {
	const fix = "lend serve --checkpoint-file FILE, on another disk"
	s, no := k.running(ctx)
	if no != nil {
		return *no
	}
	if len(s.Ledger.Kept) == 0 {
		return look.Row{Status: look.Warn, Detail: "it is kept in no second place: who can write the record can make up another", Fix: fix}
	}
	for _, p := range s.Ledger.Kept {
		if p.Problem != "" {
			return look.Row{Status: look.Fail, Detail: p.Where + ": " + p.Problem, Fix: "lend audit checkpoint"}
		}
	}
	detail := fmt.Sprintf("kept in %d other places", len(s.Ledger.Kept))
	if !slices.ContainsFunc(s.Ledger.Kept, func(p admin.Kept) bool { return !strings.HasPrefix(p.Where, commandPlace) }) {
		return look.Row{
			Status: look.Warn, Detail: detail + ", by programs alone: a record that was set back is not noticed at the start",
			Fix: "lend audit verify --checkpoint FILE, with what the program kept, or lend serve --checkpoint-file FILE besides",
		}
	}
	return look.Row{Status: look.Pass, Detail: detail}
}

func (k *checks) revocations(context.Context) look.Row {
	if _, err := os.Lstat(k.Identity); errors.Is(err, os.ErrNotExist) {
		return look.Row{Status: look.Skip, Detail: "there is no gateway here yet", Fix: "lend init"}
	}
	s := revocations.Open(k.Revocations, k.Lockdown)
	var down *revocations.LockdownError
	if err := s.Locked(); err != nil && !errors.As(err, &down) {
		return failed(err, "restore the file and lend unlock, or lend unlock --accept-loss --yes")
	}
	kept := "1 is kept"
	if n := len(s.Entries()); n != 1 {
		kept = fmt.Sprintf("%d are kept", n)
	}
	return look.Row{Status: look.Pass, Detail: kept}
}

func (k *checks) lockdown(context.Context) look.Row {
	down := revocations.Open(k.Revocations, k.Lockdown).Lockdown()
	if down == nil {
		return look.Row{Status: look.Pass, Detail: "there is none"}
	}
	return look.Row{Status: look.Warn, Detail: "everything is denied: " + down.Error(), Fix: "lend unlock"}
}

func (k *checks) leases(context.Context) look.Row {
	now := k.Now()
	all, err := issued.List(k.Issued, now)
	if err != nil {
		return failed(err, "lend lease list")
	}
	good, ending := 0, ""
	for i := range all {
		left := all[i].NotAfter.Sub(now)
		if left <= 0 {
			continue
		}
		good++
		if left < soon && ending == "" {
			ending = fmt.Sprintf("%s ends at %s", all[i].ID, all[i].NotAfter.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case ending != "":
		return look.Row{Status: look.Warn, Detail: fmt.Sprintf("%d have not expired; %s", good, ending), Fix: "lend lease issue, for another one"}
	case good == 0:
		return look.Row{Status: look.Skip, Detail: "none that was issued here is good", Fix: "lend lease issue --help"}
	}
	return look.Row{Status: look.Pass, Detail: fmt.Sprintf("%d have not expired", good)}
}
