package checkup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/admin"
	look "github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/policy"
)

// Config says where a gateway keeps what; absolute paths. It must not be changed
// afterwards.
type Config struct {
	Identity, Owner       string // key files
	Directories           []string
	Policy                string
	Ledger                string
	Revocations, Lockdown string
	Issued                string // the leases that were issued here
	Socket                string
	Version               string // of this program
	Port                  int    // where a gateway listens unless told otherwise; 0: none
	Now                   func() time.Time
	Contracts             func() (policy.Contracts, error) // what is installed; required
	Workspace             func(path string) error          // why nothing would start in it; required
	MostLedger            int64                            // bytes that are verified; 0: MaxLedger
}

// MaxLedger is how many bytes of a record are verified, unless a Config says
// otherwise; a larger one is for lend audit verify.
const MaxLedger = 64 << 20

// checks is a Config with the one answer of the gateway that all of them share.
type checks struct {
	Config
	asked  sync.Once
	status admin.Status
	err    error
}

// Checks returns the checks, in the order in which a person reads them.
func Checks(c Config) []look.Check {
	if c.Now == nil {
		c.Now = time.Now
	}
	k := &checks{Config: c}
	return []look.Check{
		look.One("identity-key", k.identity), look.One("owner-key", k.owner),
		{Name: "directories", Run: k.directories},
		look.One("policy", k.policy),
		{Name: "workspaces", Run: k.workspaces},
		look.One("gateway", k.gateway), look.One("policy-in-force", k.inForce),
		look.One("ledger", k.ledger), look.One("checkpoint", k.checkpoint),
		look.One("revocations", k.revocations), look.One("lockdown", k.lockdown),
		look.One("leases", k.leases),
		{Name: "addresses", Run: k.addresses},
	}
}

// ask asks the gateway once, whoever is first.
func (k *checks) ask(ctx context.Context) (admin.Status, error) {
	k.asked.Do(func() { k.status, k.err = admin.NewClient(k.Socket).Status(ctx) })
	return k.status, k.err
}

// running gives a row to return if there is no gateway to ask.
func (k *checks) running(ctx context.Context) (admin.Status, *look.Row) {
	s, err := k.ask(ctx)
	switch {
	case errors.Is(err, admin.ErrNotRunning):
		return s, &look.Row{Status: look.Skip, Detail: "no gateway is running here", Fix: "lend serve"}
	case err != nil:
		return s, &look.Row{Status: look.Skip, Detail: "the gateway does not answer"}
	}
	return s, nil
}

func (k *checks) gateway(ctx context.Context) look.Row {
	s, err := k.ask(ctx)
	switch {
	case errors.Is(err, admin.ErrNotRunning):
		if _, err := os.Lstat(k.Socket); err == nil {
			return look.Row{Status: look.Warn, Detail: "none is running; one has left its socket behind, so it did not end well", Fix: "lend serve"}
		}
		return look.Row{Status: look.Skip, Detail: "none is running here", Fix: "lend serve"}
	case err != nil:
		return failed(err, "stop the process of lend serve, and start it again")
	case s.Version != k.Version:
		return look.Row{
			Status: look.Warn, Detail: fmt.Sprintf("the running gateway is lend %s, this is %s", s.Version, k.Version),
			Fix: "start lend serve again",
		}
	}
	return look.Row{Status: look.Pass, Detail: fmt.Sprintf("running since %s, lend %s", s.Started.UTC().Format(time.RFC3339), s.Version)}
}

func failed(err error, fix string) look.Row {
	return look.Row{Status: look.Fail, Detail: strings.ReplaceAll(err.Error(), "\n", "; "), Fix: fix}
}
