package sealed

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// Kind is where the key that wraps the data keys comes from.
type Kind string

// The kinds of sources.
const (
	// KeyFile is a file beside the store. It is weak: who copies the directory has
	// the key. It keeps values from being swapped, and out of a grep.
	KeyFile Kind = "keyfile"
	// Age is a file of age identities, elsewhere.
	Age Kind = "age"
	// Passphrase is asked for; see Ask.
	Passphrase Kind = "passphrase"
	// Keyring is the login keyring of the operating system.
	Keyring Kind = "keyring"
)

// Source is the one place that the wrapping key comes from.
type Source struct {
	Kind Kind
	// Identity is the absolute path of a file of age identities; only with Age.
	Identity string
}

// String returns what ParseSource reads.
func (s Source) String() string {
	if s.Kind == Age {
		return string(Age) + ":" + s.Identity
	}
	return string(s.Kind)
}

// Weak tells whether the key lies beside what it seals.
func (s Source) Weak() bool { return s.Kind == KeyFile }

// ParseSource reads "keyfile", "age:ABSOLUTE-PATH", "passphrase" or "keyring"; else
// ErrInvalid.
func ParseSource(s string) (Source, error) {
	kind, path, _ := strings.Cut(s, ":")
	src := Source{Kind: Kind(kind), Identity: path}
	if err := src.check(); err != nil || src.String() != s {
		return Source{}, fmt.Errorf("key source %s: want keyfile, age:ABSOLUTE-PATH, passphrase or keyring: %w", name.Quote(s), ErrInvalid)
	}
	return src, nil
}

func (s Source) check() error {
	switch s.Kind {
	case KeyFile, Passphrase, Keyring:
		if s.Identity == "" {
			return nil
		}
	case Age:
		if filepath.IsAbs(s.Identity) && filepath.Clean(s.Identity) == s.Identity && len(s.Identity) <= maxPath {
			return nil
		}
	}
	return fmt.Errorf("key source: %w", ErrInvalid)
}

const maxPath = 4096

// Ask returns the passphrase; fresh means that it is a new one, which is not yet in
// use. It may be called more than once and concurrently. An error means that there
// is none to be had.
type Ask func(fresh bool) ([]byte, error)
