package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/checkup"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/sealed"
)

// connections opens all accounts of this machine; who sits at the terminal, or a
// variable, knows the passphrase.
func (a *app) connections(p paths) (*connection.Root, error) {
	var root *connection.Root
	root, err := connection.OpenAsking(p.connections(), func(fresh bool) ([]byte, error) {
		if !fresh {
			return a.passphrase()
		}
		if src, err := root.Sealed().Source(); err == nil && src.Kind == sealed.Passphrase {
			return a.newPassphrase()
		}
		return a.firstPassphrase()
	})
	return root, orHint(err, checkup.PrivateFix(p.connections()))
}

// secretHint is what to do next about secrets that cannot be had.
func secretHint(err error) string {
	switch {
	case errors.Is(err, sealed.ErrNoSource), errors.Is(err, connection.ErrPlain):
		return "lend init"
	case errors.Is(err, sealed.ErrLocked):
		return "lend connector secret key"
	default:
		return ""
	}
}

// secretsLockedHere is secretsLocked for a command that asks nobody: a passphrase that
// is not given is the gateway's to know.
func (a *app) secretsLockedHere(s *install.Store) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	root, err := a.connections(p)
	if err != nil {
		return err
	}
	if src, err := root.Sealed().Source(); err == nil && src.Kind == sealed.Passphrase && !passphraseGiven() {
		return nil
	}
	return secretsLocked(s, root)
}

// passphraseGiven tells whether a variable has the passphrase, so that nobody is asked.
func passphraseGiven() bool {
	_, text := os.LookupEnv("LEND_PASSPHRASE")
	_, fd := os.LookupEnv("LEND_PASSPHRASE_FD")
	return text || fd
}

// keySource reads a source as the owner writes it: the path may be relative.
func keySource(s string) (sealed.Source, error) {
	if path, ok := strings.CutPrefix(s, string(sealed.Age)+":"); ok && path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return sealed.Source{}, err
		}
		s = string(sealed.Age) + ":" + abs
	}
	if strings.HasPrefix(s, string(sealed.Passphrase)+":") {
		return sealed.Source{}, usagef("passphrase alone, which is asked for", "a passphrase is never an argument, where others can see it: take another one")
	}
	src, err := sealed.ParseSource(s)
	if err != nil {
		return src, &usageError{err: err, hint: "keyfile, age:FILE, passphrase or keyring"}
	}
	return src, nil
}

// chooseKeySource chooses the source that is named, or keyfile, if none was chosen
// before, and seals what an earlier version stored as it was.
func (a *app) chooseKeySource(p paths, named string) (sealed.Source, error) {
	chosen := named != ""
	if !chosen {
		named = string(sealed.KeyFile)
	}
	want, err := keySource(named)
	if err != nil {
		return sealed.Source{}, err
	}
	root, err := a.connections(p)
	if err != nil {
		return sealed.Source{}, err
	}
	have, err := root.Sealed().Source()
	switch {
	case errors.Is(err, sealed.ErrNoSource):
		if err := root.Sealed().Create(want); err != nil {
			return sealed.Source{}, orHint(err, "lend init --key-source age:FILE, or passphrase, or keyfile")
		}
		have = want
	case err != nil:
		return sealed.Source{}, orHint(err, checkup.KeyFix(root))
	case want != have && chosen:
		return sealed.Source{}, usagef("lend connector secret key set "+want.String(), "the key source is %s already", have)
	}
	n, err := root.SealPlain()
	if n > 0 {
		a.note("lend: %s sealed now", count(n, "secret of an earlier version is", "secrets of an earlier version are"))
	}
	return have, err
}

func (a *app) secretKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "show, change and renew what the secrets are sealed with",
		Long: `Secrets are sealed with a key that comes from exactly one place. Without it
nothing that needs a secret starts; no other place is tried.

  keyfile     a file beside the secrets: weak, whoever copies one has the other
  age:FILE    a file of age identities, better on another disk
  passphrase  asked on the terminal, or read from the descriptor that
              LEND_PASSPHRASE_FD names, or from LEND_PASSPHRASE
  keyring     the login keyring of this system

A gateway with a passphrase is started by whoever knows it. After a change of
the passphrase, start it again.`,
		Example: `  lend connector secret key
  lend connector secret key set age:/media/stick/identity.txt
  LEND_PASSPHRASE_FD=3 lend serve 3< passphrase.txt
  lend connector secret key renew`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withConnections(func(root *connection.Root) error {
				locked := root.Sealed().Check()
				if err := a.showKey(root.Sealed(), locked); err != nil || locked == nil {
					return orHint(err, checkup.KeyFix(root))
				}
				a.note("lend: hint: %s", checkup.KeyFix(root))
				return nil
			})
		},
	}
	set := &cobra.Command{
		Use:   "set SOURCE",
		Short: "take the key of the secrets from another place",
		Long: `Wrap the key with another source, or with the same one anew. The old source is
needed once more; a new passphrase is asked for, or comes from
LEND_NEW_PASSPHRASE_FD or LEND_NEW_PASSPHRASE. It may be stopped at any moment.`,
		Example: `  lend connector secret key set passphrase
  lend connector secret key set age:/media/stick/identity.txt
  lend connector secret key set keyring --json`,
		Args: noSecret(1),
		RunE: func(_ *cobra.Command, args []string) error {
			src, err := keySource(args[0])
			if err != nil {
				return err
			}
			return a.withSealed(func(s *sealed.Store) error {
				if err := s.Rewrap(src); err != nil {
					return orHint(err, "lend connector secret key set --help")
				}
				return a.showKey(s, nil)
			})
		},
	}
	renew := &cobra.Command{
		Use:   "renew",
		Short: "seal all secrets again with a new key",
		Long: `Make a new key, seal every secret with it, and drop the old one. The source
stays. It may be stopped at any moment and run again; nothing is lost.`,
		Example: "  lend connector secret key renew",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withSealed(func(s *sealed.Store) error {
				if err := s.Rotate(); err != nil {
					return orHint(err, "lend connector secret key, then lend doctor")
				}
				return a.showKey(s, nil)
			})
		},
	}
	c.AddCommand(set, renew)
	return c
}

func (a *app) withSealed(f func(*sealed.Store) error) error {
	return a.withConnections(func(root *connection.Root) error { return f(root.Sealed()) })
}

func (a *app) withConnections(f func(*connection.Root) error) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	root, err := a.connections(p)
	if err != nil {
		return err
	}
	return f(root)
}

// showKey tells about the source; locked is why nothing can be opened, or nil.
func (a *app) showKey(s *sealed.Store, locked error) error {
	src, err := s.Source()
	if err != nil {
		return err
	}
	r := struct {
		SchemaVersion int    `json:"schemaVersion"`
		Source        string `json:"source"`
		Weak          bool   `json:"weak"`
		Locked        bool   `json:"locked"`
		Reason        string `json:"reason,omitempty"`
	}{jsonSchema, src.String(), src.Weak(), locked != nil, ""}
	state := "open"
	if locked != nil {
		r.Reason, state = locked.Error(), "locked: "+locked.Error()
	}
	return a.show(r, func() error {
		weak := ""
		if r.Weak {
			weak = " (weak: it lies beside the secrets)"
		}
		return a.say("source  %s%s\nstate   %s", r.Source, weak, state)
	})
}
