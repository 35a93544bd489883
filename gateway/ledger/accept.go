package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lendcli/lend/gateway/ledger/folder"
)

// ErrIntact says that there is no loss to accept.
var ErrIntact = errors.New("ledger is intact")

// AcceptLoss begins a new ledger in the directory of one that Open finds corrupt or
// lost, and returns the names under which the old files are kept there. The new
// ledger is born now, so that leases from before are refused: what they started may
// be forgotten. Its first event, "ledger.loss-accepted", says what was set aside.
// ErrIntact if Open would work, ErrLocked while a gateway has the directory. Cut off
// at any point, it leaves a ledger that is still lost or corrupt, or is new.
// spec: LEDGER-33.
func AcceptLoss(c Config) ([]string, error) {
	c.complete()
	aside, err := acceptLoss(c)
	if err != nil {
		return aside, fmt.Errorf("accept loss of ledger: %w", err)
	}
	return aside, nil
}

func acceptLoss(c Config) (aside []string, err error) {
	unlock, err := folder.Take(c.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	why := damage(c)
	if !errors.Is(why, ErrCorrupt) && !errors.Is(why, ErrLost) {
		return nil, why
	}
	d := folder.Folder{Path: c.Dir, Step: c.step}
	if aside, err = d.SetAside(c.Now()); err != nil {
		return aside, err
	}
	return aside, create(d, c.Now(), why.Error())
}

// damage returns what Open would.
func damage(c Config) error {
	empty, err := folder.Survey(c.Dir)
	switch {
	case err != nil:
		return err
	case empty:
		return ErrIntact
	}
	l, err := enter(c, false)
	if err != nil {
		return err
	}
	return errors.Join(ErrIntact, l.Close())
}

// create makes a new ledger, which says what lies beside it.
func create(d folder.Folder, now time.Time, why string) error {
	aside, err := folder.Aside(d.Path)
	if err != nil {
		return err
	}
	var more [][]byte
	if len(aside) > 0 {
		facts := map[string]string{"why": why, "files": strconv.Itoa(len(aside))}
		for i, n := range aside[:min(len(aside), 24)] {
			facts[fmt.Sprintf("file.%02d", i)] = n
		}
		more = append(more, Event{Name: "ledger.loss-accepted", Facts: facts}.Encode(now))
	}
	return d.Create(now, more...)
}
